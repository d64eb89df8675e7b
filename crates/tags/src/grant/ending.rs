//! A wait that ends however it is let go of.

use super::{PendingTag, TagWait};
use crate::tag_maps::TagMaps;
use inflight_sbitmap::tenancy::{Tenancy as _, Waiter};
use inflight_sbitmap::{GetError, SbitmapQueue};
use inflight_sync::time::Instant;
use std::task::{Context, Poll};

/// A [`TagWait`] that ends when it is dropped.
#[derive(Debug)]
pub(crate) struct EndingWait<'a> {
    bitmaps: &'a TagMaps,
    /// `None` once it is kept.
    wait: Option<TagWait>,
}

impl<'a> EndingWait<'a> {
    pub(super) const fn new(bitmaps: &'a TagMaps, wait: TagWait) -> Self {
        Self {
            bitmaps,
            wait: Some(wait),
        }
    }

    /// The wait, to be gone on with later. Nobody is told of that.
    pub(crate) fn keep(mut self) -> TagWait {
        self.wait.take().expect("it is kept once")
    }

    fn wait(&mut self) -> &mut TagWait {
        self.wait.as_mut().expect("it is not kept yet")
    }

    /// Where it waits, and its stay there.
    fn stay(&mut self) -> (&'a SbitmapQueue, &mut Waiter) {
        let bitmaps = self.bitmaps;
        let wait = self.wait();
        (bitmaps.bitmap(wait.target), &mut wait.waiter)
    }

    /// As a thread, for one bit.
    pub(crate) fn block_one(&mut self, until: Option<Instant>) -> Result<PendingTag<'a>, GetError> {
        let (bitmap, waiter) = self.stay();
        let bit = bitmap.block_one(waiter, until)?;
        Ok(self.bitmaps.in_hand(self.wait().target, bit))
    }

    /// As a task, for the next part.
    pub(crate) fn poll(
        &mut self,
        cx: &Context<'_>,
        bits: &mut Vec<usize>,
    ) -> Poll<Result<(), GetError>> {
        let (bitmap, waiter) = self.stay();
        bitmap.poll_part(waiter, cx, bits)
    }

    /// As a thread, for the next part.
    pub(crate) fn block(
        &mut self,
        until: Option<Instant>,
        bits: &mut Vec<usize>,
    ) -> Result<(), GetError> {
        let (bitmap, waiter) = self.stay();
        bitmap.block_part(waiter, until, bits)
    }

    /// What of the next part can be had without waiting.
    pub(crate) fn fetch(&mut self, bits: &mut Vec<usize>) -> Result<(), GetError> {
        let (bitmap, waiter) = self.stay();
        bitmap.fetch_part(waiter, bits)
    }
}

impl Drop for EndingWait<'_> {
    fn drop(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.end(self.bitmaps);
        }
    }
}
