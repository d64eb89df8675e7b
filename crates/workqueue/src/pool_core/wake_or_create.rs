//! The pool's own rule: whether listed entries need another worker, and whether one is woken or
//! created. `worker_pool/wake.rs` combines it with the other rules.

use super::workers::{WorkerId, WorkerPhase, Workers};
use super::{PoolCore, PoolItem};

/// Listed work, in ns, that justifies another worker: about what a wakeup elsewhere takes.
pub(crate) const WAKE_NS: u64 = 20_000;

/// What to do about workers after the lock has been released.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeAction {
    /// Nothing.
    None,
    /// Wake this idle worker.
    Wake(WorkerId),
    /// Create a thread for this worker.
    Create(WorkerId),
}

impl<T: PoolItem> PoolCore<T> {
    /// The worker to wake or create for what is listed. None if as many workers run as may, or if
    /// those that have not arrived or linger are enough for all entries. Also none if a worker runs
    /// and there is little to do, unless `now`.
    #[inline]
    pub fn need_worker(&mut self, now: bool) -> WakeAction {
        if self.needs_worker(now) {
            self.workers.wake_or_create()
        } else {
            WakeAction::None
        }
    }

    #[inline]
    pub(crate) fn needs_worker(&self, now: bool) -> bool {
        let takers = self.workers.nr_takers();
        let waits = self.listed > takers && !self.workers.are_enough();
        let asks = waits && (now || self.workers.nr_running() == 0 || self.is_worth_a_wake());
        asks && self.is_ready_for_more_than(takers)
    }

    /// Whether more than `takers` entries could run at once; entries that wait for a limit do not
    /// count. Looks at no more than `takers` + 1 pwqs, because each has an entry and a slot.
    #[inline(never)]
    pub(super) fn is_ready_for_more_than(&self, takers: usize) -> bool {
        let mut ready = 0;
        self.ready_by_pwq().any(|entries| {
            ready += entries;
            ready > takers
        })
    }

    /// Entries that could run now, with enough workers.
    pub(crate) fn ready(&self) -> usize {
        self.ready_by_pwq().sum()
    }

    /// The same for each listed pwq: no more than it has slots.
    fn ready_by_pwq(&self) -> impl Iterator<Item = usize> {
        let listed = self.worklist().map(|index| self.pwq(index));
        listed.map(|pwq| pwq.fifo.len().min(pwq.free_slots().saturating_add(1)))
    }

    pub(super) fn is_worth_a_wake(&self) -> bool {
        self.service_ns.saturating_mul(self.listed as u64) >= WAKE_NS
    }
}

impl Workers {
    /// Wakes an idle worker, or else creates one.
    pub fn wake_or_create(&mut self) -> WakeAction {
        if let Some(worker) = self.pop_idle() {
            self.change(worker, |w| w.phase = WorkerPhase::Waking);
            return WakeAction::Wake(worker);
        }
        if !self.creates {
            return WakeAction::None;
        }
        WakeAction::Create(self.add(WorkerPhase::Creating, 0))
    }

    /// Wakes a worker that is aside, unless it has been woken.
    pub(crate) fn wake_this(&mut self, worker: WorkerId) -> WakeAction {
        if self.get(worker).phase != WorkerPhase::Idle {
            return WakeAction::None;
        }
        self.change(worker, |w| w.phase = WorkerPhase::Waking);
        WakeAction::Wake(worker)
    }
}
