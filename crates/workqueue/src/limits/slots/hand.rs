//! How a thread takes steps: the words of [`rules`](crate::limits::rules), as atomics.

use super::words::{Group, ONE_ACTIVE, Set, free_of};
use super::{Slots, Spot, Waits};
use crate::limits::Started;
use crate::limits::fronts::Fronts;
use crate::limits::rules::{Touch, Tuning, Words};
use inflight_sync::asym;
use inflight_sync::atomic::{AtomicUsize, Ordering, fence};

/// A thread that takes steps on one set of tokens. Front ends are those of the queue.
pub(super) struct Hand<'a, T> {
    pub(super) slots: &'a Slots<T>,
    pub(super) set: usize,
}

impl<'a, T> Hand<'a, T> {
    fn set(&self) -> &'a Set<T> {
        &self.slots.sets[self.set]
    }

    fn at(&self, group: usize) -> &'a Group<T> {
        &self.set().groups[group]
    }
}

impl<T: Waits> Hand<'_, T> {
    /// J, and the fence.
    pub(super) fn join_each(&mut self, spot: Spot, items: impl Iterator<Item = T>) {
        let (bit, at) = (1 << spot.group, spot.at);
        let group = self.at(spot.group);
        {
            let mut line = group.line.lock();
            for item in items {
                let fronts = line.with(at);
                item.waits_at(fronts.inside(at).next_ticket());
                fronts.join(at, item);
            }
            group.tell(&line);
            // Relaxed: as for all words. The mark is written under the lock.
            if !self.is_alone() && self.starving() & bit == 0 {
                self.set().starving.fetch_or(bit, Ordering::Relaxed);
                self.touched(Touch::Mark);
            }
        }
        // Ordering: between J and B; pairs with the one between R2 and R3.
        fence(Ordering::SeqCst);
    }
}

// Relaxed throughout: tokens order nothing, and what two threads have to see of each other stands
// on both sides of the fences in `join_each` and `fence`.
impl<T: Waits> Words<T> for Hand<'_, T> {
    fn groups(&self) -> usize {
        self.set().groups.len()
    }

    fn tuning(&self) -> &Tuning {
        &self.set().tuning
    }

    fn limit(&self) -> usize {
        self.set().limit.load(Ordering::Relaxed)
    }

    fn is_central(&self) -> bool {
        self.set().central.load(Ordering::Relaxed)
    }

    fn debt(&self) -> usize {
        self.set().debt.load(Ordering::Relaxed)
    }

    fn starving(&self) -> u64 {
        self.set().starving.load(Ordering::Relaxed)
    }

    fn active(&self, group: usize) -> usize {
        self.at(group).active()
    }

    fn weight(&self, group: usize) -> usize {
        self.at(group).weight()
    }

    fn high(&self, group: usize) -> usize {
        self.at(group).high.load(Ordering::Relaxed)
    }

    fn peak(&self, group: usize) -> usize {
        self.at(group).peak.load(Ordering::Relaxed)
    }

    fn set_peak(&mut self, group: usize, peak: usize) {
        self.at(group).peak.store(peak, Ordering::Relaxed);
    }

    fn grace(&self, group: usize) -> u32 {
        self.at(group).grace.load(Ordering::Relaxed)
    }

    fn set_grace(&mut self, group: usize, grace: u32) {
        self.at(group).grace.store(grace, Ordering::Relaxed);
    }

    fn take_free(&mut self, group: usize, part: impl Fn(usize) -> usize) -> usize {
        let mut taken = 0;
        let take = |held| {
            taken = part(free_of(held));
            (taken > 0).then(|| held - taken as u64)
        };
        let held = &self.at(group).held;
        match held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => taken,
            Err(_) => 0,
        }
    }

    fn add_free(&mut self, group: usize, tokens: usize) {
        let held = &self.at(group).held;
        held.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    fn take_spare(&mut self, part: impl Fn(usize) -> usize) -> usize {
        take(&self.set().spare, part)
    }

    fn add_spare(&mut self, tokens: usize) {
        self.set().spare.fetch_add(tokens, Ordering::Relaxed);
    }

    fn pay(&mut self, tokens: usize) -> usize {
        take(&self.set().debt, |debt| debt.min(tokens))
    }

    fn count(&mut self, group: usize) {
        let held = &self.at(group).held;
        held.fetch_add(ONE_ACTIVE, Ordering::Relaxed);
    }

    fn group(&self, front: usize) -> usize {
        self.slots.spot_of(front).group
    }

    fn must_wait(&self, front: usize) -> bool {
        self.has_line(self.group(front))
    }

    fn has_line(&self, group: usize) -> bool {
        self.at(group).waiting.load(Ordering::Relaxed) > 0
    }

    fn start(&mut self, _front: usize) {}

    fn join(&mut self, front: usize, item: T) {
        self.join_each(self.slots.spot_of(front), std::iter::once(item));
    }

    fn finish(&mut self, front: usize) -> usize {
        let group = self.group(front);
        let held = &self.at(group).held;
        held.fetch_sub(ONE_ACTIVE, Ordering::Relaxed);
        group
    }

    fn serve(&mut self, group: usize, tokens: usize, started: &mut Started<'_, T>) -> usize {
        let next = |fronts: &mut Fronts<T>| fronts.next(0);
        self.at(group).serve(tokens, started, next)
    }

    fn serve_or_unmark(&mut self, group: usize, started: &mut Started<'_, T>) -> bool {
        let bit = 1 << group;
        let group = self.at(group);
        let mut line = group.line.lock();
        let mut next = |fronts: &mut Fronts<T>| fronts.next(0);
        if group.serve_locked(&mut line, 1, started, &mut next) == 1 {
            return true;
        }
        // The mark of a line that is held is still needed.
        if self.starving() & bit != 0 && !line.held {
            self.set().starving.fetch_and(!bit, Ordering::Relaxed);
            self.touched(Touch::Mark);
        }
        false
    }

    fn fence(&self) {
        // Ordering: between R2 and R3; pairs with the one between J and B, and with that of whoever
        // lowers the limit. What is published here is published by a read-modify-write.
        asym::fence_after_rmw();
    }

    fn touched(&mut self, what: Touch) {
        #[cfg(all(test, not(any(loom, shuttle))))]
        self.set().touches[what as usize].fetch_add(1, Ordering::Relaxed);
        let _ = what;
    }
}

/// Takes a part of a count.
fn take(count: &AtomicUsize, part: impl Fn(usize) -> usize) -> usize {
    let mut taken = 0;
    let take = |now| {
        taken = part(now);
        (taken > 0).then(|| now - taken)
    };
    // Relaxed: as for all words.
    match count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
        Ok(_) => taken,
        Err(_) => 0,
    }
}
