//! The smallest executor: one future, one thread.

use crate::atomic::{AtomicBool, Ordering};
use crate::time::{Clock, Instant};
use crate::{Arc, Parker, Unparker};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};

/// The news is kept here and the thread's token is only the bell: the future may itself block on
/// this thread and take the token away.
struct Bell {
    rung: AtomicBool,
    unparker: Unparker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Ordering: Release pairs with the Acquire in `block_on`.
        self.rung.swap(true, Ordering::Release);
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
    let parker = Parker::current();
    let bell = Arc::new(Bell {
        rung: AtomicBool::new(false),
        unparker: parker.unparker(),
    });
    let waker = Waker::from(bell.clone());
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        // Ordering: Acquire pairs with the Release in `Bell::wake`.
        while !bell.rung.swap(false, Ordering::Acquire) {
            parker.park();
        }
    }
}

/// As [`block_on`], at most until a deadline on a clock. `None`: it has passed.
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
    mut future: Pin<&mut (dyn Future<Output = T> + '_)>,
) -> Option<T> {
    let Some(deadline) = deadline else {
        return Some(block_on(future));
    };
    let parker = Parker::current();
    let bell = Arc::new(Bell {
        rung: AtomicBool::new(false),
        unparker: parker.unparker(),
    });
    let waker = Waker::from(bell.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return Some(value);
        }
        // Ordering: Acquire pairs with the Release in `Bell::wake`.
        while !bell.rung.swap(false, Ordering::Acquire) {
            if !parker.park_until(clock, deadline) {
                // What came just in time is not thrown away.
                return match future.as_mut().poll(&mut cx) {
                    Poll::Ready(value) => Some(value),
                    Poll::Pending => None,
                };
            }
        }
    }
}
