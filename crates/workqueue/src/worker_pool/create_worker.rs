//! Workers of a pool: how they begin, sleep and leave.

use super::{PoolState, Settlement, WorkerPool, WorkerShared, WorkerThread};
use crate::pool_attrs::Cpus;
use crate::pool_core::WorkerId;
use crate::proc;
use crate::worker;
use inflight_sync::atomic::Ordering;
use inflight_sync::{Arc, MutexGuard, Parker};
use std::io;

impl WorkerPool {
    /// The timer begins to look at what it looks at only while something runs.
    pub(super) fn somebody_comes(&self) {
        self.shared.arm_watchdog();
        self.begin_metering();
    }

    /// Starts the first worker, if there is none. Without one nothing may be queued, unless a
    /// rescuer takes care of it.
    #[inline]
    pub(crate) fn ensure_worker(&self, rescued: bool) -> io::Result<()> {
        // Relaxed: a worker is there for good, or the pool is retired, which its lock tells.
        if self.has_worker.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.create_first(rescued)
    }

    /// In a model: no worker is made.
    #[cfg(loom)]
    pub(crate) fn set_manual(&self) {
        self.lock().core.workers.creates = false;
    }

    #[cold]
    pub(super) fn create_first(&self, rescued: bool) -> io::Result<()> {
        if !cfg!(loom) {
            let timer = self.shared.start_timer();
            if !rescued {
                timer?;
            }
        }
        let mut state = self.lock();
        if cfg!(loom) && !state.core.workers.creates {
            return Ok(()); // A model runs what is in the pool.
        }
        if state.poller.is_some() || state.core.workers.nr_workers() > 0 || state.stopped {
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

    /// Makes the thread of a worker that the core has counted. If that is refused it is uncounted,
    /// and somebody looks after the pool.
    pub(super) fn create_worker(&self, worker: WorkerId) -> io::Result<()> {
        let number = {
            let mut state = self.lock();
            state.started += 1;
            state.started - 1
        };
        let high = if self.attrs.is_high() { "H" } else { "" };
        let name = match &self.attrs.cpus {
            Cpus::One(cpu) if self.attrs.bh => format!("inflight/bh:{cpu}{high}"),
            Cpus::One(cpu) => format!("inflight/{cpu}:{number}{high}"),
            Cpus::Pod { .. } => format!("inflight/u{}:{number}{high}", self.id),
        };
        let pool = self.arc();
        let started = self
            .shared
            .start_thread(name, move || worker::run(&pool, worker));
        match &started {
            Ok(()) => self.somebody_comes(),
            Err(_) => self.creation_failed(worker),
        }
        started
    }

    /// It leaves.
    pub(crate) fn detach(&self, me: WorkerId, shared: &WorkerShared) {
        let mut state = self.lock();
        state.end_batch(me, &shared.batch, &Settlement::default());
        self.leave(state, me);
    }

    /// If nobody uses the pool and nothing is left in it, its workers leave.
    pub(crate) fn dismiss_if_unused(&self) {
        let state = self.lock();
        if state.users == 0 && state.is_empty() && !state.stopped {
            Self::dismiss_idle(state);
        }
    }

    /// Whether nobody uses the pool: its workers leave when it is empty.
    pub(super) fn is_unused(state: &PoolState) -> bool {
        state.users == 0 && state.poller.is_none()
    }

    fn dismiss_idle(mut state: MutexGuard<'_, PoolState>) {
        let mut woken = Vec::new();
        while let Some((worker, _)) = state.core.workers.coldest() {
            state.core.workers.dismiss(worker);
            woken.extend(state.threads[worker].clone());
        }
        drop(state);
        woken.iter().for_each(WorkerThread::wake);
    }

    /// Nothing is queued and nothing will be: the workers leave with the system.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        Self::dismiss_idle(state);
    }

    /// Whether a worker that finds nothing to do is to leave. What waits for slots will want it.
    pub(crate) fn is_over(state: &PoolState) -> bool {
        state.stopped || (Self::is_unused(state) && state.is_empty())
    }

    /// The worker leaves. Returns whether the system has ended.
    pub(crate) fn leave(&self, mut state: MutexGuard<'_, PoolState>, worker: WorkerId) -> bool {
        state.core.workers.remove(worker);
        let thread = state.threads[worker].take();
        if state.core.workers.nr_workers() == 0 && state.poller.is_none() {
            self.has_worker.store(false, Ordering::Relaxed);
        }
        let stopped = state.stopped;
        self.unlock(state, false);
        drop(thread);
        stopped
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

impl PoolState {
    /// The calling thread is that worker from now on.
    pub(crate) fn register(&mut self, worker: WorkerId, shared: Arc<WorkerShared>) {
        if self.threads.len() <= worker {
            self.threads.resize(worker + 1, None);
        }
        // A batch goes on counting where that of the worker before was.
        shared.batch.resume(self.core.workers.get(worker).settled);
        self.threads[worker] = Some(WorkerThread {
            shared,
            unparker: Parker::current().unparker(),
            number: proc::this_thread(),
            woken_at: None,
            seen: None,
            runs_since: None,
            own: None,
            away: None,
        });
    }

    /// The calling thread comes to run entries of the pool, and does not count as running in it,
    /// but in `own`, if in any.
    pub(crate) fn attach(
        &mut self,
        shared: Arc<WorkerShared>,
        own: Option<(Arc<WorkerPool>, WorkerId)>,
    ) -> WorkerId {
        let me = self.core.workers.attach();
        self.register(me, shared);
        self.threads[me].as_mut().expect("it is there").own = own;
        me
    }
}
