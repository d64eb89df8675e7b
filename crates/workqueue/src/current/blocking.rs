//! Blocking sections: a worker does not count as running while its item sleeps.

use super::{Context, refuse_sleep, with_current};
use crate::pool_core::WorkerId;
use crate::worker_pool::{PoolState, WorkerPool};
use crate::workqueue_inner::Count;
use inflight_sync::block_hook::BlockHook;
use inflight_sync::{MutexGuard, cpu};
use std::marker::PhantomData;

/// Runs `f`, which may sleep or wait for something outside. Meanwhile another worker may run.
///
/// Use it around a read from a file, a lock that is held for long, or a wait for a device. The pool
/// wakes or starts another worker if items wait. The price is one lock section before `f` and one
/// after it. When `f` has returned, the item continues at once, even if the pool then runs one
/// worker too many for a while. The waits of this library (`flush`, `JoinHandle::wait`, bits, tags)
/// count as blocking without it. Nested sections count once. On a thread that is not a worker it
/// just calls `f`.
///
/// # Panics
///
/// Inside an item of a BH queue, which may not sleep; `f` is not called.
///
/// ```
/// use inflight_workqueue::{WorkqueueSystem, blocking};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("reads").bound().build()?;
/// let read = wq.spawn(|| blocking(|| std::fs::read("Cargo.toml")));
/// assert!(!read.wait()??.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    refuse_sleep();
    let _section = begin_blocking();
    f()
}

impl Context {
    fn enter(&self) {
        // Between items the pool itself handles the worker's sleep. In a pool of BH items no other
        // worker may run.
        let Some(running) = self.running().filter(|running| !running.bh) else {
            return;
        };
        let depth = self.blocked.get();
        self.blocked.set(depth + 1);
        if depth > 0 {
            return;
        }
        self.has_blocked.set(true);
        let state = self
            .pool
            .return_batch(self.me, &self.shared.batch, running.i);
        self.end_appends();
        let brought = match &self.own {
            None => self.pool.block(state, self.me),
            Some((own, me)) => {
                self.pool.unlock(state, true);
                own.block(own.lock(), *me)
            }
        };
        if brought {
            running.pwq().wq.counted(Count::CmWakeup);
        }
    }

    fn leave(&self) {
        if self.running().is_none_or(|running| running.bh) {
            return;
        }
        let depth = self.blocked.get() - 1;
        self.blocked.set(depth);
        if depth == 0 {
            let (pool, me) = match &self.own {
                None => (&self.pool, self.me),
                Some((own, me)) => (own, *me),
            };
            // It counts as running again. The pool may then run one worker too many.
            let mut state = pool.lock();
            state.core.workers.unblock(me);
            pool.unlock(state, false);
        }
    }
}

/// A blocking section of the calling thread, until what this returns is dropped.
pub(crate) fn begin_blocking() -> impl Drop {
    /// Not `Send`: it ends on the thread on which it began.
    struct Section(PhantomData<*const ()>);
    impl Drop for Section {
        fn drop(&mut self) {
            with_current(Context::leave);
        }
    }
    with_current(Context::enter);
    Section(PhantomData)
}

impl BlockHook for Context {
    fn blocking(&self) {
        refuse_sleep();
        self.enter();
    }

    fn unblocked(&self) {
        self.leave();
    }
}

impl WorkerPool {
    /// *block*: it no longer counts as running. Returns whether another one was brought.
    fn block(&self, mut state: MutexGuard<'_, PoolState>, me: WorkerId) -> bool {
        state.core.workers.block(me, cpu::current());
        self.unlock(state, true)
    }
}
