//! What a panic has thrown.
//!
//! The payload of a panic of the user's code is the user's too: its destructor may panic. So code
//! that catches such a panic either passes the payload on or gives it to [`dispose`], and never
//! drops it otherwise.

use crate::thread;
use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Drops the payload of a panic. Never panics.
///
/// ```
/// use inflight_sync::panics::dispose;
///
/// struct Bomb;
///
/// impl Drop for Bomb {
///     fn drop(&mut self) {
///         panic!("in the destructor");
///     }
/// }
///
/// dispose(std::panic::catch_unwind(|| std::panic::panic_any(Bomb)).unwrap_err());
/// ```
pub fn dispose(payload: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // A payload that is not a text may throw another one of its kind when it is dropped,
        // without end: it is leaked.
        if !next.is::<&str>() && !next.is::<String>() {
            mem::forget(next);
        }
    }
}

/// The first panic of several calls, all of which are made. What the others throw is
/// [disposed of](dispose).
///
/// ```
/// use inflight_sync::panics::FirstPanic;
///
/// let caught = std::panic::catch_unwind(|| {
///     let mut first = FirstPanic::default();
///     first.run(|| panic!("one"));
///     first.run(|| panic!("two"));
///     assert_eq!(first.run(|| 3), Some(3));
///     first.finish();
/// });
/// assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"one"));
/// ```
#[derive(Default)]
#[must_use = "`finish` passes the panic on"]
pub struct FirstPanic(Option<Box<dyn Any + Send>>);

impl FirstPanic {
    /// Calls `f`. Returns `None` if it panics.
    pub fn run<R>(&mut self, f: impl FnOnce() -> R) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(value) => return Some(value),
            Err(panic) if self.0.is_none() => self.0 = Some(panic),
            Err(panic) => dispose(panic),
        }
        None
    }

    /// Ends the calls.
    ///
    /// # Panics
    ///
    /// Panics with the first panic. Not while the thread is unwinding already: it cannot take
    /// another.
    pub fn finish(self) {
        match self.0 {
            Some(panic) if thread::panicking() => dispose(panic),
            Some(panic) => resume_unwind(panic),
            None => {}
        }
    }
}

/// Calls `f` for each item, also if a call panics.
///
/// # Panics
///
/// As [`FirstPanic::finish`].
///
/// ```
/// let each = || inflight_sync::panics::call_for_each(1..9, |n| panic!("{n}"));
/// assert_eq!(std::panic::catch_unwind(each).unwrap_err().downcast_ref(), Some(&"1".to_string()));
/// ```
pub fn call_for_each<I>(items: impl IntoIterator<Item = I>, f: impl Fn(I)) {
    let mut panic = FirstPanic::default();
    items.into_iter().for_each(|item| {
        panic.run(|| f(item));
    });
    panic.finish();
}

crate::debug_fields!(FirstPanic: |this| panicked = this.0.is_some());

/// Panics with payloads whose destructors panic.
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) mod test_support {
    use crate::Arc;
    use std::panic::panic_any;
    use std::task::Wake;

    /// Panics when it is dropped.
    pub(crate) struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as the test wants it");
        }
    }

    /// A waker that throws a bomb.
    pub(crate) struct Throws;

    impl Wake for Throws {
        fn wake(self: Arc<Self>) {
            panic_any(Bomb);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Throws another of its kind when it is dropped.
    struct Endless;

    impl Drop for Endless {
        fn drop(&mut self) {
            std::panic::panic_any(Endless);
        }
    }

    #[test]
    fn a_payload_that_panics_for_ever_is_contained() {
        dispose(catch_unwind(|| std::panic::panic_any(Endless)).unwrap_err());
    }
}
