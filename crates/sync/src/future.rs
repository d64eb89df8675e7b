//! The smallest executor: one future, one thread.

use crate::{Parker, Unparker};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

struct Unpark(Unparker);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on the calling thread until it is ready, sleeping in between.
///
/// Works on all three back ends, so async code can be model-checked without an executor.
///
/// ```
/// assert_eq!(inflight_sync::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let parker = Parker::current();
    let waker = Waker::from(std::sync::Arc::new(Unpark(parker.unparker())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return value,
            Poll::Pending => parker.park(),
        }
    }
}
