//! A workqueue's own thread for the time when no other can be had.
//!
//! It exists from the queue's birth and sleeps until it is called to a pool in which items of its
//! queue wait and for which the system refuses threads. There it runs those items, one after the
//! other, until the pool can help itself.

use crate::attrs::HIGHPRI;
use crate::current::Context;
use crate::pool_core::WorkerId;
use crate::sampler::proc;
use crate::submitters;
use crate::system_shared::SystemShared;
use crate::threads::End;
use crate::worker;
use crate::worker_pool::{Settlement, WorkerPool, WorkerShared};
use crate::workqueue_inner::Count;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::{Arc, Mutex, Parker, Unparker};
use std::collections::VecDeque;
use std::fmt;
use std::io;

/// So many items it runs for one pool before it looks after the next.
const BATCH: usize = 16;

#[derive(Default)]
pub(crate) struct Rescuer {
    state: Mutex<State>,
    /// Relaxed: a statistic.
    maydays: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Pools that have called, oldest call first, each once.
    calls: VecDeque<Arc<WorkerPool>>,
    /// Where the thread sleeps, once it has arrived.
    thread: Option<Unparker>,
    /// Its number, if threads have one.
    number: Option<u32>,
    /// The thread leaves when no call is left.
    stopped: bool,
}

impl Rescuer {
    /// A rescuer with its thread. `queue` names the thread; the rescuer does not hold it.
    pub(crate) fn start(queue: &str, shared: &Arc<SystemShared>) -> io::Result<Arc<Self>> {
        let rescuer = Arc::new(Self::default());
        let (me, system) = (rescuer.clone(), shared.clone());
        shared.start_thread(format!("inflight/R-{queue}"), move || me.run(&system))?;
        Ok(rescuer)
    }

    /// *mayday*: an item of the queue waits in a pool that gets no threads.
    pub(crate) fn call(&self, pool: &Arc<WorkerPool>) {
        let thread = {
            let mut state = self.state.lock();
            if state.calls.iter().any(|p| Arc::ptr_eq(p, pool)) {
                return;
            }
            state.calls.push_back(pool.clone());
            state.thread.clone()
        };
        self.maydays.fetch_add(1, Ordering::Relaxed);
        // A thread that has not arrived yet looks when it does.
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    /// The queue is empty and takes nothing more: the thread may go.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.poke();
    }

    /// The thread looks again: where it is to run may have changed.
    pub(crate) fn poke(&self) {
        let thread = self.state.lock().thread.clone();
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    pub(crate) fn maydays(&self) -> u64 {
        self.maydays.load(Ordering::Relaxed)
    }

    /// The number of its thread, if that has arrived.
    pub(crate) fn thread(&self) -> Option<u32> {
        self.state.lock().number
    }

    /// The thread function.
    fn run(self: &Arc<Self>, shared: &Arc<SystemShared>) -> End {
        submitters::is_a_worker();
        let parker = Parker::current();
        {
            let mut state = self.state.lock();
            state.thread = Some(parker.unparker());
            state.number = proc::this_thread();
        }
        let mut settled = None;
        loop {
            let refreshed = shared.refreshed();
            if settled.replace(refreshed) != Some(refreshed) {
                shared.settle_housekeeper(HIGHPRI);
            }
            let next = {
                let mut state = self.state.lock();
                let next = state.calls.pop_front();
                if next.is_none() && state.stopped {
                    return End::Early;
                }
                next
            };
            match next {
                Some(pool) => self.rescue(&pool),
                None => parker.park(),
            }
        }
    }

    /// *rescue*: helps one pool. If it has not done with it, the pool's turn comes again.
    fn rescue(self: &Arc<Self>, pool: &Arc<WorkerPool>) {
        let shared = WorkerShared::new(pool.shared());
        let me = pool.attach(shared.clone());
        let context = Context::guest(pool.clone(), me, shared.clone(), None);
        let pinned = pool.attach_rescuer();
        let mut rescued = 0;
        while rescued < BATCH && self.take(pool, me, &shared) {
            worker::run_as_guest(&context);
            rescued += 1;
        }
        pool.detach_rescuer(pinned);
        pool.detach(me, &shared);
        if rescued == BATCH {
            self.call(pool);
        }
    }

    /// One entry of the rescuer's queue, while the pool needs help.
    fn take(self: &Arc<Self>, pool: &WorkerPool, me: WorkerId, shared: &WorkerShared) -> bool {
        let mut state = pool.lock();
        state.end_batch(me, &shared.batch, &Settlement::default());
        let needed = state.needs_help();
        let mine = |rescuer: Option<&Arc<Self>>| rescuer.is_some_and(|r| Arc::ptr_eq(r, self));
        let index = state
            .core
            .worklist()
            .find(|index| needed && mine(state.pwq(*index).wq().rescuer()));
        let Some(index) = index else {
            pool.unlock(state, false);
            return false;
        };
        let wq = state.pwq(index).wq().clone();
        state.take_one(me, &shared.batch, index);
        pool.unlock(state, false);
        wq.counted(Count::Rescued, 1);
        true
    }
}

impl fmt::Debug for Rescuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rescuer")
            .field("calls", &self.state.lock().calls.len())
            .finish_non_exhaustive()
    }
}
