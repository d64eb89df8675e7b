//! A workqueue's own thread for the time when no other can be had.
//!
//! It exists from the queue's birth and sleeps until it is called to a pool in which items of its
//! queue wait and for which the system refuses threads. There it runs those items, one after the
//! other, until the pool can help itself.

use crate::attrs::HIGHPRI;
use crate::door::Shared;
use crate::pool::{Env, Pool};
use crate::sampler::proc;
use crate::threads::{End, nice};
use crate::worker;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::{Arc, Mutex, Parker, Unparker};
use std::collections::VecDeque;
use std::fmt;
use std::io;

/// So many items it runs for one pool before it looks after the next.
const BATCH: usize = 16;

#[derive(Default)]
pub(crate) struct Rescuer {
    book: Mutex<Book>,
    /// Calls, and items run. Relaxed: statistics.
    maydays: AtomicU64,
    rescued: AtomicU64,
}

#[derive(Default)]
struct Book {
    /// Pools in distress, oldest call first, each once.
    calls: VecDeque<Arc<Pool>>,
    /// Where the thread sleeps, once it has arrived.
    thread: Option<Unparker>,
    /// Its number, if threads have one.
    number: Option<u32>,
    /// The thread leaves when no call is left.
    stopped: bool,
}

impl Rescuer {
    /// A rescuer with its thread. `queue` names the thread; the rescuer does not hold it.
    pub(crate) fn start(queue: &str, env: &Arc<Env>) -> io::Result<Arc<Self>> {
        let rescuer = Arc::new(Self::default());
        let (me, home) = (rescuer.clone(), env.clone());
        env.start_thread(format!("inflight/R-{queue}"), move || me.run(&home))?;
        Ok(rescuer)
    }

    /// R1: an item of the queue waits in a pool in distress.
    pub(crate) fn call(&self, pool: &Arc<Pool>) {
        let thread = {
            let mut book = self.book.lock();
            if book.calls.iter().any(|p| Arc::ptr_eq(p, pool)) {
                return;
            }
            book.calls.push_back(pool.clone());
            book.thread.clone()
        };
        self.maydays.fetch_add(1, Ordering::Relaxed);
        // A thread that has not arrived yet looks when it does.
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    /// The queue is empty and takes nothing more: the thread may go.
    pub(crate) fn stop(&self) {
        let thread = {
            let mut book = self.book.lock();
            book.stopped = true;
            book.thread.clone()
        };
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    pub(crate) fn maydays(&self) -> u64 {
        self.maydays.load(Ordering::Relaxed)
    }

    /// The number of its thread, if that has arrived.
    pub(crate) fn thread(&self) -> Option<u32> {
        self.book.lock().number
    }

    pub(crate) fn rescued(&self) -> u64 {
        self.rescued.load(Ordering::Relaxed)
    }

    /// The thread function.
    fn run(self: &Arc<Self>, env: &Arc<Env>) -> End {
        worker::join_system(env);
        nice::set(env, HIGHPRI);
        let parker = Parker::current();
        {
            let mut book = self.book.lock();
            book.thread = Some(parker.unparker());
            book.number = proc::this_thread();
        }
        loop {
            let next = {
                let mut book = self.book.lock();
                let next = book.calls.pop_front();
                if next.is_none() && book.stopped {
                    break;
                }
                next
            };
            match next {
                Some(pool) => self.serve(&pool),
                None => parker.park(),
            }
        }
        worker::leave_system();
        End::Early
    }

    /// R2-R4: helps one pool. If it has not done with it, the pool's turn comes again.
    fn serve(self: &Arc<Self>, pool: &Arc<Pool>) {
        let mine = |queue: &Shared| queue.is_rescued_by(self);
        let each = || {
            self.rescued.fetch_add(1, Ordering::Relaxed);
        };
        if worker::rescue(pool, mine, each, BATCH) {
            self.call(pool);
        }
    }
}

impl fmt::Debug for Rescuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rescuer")
            .field("calls", &self.book.lock().calls.len())
            .finish_non_exhaustive()
    }
}
