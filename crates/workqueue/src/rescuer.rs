//! A workqueue's own thread for the time when no other thread is available.
//!
//! It starts with the queue. Called to a pool that gets no threads while items of its queue wait
//! there, it runs those, one after the other, until the pool has workers again.

use crate::attrs::HIGHPRI;
use crate::current::Context;
use crate::mayday_list::MaydayList;
use crate::pool_core::WorkerId;
use crate::submitters;
use crate::system_shared::SystemShared;
use crate::threads::{self, End};
use crate::worker;
use crate::worker_pool::{Settlement, WorkerPool, WorkerShared};
use crate::workqueue_inner::Count;
use inflight_sync::{Arc, cpu};
use std::io;

/// How many items it runs for one pool before it turns to the next.
const BATCH: usize = 16;

pub(crate) type Rescuer = MaydayList<WorkerPool>;

impl Rescuer {
    /// A rescuer with its thread. `queue` names the thread; the rescuer does not hold the queue.
    pub(crate) fn start(queue: &str, shared: &Arc<SystemShared>) -> io::Result<Arc<Self>> {
        let rescuer = Arc::new(Self::default());
        let (me, system) = (rescuer.clone(), shared.clone());
        shared.start_thread(format!("inflight/R-{queue}"), move || me.run(&system))?;
        Ok(rescuer)
    }

    fn run(self: &Arc<Self>, shared: &Arc<SystemShared>) -> End {
        submitters::is_a_worker();
        let mut settled = None;
        let settle = || shared.settle_housekeeper(HIGHPRI, &mut settled);
        self.inbox.serve(settle, |pool| self.rescue(&pool));
        End::Early
    }

    /// *rescue*: helps one pool. If items are left, calls itself for that pool again.
    fn rescue(self: &Arc<Self>, pool: &Arc<WorkerPool>) {
        let shared = WorkerShared::new(&pool.shared, threads::name());
        let me = pool.lock().attach(shared.clone(), None);
        let context = Context::new(pool.clone(), me, shared.clone(), None);
        // Until it leaves, it runs on the CPUs of the pool's workers, and queues as one of them.
        cpu::set_current_for_thread(pool.attrs.cpu);
        let machine = pool.shared.machine();
        let pinned = machine.pin_current_thread(&pool.attrs.allowed);
        let mut rescued = 0;
        while rescued < BATCH && self.take(pool, me, &shared) {
            worker::run_as_guest(&context);
            rescued += 1;
        }
        drop(pinned);
        cpu::set_current_for_thread(None);
        pool.detach(me, &shared);
        if rescued == BATCH {
            self.call(pool);
        }
    }

    /// Takes one entry of the rescuer's queue, while the pool needs help.
    fn take(self: &Arc<Self>, pool: &WorkerPool, me: WorkerId, shared: &WorkerShared) -> bool {
        let mut state = pool.lock();
        state.end_batch(me, &shared.batch, &Settlement::default());
        let needed = state.needs_help();
        let mine = |rescuer: Option<&Arc<Self>>| rescuer.is_some_and(|r| Arc::ptr_eq(r, self));
        let index = state
            .core
            .worklist()
            .find(|index| needed && mine(state.pwq(*index).wq.rescuer.as_ref()));
        let Some(index) = index else {
            pool.unlock(state, false);
            return false;
        };
        let wq = state.pwq(index).wq.clone();
        state.take_one(me, &shared.batch, index);
        pool.unlock(state, false);
        wq.counted(Count::Rescued);
        true
    }
}
