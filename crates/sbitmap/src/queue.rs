//! The bitmap with waiting: the public type over the wait queues.

use crate::batched::Batched;
use crate::engine::BackEnd;
use crate::error::{PutError, ResizeError};
use crate::fairness::Fairness;
use crate::local::{FastPut, PerCpuStore};
use crate::mask::BitMask;
use crate::snapshot::{QueueSnapshot, QueueStats};
use crate::store::{SharedStore, Store as _};
use crate::turns::Turns;
use inflight_sync::percpu::Backend;
use inflight_sync::rseq::Rseq;
use inflight_sync::time::Clock;

/// A [`Sbitmap`](crate::Sbitmap) with waiting: for threads, threads with a deadline, and tasks.
///
/// Share it in an `Arc`. Waiters of all kinds wait in the same queues.
///
/// Not for signal handlers: when ids run short a get or put takes locks, and a handler that
/// interrupts another call in its thread can deadlock. `catch_unwind` around a reference to the
/// queue needs `AssertUnwindSafe`, which is true: a panic of a waker loses nothing. Such a panic
/// comes out of the call that woke: also of one that takes ids or begins to wait, which may find
/// something for other waiters.
///
/// # Fairness
///
/// [`Fairness`] describes the modes and helps to choose. The default is [`Fairness::Fair`].
///
/// A bit is a plain number: a task that is cancelled, or a thread that panics, while it has a bit
/// leaks the bit. [`id`](SbitmapQueue::id) returns a guard that puts the bit.
///
/// # Progress
///
/// No waiter sleeps for ever while bits come back. With [`Fairness::Fair`] and [`Fairness::Fifo`] a
/// bit is free while a waiter sleeps only as long as a woken thread is under way. With
/// [`Fairness::Batched`] at most `wake batch - 1` bits (7, and 0 below a depth of 16) may be free
/// while a waiter sleeps, and only while another bit is in use. This assumes that each waiting
/// future is polled when it is woken, or dropped; see [`get`](SbitmapQueue::get).
///
/// ```
/// use inflight_sbitmap::{Engine, Fairness, SbitmapQueue};
/// use std::sync::Arc;
///
/// let queue = SbitmapQueue::builder(1).max_depth(2).engine(Engine::Shared).build().unwrap();
/// let queue = Arc::new(queue);
/// assert_eq!((queue.depth(), queue.max_depth(), queue.bits_per_word()), (1, 2, 64));
/// assert_eq!(queue.fairness(), Fairness::fair());
/// assert!(!queue.clock().is_manual() && !queue.is_closed());
/// let bit = queue.get_blocking().unwrap();
/// assert!(queue.is_set(bit) && queue.is_any_set() && queue.weight() == 1);
/// queue.for_each_set(0, |set| set == bit);
/// let waiter = std::thread::spawn({
///     let queue = queue.clone();
///     move || queue.get_blocking()
/// });
/// queue.put(bit).unwrap(); // wakes the waiter, should it sleep already
/// assert_eq!(waiter.join().unwrap(), Ok(bit));
/// queue.wake_all(); // nobody is there
/// assert_eq!((queue.snapshot().ws_active, queue.stats().wakeups <= 1), (0, true));
/// ```
pub struct SbitmapQueue {
    pub(crate) inner: Inner,
    pub(crate) fairness: Fairness,
    pub(crate) bits_per_word: usize,
    pub(crate) clock: Clock,
}

// Takes no lock and delays no caller; [`snapshot`](SbitmapQueue::snapshot) shows the rest.
inflight_sync::debug_fields!(SbitmapQueue: |this|
    depth = this.depth(), max_depth = this.max_depth(), fairness = this.fairness,
    back_end = this.back_end());

/// How ids are kept and how users wait.
// A queue has one of them for its life, and every operation uses it: so there is no pointer
// between.
#[allow(clippy::large_enum_variant)]
// Each get reads the tag, so it has its own byte and is not hidden in a field's unused values.
#[repr(u8)]
pub(crate) enum Inner {
    Batched(Batched),
    Shared(Turns<SharedStore>),
    Local(Turns<PerCpuStore>),
    /// `Local`, where [this](PerCpuStore::fast_path) makes a get and a put short enough to inline.
    Rseq(Turns<PerCpuStore>, Rseq),
}

/// Calls the same method on the variant.
macro_rules! on {
    ($queue:expr, $inner:ident => $call:expr) => {
        match &$queue.inner {
            Inner::Batched($inner) => $call,
            Inner::Shared($inner) => $call,
            Inner::Local($inner) | Inner::Rseq($inner, _) => $call,
        }
    };
}

/// Calls the same method on the store of bits of the variant.
macro_rules! on_bits {
    ($queue:expr, $bits:ident => $call:expr) => {
        match &$queue.inner {
            Inner::Batched(queue) => {
                let $bits = queue.map();
                $call
            }
            Inner::Shared(queue) => {
                let $bits = queue.store().map();
                $call
            }
            Inner::Local(queue) | Inner::Rseq(queue, _) => {
                let $bits = queue.store();
                $call
            }
        }
    };
}

pub(crate) use {on, on_bits};

impl SbitmapQueue {
    /// Returns what keeps the bits: chosen once, when the queue is built.
    #[must_use]
    pub fn back_end(&self) -> BackEnd {
        match &self.inner {
            Inner::Batched(_) | Inner::Shared(_) => BackEnd::Shared,
            Inner::Local(queue) | Inner::Rseq(queue, _) => match queue.store().backend() {
                Backend::TryLock => BackEnd::TryLock,
                // In this crate's own models another back end stands in.
                _ => BackEnd::Rseq,
            },
        }
    }

    /// Returns the order of waiters.
    #[must_use]
    pub const fn fairness(&self) -> Fairness {
        self.fairness
    }

    /// Returns the clock of the queue's timed waits.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the number of bits used in each word: a [`BitMask`] has at most as many.
    ///
    /// At most 32 with the local [`Engine`](crate::Engine), so it may be less than the builder's
    /// value.
    #[must_use]
    pub const fn bits_per_word(&self) -> usize {
        self.bits_per_word
    }

    /// Returns the number of bits to hand out.
    #[must_use]
    pub fn depth(&self) -> usize {
        on_bits!(self, bits => bits.depth())
    }

    /// Returns the largest depth to which the queue can be resized.
    #[must_use]
    pub fn max_depth(&self) -> usize {
        on_bits!(self, bits => bits.max_depth())
    }

    /// Changes the depth while others get, wait and put; see
    /// [`Sbitmap::resize`](crate::Sbitmap::resize). The errors are the same.
    ///
    /// Waiters stay and search again, so they get the bits that growth makes. The wake batch
    /// follows the depth.
    ///
    /// # Panics
    ///
    /// The panics of [`wake_all`](SbitmapQueue::wake_all). The depth has changed by then.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(1).max_depth(2).build().unwrap();
    /// assert_eq!(queue.try_get(), Some(0));
    /// assert_eq!(queue.try_get(), None);
    /// queue.resize(2).unwrap();
    /// assert_eq!(queue.try_get(), Some(1));
    /// ```
    pub fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        on!(self, queue => queue.set_depth(depth))?;
        on!(self, queue => queue.depth_changed());
        Ok(())
    }

    /// Takes a bit without waiting.
    ///
    /// `None` means that there is no bit for this caller now: all bits are taken, or others wait
    /// and are before it. With [`Fairness::Batched`] the call also takes a bit past the waiters,
    /// and with [`Fairness::Fair`] in the calling thread's turn. While there are no waiters, `None`
    /// is exact in the local engine: at some moment of the call every bit was taken. In the shared
    /// one it may be wrong while other threads put one bit and take another, as in
    /// [`Sbitmap::try_get`](crate::Sbitmap::try_get).
    ///
    /// Once the queue is [closed](SbitmapQueue::close), this and all other forms that do not wait
    /// find nothing. [`is_closed`](SbitmapQueue::is_closed) tells the two cases apart.
    #[inline]
    #[must_use = "a bit that is dropped is never given back"]
    pub fn try_get(&self) -> Option<usize> {
        // One check on the fast path; the other variants are checked elsewhere.
        if let Inner::Rseq(queue, rseq) = &self.inner {
            match queue.store().get_fast(Some(*rseq)) {
                Ok(bit) => Some(bit),
                Err(left) => self.try_get_slow(left),
            }
        } else {
            self.try_get_local()
        }
    }

    #[inline(never)]
    fn try_get_local(&self) -> Option<usize> {
        let Inner::Local(queue) = &self.inner else {
            return self.try_get_shared();
        };
        match queue.store().get_fast(None) {
            Ok(bit) => Some(bit),
            Err(left) => self.try_get_slow(left),
        }
    }

    /// A separate function: the slow path below saves registers that this one does not need.
    #[inline(never)]
    fn try_get_shared(&self) -> Option<usize> {
        match &self.inner {
            Inner::Shared(queue) => queue.try_get(),
            _ => self.try_get_slow(None),
        }
    }

    /// The part that is too long to be inlined.
    #[inline(never)]
    fn try_get_slow(&self, left: Option<u32>) -> Option<usize> {
        if let (Some(bit), Inner::Local(queue) | Inner::Rseq(queue, _)) = (left, &self.inner) {
            if let Some(kept) = queue.store().put_above_depth(bit) {
                queue.store().set_owned(kept);
                return Some(kept);
            }
        }
        on!(self, queue => queue.try_get())
    }

    /// Takes up to `n` bits without waiting, pushes them to `bits` and returns their number: 0 once
    /// the queue is closed.
    ///
    /// ```
    /// let queue = inflight_sbitmap::SbitmapQueue::builder(4).build().unwrap();
    /// let mut bits = Vec::new();
    /// assert_eq!(queue.try_get_batch(9, &mut bits), 4);
    /// queue.put_batch(&bits).unwrap();
    /// ```
    pub fn try_get_batch(&self, n: usize, bits: &mut Vec<usize>) -> usize {
        on!(self, queue => queue.try_get_batch(n, bits))
    }

    /// Takes up to `n` neighbouring bits of one word without waiting; see
    /// [`Sbitmap::try_get_mask`](crate::Sbitmap::try_get_mask). `None` once the queue is closed.
    #[must_use = "bits that are dropped are never given back"]
    #[inline]
    pub fn try_get_mask(&self, n: usize) -> Option<BitMask> {
        self.take_mask(n).some()
    }

    #[inline(never)]
    fn take_mask(&self, n: usize) -> BitMask {
        on!(self, queue => queue.try_get_mask(n))
    }

    /// Takes a bit without waiting if fewer than `limit` of the bits open to this limit are taken;
    /// see [`Sbitmap::try_get_shallow`](crate::Sbitmap::try_get_shallow).
    ///
    /// A user cannot wait for a shallow bit. A user whose share is taken waits for an event of its
    /// own, for example one of its own puts, and tries again.
    #[must_use = "a bit that is dropped is never given back"]
    pub fn try_get_shallow(&self, limit: usize) -> Option<usize> {
        on!(self, queue => queue.try_get_shallow(limit))
    }

    /// Sets the smallest number of bits to which a user is limited that then waits for its own
    /// puts: the limit of a [shallow get](SbitmapQueue::try_get_shallow), or the smallest share of
    /// several users that count their own bits. `None`: no user is limited to fewer than the depth.
    ///
    /// The wake batch of [`Fairness::Batched`] becomes an eighth of the number, from 1 to 8,
    /// because a user that has its share in use sees only as many puts. In other modes each put
    /// serves the waiters, and this call does nothing.
    ///
    /// # Panics
    ///
    /// The panics of [`wake_all`](SbitmapQueue::wake_all): all waiters search again.
    ///
    /// ```
    /// use inflight_sbitmap::{Fairness, SbitmapQueue};
    /// let queue = SbitmapQueue::builder(64).fairness(Fairness::batched()).build().unwrap();
    /// assert_eq!(queue.snapshot().wake_batch, 8);
    /// queue.set_least_share(Some(16));
    /// assert_eq!(queue.snapshot().wake_batch, 2);
    /// ```
    pub fn set_least_share(&self, bits: Option<usize>) {
        if let Inner::Batched(queue) = &self.inner {
            queue.set_least_share(|| bits);
        }
    }

    /// Closes the queue: no caller gets a bit any more. Bits in use are put as before, and a waiter
    /// keeps the bits that were granted to it before, and fetches them.
    ///
    /// Waiters, and later calls, get [`GetError::Closed`](crate::GetError::Closed)
    /// ([`GetManyError::Closed`](crate::GetManyError::Closed), also for no bits; for more bits than
    /// the depth it may be `TooMany`); the try forms find nothing. A closed queue stays closed;
    /// another call does nothing. A get that runs at the same time may still succeed. A get that
    /// begins after a call of `close` has returned, or after another call has returned `Closed`,
    /// does not succeed.
    ///
    /// # Panics
    ///
    /// Panics with the first panic of a waker, after all waiters are woken.
    ///
    /// ```
    /// use inflight_sbitmap::{GetError, SbitmapQueue};
    /// let queue = SbitmapQueue::builder(4).build()?;
    /// let bit = queue.get_blocking()?;
    /// queue.close();
    /// assert_eq!(queue.try_get(), None);
    /// assert_eq!(queue.get_blocking(), Err(GetError::Closed));
    /// queue.put(bit)?;
    /// assert!(queue.is_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        on!(self, queue => queue.close());
    }

    /// Returns whether the queue is [closed](SbitmapQueue::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        on!(self, queue => queue.is_closed())
    }

    /// Gives a bit back. The bit goes to the waiter that waits longest ([`Fairness::Fair`],
    /// [`Fairness::Fifo`]), or waiters are woken if a batch is complete ([`Fairness::Batched`]).
    ///
    /// # Errors
    ///
    /// The errors of [`Sbitmap::put`](crate::Sbitmap::put); no waiter is woken then.
    ///
    /// # Panics
    ///
    /// Panics with the first panic of a waker. The bit is back by then, and all chosen waiters are
    /// woken.
    #[inline]
    pub fn put(&self, bit: usize) -> Result<(), PutError> {
        // As in `try_get`.
        if let Inner::Rseq(queue, rseq) = &self.inner {
            return match queue.store().put_fast(Some(*rseq), bit) {
                FastPut::Done => Ok(()),
                left => self.put_slow(bit, left),
            };
        }
        self.put_local(bit)
    }

    #[inline(never)]
    fn put_shared(&self, bit: usize) -> Result<(), PutError> {
        match &self.inner {
            Inner::Shared(queue) => queue.put(bit),
            _ => self.put_slow(bit, FastPut::Untried),
        }
    }

    /// The short case of [`put`](Self::put). `false` if nothing has happened.
    #[inline(always)]
    pub(crate) fn put_fast(&self, bit: usize) -> bool {
        match &self.inner {
            Inner::Rseq(queue, rseq) => match queue.store().put_fast(Some(*rseq), bit) {
                FastPut::Done => true,
                FastPut::Untried => false,
                FastPut::Ended => {
                    queue.store().set_owned(bit);
                    false
                }
            },
            _ => false,
        }
    }

    #[inline(never)]
    fn put_local(&self, bit: usize) -> Result<(), PutError> {
        let Inner::Local(queue) = &self.inner else {
            return self.put_shared(bit);
        };
        match queue.store().put_fast(None, bit) {
            FastPut::Done => Ok(()),
            left => self.put_slow(bit, left),
        }
    }

    /// Continues where a fast path ended.
    #[inline(never)]
    fn put_slow(&self, bit: usize, left: FastPut) -> Result<(), PutError> {
        if let (FastPut::Ended, Inner::Local(queue) | Inner::Rseq(queue, _)) = (left, &self.inner) {
            return queue.finish_put(queue.store().put_slow(bit, true));
        }
        on!(self, queue => queue.put(bit))
    }

    /// Gives several bits back, and then serves the waiters once. It panics as
    /// [`put`](SbitmapQueue::put).
    ///
    /// # Errors
    ///
    /// The errors of [`Sbitmap::put_batch`](crate::Sbitmap::put_batch): all good bits are given
    /// back, and counted. The error is that of one of the others.
    pub fn put_batch(&self, bits: &[usize]) -> Result<(), PutError> {
        on!(self, queue => queue.put_batch(bits))
    }

    /// Gives the bits of a mask back in one atomic step, and then serves the waiters once. The
    /// errors are those of [`Sbitmap::put_mask`](crate::Sbitmap::put_mask); it panics as
    /// [`put`](SbitmapQueue::put).
    pub fn put_mask(&self, bits: BitMask) -> Result<(), PutError> {
        on!(self, queue => queue.put_mask(bits))
    }

    /// Makes each waiter search for a bit again, also for the bits that an incomplete batch holds
    /// back.
    ///
    /// Waiters that still find nothing sleep again: with [`Fairness::Batched`] at the tail of a
    /// queue, else at their old place.
    ///
    /// # Panics
    ///
    /// Panics with the first panic of a waker, after all waiters are woken.
    pub fn wake_all(&self) {
        on!(self, queue => queue.wake_all());
    }

    /// Returns the number of bits in use; see [`Sbitmap::weight`](crate::Sbitmap::weight). As in
    /// the other calls that read the bits, these include bits that waiters were given and have not
    /// yet fetched. The [snapshot](SbitmapQueue::snapshot) tells them apart.
    #[must_use]
    pub fn weight(&self) -> usize {
        on_bits!(self, bits => bits.weight())
    }

    /// Returns whether any bit is in use; see [`Sbitmap::is_any_set`](crate::Sbitmap::is_any_set).
    #[must_use]
    pub fn is_any_set(&self) -> bool {
        on_bits!(self, bits => bits.next_set(0).is_some())
    }

    /// Returns whether this bit is in use; see [`Sbitmap::is_set`](crate::Sbitmap::is_set).
    #[must_use]
    pub fn is_set(&self, bit: usize) -> bool {
        on_bits!(self, bits => bits.is_set(bit))
    }

    /// Calls `f` for each bit in use; see [`Sbitmap::for_each_set`](crate::Sbitmap::for_each_set).
    pub fn for_each_set(&self, start: usize, f: impl FnMut(usize) -> bool) {
        on_bits!(self, bits => bits.for_each_set(start, f));
    }

    /// Returns how often users waited and were woken since the queue was made.
    #[must_use]
    pub fn stats(&self) -> QueueStats {
        on!(self, queue => queue.stats())
    }

    /// Returns the state of map and queues, for people: `{}` and `{:#?}` print it.
    #[must_use]
    pub fn snapshot(&self) -> QueueSnapshot {
        let map = on_bits!(self, bits => bits.snapshot());
        let mut snapshot = QueueSnapshot::idle(map, self.fairness, self.back_end());
        on!(self, queue => queue.fill_snapshot(&mut snapshot));
        snapshot
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::engine::Engine;

    /// H21. An id that growth has made good has an owner, which can put it, once.
    #[test]
    fn h21_a_late_get_owns_the_id_that_it_keeps() {
        let queue = SbitmapQueue::builder(64).engine(Engine::Local).build();
        let queue = queue.unwrap();
        let (Inner::Local(turns) | Inner::Rseq(turns, _)) = &queue.inner else {
            panic!("the local engine was asked for");
        };
        let popped = turns.store().take().unwrap();
        assert_eq!(queue.try_get_slow(Some(popped as u32)), Some(popped));
        assert_eq!(queue.put(popped), Ok(()));
        let again = PutError::NotAllocated { bit: popped };
        assert_eq!(queue.put(popped), Err(again));
    }
}
