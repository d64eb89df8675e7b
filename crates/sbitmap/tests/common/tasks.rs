//! Tasks polled by hand, whose wakes are counted.
#![allow(dead_code, reason = "each test file uses a part")]

use inflight_sbitmap::{Get, SbitmapQueue};
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};

/// Counts how often it was woken.
#[derive(Default)]
pub(crate) struct Count(AtomicUsize);

impl Count {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that waits for one bit.
pub(crate) struct Task<'a> {
    future: Pin<Box<Get<'a>>>,
    count: Arc<Count>,
    seen: usize,
}

impl<'a> Task<'a> {
    /// Begins to wait: the first poll finds nothing.
    pub(crate) fn waiting(queue: &'a SbitmapQueue) -> Self {
        let mut task = Self::new(queue);
        assert_eq!(task.poll(), None, "no bit was free");
        task
    }

    pub(crate) fn new(queue: &'a SbitmapQueue) -> Self {
        Self {
            future: Box::pin(queue.get()),
            count: Arc::default(),
            seen: 0,
        }
    }

    pub(crate) fn poll(&mut self) -> Option<usize> {
        self.seen = self.count.get();
        let waker = Waker::from(self.count.clone());
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(bit) => Some(bit.unwrap()),
            Poll::Pending => None,
        }
    }

    /// How often it was woken.
    pub(crate) fn wakes(&self) -> usize {
        self.count.get()
    }

    /// Woken since its last poll.
    pub(crate) fn is_woken(&self) -> bool {
        self.count.get() > self.seen
    }
}

/// Polls a future once, with a waker that nobody looks at.
pub(crate) fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
