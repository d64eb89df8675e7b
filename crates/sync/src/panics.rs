//! What a panic has thrown.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops it. Its own destructor may panic.
pub(crate) fn dispose(panic: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // It may throw the like of itself for ever: one is dropped, the next leaks.
        mem::forget(next);
    }
}
