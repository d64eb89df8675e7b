//! Whether a model used the stacks at all.

use std::cell::Cell;

// The count must survive the reset between executions, so it is std's. loom and shuttle run the
// threads of a model on one thread of the system.
std::thread_local! {
    static PUSHES: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn count_push() {
    PUSHES.with(|pushes| pushes.set(pushes.get() + 1));
}

/// How many ids went into stacks so far, in all executions of the calling thread's models.
#[must_use]
pub fn pushes() -> usize {
    PUSHES.with(Cell::get)
}
