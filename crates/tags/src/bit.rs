//! Bits in somebody's hand: taken and no tags yet, or on their way back.
//!
//! Why not bare numbers: wherever a bit is given back a waker may panic, and then what the caller
//! still has in hand must go back too, and the freezers must be told.

use crate::bitmaps::{Bitmaps, Target};
use inflight_sync::time::Instant;
use std::mem::ManuallyDrop;

/// A bit that is no tag yet. Dropping it gives it back: P1 to P3.
///
/// Invariant: it was taken from the target's bitmap for this value alone (A1).
#[derive(Debug)]
#[must_use = "the bit is given back when it is dropped"]
pub(crate) struct Bit<'a> {
    bitmaps: &'a Bitmaps,
    target: Target,
    bit: usize,
}

impl Bit<'_> {
    #[inline]
    pub(crate) const fn target(&self) -> Target {
        self.target
    }

    /// Its hardware queue and tag number, for who makes it a tag.
    #[inline]
    pub(crate) fn keep(self) -> (usize, usize) {
        let this = ManuallyDrop::new(self);
        let tag = this.bitmaps.tag_of(this.target, this.bit);
        (this.target.hw_queue, tag)
    }
}

impl Drop for Bit<'_> {
    fn drop(&mut self) {
        self.bitmaps.put_bit(self.target, self.bit);
    }
}

/// Several bits of one bitmap. Dropping them gives them back together.
///
/// Invariant: as for [`Bit`].
#[derive(Debug)]
#[must_use = "the bits are given back when they are dropped"]
pub(crate) struct Batch<'a> {
    bitmaps: &'a Bitmaps,
    target: Target,
    bits: Vec<usize>,
}

impl<'a> Batch<'a> {
    pub(crate) fn len(&self) -> usize {
        self.bits.len()
    }

    /// One by one.
    pub(crate) fn into_bits(mut self) -> impl Iterator<Item = Bit<'a>> {
        let (bitmaps, target) = (self.bitmaps, self.target);
        let bits = std::mem::take(&mut self.bits);
        bits.into_iter()
            .map(move |bit| bitmaps.in_hand(target, bit))
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if !self.bits.is_empty() {
            let _freezers = self.bitmaps.gate().tell_at_end();
            let put = self.bitmaps.bitmap(self.target).put_batch(&self.bits);
            debug_assert!(put.is_ok(), "the bits came from this bitmap");
        }
    }
}

impl Bitmaps {
    #[inline]
    const fn in_hand(&self, target: Target, bit: usize) -> Bit<'_> {
        Bit {
            bitmaps: self,
            target,
            bit,
        }
    }

    /// A1 if a bit is free now.
    #[inline]
    pub(crate) fn try_get(&self, target: Target) -> Option<Bit<'_>> {
        let bit = self.bitmap(target).try_get()?;
        Some(self.in_hand(target, bit))
    }

    /// A1 for up to `n` bits.
    pub(crate) fn try_get_batch(&self, target: Target, n: usize) -> Batch<'_> {
        let mut bits = Vec::new();
        self.bitmap(target).try_get_batch(n, &mut bits);
        Batch {
            bitmaps: self,
            target,
            bits,
        }
    }

    /// A1 for a thread, at most until the deadline.
    pub(crate) fn get_sleeping(&self, target: Target, until: Option<Instant>) -> Option<Bit<'_>> {
        let bitmap = self.bitmap(target);
        let bit = match until {
            None => bitmap.get_blocking(),
            Some(deadline) => bitmap.get_deadline(deadline)?,
        };
        Some(self.in_hand(target, bit))
    }

    /// A1 for a task.
    pub(crate) async fn get(&self, target: Target) -> Bit<'_> {
        let bit = self.bitmap(target).get().await;
        self.in_hand(target, bit)
    }

    /// Gives a tag back, whose slot its owner has retired: P1 to P3.
    #[inline]
    pub(crate) fn put(&self, hw_queue: usize, tag: usize) {
        let (target, bit) = self.bit_of(hw_queue, tag);
        self.put_bit(target, bit);
    }

    #[inline]
    fn put_bit(&self, target: Target, bit: usize) {
        // P2 and P3 follow P1 also if a waker panics in P1.
        let _freezers = self.gate().tell_at_end();
        let put = self.bitmap(target).put(bit);
        debug_assert!(put.is_ok(), "the bit came from this bitmap");
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::bitmaps::Geometry;
    use crate::freeze::FrozenGuard;
    use inflight_sync::Arc;
    use inflight_sync::atomic::{AtomicUsize, Ordering};
    use inflight_sync::time::Clock;
    use std::future::Future;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::task::{Context, Poll, Wake, Waker};

    const PLACE: Target = Target {
        hw_queue: 0,
        reserved: false,
    };

    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker's panic");
        }
    }

    #[derive(Default)]
    struct Counts(AtomicUsize);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A refused batch whose put wakes a waker that panics: no bit is lost, and the freezer is
    /// told.
    #[test]
    fn h24_a_batch_goes_back_although_a_waker_panics() {
        let geometry = Geometry {
            hw_queues: 1,
            depth: 3,
            reserved: 0,
        };
        let bitmaps = Arc::new(Bitmaps::new(geometry, Clock::system(), false));
        let batch = bitmaps.try_get_batch(PLACE, 9);
        assert_eq!(batch.len(), 3);
        let mut waiter = Box::pin(bitmaps.get(PLACE));
        let panics = Waker::from(Arc::new(Panics));
        let polled = waiter.as_mut().poll(&mut Context::from_waker(&panics));
        assert!(polled.is_pending());

        let counts = Arc::new(Counts::default());
        let waker = Waker::from(counts.clone());
        let mut cx = Context::from_waker(&waker);
        let mut freeze = pin!(FrozenGuard::raise(&bitmaps).drained());
        assert!(freeze.as_mut().poll(&mut cx).is_pending());
        let put = catch_unwind(AssertUnwindSafe(|| drop(batch)));
        let message = put.unwrap_err();
        assert_eq!(message.downcast_ref(), Some(&"the waker's panic"));
        assert_eq!(counts.0.load(Ordering::Relaxed), 1, "the freezer is told");
        assert!(!bitmaps.any_in_use());
        assert!(matches!(freeze.as_mut().poll(&mut cx), Poll::Ready(_)));
    }
}
