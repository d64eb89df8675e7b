//! Batches under the lock: taking, settling, recalling, putting back, parking.

use super::{PoolState, WorkerPool};
use crate::batch::{Entry, bit, bits};
use crate::item::Parked;
use crate::pool_core::{PoolCore, PwqIndex, WorkerId};
use crate::pwq::{Batch, BatchTaken, Pwq, Taken};
use inflight_sync::{Arc, MutexGuard};
use std::ptr::NonNull;

impl PoolState {
    /// *take*: entries into the worker's batch, which is settled.
    #[inline]
    pub(crate) fn take(&mut self, worker: WorkerId, batch: &Batch) -> BatchTaken {
        let pwqs = &self.pwqs;
        let mut fill = batch.fill();
        self.core.take(worker, |index, places| {
            let pwq = pwqs[index as usize]
                .as_ref()
                .expect("a pwq with entries exists");
            fill.extend(NonNull::from(&**pwq), places);
        });
        // For appends without the lock.
        for index in self.core.emptied() {
            self.pwq(*index).set_queued(false);
        }
        fill.finish()
    }

    /// *take* of one entry of that pwq, which is listed.
    pub(crate) fn take_one(&mut self, worker: WorkerId, batch: &Batch, index: PwqIndex) {
        self.core.bring_to_front(index);
        self.core.set_batching(false);
        self.take(worker, batch);
        self.core.set_batching(self.watched);
    }

    /// *settle*: the entries of the batch below `upto` have ended.
    fn settle(&mut self, worker: WorkerId, batch: &Batch, upto: u32) {
        let me = self.core.workers.get_mut(worker);
        let from = std::mem::replace(&mut me.settled, upto);
        let among = bits(from, upto);
        let counted_later = me.counted_later & among;
        me.counted_later &= !among;
        for_each_group(batch, from, upto, counted_later, |group| {
            self.account(&group)
        });
    }

    #[inline]
    fn account(&mut self, run: &SettledTogether) {
        // SAFETY: an entry that is not settled keeps the pwq alive.
        let index = unsafe { run.pwq.as_ref() }.index;
        if run.appended > 0 {
            self.core.pwq_mut(index).count_queued(run.appended);
        }
        self.core.ended(index, run.colour, run.counted, run.ran);
    }

    /// Returns entries that did not run to the heads of their pwqs, in their order.
    fn put_back(&mut self, batch: &Batch, from: u32, to: u32) {
        for i in (0..to.wrapping_sub(from)).rev() {
            self.put_back_one(batch.get(from.wrapping_add(i)), PoolCore::put_back);
        }
    }

    /// Entries appended while a *recall* took back others: behind those, and what came since.
    fn put_behind(&mut self, batch: &Batch, from: u32, to: u32) {
        for i in 0..to.wrapping_sub(from) {
            self.put_back_one(batch.get(from.wrapping_add(i)), PoolCore::put_behind);
        }
    }

    fn put_back_one(&mut self, taken: Taken, put: fn(&mut PoolCore<Entry>, PwqIndex, Entry)) {
        let Taken { mut entry, pwq } = taken;
        // SAFETY: as in `account`.
        let pwq = unsafe { pwq.as_ref() };
        // SAFETY: the entry keeps its item alive.
        let word = unsafe { entry.item.header() }.load();
        self.count(pwq.index, &mut entry);
        if crate::item::word::is_live(word, entry.seq()) {
            pwq.set_queued(true);
            put(&mut self.core, pwq.index, entry);
        } else {
            self.core.ended(pwq.index, entry.colour(), 1, 0);
            self.stale.push(entry.item);
        }
    }

    /// Counts an appended entry as in flight.
    fn count(&mut self, index: PwqIndex, entry: &mut Entry) {
        if !entry.is_counted() {
            entry.set_counted();
            self.core.pwq_mut(index).enter_as(entry.colour(), 1);
        }
    }

    /// The entry that the worker runs stays: counts it now if it was appended.
    fn count_running(&mut self, worker: WorkerId, batch: &Batch, i: u32) -> PwqIndex {
        let Taken { mut entry, pwq } = batch.get(i);
        // SAFETY: as in `account`.
        let index = unsafe { pwq.as_ref() }.index;
        let counted_later = &mut self.core.workers.get_mut(worker).counted_later;
        if *counted_later & bit(i) == 0 && !entry.is_counted() {
            *counted_later |= bit(i);
            self.count(index, &mut entry);
        }
        index
    }

    pub(crate) fn has_batch(&self, worker: WorkerId) -> bool {
        let settled = self.core.workers.get(worker).settled;
        let thread = self.known_thread(worker);
        thread.is_some_and(|thread| thread.shared.batch.end() != settled)
    }

    /// The entries of a worker's batch that are not settled and have not been put back.
    pub(super) fn entries(&self, worker: WorkerId) -> impl Iterator<Item = (u32, Taken)> {
        let w = self.core.workers.get(worker);
        let (settled, recalled) = (w.settled, w.recalled);
        let entries = self.known_thread(worker).map(|thread| {
            let batch = &thread.shared.batch;
            let is_there = move |i: u32| match recalled {
                Some((from, to)) => {
                    let at = i.wrapping_sub(settled);
                    at < from.wrapping_sub(settled) || at >= to.wrapping_sub(settled)
                }
                None => true,
            };
            let all = (0..batch.end().wrapping_sub(settled)).map(move |k| settled.wrapping_add(k));
            all.filter(move |i| is_there(*i)).map(|i| (i, batch.get(i)))
        });
        entries.into_iter().flatten()
    }

    /// *recall*: takes back what these have not begun, settles the rest. One heavy fence for all.
    pub(crate) fn recall(&mut self, workers: &[WorkerId]) {
        let mut fence = None;
        for worker in workers {
            if self.core.workers.get(*worker).recalled.is_none() {
                let batch = &self.thread(*worker).shared.batch;
                batch.recall();
                fence = Some(batch);
            }
        }
        if let Some(batch) = fence {
            batch.fence();
        }
        workers
            .iter()
            .for_each(|worker| self.take_recalled(*worker));
    }

    /// *recall* of one worker, after the fence.
    fn take_recalled(&mut self, worker: WorkerId) {
        let shared = self.thread(worker).shared.clone();
        let batch = &shared.batch;
        let before = self.core.workers.get(worker).recalled;
        let to = batch.end();
        let first = before.map_or_else(|| batch.next(), |(first, _)| first);
        self.core.workers.get_mut(worker).recalled = Some((first, to));
        let mut except = None;
        let runs = self.core.workers.get(worker).settled != first;
        if runs {
            // Entries below the one before `first` have ended; that one may run.
            except = Some(self.count_running(worker, batch, first.wrapping_sub(1)));
        }
        match before {
            // Not noticed yet: until then the owner starts nothing.
            Some((_, from)) => self.put_behind(batch, from, to),
            None => self.put_back(batch, first, to),
        }
        if runs {
            self.settle(worker, batch, first.wrapping_sub(1));
        }
        self.core.release_held(worker, except);
    }

    /// Takes back what workers have not begun, from all batches with an entry that `of` accepts.
    pub(crate) fn recall_all(&mut self, of: impl Fn(&Pwq) -> bool) {
        let is_one = |(_, taken): (u32, Taken)| {
            // SAFETY: as in `account`.
            of(unsafe { taken.pwq.as_ref() })
        };
        self.recall_those(|state, worker| state.entries(worker).any(is_one));
    }

    /// *recall* of the workers that `are_so` accepts.
    pub(super) fn recall_those(&mut self, mut are_so: impl FnMut(&mut Self, WorkerId) -> bool) {
        let mut chosen = std::mem::take(&mut self.chosen);
        chosen.extend(self.core.workers.iter().map(|(worker, _)| worker));
        chosen.retain(|worker| are_so(self, *worker));
        self.recall(&chosen);
        chosen.clear();
        self.chosen = chosen;
    }

    /// For the owner, which runs entry `i`: puts back those behind it, settles those before.
    fn put_back_rest(&mut self, worker: WorkerId, batch: &Batch, i: u32) -> PwqIndex {
        let index = self.count_running(worker, batch, i);
        let behind = i.wrapping_add(1);
        match self.core.workers.get_mut(worker).recalled.take() {
            Some((_, to)) => self.put_behind(batch, to, batch.end()),
            None => self.put_back(batch, behind, batch.end()),
        }
        self.settle(worker, batch, i);
        batch.resume(behind);
        index
    }

    /// For the owner: it has run all its entries, which `settlement` has counted.
    #[inline]
    pub(crate) fn end_batch(&mut self, worker: WorkerId, batch: &Batch, settlement: &Settlement) {
        let end = batch.end();
        let me = self.core.workers.get_mut(worker);
        if me.recalled.is_some() {
            return self.end_recalled_batch(worker, batch);
        }
        if me.settled != end {
            if (me.settled, end) == (settlement.from, settlement.upto) && me.counted_later == 0 {
                me.settled = end;
                settlement
                    .groups
                    .iter()
                    .for_each(|group| self.account(group));
            } else {
                self.settle(worker, batch, end);
            }
            self.core.release_held(worker, None);
        }
        self.core.workers.clear_flags(worker);
    }

    /// The same if others have put back what the owner had not begun.
    #[cold]
    fn end_recalled_batch(&mut self, worker: WorkerId, batch: &Batch) {
        let me = self.core.workers.get_mut(worker);
        let (from, to) = me.recalled.take().expect("checked by the caller");
        debug_assert_eq!(
            to,
            batch.end(),
            "who appends after a recall gives it back at once"
        );
        self.settle(worker, batch, from);
        self.core.release_held(worker, None);
        self.core.workers.clear_flags(worker);
        batch.resume(from);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SettledTogether {
    /// Alive until they are settled.
    pwq: NonNull<Pwq>,
    colour: u8,
    /// Those that their pwq counts as in flight.
    counted: usize,
    /// The others, which the batch has appended. Entries of the same colour that are counted are
    /// settled with them or later.
    appended: usize,
    ran: usize,
}

/// What has ended of a batch, added up by the owner before it takes the lock.
#[derive(Default)]
pub(crate) struct Settlement {
    from: u32,
    upto: u32,
    groups: Vec<SettledTogether>,
}

impl Settlement {
    /// For the owner, without the lock: it has run all its entries.
    #[inline]
    pub(crate) fn count_all(&mut self, batch: &Batch, from: u32, taken: &BatchTaken) {
        (self.from, self.upto) = (from, batch.end());
        self.groups.clear();
        let Some((pwq, colour)) = taken.common.filter(|_| batch.has_skipped_none()) else {
            return for_each_group(batch, from, self.upto, 0, |group| self.groups.push(group));
        };
        // What its items appended has the same pwq and colour.
        let ran = self.upto.wrapping_sub(from) as usize;
        // Fewer if the rest was recalled.
        let counted = taken.entries.min(ran);
        self.groups.push(SettledTogether {
            pwq,
            colour,
            counted,
            appended: ran - counted,
            ran,
        });
    }
}

/// Calls `each` with the groups of these entries of a batch, in their order.
#[inline]
fn for_each_group(
    batch: &Batch,
    from: u32,
    upto: u32,
    counted_later: u64,
    mut each: impl FnMut(SettledTogether),
) {
    let mut last: Option<SettledTogether> = None;
    for i in 0..upto.wrapping_sub(from) {
        let i = from.wrapping_add(i);
        let Taken { entry, pwq } = batch.get(i);
        let counted = entry.is_counted() || counted_later & bit(i) != 0;
        let ran = usize::from(!batch.is_skipped(i));
        let same = |run: &&mut SettledTogether| (run.pwq, run.colour) == (pwq, entry.colour());
        if let Some(group) = last.as_mut().filter(same) {
            group.counted += usize::from(counted);
            group.appended += usize::from(!counted);
            group.ran += ran;
        } else {
            let next = SettledTogether {
                pwq,
                colour: entry.colour(),
                counted: usize::from(counted),
                appended: usize::from(!counted),
                ran,
            };
            last.replace(next).into_iter().for_each(&mut each);
        }
    }
    last.into_iter().for_each(each);
}

impl WorkerPool {
    /// The owner started `i` of a recalled batch. `true`: it owns that, and nothing behind.
    #[cold]
    pub(crate) fn answer_recall(&self, worker: WorkerId, batch: &Batch, i: u32) -> bool {
        let mut state = self.lock();
        let recalled = state.core.workers.get(worker).recalled;
        let (from, _) = recalled.expect("the batch was recalled");
        let is_own = from != i;
        if is_own {
            let index = state.put_back_rest(worker, batch, i);
            state.core.release_held(worker, Some(index));
        } else {
            state.end_recalled_batch(worker, batch);
        }
        self.unlock(state, false);
        is_own
    }

    /// For the owner, which runs entry `i`: gives back the entries behind it, because it is about
    /// to sleep (*block*) or has appended behind a recall. For a guest this is the pool of the
    /// entries, not the one in which the guest counts.
    pub(crate) fn return_batch(
        &self,
        worker: WorkerId,
        batch: &Batch,
        i: u32,
    ) -> MutexGuard<'_, PoolState> {
        let mut state = self.lock();
        let index = state.put_back_rest(worker, batch, i);
        state.core.release_held(worker, Some(index));
        state
    }

    /// *park*: entry `i` was taken while its item runs elsewhere. Stores it in the item, with its
    /// slot and its colour, and puts back the entries behind it. `false`: the item no longer runs,
    /// or the queueing was cancelled; the caller tries to run it again.
    #[cold]
    pub(crate) fn park_entry(&self, worker: WorkerId, batch: &Batch, i: u32) -> bool {
        let mut state = self.lock();
        let Taken { entry, .. } = batch.get(i);
        // SAFETY: the entry keeps its item alive.
        if !unsafe { entry.item.header() }.park(entry.seq(), entry.colour()) {
            return false;
        }
        let index = state.put_back_rest(worker, batch, i);
        // The batch no longer owns the slot and the colour.
        state.core.transfer_slot(worker, index);
        state.core.release_held(worker, None);
        let me = state.core.workers.get_mut(worker);
        me.settled = i.wrapping_add(1);
        me.counted_later &= !bit(i);
        self.unlock(state, false);
        true
    }

    /// *put back*, by the runner whose end has cleared PARKED: returns the entry to the head of its
    /// pwq. A cancel meanwhile has left a reference with it.
    #[cold]
    pub(crate) fn unpark_entry(&self, pwq: &Arc<Pwq>, item: crate::item::ItemPtr, parked: Parked) {
        let mut state = self.lock();
        let entry = Entry::new(item, parked.seq, parked.colour);
        // SAFETY: PENDING keeps the item alive, or the reference that a cancel has left.
        let word = unsafe { item.header() }.load();
        let live = crate::item::word::is_live(word, parked.seq);
        if live {
            pwq.set_queued(true);
            state.core.unpark(pwq.index, entry);
        } else {
            state.core.ended(pwq.index, parked.colour, 1, 0);
            state.core.release_slot(pwq.index);
        }
        self.unlock(state, false);
        if !live {
            // SAFETY: as above.
            unsafe { item.release() };
        }
    }
}
