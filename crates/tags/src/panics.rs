//! Panics of wakers: the other waiters are still woken, and then the panic is resumed.

use inflight_sync::panics::FirstPanic;

/// Calls `f` for each item, also if a call panics; then resumes the first panic.
pub(crate) fn call_for_each<I>(items: impl IntoIterator<Item = I>, f: impl Fn(I)) {
    let mut panic = FirstPanic::default();
    items.into_iter().for_each(|item| {
        panic.run(|| f(item));
    });
    panic.finish();
}
