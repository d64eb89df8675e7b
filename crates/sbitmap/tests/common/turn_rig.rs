//! What tests of turns share: builders of each kind, and tasks polled by hand.
#![allow(dead_code, reason = "each test file uses its part")]

use inflight_sbitmap::{Engine, Fairness, SbitmapQueue, SbitmapQueueBuilder};
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::{Arc, thread};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

pub(crate) type Mode = (Fairness, Engine);

pub(crate) fn builder(depth: usize, (fairness, engine): Mode) -> SbitmapQueueBuilder {
    SbitmapQueue::builder(depth)
        .fairness(fairness)
        .engine(engine)
}

/// A queue whose bits are all taken.
pub(crate) fn taken(depth: usize, fairness: Mode) -> (Arc<SbitmapQueue>, Vec<usize>) {
    let queue = builder(depth, fairness).build().unwrap();
    let mut bits = Vec::new();
    assert_eq!(queue.try_get_batch(depth, &mut bits), depth);
    (Arc::new(queue), bits)
}

pub(crate) fn wait_for_waiters(queue: &SbitmapQueue, n: usize) {
    while queue.snapshot().ws_active != n {
        thread::yield_now();
    }
}

#[derive(Default)]
pub(crate) struct Told(pub(crate) AtomicBool);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
