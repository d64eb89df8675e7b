//! The ends of futures that await each other.
//!
//! An end wakes who awaits the future. If that is a future that cannot be queued any more, it ends
//! too, and so on. Such ends are nested, because a destructor may wait for the end of a future that
//! it has woken. A long chain of them would overflow the stack: those that are too deep come after
//! the others.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// How deep ends are nested.
const DEEPEST: u32 = 32;

#[derive(Default)]
struct Ends {
    /// Those that run on this thread, each inside the one before.
    depth: Cell<u32>,
    put_off: RefCell<VecDeque<Box<dyn FnOnce()>>>,
}

inflight_sync::thread_local! {
    static ENDS: Ends = Ends::default();
}

/// Runs an end, which must not panic. The outermost one also runs those that were put off.
pub(super) fn now(end: impl FnOnce()) {
    let enter = |ends: &Ends| ends.depth.replace(ends.depth.get() + 1);
    let Ok(outer) = ENDS.try_with(enter) else {
        return end(); // The thread's locals are being destroyed.
    };
    end();
    if outer == 0 {
        while let Some(next) = ENDS.with(|ends| ends.put_off.borrow_mut().pop_front()) {
            next();
        }
    }
    ENDS.with(|ends| ends.depth.set(outer));
}

/// Runs an end, which must not panic, now or after the others.
pub(super) fn soon(end: impl FnOnce() + 'static) {
    let is_deep = |ends: &Ends| ends.depth.get() >= DEEPEST;
    if ENDS.try_with(is_deep).unwrap_or(false) {
        ENDS.with(|ends| ends.put_off.borrow_mut().push_back(Box::new(end)));
    } else {
        end();
    }
}
