//! Waiting for a condition that another thread ends.
//!
//! The protocol, with the names the loom models use:
//!
//! ```text
//! notifier:  N1 change the state                N2 fence
//!            N3 waiters == 0 -> done            N4 lock, take all, unlock, wake
//! waiter:    W1 lock, enqueue, waiters, unlock  W2 fence
//!            W3 condition gone -> leave         W4 sleep
//! ```
//!
//! Why no wakeup is lost: either N2 comes before W2 in the single order of SeqCst fences, and W3
//! sees the changed state; or W2 comes before N2, and N3 sees the waiter.

use super::{Notify, WaitList, WaiterKey, notify_each};
use crate::atomic::{AtomicUsize, Ordering, fence};
use crate::time::{Clock, Instant};
use crate::{Mutex, Parker};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A list of threads and tasks that wait while a condition holds.
///
/// The event has no state of its own. Contract: the thread that ends the condition changes the
/// state first and calls [`notify_all`](Event::notify_all) second; waiters pass the condition as a
/// closure. If data is passed through the state, its store is `Release` and the closure's load
/// `Acquire`.
///
/// ```
/// use inflight_sync::atomic::{AtomicUsize, Ordering};
/// use inflight_sync::{Arc, thread, wait::Event};
///
/// let busy = Arc::new((AtomicUsize::new(1), Event::new()));
/// let worker = thread::spawn({
///     let busy = busy.clone();
///     move || {
///         busy.0.fetch_sub(1, Ordering::Release);
///         busy.1.notify_all();
///     }
/// });
/// busy.1.wait_while(|| busy.0.load(Ordering::Acquire) > 0); // or await `listen_while`
/// worker.join().unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Event {
    /// Length of the list; written under its lock, read without it in N3.
    waiters: AtomicUsize,
    list: Mutex<WaitList>,
}

impl Event {
    /// Makes an event without waiters.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes all waiters check their condition again. Without waiters it costs one fence and one
    /// load.
    pub fn notify_all(&self) {
        // Ordering: N2, pairs with the fence in `Event::enter` (W2).
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) == 0 {
            return;
        }
        let woken = {
            let mut list = self.list.lock();
            self.waiters.store(0, Ordering::Relaxed);
            list.drain()
        };
        notify_each(woken);
    }

    /// Sleeps while `condition` holds.
    pub fn wait_while(&self, condition: impl FnMut() -> bool) {
        let done = self.wait_thread(condition, |parker| {
            parker.park();
            true
        });
        debug_assert!(done, "a wait without deadline ends only with its condition");
    }

    /// Sleeps while `condition` holds, at most until `deadline`. Returns whether the condition
    /// ended.
    ///
    /// ```
    /// use inflight_sync::{time::Clock, wait::Event};
    /// let clock = Clock::manual();
    /// assert!(!Event::new().wait_while_until(&clock, clock.now(), || true), "timed out");
    /// ```
    pub fn wait_while_until(
        &self,
        clock: &Clock,
        deadline: Instant,
        condition: impl FnMut() -> bool,
    ) -> bool {
        self.wait_thread(condition, |parker| parker.park_until(clock, deadline))
    }

    /// The blocking wait. `sleep` returns whether to continue waiting.
    fn wait_thread(
        &self,
        mut condition: impl FnMut() -> bool,
        mut sleep: impl FnMut(&Parker) -> bool,
    ) -> bool {
        if !condition() {
            return true;
        }
        let parker = Parker::current();
        let mut waiter = EventWaiter {
            event: self,
            key: None,
        };
        loop {
            self.enter(&mut waiter.key, Notify::Thread(parker.unparker()));
            if !condition() {
                return true;
            }
            if !sleep(&parker) {
                return !condition();
            }
        }
    }

    /// Waits as a task while `condition` holds. Dropping the future loses nothing.
    pub fn listen_while<F: FnMut() -> bool + Unpin>(&self, condition: F) -> WaitWhile<'_, F> {
        WaitWhile {
            waiter: EventWaiter {
                event: self,
                key: None,
            },
            condition,
        }
    }

    /// Waits as [`listen_while`](Event::listen_while), for futures that keep their place apart from
    /// the event. Call [`leave`](Event::leave) before the place is dropped.
    ///
    /// ```
    /// use inflight_sync::wait::Event;
    /// use std::task::{Context, Waker};
    /// let (event, mut place) = (Event::new(), None);
    /// let cx = Context::from_waker(Waker::noop());
    /// assert!(event.poll_while(&mut place, &cx, || true).is_pending());
    /// event.leave(&mut place);
    /// ```
    pub fn poll_while(
        &self,
        place: &mut Option<WaiterKey>,
        cx: &Context<'_>,
        mut condition: impl FnMut() -> bool,
    ) -> Poll<()> {
        if !condition() {
            self.leave(place);
            return Poll::Ready(());
        }
        self.enter(place, Notify::Task(cx.waker().clone()));
        if condition() {
            return Poll::Pending;
        }
        self.leave(place);
        Poll::Ready(())
    }

    /// Gives up a place that [`poll_while`](Event::poll_while) has taken, if any.
    pub fn leave(&self, place: &mut Option<WaiterKey>) {
        let Some(key) = place.take() else { return };
        let mut list = self.list.lock();
        let left = list.remove(key);
        self.waiters.store(list.len(), Ordering::Relaxed);
        drop(list);
        drop(left);
    }

    /// W1 and W2: puts the waiter into the list, to be woken by `notify`.
    fn enter(&self, place: &mut Option<WaiterKey>, notify: Notify) {
        let mut list = self.list.lock();
        let replaced = match *place {
            Some(key) => list.replace(key, notify),
            None => Err(notify),
        };
        let outdated = replaced.map_err(|notify| *place = Some(list.push_back(notify, 0)));
        self.waiters.store(list.len(), Ordering::Relaxed);
        // A waker may run anything when it is dropped, so not under the lock.
        drop(list);
        drop(outdated);
        // Ordering: W2, pairs with the fence in `notify_all` (N2).
        fence(Ordering::SeqCst);
    }
}

/// One waiter; leaves the list when dropped.
#[derive(Debug)]
struct EventWaiter<'a> {
    event: &'a Event,
    key: Option<WaiterKey>,
}

impl Drop for EventWaiter<'_> {
    fn drop(&mut self) {
        self.event.leave(&mut self.key);
    }
}

/// The future of [`Event::listen_while`].
///
/// ```
/// let event = inflight_sync::wait::Event::new();
/// let wait: inflight_sync::wait::WaitWhile<'_, _> = event.listen_while(|| false);
/// inflight_sync::block_on(wait);
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct WaitWhile<'a, F> {
    waiter: EventWaiter<'a>,
    condition: F,
}

crate::debug_fields!([F] WaitWhile<'_, F>: |this| waiter = this.waiter);

impl<F: FnMut() -> bool + Unpin> Future for WaitWhile<'_, F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let waiter = &mut this.waiter;
        waiter
            .event
            .poll_while(&mut waiter.key, cx, &mut this.condition)
    }
}
