//! Bits that are taken and not tags yet, or are being put.
//!
//! They are not plain numbers, because a waker may panic wherever a bit is put. Then the bits that
//! the caller still has must be put too, and the freezers notified.

use crate::tag_layout::TagMapId;
use crate::tag_maps::TagMaps;
use std::mem::ManuallyDrop;

/// A bit that is not a tag yet. Dropping it puts it: P1 to P3.
///
/// Invariant: it was taken from the bitmap for this value alone (A1).
#[derive(Debug)]
#[must_use = "the bit is given back when it is dropped"]
pub(crate) struct PendingTag<'a> {
    bitmaps: &'a TagMaps,
    pub(crate) tag_map: TagMapId,
    bit: usize,
}

impl PendingTag<'_> {
    /// The same bit for another hardware queue, if both share a table.
    pub(crate) fn moved(mut self, to: TagMapId) -> Result<Self, Self> {
        let layout = self.bitmaps.layout;
        if layout.table(to.hw_queue) == layout.table(self.tag_map.hw_queue) {
            self.tag_map.hw_queue = to.hw_queue;
            Ok(self)
        } else {
            Err(self)
        }
    }

    /// The plain bit, for the caller that makes it a tag.
    #[inline]
    pub(crate) fn into_bit(self) -> (TagMapId, usize) {
        let this = ManuallyDrop::new(self);
        (this.tag_map, this.bit)
    }
}

impl Drop for PendingTag<'_> {
    fn drop(&mut self) {
        let (bitmaps, tag_map) = (self.bitmaps, self.tag_map);
        let tag_number = (tag_map.hw_queue, bitmaps.layout.tag_of(tag_map, self.bit));
        bitmaps.put(bitmaps.bitmap(tag_map), self.bit, tag_number);
    }
}

/// Several bits of one bitmap. Dropping them puts them together.
///
/// Invariant: as for [`PendingTag`].
#[derive(Debug)]
#[must_use = "the bits are given back when they are dropped"]
pub(crate) struct PendingTags<'a> {
    bitmaps: &'a TagMaps,
    pub(crate) tag_map: TagMapId,
    bits: Vec<usize>,
}

impl PendingTags<'_> {
    pub(crate) fn len(&self) -> usize {
        self.bits.len()
    }

    pub(crate) fn bits(&self) -> impl Iterator<Item = usize> {
        self.bits.iter().copied()
    }

    /// The plain bits.
    pub(crate) fn into_bits(mut self) -> Vec<usize> {
        std::mem::take(&mut self.bits)
    }
}

impl Drop for PendingTags<'_> {
    fn drop(&mut self) {
        if let Some(&first) = self.bits.first() {
            let (bitmaps, tag_map) = (self.bitmaps, self.tag_map);
            let tag_number = (tag_map.hw_queue, bitmaps.layout.tag_of(tag_map, first));
            bitmaps.put_all(bitmaps.bitmap(tag_map), &self.bits, tag_number);
        }
    }
}

impl TagMaps {
    #[inline]
    pub(crate) const fn pending_tag(&self, tag_map: TagMapId, bit: usize) -> PendingTag<'_> {
        PendingTag {
            bitmaps: self,
            tag_map,
            bit,
        }
    }

    /// Bits that were taken from one bitmap for the caller alone.
    #[inline]
    pub(crate) const fn pending_tags(
        &self,
        tag_map: TagMapId,
        bits: Vec<usize>,
    ) -> PendingTags<'_> {
        PendingTags {
            bitmaps: self,
            tag_map,
            bits,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::admission::Admission;
    use crate::freeze::Freeze;
    use crate::freeze::is_unused;
    use crate::tag_layout::TagLayout;
    use crate::tag_maps::Setup;
    use inflight_sbitmap::tenancy::Request;
    use inflight_sync::Arc;
    use inflight_sync::atomic::{AtomicUsize, Ordering};
    use inflight_sync::time::Clock;
    use std::future::Future;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::task::{Context, Poll, Wake, Waker};

    const NORMAL: TagMapId = TagMapId::normal(0);

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
    /// notified.
    #[test]
    fn h24_a_batch_goes_back_although_a_waker_panics() {
        let layout = TagLayout {
            hw_queues: 1,
            depth: 3,
            reserved: 0,
            shared_tags: false,
            extra: 0,
        };
        let preempt = Setup {
            admission: Admission::preempt(), // a bit that is put is free, whoever waits
            ..Setup::default()
        };
        let bitmaps = Arc::new(TagMaps::new(layout, Clock::system(), false, preempt));
        let batch = bitmaps.try_get_batch(NORMAL, 9, 0);
        assert_eq!(batch.len(), 3);
        let mut waiter = bitmaps.wait_for(NORMAL, Request::one(0));
        let panics = Waker::from(Arc::new(Panics));
        let polled = waiter.poll_one(&bitmaps, &Context::from_waker(&panics));
        assert!(polled.is_pending());

        let counts = Arc::new(Counts::default());
        let waker = Waker::from(counts.clone());
        let mut cx = Context::from_waker(&waker);
        let mut freeze = pin!(Freeze::new(&bitmaps));
        assert!(freeze.as_mut().poll(&mut cx).is_pending());
        let put = catch_unwind(AssertUnwindSafe(|| drop(batch)));
        let message = put.unwrap_err();
        assert_eq!(message.downcast_ref(), Some(&"the waker's panic"));
        assert_eq!(counts.0.load(Ordering::Relaxed), 1, "the freezer is told");
        assert_eq!(is_unused(&bitmaps), Ok(()));
        waiter.end(&bitmaps);
        assert!(matches!(freeze.as_mut().poll(&mut cx), Poll::Ready(_)));
    }
}
