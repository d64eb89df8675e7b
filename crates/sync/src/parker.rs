//! A thread's place to sleep.
//!
//! Not `std::thread::park`: its token belongs to the thread, and a library that sleeps inside a
//! user's `block_on` would eat the user's wakeups. Each thread has one token of ours.

#[cfg(any(loom, shuttle))]
use self::checked as imp;
#[cfg(not(any(loom, shuttle)))]
use self::native as imp;
use crate::block_hook;
use crate::time::{Clock, Instant};
use std::fmt;

/// The calling thread's place to sleep.
///
/// Token semantics: an [`unpark`](Unparker::unpark) that comes before the [`park`](Parker::park) is
/// kept, several are kept as one. Returns may be spurious, so callers loop on a condition.
///
/// ```
/// use inflight_sync::{Parker, thread};
/// let parker = Parker::current();
/// let unparker = parker.unparker();
/// let other = thread::spawn(move || unparker.unpark());
/// parker.park();
/// other.join().unwrap();
/// ```
pub struct Parker(imp::Parker);

/// Wakes the thread whose [`Parker`] it came from. Cheap to clone, may outlive the thread.
#[derive(Clone)]
pub struct Unparker(imp::Unparker);

impl Parker {
    /// The parker of the calling thread. Made once for each thread.
    #[must_use]
    pub fn current() -> Self {
        Self(imp::Parker::current())
    }

    /// Sleeps until the token is there, and takes it.
    ///
    /// The thread's [block hook](crate::block_hook) is told before and after.
    pub fn park(&self) {
        block_hook::around(|| self.0.park());
    }

    /// Sleeps until the token is there or `deadline` has come on `clock`.
    ///
    /// Returns `false` once the deadline has passed, `true` when the caller should look at its
    /// condition again (the token came, or the return was spurious).
    ///
    /// ```
    /// use inflight_sync::{Parker, time::Clock};
    /// use std::time::Duration;
    /// let clock = Clock::manual();
    /// let deadline = clock.now() + Duration::from_secs(1);
    /// let parker = Parker::current();
    /// parker.unparker().unpark();
    /// assert!(parker.park_until(&clock, deadline));
    /// clock.advance(Duration::from_secs(1));
    /// assert!(!parker.park_until(&clock, deadline));
    /// ```
    #[must_use = "false means that the deadline has passed"]
    pub fn park_until(&self, clock: &Clock, deadline: Instant) -> bool {
        if clock.now() >= deadline {
            return false;
        }
        if clock.is_manual() {
            // The clock wakes its sleepers when it is moved past their deadlines.
            let Some(_sleeper) = clock.sleeper(deadline, self.unparker()) else {
                return false;
            };
            self.park();
        } else {
            block_hook::around(|| self.0.park_until(deadline));
        }
        clock.now() < deadline
    }

    /// A handle that wakes this thread.
    #[must_use]
    pub fn unparker(&self) -> Unparker {
        Unparker(self.0.unparker())
    }
}

impl Unparker {
    /// Leaves the token, and wakes the thread if it sleeps.
    pub fn unpark(&self) {
        self.0.unpark();
    }
}

impl fmt::Debug for Parker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parker").finish_non_exhaustive()
    }
}

impl fmt::Debug for Unparker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unparker").finish_non_exhaustive()
    }
}

#[cfg(not(any(loom, shuttle)))]
mod native {
    use crate::time::Instant;
    use crossbeam_utils::sync as crossbeam;
    use std::rc::Rc;

    std::thread_local! {
        static PARKER: Rc<crossbeam::Parker> = Rc::new(crossbeam::Parker::new());
    }

    pub(super) struct Parker(Rc<crossbeam::Parker>);

    #[derive(Clone)]
    pub(super) struct Unparker(crossbeam::Unparker);

    impl Parker {
        pub(super) fn current() -> Self {
            // While the thread's locals are being destroyed, a parker of its own serves as well.
            Self(
                PARKER
                    .try_with(Rc::clone)
                    .unwrap_or_else(|_| Rc::new(crossbeam::Parker::new())),
            )
        }

        pub(super) fn park(&self) {
            self.0.park();
        }

        pub(super) fn park_until(&self, deadline: Instant) {
            self.0.park_deadline(deadline.to_std());
        }

        pub(super) fn unparker(&self) -> Unparker {
            Unparker(self.0.unparker().clone())
        }
    }

    impl Unparker {
        pub(super) fn unpark(&self) {
            self.0.unpark();
        }
    }
}

#[cfg(loom)]
mod checked {
    use crate::time::Instant;
    use loom::sync::Notify;
    use std::sync::Arc;

    crate::thread_local! {
        static PARKER: Arc<Notify> = Arc::new(Notify::new());
    }

    /// Not loom's own `park`: an unpark that meets its thread blocked on a mutex loses the token
    /// there. `Notify` keeps it, and returns spuriously now and then, as a parker may.
    pub(super) struct Parker(Arc<Notify>);

    #[derive(Clone)]
    pub(super) struct Unparker(Arc<Notify>);

    impl Parker {
        pub(super) fn current() -> Self {
            Self(PARKER.with(Arc::clone))
        }

        pub(super) fn park(&self) {
            self.0.wait();
        }

        /// The system clock stands still under a model checker: no deadline fires by itself.
        pub(super) fn park_until(&self, _deadline: Instant) {
            self.0.wait();
        }

        pub(super) fn unparker(&self) -> Unparker {
            Unparker(self.0.clone())
        }
    }

    impl Unparker {
        pub(super) fn unpark(&self) {
            self.0.notify();
        }
    }
}

#[cfg(shuttle)]
mod checked {
    use crate::backend::native_thread as thread;
    use crate::time::Instant;

    pub(super) struct Parker(thread::Thread);

    #[derive(Clone)]
    pub(super) struct Unparker(thread::Thread);

    impl Parker {
        pub(super) fn current() -> Self {
            Self(thread::current())
        }

        pub(super) fn park(&self) {
            thread::park();
        }

        /// The system clock stands still under a model checker: no deadline fires by itself.
        pub(super) fn park_until(&self, _deadline: Instant) {
            thread::park();
        }

        pub(super) fn unparker(&self) -> Unparker {
            Unparker(self.0.clone())
        }
    }

    impl Unparker {
        pub(super) fn unpark(&self) {
            self.0.unpark();
        }
    }
}
