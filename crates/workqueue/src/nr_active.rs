//! `max_active`: whether a pwq may run more entries. The limit is the pwq's own, or shared by
//! several. A shared one counts the slots in use and lists the pwqs that wait for one.
//!
//! `PROTOCOL.md`, part *slot and pending*, has the steps A1 to A4 of *acquire* and R1 to R4 of
//! *release*, and proves that no slot and no pwq is lost. The thread that takes a pwq off the list
//! has a slot for it, and carries the slot to the pwq's pool without a lock.

use crate::pool_core::{PoolItem, PwqState};
use crate::shrink::shrink_ring;
use inflight_sync::asym::fence_after_rmw;
use inflight_sync::atomic::{AtomicUsize, Ordering, fence};
use inflight_sync::{Arc, Mutex};
use std::collections::VecDeque;

/// Identifies a pwq where there is no pointer to it.
pub type PwqId = u32;

/// How many pwqs can wait repeatedly without an allocation.
const ROOM: usize = 64;

/// How many batches with entries of a pwq there may be at once.
#[derive(Clone, Debug)]
pub enum Limit {
    /// The pwq has its own slots.
    Own {
        /// The number of slots; `usize::MAX` for any number.
        max: usize,
        /// Slots in use.
        used: usize,
    },
    /// The pwq shares slots with others.
    Shared(Arc<NrActive>),
}

impl Limit {
    /// So many slots, all free.
    #[must_use]
    pub const fn own(max: usize) -> Self {
        Self::Own { max, used: 0 }
    }
}

impl<T: PoolItem> PwqState<T> {
    #[inline]
    pub(crate) fn acquire_slot(&mut self) -> bool {
        match &mut self.limit {
            Limit::Own { max, used } => {
                let free = *used < *max;
                *used += usize::from(free);
                free
            }
            Limit::Shared(_) if self.pending => false,
            Limit::Shared(nr_active) => {
                self.pending = !nr_active.acquire(self.id);
                !self.pending
            }
        }
    }

    /// Slots in use, and all slots.
    fn level(&self) -> (usize, usize) {
        match &self.limit {
            Limit::Own { max, used } => (*used, *max),
            Limit::Shared(nr_active) => nr_active.level(),
        }
    }

    pub(crate) fn free_slots(&self) -> usize {
        let (nr, max) = self.level();
        max.saturating_sub(nr)
    }

    /// Whether more slots are in use than there are: the limit has been lowered.
    pub(crate) fn is_above_limit(&self) -> bool {
        let (nr, max) = self.level();
        nr > max
    }

    /// Whether another pwq waits for a slot of the same limit.
    pub(crate) fn slot_is_wanted(&self) -> bool {
        matches!(&self.limit, Limit::Shared(nr_active) if nr_active.has_pending())
    }
}

/// A limit for the batches of several pwqs.
#[derive(Debug)]
pub struct NrActive {
    nr: AtomicUsize,
    max: AtomicUsize,
    /// The length of `pending`; written under its lock.
    waiting: AtomicUsize,
    pending: Mutex<VecDeque<PwqId>>,
}

impl NrActive {
    /// A limit of `max` slots, all free.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            nr: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            waiting: AtomicUsize::new(0),
            pending: Mutex::new(VecDeque::new()),
        }
    }

    fn take(&self) -> bool {
        let more = |nr| (nr < self.max.load(Ordering::Relaxed)).then_some(nr + 1);
        // Ordering: Acquire, pairs with the Release of `release`: with a limit of one, each batch
        // sees what the batch before it did.
        self.nr
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Takes a slot if one is free and no pwq waits.
    pub fn try_acquire(&self) -> bool {
        !self.has_pending() && self.take()
    }

    /// Takes a slot for a pwq that does not wait; `false` if it now waits, behind the others.
    pub fn acquire(&self, pwq: PwqId) -> bool {
        if self.try_acquire() {
            return true;
        }
        let mut pending = self.pending.lock();
        pending.push_back(pwq);
        self.waiting.store(pending.len(), Ordering::Relaxed);
        // Ordering: A3, pairs with the fence in `release` (R2).
        fence(Ordering::SeqCst);
        if pending.len() > 1 || !self.take() {
            return false;
        }
        pending.pop_back();
        self.waiting.store(pending.len(), Ordering::Relaxed);
        true
    }

    /// Returns a slot. The result is the waiting pwq that gets it, if there is one.
    #[must_use = "the slot is that pwq's"]
    pub fn release(&self) -> Option<PwqId> {
        // Ordering: R1, Release, pairs with the Acquire of `take`.
        self.nr.fetch_sub(1, Ordering::Release);
        // Ordering: R2, pairs with the fence in `acquire` (A3).
        fence_after_rmw();
        self.next()
    }

    /// Takes a slot for the first waiting pwq and returns that pwq, if there are both.
    pub fn next(&self) -> Option<PwqId> {
        if !self.has_pending() {
            return None;
        }
        let mut pending = self.pending.lock();
        if pending.is_empty() || !self.take() {
            return None;
        }
        let pwq = pending.pop_front();
        shrink_ring(&mut pending, ROOM);
        self.waiting.store(pending.len(), Ordering::Relaxed);
        pwq
    }

    /// The pwq no longer waits. `false` if it has been given a slot.
    pub fn forget(&self, pwq: PwqId) -> bool {
        let mut pending = self.pending.lock();
        let at = pending.iter().position(|p| *p == pwq);
        if let Some(at) = at {
            pending.remove(at);
            shrink_ring(&mut pending, ROOM);
            self.waiting.store(pending.len(), Ordering::Relaxed);
        }
        at.is_some()
    }

    /// Changes the number of slots. If raised, call [`next`](NrActive::next) until it is `None`.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
        // Ordering: as R2: a pwq that begins to wait after this sees the new limit.
        fence(Ordering::SeqCst);
    }

    /// Whether a pwq waits.
    pub fn has_pending(&self) -> bool {
        // Relaxed: the fences order it where that matters.
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Slots in use, and all slots.
    pub fn level(&self) -> (usize, usize) {
        let nr = self.nr.load(Ordering::Relaxed);
        (nr, self.max.load(Ordering::Relaxed))
    }
}

/// The part of each memory node: by CPUs, rounded up, at least `min_active` and at most
/// `max_active`. If there is no CPU anywhere, each node gets `min_active`. A part is 0 only if
/// `max_active` is: otherwise items that end up on that node would never run.
///
/// The sum can exceed `max_active`, by rounding and by the minimum. Pools whose CPUs span several
/// nodes have another `max_active`. `cpus` counts the usable online CPUs of each node.
#[must_use]
pub fn node_shares(max_active: usize, min_active: usize, cpus: &[usize]) -> Vec<usize> {
    let total: usize = cpus.iter().sum();
    let floor = min_active.max(1).min(max_active);
    let part = |&cpus: &usize| match total {
        0 => floor,
        _ => (max_active * cpus).div_ceil(total).clamp(floor, max_active),
    };
    cpus.iter().map(part).collect()
}

/// The default `min_active`: how many interdependent items make progress on any node.
#[must_use]
pub fn default_min_active(max_active: usize) -> usize {
    max_active.min(8)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_those_who_wait_leaves_no_memory() {
        let limit = NrActive::new(1);
        assert!(limit.acquire(0));
        for forgets in [false, true] {
            for pwq in 1..1_000 {
                assert!(!limit.acquire(pwq));
            }
            for pwq in 1..1_000 {
                if forgets {
                    assert!(limit.forget(pwq));
                } else {
                    assert_eq!(limit.release(), Some(pwq));
                }
            }
            let room = limit.pending.lock().capacity();
            assert!(room < 100, "room for {room}");
        }
    }
}
