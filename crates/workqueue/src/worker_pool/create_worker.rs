//! How workers join a pool: the first one, further ones, and guests.

use super::{PoolState, WorkerPool, WorkerShared, WorkerThread};
use crate::pool_core::WorkerId;
use crate::proc;
use crate::worker;
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;
use std::io;

impl WorkerPool {
    /// A worker will run: starts the timer's watchdog and metering.
    pub(super) fn somebody_comes(&self) {
        self.shared.arm_watchdog();
        self.begin_metering();
    }

    /// Whether it has a worker, or one is being created.
    #[inline]
    pub(crate) fn has_worker(&self) -> bool {
        // Relaxed: the worker stays, or the pool is retired, which is checked under its lock.
        self.has_worker.load(Ordering::Relaxed)
    }

    #[cfg(loom)]
    pub(crate) fn set_manual(&self) {
        self.lock().core.workers.creates = false;
    }

    /// Starts the first worker. Without one nothing may be queued, unless there is a rescuer.
    #[cold]
    pub(crate) fn create_first(&self, rescued: bool) -> io::Result<()> {
        if !cfg!(loom) {
            self.shared.start_timer()?;
        }
        let mut state = self.lock();
        if cfg!(loom) && !state.core.workers.creates {
            return Ok(()); // A model runs the entries itself.
        }
        if state.core.workers.nr_workers() > 0 || state.stopped {
            self.has_worker.store(true, Ordering::Relaxed);
            return Ok(());
        }
        if state.mayday.is_some() && rescued {
            return Ok(());
        }
        let worker = state.core.workers.create();
        self.has_worker.store(true, Ordering::Relaxed);
        drop(state);
        match self.create_worker(worker) {
            Err(refused) if !rescued => Err(refused),
            _ => Ok(()),
        }
    }

    /// Starts the thread of a counted worker. If refused, uncounts it, and the timer retries.
    pub(super) fn create_worker(&self, worker: WorkerId) -> io::Result<()> {
        let number = {
            let mut state = self.lock();
            state.started += 1;
            state.started - 1
        };
        let pool = self.arc();
        let run = move || worker::run(&pool, worker);
        let started = self.shared.start_thread(self.worker_name(number), run);
        match &started {
            Ok(()) => self.somebody_comes(),
            Err(_) => self.creation_failed(worker),
        }
        started
    }

    #[cold]
    fn worker_name(&self, number: usize) -> String {
        let high = if self.attrs.is_high() { "H" } else { "" };
        match self.attrs.cpu {
            Some(cpu) if self.attrs.bh => format!("inflight/bh:{cpu}{high}"),
            Some(cpu) => format!("inflight/{cpu}:{number}{high}"),
            None => format!("inflight/u{}:{number}{high}", self.id),
        }
    }
}

impl PoolState {
    pub(crate) fn register(&mut self, worker: WorkerId, shared: Arc<WorkerShared>) {
        if self.threads.len() <= worker {
            self.threads.resize_with(worker + 1, || None);
        }
        // Entries are counted on from the worker that had this number before.
        shared.batch.resume(self.core.workers.get(worker).settled);
        self.threads[worker] = Some(WorkerThread {
            shared,
            number: proc::this_thread(),
            seen: None,
            runs_since: None,
            own: None,
            away: None,
        });
    }

    /// A guest runs entries of the pool, and counts as running in `own`, if that is set.
    pub(crate) fn attach(
        &mut self,
        shared: Arc<WorkerShared>,
        own: Option<(Arc<WorkerPool>, WorkerId)>,
    ) -> WorkerId {
        let me = self.core.workers.attach();
        self.register(me, shared);
        self.thread_mut(me).own = own;
        me
    }
}
