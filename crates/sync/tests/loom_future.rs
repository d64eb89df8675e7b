//! The model of `block_on`, driving the shipped function.
//!
//! Seen to fail: the Release of the waker relaxed, or the Acquire of the one who sleeps.
#![cfg(loom)]

use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, block_on, thread};
use std::future::poll_fn;
use std::task::Poll;

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};

struct Message(UnsafeCell<u32>);

// SAFETY: it is written before the wake and read after it; that this is an order is what the
// model checks.
unsafe impl Sync for Message {}

/// What was done before a wake is visible to the poll that follows it, also if the wake comes
/// before the thread has gone to sleep.
#[test]
fn a_wake_hands_over_data() {
    check("a_wake_hands_over_data", UNBOUNDED, || {
        let message = Arc::new(Message(UnsafeCell::new(0)));
        let mut other = None;
        let got = block_on(poll_fn(|cx| {
            if other.is_some() {
                // SAFETY: the other thread has written it, and rung.
                return Poll::Ready(message.0.with(|m| unsafe { *m }));
            }
            let (message, waker) = (message.clone(), cx.waker().clone());
            other = Some(thread::spawn(move || {
                // SAFETY: nobody reads it before the wake.
                message.0.with_mut(|m| unsafe { *m = 1 });
                waker.wake();
            }));
            Poll::Pending
        }));
        assert_eq!(got, 1);
        other.unwrap().join().unwrap();
    });
}
