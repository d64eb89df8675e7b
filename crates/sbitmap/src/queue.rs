//! The bitmap with waiting: the public type over the wait queues.

use crate::batched::{Batched, WakePolicy};
use crate::bitmap::Sbitmap;
use crate::error::{PutError, ResizeError};
use crate::fairness::Fairness;
use crate::get::{self, Get};
use crate::mask::BitMask;
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

    pub(crate) fn new(map: Sbitmap, fairness: Fairness, policy: WakePolicy, clock: Clock) -> Self {
        Self {
            inner: Inner::Batched(Batched::new(map, policy)),
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

    /// The largest depth the queue can be resized to.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(7).max_depth(9).build().unwrap();
    /// assert_eq!(queue.max_depth(), 9);
    /// ```
    #[must_use]
    pub fn max_depth(&self) -> usize {
        self.inner.map().max_depth()
    }

    /// Changes the depth while others get, wait and put; see [`Sbitmap::resize`].
    ///
    /// Waiters stay, and look again: they get the bits that growth makes. The wake batch follows
    /// the depth.
    ///
    /// # Errors
    ///
    /// As [`Sbitmap::resize`].
    ///
    /// # Panics
    ///
    /// As [`wake_all`](SbitmapQueue::wake_all). The depth has changed by then.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(1).max_depth(2).build().unwrap();
    /// assert_eq!(queue.get_blocking(), 0);
    /// assert_eq!(queue.try_get(), None);
    /// queue.resize(2).unwrap();
    /// assert_eq!(queue.get_blocking(), 1);
    /// ```
    pub fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        match &self.inner {
            Inner::Batched(queue) => queue.resize(depth),
        }
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

    /// Takes up to `n` neighbouring bits of one word without waiting; see
    /// [`Sbitmap::try_get_mask`].
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(64).build().unwrap();
    /// let range = queue.try_get_mask(8).unwrap();
    /// assert_eq!(range.count(), 8);
    /// queue.put_mask(range).unwrap();
    /// ```
    #[must_use = "bits that are dropped are never given back"]
    pub fn try_get_mask(&self, n: usize) -> Option<BitMask> {
        self.inner.map().try_get_mask(n)
    }

    /// Takes a bit without waiting if fewer than `limit` of those open to this limit are taken; see
    /// [`Sbitmap::try_get_shallow`].
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(64).build().unwrap();
    /// queue.set_min_shallow_depth(4);
    /// assert_eq!(std::iter::from_fn(|| queue.try_get_shallow(4)).count(), 4);
    /// ```
    #[must_use = "a bit that is dropped is never given back"]
    pub fn try_get_shallow(&self, limit: usize) -> Option<usize> {
        self.inner.map().try_get_shallow(limit)
    }

    /// Announces the smallest limit shallow users come with, before they come.
    ///
    /// A user who waits because its `limit` bits are in use sees only as many puts, so the wake
    /// batch of [`Fairness::Batched`] must not be larger: it becomes an eighth of the smaller of
    /// depth and limit, from 1 to 8.
    ///
    /// # Panics
    ///
    /// As [`wake_all`](SbitmapQueue::wake_all): all waiters look again.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(64).build().unwrap();
    /// assert_eq!(queue.snapshot().wake_batch, 8);
    /// queue.set_min_shallow_depth(16);
    /// assert_eq!(queue.snapshot().wake_batch, 2);
    /// ```
    pub fn set_min_shallow_depth(&self, limit: usize) {
        match &self.inner {
            Inner::Batched(queue) => queue.set_min_shallow_depth(limit),
        }
    }

    /// One more user shares the bits, each of whom is kept to its share by its own counting.
    ///
    /// The wake batch of [`Fairness::Batched`] becomes an eighth of a share, from 1 to 8: a user
    /// that has its share in use waits for its own puts.
    ///
    /// # Panics
    ///
    /// As [`wake_all`](SbitmapQueue::wake_all): all waiters look again.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(64).build().unwrap();
    /// queue.add_user();
    /// assert_eq!(queue.snapshot().wake_batch, 8);
    /// queue.add_user(); // 32 bits each
    /// assert_eq!(queue.snapshot().wake_batch, 4);
    /// queue.remove_user();
    /// assert_eq!(queue.snapshot().wake_batch, 8);
    /// ```
    pub fn add_user(&self) {
        match &self.inner {
            Inner::Batched(queue) => queue.set_users(|users| users.saturating_add(1)),
        }
    }

    /// One user less; see [`add_user`](SbitmapQueue::add_user).
    ///
    /// # Panics
    ///
    /// As [`wake_all`](SbitmapQueue::wake_all): all waiters look again.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(64).build().unwrap();
    /// queue.add_user();
    /// queue.remove_user();
    /// ```
    pub fn remove_user(&self) {
        match &self.inner {
            Inner::Batched(queue) => queue.set_users(|users| users.saturating_sub(1)),
        }
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

    /// Gives the bits of a mask back in one atomic step, with one look at the waiters.
    ///
    /// # Errors
    ///
    /// As [`Sbitmap::put_mask`]: all good bits are given back, and counted.
    ///
    /// # Panics
    ///
    /// As [`put`](SbitmapQueue::put).
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(64).build().unwrap();
    /// let range = queue.try_get_mask(3).unwrap();
    /// queue.put_mask(range).unwrap();
    /// assert!(queue.put_mask(range).is_err());
    /// ```
    pub fn put_mask(&self, bits: BitMask) -> Result<(), PutError> {
        match &self.inner {
            Inner::Batched(queue) => queue.put_mask(bits),
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
                let mut snapshot =
                    QueueSnapshot::new(queue.map.snapshot(), queue.state(), self.fairness);
                snapshot.min_shallow_depth = queue.min_shallow_depth();
                snapshot
            }
        }
    }
}
