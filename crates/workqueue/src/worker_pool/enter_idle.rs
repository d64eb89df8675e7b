//! How a worker goes idle, and is woken: it may linger first, and then sleeps until `woken` is set.

use super::{PoolState, WorkerPool, WorkerShared, WorkerThread};
use crate::pool_core::WorkerId;
use inflight_sync::MutexGuard;
use inflight_sync::atomic::Ordering;

impl WorkerPool {
    /// For a worker that lingers: whether something has come since the lock was released.
    pub(crate) fn seems_to_have_work(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }

    pub(crate) fn set_lingering(&self, state: &mut PoolState, lingering: bool) {
        state.core.workers.set_lingering(lingering);
        self.has_come.store(false, Ordering::Relaxed);
    }

    /// The worker is about to sleep until it is woken.
    pub(crate) fn enter_idle(&self, mut state: MutexGuard<'_, PoolState>, worker: WorkerId) {
        let now = self.shared.clock.now();
        state.core.workers.enter_idle(worker, now.as_nanos());
        let (woken, cull_at) = self.next_cull(&mut state, now);
        self.unlock(state, false);
        woken.iter().for_each(WorkerThread::wake);
        self.plan_cull(cull_at);
    }
}

impl WorkerShared {
    /// Whether the worker has been woken since it asked last.
    pub(crate) fn take_woken(&self) -> bool {
        // Relaxed: the token orders it, and the lock all else.
        let woken = self.woken.load(Ordering::Relaxed);
        if woken {
            self.woken.store(false, Ordering::Relaxed);
        }
        woken
    }
}

impl WorkerThread {
    pub(super) fn wake(&self) {
        // Relaxed: as in `take_woken`. The worker sleeps on if a token was meant for something
        // else.
        self.shared.woken.store(true, Ordering::Relaxed);
        self.unparker.unpark();
    }
}
