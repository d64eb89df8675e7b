//! Waiting until a number of events have happened.

use crate::error::WaitError;
use crate::panics;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::poll_until;
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

/// A number of events that have to happen; the waiters are woken when none is left.
#[derive(Debug)]
pub(crate) struct Completion {
    left: AtomicUsize,
    event: Event,
}

impl Completion {
    /// With so many events.
    pub(crate) fn new(left: usize) -> Self {
        Self {
            left: AtomicUsize::new(left),
            event: Event::new(),
        }
    }

    /// Adds an event.
    pub(crate) fn add(&self) {
        // Relaxed: an event is left of which the caller is a part, or the thread that brings the
        // number to 0 sees this through a lock.
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// An event has happened. Returns whether none is left.
    pub(crate) fn done(&self) -> bool {
        // Ordering: Release, pairs with the Acquire in `is_done`: a waiter sees what came before
        // each event.
        let was_last = self.left.fetch_sub(1, Ordering::Release) == 1;
        if was_last {
            panics::notify_all(&self.event);
        }
        was_last
    }

    pub(crate) fn is_done(&self) -> bool {
        // Ordering: Acquire, pairs with `done`.
        self.left.load(Ordering::Acquire) == 0
    }

    /// As [`wait_unless`], until no event is left.
    pub(crate) async fn wait_unless(
        &self,
        refuse: impl Fn() -> Result<(), WaitError> + Unpin,
    ) -> Result<(), WaitError> {
        wait_unless(&self.event, || !self.is_done(), refuse).await
    }
}

/// Waits while `waits`, unless `refuse` refuses. Each poll calls both again: an item may await a
/// future that another thread has polled before, and then wait for its own return.
pub(crate) async fn wait_unless(
    event: &Event,
    waits: impl Fn() -> bool + Unpin,
    refuse: impl Fn() -> Result<(), WaitError> + Unpin,
) -> Result<(), WaitError> {
    let mut refused = Ok(());
    let goes_on = || {
        let waits = waits();
        refused = if waits { refuse() } else { Ok(()) };
        waits && refused.is_ok()
    };
    event.listen_while(goes_on).await;
    refused
}

/// Waits on a thread for at most `limit` on `clock`.
pub(crate) fn within<T, E: From<WaitError>>(
    clock: &Clock,
    limit: Duration,
    wait: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let in_time = poll_until(clock, Some(clock.now() + limit), pin!(wait));
    in_time.unwrap_or_else(|| Err(WaitError::TimedOut.into()))
}

/// The future of a wait.
///
/// Does nothing until it is polled, except what the method that made it says. Dropping it ends the
/// wait and loses no wakeup and no item.
#[must_use = "futures do nothing unless polled"]
pub struct Wait<'a, T>(Pin<Box<dyn Future<Output = T> + Send + 'a>>);

impl<'a, T> Wait<'a, T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self(Box::pin(future))
    }
}

impl<T> Future for Wait<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(cx)
    }
}

inflight_sync::debug_fields!([T] Wait<'_, T>);
