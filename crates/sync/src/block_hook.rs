//! A hook that is called when a thread is about to sleep.
//!
//! A worker of a pool installs a hook. When the worker then waits for a bit, a tag or a flush,
//! [`Parker`](crate::Parker) calls the hook, and the pool can let another worker run. The waiting
//! code needs no knowledge of pools.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

/// Called by [`Parker`](crate::Parker) around each sleep of the thread on which it is installed.
///
/// The hook is not called for a method of its own that parks: there is no recursion. If
/// [`blocking`](BlockHook::blocking) parks, it may have taken the token for which the thread was
/// about to wait, so the sleep is left out and the park returns spuriously.
///
/// ```
/// use inflight_sync::block_hook::{self, BlockHook};
/// use inflight_sync::Parker;
/// use std::{cell::Cell, rc::Rc};
///
/// #[derive(Default)]
/// struct Count(Cell<u32>);
/// impl BlockHook for Count {
///     fn blocking(&self) { self.0.set(self.0.get() + 1); }
///     fn unblocked(&self) {}
/// }
///
/// let count = Rc::new(Count::default());
/// let guard = block_hook::install(count.clone());
/// let parker = Parker::current();
/// parker.unparker().unpark();
/// parker.park();
/// assert_eq!(count.0.get(), 1);
/// drop(guard);
/// ```
pub trait BlockHook {
    /// The thread is about to sleep.
    fn blocking(&self);
    /// The thread runs again.
    fn unblocked(&self);
}

#[derive(Default)]
struct ThreadHook {
    hook: RefCell<Option<Rc<dyn BlockHook>>>,
    /// A method of the hook runs.
    calling: Cell<bool>,
    /// It has parked.
    parked: Cell<bool>,
}

crate::thread_local! {
    static HOOK: ThreadHook = ThreadHook::default();
}

/// Keeps the hook installed; dropping it restores the previous one.
#[must_use]
pub struct BlockHookGuard {
    previous: Option<Rc<dyn BlockHook>>,
    // The guard belongs to the thread it was made on.
    _not_send: PhantomData<Rc<()>>,
}

crate::debug_fields!(BlockHookGuard);

/// Whether a hook can be installed: not once the destruction of the thread's locals has come to
/// the hook's.
///
/// ```
/// assert!(inflight_sync::block_hook::can_install());
/// ```
#[must_use]
pub fn can_install() -> bool {
    HOOK.try_with(|_| ()).is_ok()
}

/// Installs a hook for the calling thread.
///
/// # Panics
///
/// If that [cannot be done](can_install).
pub fn install(hook: Rc<dyn BlockHook>) -> BlockHookGuard {
    let previous = HOOK.with(|this| this.hook.replace(Some(hook)));
    BlockHookGuard {
        previous,
        _not_send: PhantomData,
    }
}

impl Drop for BlockHookGuard {
    fn drop(&mut self) {
        let previous = self.previous.take();
        // While the thread's locals are being destroyed there is nothing left to restore.
        let _ = HOOK.try_with(|this| this.hook.replace(previous));
    }
}

/// Runs `sleep` and calls the hook before and after, also if one of them panics.
pub(crate) fn around(sleep: impl FnOnce()) {
    let hook = HOOK.try_with(|this| {
        if this.calling.get() {
            this.parked.set(true);
            return None;
        }
        this.parked.set(false);
        this.hook.borrow().clone()
    });
    let Some(hook) = hook.ok().flatten() else {
        return sleep();
    };
    call(|| hook.blocking());
    let _afterwards = Unblocked(hook);
    if !HOOK.with(|this| this.parked.get()) {
        sleep();
    }
}

fn call(method: impl FnOnce()) {
    struct EndOfCall;
    impl Drop for EndOfCall {
        fn drop(&mut self) {
            HOOK.with(|this| this.calling.set(false));
        }
    }
    HOOK.with(|this| this.calling.set(true));
    let _end = EndOfCall;
    method();
}

struct Unblocked(Rc<dyn BlockHook>);

impl Drop for Unblocked {
    fn drop(&mut self) {
        call(|| self.0.unblocked());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Parker;

    #[derive(Default)]
    struct Log(RefCell<Vec<&'static str>>, Cell<bool>);

    impl BlockHook for Log {
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
    fn a_hook_that_parks_takes_no_token_away() {
        let log = Rc::new(Log::default());
        log.1.set(true);
        let _guard = install(log.clone());
        // The hook's own park takes this token; the outer park must return all the same.
        park_once();
        assert_eq!(
            *log.0.borrow(),
            ["blocking", "unblocked"],
            "told of the outer park only"
        );
    }

    #[test]
    fn the_hook_survives_a_panic() {
        let log = Rc::new(Log::default());
        let _guard = install(log.clone());
        let caught = std::panic::catch_unwind(|| around(|| panic!("in the sleep")));
        assert!(caught.is_err());
        park_once();
        assert_eq!(log.0.borrow().len(), 4);
    }
}
