//! Waiting as a thread: the future of the other form, polled here, with a deadline.

use super::FlushDomain;
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, Parker, Unparker};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Whether the future is to be polled again. The thread's token does not say it: the future may
/// take the token itself.
struct Flag {
    set: AtomicBool,
    unparker: Unparker,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        // Relaxed: the token makes the flag visible, and the poll takes the lock under which the
        // waker was chosen.
        self.set.swap(true, Ordering::Relaxed);
        self.unparker.unpark();
    }
}

/// Polls `future` until it is ready or `deadline` has come. `wake_at` says when the waiting thread
/// is to call `on_time`.
pub(crate) fn wait_until<F: Future>(
    clock: &Clock,
    deadline: Option<Instant>,
    wake_at: impl Fn() -> Option<Instant>,
    on_time: impl Fn(),
    future: F,
) -> Option<F::Output> {
    let parker = Parker::current();
    let flag = Arc::new(Flag {
        set: AtomicBool::new(false),
        unparker: parker.unparker(),
    });
    let waker = Waker::from(flag.clone());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        while !flag.set.swap(false, Ordering::Relaxed) {
            let until = [deadline, wake_at()].into_iter().flatten().min();
            match until {
                None => parker.park(),
                Some(until) if parker.park_until(clock, until) => {}
                Some(_) if deadline.is_some_and(|deadline| clock.now() >= deadline) => return None,
                Some(_) => on_time(),
            }
        }
    }
}

impl FlushDomain {
    /// Waits as a thread for what one of the futures does; at most for `limit`.
    pub(crate) fn wait<F: Future>(&self, limit: Option<Duration>, future: F) -> Option<F::Output> {
        let clock = &self.inner.clock;
        let deadline = limit.map(|limit| clock.now() + limit);
        wait_until(
            clock,
            deadline,
            || self.next_deadline(),
            || self.tick(),
            future,
        )
    }
}
