//! What an item says before it sleeps: its worker does not count as running, and another one may
//! run.

use super::{Context, current, refuse_sleep};
use crate::pool_core::WorkerId;
use crate::worker_pool::{PoolState, WorkerPool};
use crate::workqueue_inner::Count;
use inflight_sync::block_hook::BlockHook;
use inflight_sync::{MutexGuard, cpu};

/// Runs `f`, which may sleep or wait for something outside: meanwhile another worker may run.
///
/// Around a read from a file, a lock that is held for long, a wait for a device. The pool wakes or
/// starts another worker if work waits, at the price of one lock section before and one after. When
/// `f` has returned, the item goes on at once, even if that makes one running worker too many for a
/// while. Waiting with this library's own means (`flush`, `JoinHandle::wait`, bits, tags) counts as
/// blocking by itself. Nested sections count once. On a thread that is no worker it just calls `f`.
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
    let context = current();
    let _section = context.as_ref().map(|context| context.begin_blocking());
    f()
}

impl Context {
    fn enter(&self) {
        // Between items the worker sleeps on the pool's own account. In a pool of BH items nobody
        // else may run.
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
            running.pwq().wq.counted(Count::CmWakeup, 1);
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
            pool.unblock(me);
        }
    }

    pub(crate) fn begin_blocking(&self) -> impl Drop + '_ {
        struct Section<'a>(&'a Context);
        impl Drop for Section<'_> {
            fn drop(&mut self) {
                self.0.leave();
            }
        }
        self.enter();
        Section(self)
    }
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
    /// *block*: the worker does not count as running. Returns whether another one is brought.
    fn block(&self, mut state: MutexGuard<'_, PoolState>, me: WorkerId) -> bool {
        state.core.workers.block(me, cpu::current());
        self.unlock(state, true)
    }

    /// The worker counts again. One that comes back may be one too many.
    fn unblock(&self, me: WorkerId) {
        let mut state = self.lock();
        state.core.workers.unblock(me);
        self.unlock(state, false);
    }
}
