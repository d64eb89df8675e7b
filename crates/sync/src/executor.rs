//! The smallest executor: one future, one thread.

use crate::atomic::{AtomicBool, Ordering};
use crate::time::{Clock, Instant};
use crate::{Arc, Parker, Unparker};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};

/// Keeps the wake. The thread's token only ends its sleep: the future may itself block on this
/// thread and take the token.
struct ThreadWaker {
    notified: AtomicBool,
    unparker: Unparker,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        // Ordering: Release pairs with the Acquire in `poll_on`.
        self.notified.swap(true, Ordering::Release);
        self.unparker.unpark();
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
    let forever = |parker: &Parker| {
        parker.park();
        true
    };
    poll_on(pin!(future), forever).expect("a sleep without a deadline never times out")
}

/// Polls as [`block_on`], at most until a deadline on a clock. `None`: it has passed.
///
/// ```
/// use inflight_sync::time::Clock;
/// use std::{future::pending, pin::pin};
/// let clock = Clock::manual();
/// assert_eq!(inflight_sync::poll_until(&clock, Some(clock.now()), pin!(pending::<()>())), None);
/// ```
#[must_use = "the time may have been up first"]
pub fn poll_until<T>(
    clock: &Clock,
    deadline: Option<Instant>,
    future: Pin<&mut (dyn Future<Output = T> + '_)>,
) -> Option<T> {
    match deadline {
        Some(deadline) => poll_on(future, |parker| parker.park_until(clock, deadline)),
        None => Some(block_on(future)),
    }
}

/// Polls until the future is ready, or `sleep` says that the time is up. Then it polls once more,
/// so that a result that came just in time is not lost.
fn poll_on<F: Future + ?Sized>(
    mut future: Pin<&mut F>,
    sleep: impl Fn(&Parker) -> bool,
) -> Option<F::Output> {
    let parker = Parker::current();
    let wakeup = Arc::new(ThreadWaker {
        notified: AtomicBool::new(false),
        unparker: parker.unparker(),
    });
    let waker = Waker::from(wakeup.clone());
    let mut cx = Context::from_waker(&waker);
    let mut in_time = true;
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return Some(value),
            Poll::Pending if !in_time => return None,
            Poll::Pending => {}
        }
        // Ordering: Acquire pairs with the Release in `ThreadWaker::wake`.
        while in_time && !wakeup.notified.swap(false, Ordering::Acquire) {
            in_time = sleep(&parker);
        }
    }
}
