//! Who is woken for what is listed, and whether a worker is created instead: the pool's own rule.
//! `worker_pool/wake.rs` asks it, among others.

use super::workers::{WorkerId, WorkerPhase, Workers};
use super::{PoolCore, PoolItem};

/// So much listed work makes it worthwhile to bring a further worker, in ns: about what waking one
/// on another CPU costs.
pub(crate) const WAKE_NS: u64 = 8_000;

/// What is to be done about workers once the lock has been released.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeAction {
    /// Nothing.
    None,
    /// This idle worker is woken.
    Wake(WorkerId),
    /// A thread is made for this worker.
    Create(WorkerId),
}

impl<T: PoolItem> PoolCore<T> {
    /// Who must be brought for what is listed, besides those that run: nobody if each entry can
    /// have one of those that are on their way or linger. While somebody runs and it is little,
    /// nobody either, unless `now`.
    #[inline]
    pub fn need_worker(&mut self, now: bool) -> WakeAction {
        if self.needs_worker(now) {
            self.workers.wake_or_create()
        } else {
            WakeAction::None
        }
    }

    /// Whether that is somebody.
    #[inline]
    pub(crate) fn needs_worker(&self, now: bool) -> bool {
        let takers = self.workers.nr_takers();
        let waits = self.listed > takers && !self.workers.are_enough();
        let asks = waits && (now || self.workers.nr_running() == 0 || self.is_worth_a_wake());
        asks && self.is_ready_for_more_than(takers)
    }

    /// Whether more entries could run at once than so many: those that wait behind a limit bring
    /// nobody. Looks at no more pwqs than that, as each of them has an entry and a slot.
    #[inline(never)]
    pub(super) fn is_ready_for_more_than(&self, takers: usize) -> bool {
        let mut ready = 0;
        self.ready_by_pwq().any(|entries| {
            ready += entries;
            ready > takers
        })
    }

    /// Entries that workers could run now, if there were enough.
    pub(crate) fn ready(&self) -> usize {
        self.ready_by_pwq().sum()
    }

    /// The same of each listed pwq: no more than it has slots.
    fn ready_by_pwq(&self) -> impl Iterator<Item = usize> {
        let listed = self.worklist().map(|index| self.pwq(index));
        listed.map(|pwq| pwq.fifo.len().min(1 + pwq.free_slots()))
    }

    pub(super) fn is_worth_a_wake(&self) -> bool {
        self.service_ns.saturating_mul(self.listed as u64) >= WAKE_NS
    }
}

impl Workers {
    /// An idle worker is woken, or else one is created.
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

    /// Takes this idle worker for something else than `wake_or_create` would.
    pub(crate) fn wake_this(&mut self, worker: WorkerId) -> WakeAction {
        if self.get(worker).phase != WorkerPhase::Idle {
            return WakeAction::None;
        }
        self.idle.retain(|idle| *idle != worker);
        self.change(worker, |w| w.phase = WorkerPhase::Waking);
        WakeAction::Wake(worker)
    }
}
