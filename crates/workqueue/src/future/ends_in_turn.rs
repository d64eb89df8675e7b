//! The ends of futures that await each other, one after another.
//!
//! An end wakes who awaits the future. If that is a future that cannot be queued any more, it ends
//! too, and so on: a long chain would overflow the stack.

use std::cell::RefCell;
use std::collections::VecDeque;

type Ends = VecDeque<Box<dyn FnOnce()>>;

inflight_sync::thread_local! {
    /// While an end runs on this thread: those that follow it.
    // loom's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    static NEXT: RefCell<Option<Ends>> = RefCell::new(None);
}

/// Runs an end, which must not panic. The outermost one also runs those that it has put off.
pub(super) fn now(end: impl FnOnce()) {
    let begin = |next: &RefCell<Option<Ends>>| {
        let mut next = next.borrow_mut();
        let outermost = next.is_none();
        next.get_or_insert_default();
        outermost
    };
    // A thread whose locals are being destroyed runs each at once.
    let outermost = NEXT.try_with(begin).unwrap_or(false);
    end();
    if outermost {
        while let Some(end) = NEXT.with(|next| next.borrow_mut().as_mut()?.pop_front()) {
            end();
        }
        NEXT.with(|next| next.replace(None));
    }
}

/// Runs an end, which must not panic, after the one that runs on this thread, if one does.
pub(super) fn later(end: impl FnOnce() + 'static) {
    let mut end = Some(end);
    // An error: as in `now`.
    let _ = NEXT.try_with(|next| {
        if let Some(ends) = next.borrow_mut().as_mut() {
            ends.extend(end.take().map(|end| Box::new(end) as _));
        }
    });
    if let Some(end) = end {
        end();
    }
}
