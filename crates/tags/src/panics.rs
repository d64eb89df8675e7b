//! Panics of wakers: the other waiters are still woken, and then the panic is resumed.

use inflight_steering::first_of;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Calls `f` for each item, also if a call panics; then resumes the first panic.
pub(crate) fn call_for_each<I>(items: impl IntoIterator<Item = I>, f: impl Fn(I)) {
    let call = |item| catch_unwind(AssertUnwindSafe(|| f(item)));
    let called = first_of(items.into_iter().map(call));
    called.unwrap_or_else(|panic| resume_unwind(panic));
}
