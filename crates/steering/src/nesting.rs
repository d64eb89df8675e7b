//! How deep callbacks are nested on this thread, and the work that waits for their end.

use inflight_sync::panics::dispose;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What was put off on a thread. It may panic, when all that it is to call has been called.
type Later = Box<dyn FnOnce()>;

struct Nesting {
    depth: Cell<u32>,
    /// Run when the outermost callback has ended. No other thread waits for that: each has its own.
    later: RefCell<VecDeque<Later>>,
    /// There is an [`AtEnd`]: what is put off meanwhile is its, and not run on top of it.
    runs_later: Cell<bool>,
}

impl Drop for Nesting {
    /// The thread ends: whatever is left runs now, deaf to its panics. There is nothing, unless
    /// the outermost callback never came to its end, as one that was running on a stack of its own.
    fn drop(&mut self) {
        while let Some(later) = self.later.get_mut().pop_front() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(later)) {
                dispose(panic);
            }
        }
    }
}

inflight_sync::thread_local! {
    static STACK: Nesting = const {
        Nesting {
            depth: Cell::new(0),
            later: RefCell::new(VecDeque::new()),
            runs_later: Cell::new(false),
        }
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
    type Item = Later;

    fn next(&mut self) -> Option<Later> {
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

/// Has something run when the outermost callback on this thread has ended; now, if none is running.
pub(crate) fn at_the_end(later: impl FnOnce() + 'static) {
    let mut now = Some(later);
    // Why ignored: as in `enter`.
    let _ = STACK.try_with(|stack| {
        if stack.depth.get() > 0 {
            let later = now.take().map(|later| Box::new(later) as Later);
            stack.later.borrow_mut().extend(later);
        }
    });
    if let Some(now) = now {
        now();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use inflight_sync::atomic::{AtomicUsize, Ordering};
    use inflight_sync::{Arc, thread};

    #[test]
    fn nothing_is_left_behind_by_a_thread_whose_callback_never_ended() {
        let ran = Arc::new(AtomicUsize::new(0));
        let count = |panics: bool| {
            let ran = ran.clone();
            move || {
                ran.fetch_add(1, Ordering::Relaxed);
                assert!(!panics, "nobody hears it");
            }
        };
        at_the_end(count(false));
        assert_eq!(ran.load(Ordering::Relaxed), 1, "no callback is running");
        let (all, ran_then) = ([(); 3].map(|()| count(true)), ran.clone());
        let thread = thread::spawn(move || {
            std::mem::forget(enter());
            all.into_iter().for_each(at_the_end);
            assert_eq!(ran_then.load(Ordering::Relaxed), 1);
        });
        thread.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 4);
    }
}
