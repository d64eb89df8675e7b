//! How many callbacks run inside each other on this thread, and what waits for their end.

use crate::sink::DoneListHandle;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What was put off on a thread, for one callback function.
pub(crate) trait Later: Any {
    /// # Panics
    /// With the first panic of a callback, after all of them have been called.
    fn run(self: Box<Self>);

    /// What else is put off may join it.
    fn as_any(&mut self) -> &mut dyn Any;
}

impl Later for DoneListHandle {
    fn run(self: Box<Self>) {
        Self::run(&self);
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

struct Nesting {
    depth: Cell<u32>,
    /// Run when the outermost callback has ended. No other thread waits for that: each has its own.
    later: RefCell<VecDeque<Box<dyn Later>>>,
    /// There is an [`AtEnd`]: what is put off meanwhile is its, and not run on top of it.
    runs_later: Cell<bool>,
}

impl Drop for Nesting {
    /// The thread ends: whatever is left runs now, deaf to its panics. There is nothing, unless
    /// the outermost callback never came to its end, as one that was running on a stack of its own.
    fn drop(&mut self) {
        while let Some(later) = self.later.get_mut().pop_front() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| later.run())) {
                dispose(panic);
            }
        }
    }
}

/// Drops what a panic has thrown, whose own destructor may panic.
pub(crate) fn dispose(panic: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // It may throw the like of itself for ever: one is dropped, the next leaks.
        std::mem::forget(next);
    }
}

inflight_sync::thread_local! {
    // loom's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    static STACK: Nesting = Nesting {
        depth: Cell::new(0),
        later: RefCell::new(VecDeque::new()),
        runs_later: Cell::new(false),
    };
}

/// How many callbacks run on this thread, one inside the other. None on a thread on its way out.
pub(crate) fn current() -> u32 {
    STACK.try_with(|stack| stack.depth.get()).unwrap_or(0)
}

/// A callback is running until this is left or dropped.
#[must_use = "the callback runs while this lives"]
pub(crate) struct Inside(());

pub(crate) fn enter() -> Inside {
    // Why ignored: a thread on its way out counts nothing, and nothing waits for its end.
    let _ = STACK.try_with(|stack| stack.depth.set(stack.depth.get() + 1));
    Inside(())
}

impl Inside {
    /// The callback has ended. What the caller is to run now: nothing, if others are around it, or
    /// if whoever called it is at that already.
    pub(crate) fn leave(self) -> Option<AtEnd> {
        drop(self);
        let later = STACK.try_with(|stack| {
            let begins = stack.depth.get() == 0 && !stack.runs_later.replace(true);
            begins.then(|| AtEnd(()))
        });
        later.ok().flatten()
    }
}

/// What was put off, and what is while it is run.
#[must_use = "what was put off is run by this"]
pub(crate) struct AtEnd(());

impl Iterator for AtEnd {
    type Item = Box<dyn Later>;

    fn next(&mut self) -> Option<Box<dyn Later>> {
        let next = STACK.try_with(|stack| stack.later.borrow_mut().pop_front());
        next.ok().flatten()
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        // Why ignored: as in `enter`.
        let _ = STACK.try_with(|stack| stack.runs_later.set(false));
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // Why ignored: as in `enter`.
        let _ = STACK.try_with(|stack| stack.depth.set(stack.depth.get().saturating_sub(1)));
    }
}

/// Has something run when the outermost callback on this thread has ended: `put` joins it to what
/// was put off last, or comes back with something new.
///
/// False if none is running; `put` was not called then.
pub(crate) fn at_the_end(
    put: impl FnOnce(Option<&mut dyn Later>) -> Option<Box<dyn Later>>,
) -> bool {
    let defer = STACK.try_with(|stack| {
        let inside = stack.depth.get() > 0;
        if inside {
            let mut later = stack.later.borrow_mut();
            let new = put(later.back_mut().map(|last| &mut **last));
            later.extend(new);
        }
        inside
    });
    defer.unwrap_or(false)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use inflight_sync::atomic::{AtomicUsize, Ordering};
    use inflight_sync::{Arc, thread};

    struct Count(Arc<AtomicUsize>);

    impl Later for Count {
        fn run(self: Box<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("nobody hears it");
        }

        fn as_any(&mut self) -> &mut dyn Any {
            self
        }
    }

    #[test]
    fn nothing_is_left_behind_by_a_thread_whose_callback_never_ended() {
        let ran = Arc::new(AtomicUsize::new(0));
        assert!(!at_the_end(|_| unreachable!("no callback is running")));
        let thread = thread::spawn({
            let ran = ran.clone();
            move || {
                std::mem::forget(enter());
                for n in 0..3 {
                    assert!(at_the_end(|last| {
                        assert_eq!(last.is_some(), n > 0);
                        Some(Box::new(Count(ran.clone())))
                    }));
                }
                assert_eq!(ran.load(Ordering::Relaxed), 0);
            }
        });
        thread.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 3);
    }
}
