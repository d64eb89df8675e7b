//! A workqueue's own thread for the time when no other thread is available.
//!
//! It starts with the queue. Called to a pool that gets no threads while items of its queue wait
//! there, it runs those, one after the other, until the pool has workers again.

use crate::attrs::HIGHPRI;
use crate::current::Context;
use crate::mayday_list::MaydayList;
use crate::submitters;
use crate::system_shared::SystemShared;
use crate::threads;
use crate::worker;
use crate::worker_pool::WorkerPool;
use crate::workqueue_inner::Count;
use inflight_sync::{Arc, cpu};
use std::{io, ptr};

/// How many items it runs for one pool before it turns to the next.
const BATCH: usize = 16;

pub(crate) type Rescuer = MaydayList<WorkerPool>;

impl Rescuer {
    /// A rescuer with its thread, and the timer that calls it. `queue` names the thread; the
    /// rescuer does not hold the queue.
    pub(crate) fn start(queue: &str, shared: &Arc<SystemShared>) -> io::Result<Arc<Self>> {
        shared.start_timer()?;
        let rescuer = Arc::new(Self::default());
        let (me, system) = (rescuer.clone(), shared.clone());
        shared.start_thread(format!("inflight/R-{queue}"), move || me.run(&system))?;
        Ok(rescuer)
    }

    fn run(&self, shared: &SystemShared) {
        submitters::is_a_worker();
        let mut settled = None;
        let settle = || shared.settle_housekeeper(HIGHPRI, &mut settled);
        self.inbox.serve(settle, |pool| self.rescue(&pool));
    }

    /// *rescue*: helps one pool. If items are left, calls itself for that pool again.
    fn rescue(&self, pool: &Arc<WorkerPool>) {
        let context = Context::attach(pool, &mut pool.lock(), threads::name(), None);
        // Until it leaves, it runs on the CPUs of the pool's workers, and queues as one of them.
        cpu::set_current_for_thread(pool.attrs.cpu);
        let machine = pool.shared.machine();
        let pinned = machine.pin_current_thread(&pool.attrs.allowed);
        let mut rescued = 0;
        while rescued < BATCH && self.take(&context) {
            worker::run_as_guest(&context);
            rescued += 1;
        }
        drop(pinned);
        cpu::set_current_for_thread(None);
        context.detach();
        if rescued == BATCH {
            self.call(pool);
        }
    }

    /// Takes one entry of the rescuer's queue, while the pool needs help.
    fn take(&self, context: &Context) -> bool {
        let mut state = context.end_batch();
        let is_mine = |rescuer: &Arc<Self>| ptr::eq(&**rescuer, self);
        let mine = {
            let mut pwqs = state.core.worklist().map(|index| state.pwq(index));
            let mine = pwqs.find(|pwq| pwq.wq.rescuer.as_ref().is_some_and(is_mine));
            mine.filter(|_| state.needs_help()).cloned()
        };
        if let Some(pwq) = &mine {
            state.take_one(context.me, &context.shared.batch, pwq.index);
        }
        context.pool.unlock(state, false);
        let Some(pwq) = mine else {
            return false;
        };
        pwq.wq.counted(Count::Rescued);
        true
    }
}
