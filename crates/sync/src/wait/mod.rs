//! Lists of waiters, and an event to wait for a condition.
//!
//! A waiter is a sleeping thread or a task; both wait in the same list, so they have one order.

mod event;
mod list;

pub use event::{Event, WaitWhile};
pub use list::{WaitList, WaiterKey};

use crate::Unparker;
use crate::panics::FirstPanic;
use crate::prefetch_to_write;
use std::task::Waker;

/// The way to wake one waiter, which then checks its condition again.
///
/// ```
/// use inflight_sync::{Parker, wait::Notify};
/// let parker = Parker::current();
/// Notify::Thread(parker.unparker()).notify();
/// parker.park();
/// ```
#[derive(Clone, Debug)]
pub enum Notify {
    /// A thread that sleeps on its [`Parker`](crate::Parker).
    Thread(Unparker),
    /// A task.
    Task(Waker),
}

impl Notify {
    /// Wakes the waiter. Call it without holding a lock: a waker may run anything.
    pub fn notify(self) {
        match self {
            Self::Thread(unparker) => unparker.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }

    /// Prefetches the memory that [`notify`](Notify::notify) writes for a task, which is not in the
    /// cache if many wait. It affects only speed.
    ///
    /// ```
    /// # use inflight_sync::wait::Notify;
    /// # use std::task::Waker;
    /// let next = Notify::Task(Waker::noop().clone());
    /// next.prefetch(); // meanwhile wake another waiter
    /// next.notify();
    /// ```
    #[inline]
    pub fn prefetch(&self) {
        if let Self::Task(waker) = self {
            // Most wakers point to their task.
            prefetch_to_write(waker.data());
        }
    }
}

/// Wakes several waiters, each of them even if the waker of another panics.
///
/// # Panics
///
/// Panics with the first panic of a waker, after all are woken; not while the thread is unwinding
/// already.
///
/// ```
/// use inflight_sync::{Parker, wait::{Notify, notify_each}};
/// let parker = Parker::current();
/// notify_each([Notify::Thread(parker.unparker())]);
/// parker.park();
/// ```
pub fn notify_each(waiters: impl IntoIterator<Item = Notify>) {
    let mut wakers = Wakers::default();
    wakers.wake(waiters);
    wakers.finish();
}

/// Wakes several groups of waiters, and keeps a waker's panic until all groups are woken.
///
/// ```
/// use inflight_sync::{Parker, wait::{Notify, Wakers}};
/// let parker = Parker::current();
/// let mut wakers = Wakers::default();
/// wakers.wake([Notify::Thread(parker.unparker())]);
/// wakers.wake([]);
/// wakers.finish();
/// parker.park();
/// ```
#[derive(Debug, Default)]
#[must_use = "`finish` passes a waker's panic on"]
pub struct Wakers {
    panic: FirstPanic,
}

impl Wakers {
    /// Wakes each of the waiters.
    pub fn wake(&mut self, waiters: impl IntoIterator<Item = Notify>) {
        for waiter in waiters {
            // Unwind safety: the waiter is consumed, so nothing half-done remains.
            self.panic.run(|| waiter.notify());
        }
    }

    /// Ends the wakes.
    ///
    /// # Panics
    ///
    /// Panics with the first panic of a waker; not while the thread is unwinding already.
    pub fn finish(self) {
        self.panic.finish();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Arc;
    use crate::panics::test_support::Throws;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Two wakers panic, and what the second has thrown panics when it is dropped.
    #[test]
    fn what_a_waker_throws_keeps_nobody_from_waking() {
        let woken = Arc::<Woken>::default();
        let wakers = [
            Waker::from(Arc::new(Throws)),
            Waker::from(Arc::new(Throws)),
            Waker::from(woken.clone()),
        ];
        let told = catch_unwind(AssertUnwindSafe(|| notify_each(wakers.map(Notify::Task))));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        // Not dropped here: it would panic.
        std::mem::forget(told.expect_err("the first panic comes out"));
    }
}
