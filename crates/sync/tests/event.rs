//! What users of `Event` and `block_on` rely on, on real threads.
#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, block_on, thread};
use std::time::Duration;

#[test]
fn every_waiter_of_both_kinds_is_woken() {
    let shared = Arc::new((AtomicUsize::new(8), Event::new()));
    let waiters: Vec<_> = (0..6)
        .map(|i| {
            let shared = shared.clone();
            thread::spawn(move || {
                let busy = || shared.0.load(Ordering::Acquire) > 0;
                if i % 2 == 0 {
                    shared.1.wait_while(busy);
                } else {
                    block_on(shared.1.listen_while(busy));
                }
                shared.0.load(Ordering::Acquire)
            })
        })
        .collect();
    for _ in 0..8 {
        shared.0.fetch_sub(1, Ordering::Release);
        shared.1.notify_all();
        thread::yield_now();
    }
    for waiter in waiters {
        assert_eq!(waiter.join().unwrap(), 0);
    }
}

#[test]
fn a_timed_wait_ends_with_the_deadline_or_with_the_condition() {
    let clock = Clock::manual();
    let deadline = clock.now() + Duration::from_secs(1);
    let shared = Arc::new((AtomicUsize::new(1), Event::new()));
    let timed = |clock: &Clock| {
        let (shared, clock) = (shared.clone(), clock.clone());
        thread::spawn(move || {
            let busy = || shared.0.load(Ordering::Acquire) > 0;
            shared.1.wait_while_until(&clock, deadline, busy)
        })
    };
    let too_late = timed(&clock);
    while clock.sleepers() == 0 {
        thread::yield_now();
    }
    clock.advance(Duration::from_secs(1));
    assert!(!too_late.join().unwrap());

    let other = Clock::manual();
    let in_time = timed(&other);
    while other.sleepers() == 0 {
        thread::yield_now();
    }
    shared.0.store(0, Ordering::Release);
    shared.1.notify_all();
    assert!(in_time.join().unwrap());
}

/// The future's own thread blocks inside `poll` and takes the thread's token; the news of the wake
/// must survive that.
#[test]
fn block_on_survives_a_future_that_blocks() {
    use inflight_sync::Parker;
    use std::task::Poll;

    let mut polls = 0;
    block_on(std::future::poll_fn(|cx| {
        polls += 1;
        if polls > 1 {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Parker::current().park(); // takes the token that the wake left
        Poll::Pending
    }));
    assert_eq!(polls, 2);
}

/// The last handle of a waker may drop a waiter of the same event.
#[test]
fn a_waker_may_own_another_waiter_of_the_event() {
    use inflight_sync::Mutex;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Wake, Waker};

    type Other = Pin<Box<dyn Future<Output = ()> + Send>>;
    struct Owns(#[allow(dead_code, reason = "dropped with the waker")] Mutex<Option<Other>>);
    impl Wake for Owns {
        fn wake(self: Arc<Self>) {}
    }

    let event = Arc::new(Event::new());
    let mut other: Other = Box::pin({
        let event = event.clone();
        async move { event.listen_while(|| true).await }
    });
    let mut cx = Context::from_waker(Waker::noop());
    assert!(other.as_mut().poll(&mut cx).is_pending());
    let waker = Waker::from(Arc::new(Owns(Mutex::new(Some(other)))));
    let mut mine = Box::pin(event.listen_while(|| true));
    assert!(
        mine.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(waker);
    assert!(mine.as_mut().poll(&mut cx).is_pending());
}
