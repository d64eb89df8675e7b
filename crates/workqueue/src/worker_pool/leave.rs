//! When workers leave a pool: with the system, with the pool's last queue, and as guests.
//! `idle_timeout` dismisses surplus idle ones.

use super::{PoolState, WorkerPool, WorkerThread};
use crate::pool_core::WorkerId;
use inflight_sync::MutexGuard;
use inflight_sync::atomic::Ordering;

impl WorkerPool {
    /// If no queue uses the pool and nothing is left in it, dismisses its workers.
    pub(crate) fn dismiss_if_unused(&self) {
        let state = self.lock();
        if state.users == 0 && state.is_empty() {
            Self::dismiss_idle(state);
        }
    }

    /// Whether nothing uses the pool: its workers leave when it is empty.
    pub(super) fn is_unused(state: &PoolState) -> bool {
        state.users == 0 && state.poller.is_none()
    }

    fn dismiss_idle(mut state: MutexGuard<'_, PoolState>) {
        let mut woken = Vec::new();
        while let Some((worker, _)) = state.core.workers.coldest() {
            state.core.workers.dismiss(worker);
            woken.push(state.thread(worker).shared.clone());
        }
        drop(state);
        woken.iter().for_each(|worker| worker.wake());
    }

    /// Nothing is queued and nothing will be: the workers leave with the system.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        Self::dismiss_idle(state);
    }

    /// Whether a worker without work leaves; not while entries wait for slots: they need it.
    pub(crate) fn is_over(state: &PoolState) -> bool {
        state.stopped || (Self::is_unused(state) && state.is_empty())
    }

    pub(crate) fn leave(&self, mut state: MutexGuard<'_, PoolState>, worker: WorkerId) {
        let thread = self.remove_worker(&mut state, worker);
        self.unlock(state, false);
        drop(thread);
    }

    /// Frees the worker's number. What it has registered is dropped outside the lock.
    pub(crate) fn remove_worker(
        &self,
        state: &mut PoolState,
        worker: WorkerId,
    ) -> Option<WorkerThread> {
        state.core.workers.remove(worker);
        if state.core.workers.nr_workers() == 0 {
            self.has_worker.store(false, Ordering::Relaxed);
        }
        state.threads.get_mut(worker)?.take()
    }
}
