//! The model: two requests through one slot.
#![cfg(loom)]

use inflight::model::{check, check_fails};
use inflight::sync::thread;
use loom_downstream::Ring;
use std::sync::Arc;

/// One slot, two requests: the second waits for the slot of the first.
fn two_requests_arrive<const PLANTED: bool>() {
    let ring = Arc::new(Ring::<PLANTED>::new(1));
    let producer = thread::spawn({
        let ring = ring.clone();
        move || {
            ring.submit(1);
            ring.submit(2);
        }
    });
    assert_eq!((ring.next(), ring.next()), (1, 2));
    producer.join().unwrap();
}

#[test]
fn the_ring_delivers() {
    check(two_requests_arrive::<false>);
}

/// loom finds the planted bug as a deadlock.
#[test]
fn planted_bug_is_found() {
    let printed = check_fails(two_requests_arrive::<true>);
    assert!(printed.contains("deadlock"), "the lost wakeup: {printed}");
}
