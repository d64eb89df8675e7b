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
