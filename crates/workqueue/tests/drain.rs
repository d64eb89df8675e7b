//! Drains and destroys that end before their queue is empty: in time, or with their future.
//!
//! A system is dropped at the end of a test that has gone well: else that would wait.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::{Arc, Mutex, block_on};
use inflight_workqueue::{JoinError, QueueError, Wait, WaitError, Work, Workqueue};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use support::{Level, bound, held_work, system, until};

/// The future gets ready without being waited for.
fn ends<T>(what: &str, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut result = None;
    let poll = || {
        if let Poll::Ready(value) = future.as_mut().poll(&mut noop()) {
            result = Some(value);
        }
        result.is_some()
    };
    until(poll, || format!("{what} hangs"));
    result.expect("it is ready")
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Runs `give_up` while an item runs, lets that end, and closes the queue.
fn is_empty_after(what: &str, give_up: impl FnOnce(&Workqueue)) {
    let sys = ManuallyDrop::new(system());
    let wq = bound(&sys);
    let (work, hold, begun) = held_work();
    assert!(wq.queue(&work).unwrap().is_queued());
    begun.wait(1);
    give_up(&wq);
    assert!(
        wq.queue(&Work::new(|| ())).unwrap().is_queued(),
        "it goes on"
    );
    hold.raise();
    wq.flush_blocking().unwrap();
    ends(&format!("a drain after {what}"), wq.drain()).unwrap();
    ends(&format!("a destroy after {what}"), wq.destroy()).unwrap();
    drop(ManuallyDrop::into_inner(sys));
}

#[test]
fn a_drain_that_is_given_up_leaves_no_count() {
    is_empty_after("one that was late", |wq| {
        let late = wq.drain_timeout(Duration::ZERO);
        assert_eq!(late, Err(WaitError::TimedOut));
    });
    is_empty_after("one that was dropped", |wq| drop(wq.drain()));
    is_empty_after("one of two that were dropped", |wq| {
        let other = wq.drain();
        drop(wq.drain());
        drop(other);
    });
}

/// Polled when it is woken, and holds a held item up.
#[derive(Clone, Default)]
struct Signal(Arc<Mutex<Option<Waker>>>);

impl Future for Signal {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let before = self.0.lock().replace(cx.waker().clone());
        if before.is_some() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Signal {
    fn is_awaited(&self) -> bool {
        self.0.lock().is_some()
    }

    fn wake(&self) {
        let waker = self.0.lock().clone();
        waker.expect("it is awaited").wake();
    }
}

/// A waker may queue after the queue was empty and before the drain has ended.
#[test]
fn a_waker_at_the_end_of_a_drain_leaves_no_count() {
    let sys = ManuallyDrop::new(system());
    let wq = bound(&sys);
    let (signal, (work, hold, begun)) = (Signal::default(), held_work());
    let future = wq.spawn_future({
        let (signal, wq) = (signal.clone(), wq.clone());
        async move {
            signal.await;
            // As an item of the queue it may.
            assert!(wq.queue(&work).unwrap().is_queued());
        }
    });
    until(|| signal.is_awaited(), || "it is not polled".to_owned());
    wq.flush_blocking().unwrap();
    let drain = wq.drain();
    signal.wake();
    begun.wait(1);
    drop(drain);
    hold.raise();
    future.wait().unwrap();
    wq.flush_blocking().unwrap();
    ends("the next drain", wq.drain()).unwrap();
    drop(ManuallyDrop::into_inner(sys));
}

/// What a destroy promises holds, whoever still waits for it.
#[test]
fn a_destroy_that_is_given_up_ends_the_futures() {
    let late = |wq: &Workqueue| {
        let late = wq.destroy_timeout(Duration::ZERO);
        assert_eq!(late, Err(WaitError::TimedOut));
    };
    let dropped = |wq: &Workqueue| drop(wq.destroy());
    let during_a_drain = |wq: &Workqueue| {
        let drain = wq.drain();
        drop(wq.destroy());
        drop(drain);
    };
    let give_up: [fn(&Workqueue); 3] = [late, dropped, during_a_drain];
    for (n, give_up) in give_up.into_iter().enumerate() {
        let sys = ManuallyDrop::new(system());
        let wq = bound(&sys);
        let ((work, hold, begun), signal) = (held_work(), Signal::default());
        assert!(wq.queue(&work).unwrap().is_queued());
        begun.wait(1);
        let mut future = wq.spawn_future(signal.clone());
        until(|| signal.is_awaited(), || "it is not polled".to_owned());
        give_up(&wq);
        assert!(!future.is_finished(), "an item runs");
        hold.raise();
        let ended = ends(&format!("the future, {n},"), &mut future);
        let destroyed = JoinError::Rejected(QueueError::Destroyed);
        assert_eq!(ended.unwrap_err().to_string(), destroyed.to_string());
        drop(ManuallyDrop::into_inner(sys));
    }
}

/// Two who destroy a queue, one of whom does not wait: for the other one the futures have ended.
#[test]
fn who_waits_for_a_destroy_finds_the_futures_ended() {
    let sys = ManuallyDrop::new(system());
    let wq = bound(&sys);
    let ((work, hold, begun), signal) = (held_work(), Signal::default());
    assert!(wq.queue(&work).unwrap().is_queued());
    begun.wait(1);
    let future = wq.spawn_future(signal.clone());
    until(|| signal.is_awaited(), || "it is not polled".to_owned());
    let destroy = wq.destroy();
    drop(wq.destroy());
    hold.raise();
    ends("the destroy", destroy).unwrap();
    assert!(future.is_finished());
    drop(ManuallyDrop::into_inner(sys));
}

/// An item, or a poll of a future, that is given the wait for the end of its own queue.
#[test]
fn an_item_is_not_to_wait_for_a_drain_of_its_queue_that_others_began() {
    for (destroys, is_future) in [(false, false), (true, false), (false, true)] {
        let sys = ManuallyDrop::new(system());
        let wq = bound(&sys);
        let (begun, given) = (Level::new(), Level::new());
        let wait = Arc::new(Mutex::new(None));
        let take = {
            let (begun, given, wait) = (begun.clone(), given.clone(), wait.clone());
            move || -> Wait<'static, Result<(), WaitError>> {
                begun.raise();
                given.wait(1);
                wait.lock().take().unwrap()
            }
        };
        let item = if is_future {
            wq.spawn_future(async move { take().await })
        } else {
            wq.spawn(move || block_on(take()))
        };
        begun.wait(1);
        *wait.lock() = Some(if destroys { wq.destroy() } else { wq.drain() });
        given.raise();
        let ended = ends(
            &format!("what waits for itself, future: {is_future},"),
            item,
        );
        assert_eq!(ended.unwrap(), Err(WaitError::WouldDeadlock));
        drop(ManuallyDrop::into_inner(sys));
    }
}
