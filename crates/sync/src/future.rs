//! The smallest executor: one future, one thread.

use crate::atomic::{AtomicBool, Ordering};
use crate::{Arc, Parker, Unparker};
use std::future::Future;
use std::pin::pin;
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
