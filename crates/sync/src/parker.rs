//! Sleeping of a thread.
//!
//! Not `std::thread::park`: its token belongs to the thread, and a library that sleeps inside a
//! user's `block_on` would consume the user's wakeups. Each thread has one token of ours.

use crate::block_hook;
use crate::time::{Clock, Instant};

/// Puts the calling thread to sleep.
///
/// Token semantics: an [`unpark`](Unparker::unpark) before the [`park`](Parker::park) is kept,
/// several are kept as one. Returns may be spurious, so callers loop on a condition.
///
/// ```
/// use inflight_sync::{Parker, thread};
/// let parker = Parker::current();
/// let unparker = parker.unparker();
/// let other = thread::spawn(move || unparker.unpark());
/// parker.park();
/// other.join().unwrap();
/// ```
#[derive(Debug)]
pub struct Parker(imp::Parker);

/// Wakes the thread of its [`Parker`]. Cheap to clone, may outlive the thread.
#[derive(Clone, Debug)]
pub struct Unparker(imp::Unparker);

impl Parker {
    /// Returns the parker of the calling thread. Made once for each thread.
    #[must_use]
    pub fn current() -> Self {
        Self(imp::current())
    }

    /// Sleeps until there is a token, and takes it.
    ///
    /// The thread's [block hook](crate::block_hook) is called before and after.
    pub fn park(&self) {
        block_hook::around(|| imp::park(&self.0));
    }

    /// Sleeps until there is a token or `deadline` has passed on `clock`.
    ///
    /// Returns `false` once the deadline has passed, `true` when the caller should check its
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
            // The system clock stands still under a model checker: no deadline fires by itself.
            #[cfg(any(loom, shuttle))]
            self.park();
            #[cfg(not(any(loom, shuttle)))]
            block_hook::around(|| imp::park_until(&self.0, deadline));
        }
        clock.now() < deadline
    }

    /// Returns a handle that wakes this thread.
    #[must_use]
    pub fn unparker(&self) -> Unparker {
        Unparker(imp::unparker(&self.0))
    }
}

impl Unparker {
    /// Stores the token, and wakes the thread if it sleeps.
    pub fn unpark(&self) {
        imp::unpark(&self.0);
    }
}

#[cfg(not(any(loom, shuttle)))]
mod imp {
    use crate::time::Instant;
    use crossbeam_utils::sync::Parker as Place;
    pub(super) use crossbeam_utils::sync::Unparker;
    use std::rc::Rc;

    std::thread_local! {
        static PARKER: Parker = Rc::new(Place::new());
    }

    pub(super) type Parker = Rc<Place>;

    pub(super) fn current() -> Parker {
        // While the thread's locals are being destroyed, a new parker serves as well.
        let current = PARKER.try_with(Rc::clone);
        current.unwrap_or_else(|_| Rc::new(Place::new()))
    }

    pub(super) fn park(parker: &Parker) {
        parker.park();
    }

    pub(super) fn park_until(parker: &Parker, deadline: Instant) {
        parker.park_deadline(deadline.to_std());
    }

    pub(super) fn unparker(parker: &Parker) -> Unparker {
        parker.unparker().clone()
    }

    pub(super) fn unpark(unparker: &Unparker) {
        unparker.unpark();
    }
}

#[cfg(loom)]
mod imp {
    use loom::sync::Notify;
    use std::sync::Arc;

    crate::thread_local! {
        static PARKER: Parker = Arc::new(Notify::new());
    }

    /// Not loom's own `park`: an unpark that meets its thread blocked on a mutex loses the token
    /// there. `Notify` keeps it, and returns spuriously now and then, as a parker may.
    pub(super) type Parker = Arc<Notify>;
    pub(super) type Unparker = Arc<Notify>;

    pub(super) fn current() -> Parker {
        PARKER.with(Arc::clone)
    }

    pub(super) fn park(parker: &Parker) {
        parker.wait();
    }

    pub(super) fn unparker(parker: &Parker) -> Unparker {
        parker.clone()
    }

    pub(super) fn unpark(unparker: &Unparker) {
        unparker.notify();
    }
}

#[cfg(shuttle)]
mod imp {
    use crate::backend::native_thread as thread;

    pub(super) type Parker = thread::Thread;
    pub(super) type Unparker = thread::Thread;

    pub(super) use thread::current;

    pub(super) fn park(_: &Parker) {
        thread::park();
    }

    pub(super) fn unparker(parker: &Parker) -> Unparker {
        parker.clone()
    }

    pub(super) fn unpark(unparker: &Unparker) {
        unparker.unpark();
    }
}
