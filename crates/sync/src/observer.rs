//! Who is told when a thread is about to sleep.
//!
//! A worker of a pool installs an observer. When the worker then waits for a bit, a tag or a flush,
//! [`Parker`](crate::Parker) tells the observer, and the pool can let another worker run. The
//! waiting code knows nothing of pools.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

/// Told by [`Parker`](crate::Parker) around each sleep of the thread it is installed on.
///
/// A method that itself parks is not told of that: there is no recursion. If
/// [`blocking`](BlockObserver::blocking) parks, it may have taken the token that the thread was
/// about to wait for, so the sleep is left out and the park returns spuriously.
///
/// ```
/// use inflight_sync::observer::{self, BlockObserver};
/// use inflight_sync::Parker;
/// use std::{cell::Cell, rc::Rc};
///
/// #[derive(Default)]
/// struct Count(Cell<u32>);
/// impl BlockObserver for Count {
///     fn blocking(&self) { self.0.set(self.0.get() + 1); }
///     fn unblocked(&self) {}
/// }
///
/// let count = Rc::new(Count::default());
/// let guard = observer::install(count.clone());
/// let parker = Parker::current();
/// parker.unparker().unpark();
/// parker.park();
/// assert_eq!(count.0.get(), 1);
/// drop(guard);
/// ```
pub trait BlockObserver {
    /// The thread is about to sleep.
    fn blocking(&self);
    /// The thread runs again.
    fn unblocked(&self);
}

#[derive(Default)]
struct Slot {
    observer: RefCell<Option<Rc<dyn BlockObserver>>>,
    /// A method of the observer runs.
    telling: Cell<bool>,
    /// It has parked.
    parked: Cell<bool>,
}

crate::thread_local! {
    static SLOT: Slot = Slot::default();
}

/// Keeps the observer installed; the previous one comes back when it is dropped.
///
/// ```
/// # use inflight_sync::observer::{self, BlockObserver};
/// # struct Quiet;
/// # impl BlockObserver for Quiet { fn blocking(&self) {} fn unblocked(&self) {} }
/// let guard = observer::install(std::rc::Rc::new(Quiet));
/// drop(guard);
/// ```
#[must_use]
pub struct ObserverGuard {
    previous: Option<Rc<dyn BlockObserver>>,
    // The guard belongs to the thread it was made on.
    _not_send: PhantomData<Rc<()>>,
}

impl fmt::Debug for ObserverGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObserverGuard").finish_non_exhaustive()
    }
}

/// Installs an observer for the calling thread.
///
/// ```
/// # use inflight_sync::observer::{self, BlockObserver};
/// # struct Quiet;
/// # impl BlockObserver for Quiet { fn blocking(&self) {} fn unblocked(&self) {} }
/// let _guard = observer::install(std::rc::Rc::new(Quiet));
/// ```
pub fn install(observer: Rc<dyn BlockObserver>) -> ObserverGuard {
    let previous = SLOT.with(|slot| slot.observer.replace(Some(observer)));
    ObserverGuard {
        previous,
        _not_send: PhantomData,
    }
}

impl Drop for ObserverGuard {
    fn drop(&mut self) {
        let previous = self.previous.take();
        // While the thread's locals are being destroyed there is nothing left to restore.
        let _ = SLOT.try_with(|slot| slot.observer.replace(previous));
    }
}

/// Runs `sleep` with the observer told before and after, also if one of them panics.
pub(crate) fn around(sleep: impl FnOnce()) {
    let observer = SLOT.try_with(|slot| {
        if slot.telling.get() {
            slot.parked.set(true);
            return None;
        }
        slot.parked.set(false);
        slot.observer.borrow().clone()
    });
    let Some(observer) = observer.ok().flatten() else {
        return sleep();
    };
    tell(|| observer.blocking());
    let _afterwards = Unblocked(observer);
    if !SLOT.with(|slot| slot.parked.get()) {
        sleep();
    }
}

fn tell(method: impl FnOnce()) {
    struct Told;
    impl Drop for Told {
        fn drop(&mut self) {
            SLOT.with(|slot| slot.telling.set(false));
        }
    }
    SLOT.with(|slot| slot.telling.set(true));
    let _told = Told;
    method();
}

struct Unblocked(Rc<dyn BlockObserver>);

impl Drop for Unblocked {
    fn drop(&mut self) {
        tell(|| self.0.unblocked());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Parker;

    #[derive(Default)]
    struct Log(RefCell<Vec<&'static str>>, Cell<bool>);

    impl BlockObserver for Log {
        fn blocking(&self) {
            self.0.borrow_mut().push("blocking");
            if self.1.get() {
                let parker = Parker::current();
                parker.unparker().unpark();
                parker.park();
            }
        }
        fn unblocked(&self) {
            self.0.borrow_mut().push("unblocked");
        }
    }

    fn park_once() {
        let parker = Parker::current();
        parker.unparker().unpark();
        parker.park();
    }

    #[test]
    fn told_around_each_sleep_and_restored() {
        let outer = Rc::new(Log::default());
        let inner = Rc::new(Log::default());
        let _outer = install(outer.clone());
        {
            let _inner = install(inner.clone());
            park_once();
        }
        park_once();
        assert_eq!(*inner.0.borrow(), ["blocking", "unblocked"]);
        assert_eq!(*outer.0.borrow(), ["blocking", "unblocked"]);
    }

    #[test]
    fn an_observer_that_parks_takes_no_token_away() {
        let log = Rc::new(Log::default());
        log.1.set(true);
        let _guard = install(log.clone());
        // The observer's own park takes this token; the outer park must return all the same.
        park_once();
        assert_eq!(
            *log.0.borrow(),
            ["blocking", "unblocked"],
            "told of the outer park only"
        );
    }

    #[test]
    fn the_observer_survives_a_panic() {
        let log = Rc::new(Log::default());
        let _guard = install(log.clone());
        let caught = std::panic::catch_unwind(|| around(|| panic!("in the sleep")));
        assert!(caught.is_err());
        park_once();
        assert_eq!(log.0.borrow().len(), 4);
    }
}
