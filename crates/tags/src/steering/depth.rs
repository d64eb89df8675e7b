//! How many callbacks run inside each other on this thread, and what waits for their end.

use super::sink::MailboxHandle;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

struct Stack {
    depth: Cell<u32>,
    /// Run when the outermost callback has ended.
    later: RefCell<VecDeque<MailboxHandle>>,
    /// There is a [`Later`]: what is put off meanwhile is its, and not run on top of it.
    runs_later: Cell<bool>,
}

inflight_sync::thread_local! {
    // loom's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    static STACK: Stack = Stack {
        depth: Cell::new(0),
        later: RefCell::new(VecDeque::new()),
        runs_later: Cell::new(false),
    };
}

/// How many callbacks run on this thread, one inside the other. None on a thread on its way out.
pub(super) fn current() -> u32 {
    STACK.try_with(|stack| stack.depth.get()).unwrap_or(0)
}

/// A callback is running until this is left or dropped.
#[must_use = "the callback runs while this lives"]
pub(super) struct Inside(());

pub(super) fn enter() -> Inside {
    // Why ignored: a thread on its way out counts nothing, and nothing waits for its end.
    let _ = STACK.try_with(|stack| stack.depth.set(stack.depth.get() + 1));
    Inside(())
}

impl Inside {
    /// The callback has ended. What the caller is to run now: nothing, if others are around it, or
    /// if whoever called it is at that already.
    pub(super) fn leave(self) -> Option<Later> {
        drop(self);
        let later = STACK.try_with(|stack| {
            let begins = stack.depth.get() == 0 && !stack.runs_later.replace(true);
            begins.then(|| Later(()))
        });
        later.ok().flatten()
    }
}

/// What was put off, and what is while it is run.
#[must_use = "what was put off is run by this"]
pub(super) struct Later(());

impl Iterator for Later {
    type Item = MailboxHandle;

    fn next(&mut self) -> Option<MailboxHandle> {
        let next = STACK.try_with(|stack| stack.later.borrow_mut().pop_front());
        next.ok().flatten()
    }
}

impl Drop for Later {
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

/// Has a mailbox run when the outermost callback on this thread has ended.
///
/// # Errors
/// None is running; the mailbox comes back.
pub(super) fn at_the_end(mailbox: MailboxHandle) -> Result<(), MailboxHandle> {
    let mut mailbox = Some(mailbox);
    // Why ignored: then it is still there.
    let _ = STACK.try_with(|stack| {
        if stack.depth.get() > 0 {
            stack.later.borrow_mut().extend(mailbox.take());
        }
    });
    mailbox.map_or(Ok(()), Err)
}
