//! The bitmap with waiting: the public type over the wait queues.

use crate::batched::Batched;
use crate::bitmap::Sbitmap;
use crate::error::PutError;
use crate::fairness::Fairness;
use crate::get::{self, Get};
use crate::queue_builder::SbitmapQueueBuilder;
use crate::snapshot::{QueueSnapshot, QueueStats};
use inflight_sync::time::{Clock, Instant};
use std::time::Duration;

/// A [`Sbitmap`] whose users can wait for a bit: as threads, with a deadline, or as tasks.
///
/// Share it in an `Arc`. All waiters stand in the same queues, whatever their kind.
///
/// # Fairness
///
/// See [`Fairness`]. The default is [`Fairness::Batched`].
///
/// # Progress
///
/// No waiter sleeps for ever while bits come back: at most `wake batch - 1` bits (7, and 0 below a
/// depth of 16) may be free while somebody sleeps, and only while another bit is in use.
///
/// ```
/// use inflight_sbitmap::SbitmapQueue;
/// use std::sync::Arc;
///
/// let queue = Arc::new(SbitmapQueue::builder(1).build().unwrap());
/// let bit = queue.get_blocking();
/// let waiter = std::thread::spawn({
///     let queue = queue.clone();
///     move || queue.get_blocking()
/// });
/// queue.put(bit).unwrap(); // wakes the waiter, should it sleep already
/// assert_eq!(waiter.join().unwrap(), bit);
/// ```
#[derive(Debug)]
pub struct SbitmapQueue {
    inner: Inner,
    fairness: Fairness,
    clock: Clock,
}

/// How ids are kept and how users wait.
#[derive(Debug)]
enum Inner {
    Batched(Batched),
}

impl Inner {
    const fn map(&self) -> &Sbitmap {
        match self {
            Self::Batched(queue) => &queue.map,
        }
    }
}

impl SbitmapQueue {
    /// A queue of `depth` bits, all free.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(256).build().unwrap();
    /// assert_eq!(queue.depth(), 256);
    /// ```
    pub fn builder(depth: usize) -> SbitmapQueueBuilder {
        SbitmapQueueBuilder::new(depth)
    }

    pub(crate) fn new(map: Sbitmap, fairness: Fairness, clock: Clock) -> Self {
        Self {
            inner: Inner::Batched(Batched::new(map)),
            fairness,
            clock,
        }
    }

    /// How many bits there are.
    ///
    /// ```
    /// assert_eq!(inflight_sbitmap::SbitmapQueue::builder(7).build().unwrap().depth(), 7);
    /// ```
    #[must_use]
    pub fn depth(&self) -> usize {
        self.inner.map().depth()
    }

    /// Takes a bit without waiting. With [`Fairness::Batched`] also past those who wait.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(1).build().unwrap();
    /// assert_eq!(queue.try_get(), Some(0));
    /// assert_eq!(queue.try_get(), None);
    /// ```
    #[must_use = "a bit that is dropped is never given back"]
    pub fn try_get(&self) -> Option<usize> {
        self.inner.map().try_get()
    }

    /// Takes up to `n` bits without waiting, pushes them to `bits` and returns how many.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(8).build().unwrap();
    /// let mut bits = Vec::new();
    /// assert_eq!(queue.try_get_batch(5, &mut bits), 5);
    /// queue.put_batch(&bits).unwrap();
    /// ```
    pub fn try_get_batch(&self, n: usize, bits: &mut Vec<usize>) -> usize {
        self.inner.map().try_get_batch(n, bits)
    }

    /// Takes a bit; the thread sleeps until there is one. For ever, if the depth is 0.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(1).build().unwrap();
    /// assert_eq!(queue.get_blocking(), 0);
    /// ```
    #[must_use = "a bit that is dropped is never given back"]
    pub fn get_blocking(&self) -> usize {
        match &self.inner {
            Inner::Batched(queue) => queue.get_blocking(),
        }
    }

    /// Takes a bit; the thread sleeps at most `timeout`, by the queue's clock.
    ///
    /// ```
    /// use std::time::Duration;
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(1).build().unwrap();
    /// assert_eq!(queue.get_timeout(Duration::from_millis(1)), Some(0));
    /// assert_eq!(queue.get_timeout(Duration::from_millis(1)), None);
    /// ```
    #[must_use = "a bit that is dropped is never given back"]
    pub fn get_timeout(&self, timeout: Duration) -> Option<usize> {
        self.get_deadline(self.clock.now() + timeout)
    }

    /// Takes a bit; the thread sleeps at most until `deadline`, a point on the queue's clock.
    ///
    /// ```
    /// use inflight_sbitmap::SbitmapQueue;
    /// use inflight_sync::time::Clock;
    /// let clock = Clock::manual();
    /// let queue = SbitmapQueue::builder(0).clock(clock.clone()).build().unwrap();
    /// assert_eq!(queue.get_deadline(clock.now()), None);
    /// ```
    #[must_use = "a bit that is dropped is never given back"]
    pub fn get_deadline(&self, deadline: Instant) -> Option<usize> {
        match &self.inner {
            Inner::Batched(queue) => queue.get_deadline(&self.clock, deadline),
        }
    }

    /// Takes a bit; the task waits until there is one.
    ///
    /// # Cancel safety
    ///
    /// A dropped future loses neither a bit nor a wakeup. It loses its place in the queue.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(1).build().unwrap();
    /// assert_eq!(inflight_sync::block_on(queue.get()), 0);
    /// ```
    pub fn get(&self) -> Get<'_> {
        Get(match &self.inner {
            Inner::Batched(queue) => get::Inner::Batched(queue.get()),
        })
    }

    /// Gives a bit back, and wakes waiters if a batch is complete.
    ///
    /// # Errors
    ///
    /// As [`Sbitmap::put`]; nobody is woken then.
    ///
    /// # Panics
    ///
    /// With the first panic of a waker. The bit is back by then, and all chosen waiters are told.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(1).build().unwrap();
    /// let bit = queue.get_blocking();
    /// queue.put(bit).unwrap();
    /// assert!(queue.put(bit).is_err());
    /// ```
    pub fn put(&self, bit: usize) -> Result<(), PutError> {
        match &self.inner {
            Inner::Batched(queue) => queue.put(bit),
        }
    }

    /// Gives several bits back with one look at the waiters.
    ///
    /// # Errors
    ///
    /// As [`Sbitmap::put_batch`]: all good bits are given back, and counted.
    ///
    /// # Panics
    ///
    /// As [`put`](SbitmapQueue::put).
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(4).build().unwrap();
    /// let mut bits = Vec::new();
    /// queue.try_get_batch(4, &mut bits);
    /// queue.put_batch(&bits).unwrap();
    /// ```
    pub fn put_batch(&self, bits: &[usize]) -> Result<(), PutError> {
        match &self.inner {
            Inner::Batched(queue) => queue.put_batch(bits),
        }
    }

    /// Makes every waiter look for a bit again: also at those that a batch not yet full holds back.
    ///
    /// Waiters that still find nothing go back to sleep, at the tail of a queue.
    ///
    /// # Panics
    ///
    /// With the first panic of a waker, after all waiters are told.
    ///
    /// ```
    /// inflight_sbitmap::SbitmapQueue::builder(4).build().unwrap().wake_all();
    /// ```
    pub fn wake_all(&self) {
        match &self.inner {
            Inner::Batched(queue) => queue.wake_all(),
        }
    }

    /// How many bits are in use; see [`Sbitmap::weight`].
    ///
    /// ```
    /// assert_eq!(inflight_sbitmap::SbitmapQueue::builder(4).build().unwrap().weight(), 0);
    /// ```
    #[must_use]
    pub fn weight(&self) -> usize {
        self.inner.map().weight()
    }

    /// Whether a bit is in use; see [`Sbitmap::is_any_set`].
    ///
    /// ```
    /// assert!(!inflight_sbitmap::SbitmapQueue::builder(4).build().unwrap().is_any_set());
    /// ```
    #[must_use]
    pub fn is_any_set(&self) -> bool {
        self.inner.map().is_any_set()
    }

    /// Whether this bit is in use; see [`Sbitmap::is_set`].
    ///
    /// ```
    /// assert!(!inflight_sbitmap::SbitmapQueue::builder(4).build().unwrap().is_set(0));
    /// ```
    #[must_use]
    pub fn is_set(&self, bit: usize) -> bool {
        self.inner.map().is_set(bit)
    }

    /// Calls `f` for each bit in use; see [`Sbitmap::for_each_set`].
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(4).build().unwrap();
    /// queue.for_each_set(0, |_| unreachable!("all bits are free"));
    /// ```
    pub fn for_each_set(&self, start: usize, f: impl FnMut(usize) -> bool) {
        self.inner.map().for_each_set(start, f);
    }

    /// How often users waited and were woken since the queue was made.
    ///
    /// ```
    /// assert_eq!(inflight_sbitmap::SbitmapQueue::builder(4).build().unwrap().stats().waits, 0);
    /// ```
    #[must_use]
    pub fn stats(&self) -> QueueStats {
        match &self.inner {
            Inner::Batched(queue) => queue.stats(),
        }
    }

    /// The state of map and queues, for people: `{}` and `{:#?}` print it.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(4).build().unwrap();
    /// assert_eq!(queue.snapshot().ws_active, 0);
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> QueueSnapshot {
        match &self.inner {
            Inner::Batched(queue) => {
                QueueSnapshot::new(queue.map.snapshot(), queue.state(), self.fairness)
            }
        }
    }
}
