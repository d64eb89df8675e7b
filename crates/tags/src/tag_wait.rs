//! A wait for bits of one bitmap, as a task or as a thread.

use crate::pending_tag::PendingTag;
use crate::tag_layout::{TagMap, TagMapId};
use crate::tag_maps::TagMaps;
use inflight_sbitmap::tenancy::{Request, Tenancy as _, TenantIndex, Waiter};
use inflight_sbitmap::{GetError, SbitmapQueue};
use inflight_sync::time::Instant;
use std::task::{Context, Poll};

/// A wait, kept apart from the set. It must be ended before it is dropped.
#[derive(Debug)]
pub(crate) struct TagWait {
    pub(crate) tag_map: TagMapId,
    waiter: Waiter,
    /// The tenant whose account counts this wait.
    counted: Option<TenantIndex>,
}

impl TagWait {
    #[inline(always)] // made where it stays
    fn begin(bitmaps: &TagMaps, tag_map: TagMapId, waiter: Waiter, tenant: TenantIndex) -> Self {
        let shares = tag_map.kind == TagMap::Normal && bitmaps.gate.has_several_tenants();
        let counted = shares.then_some(tenant);
        if let Some(tenant) = counted {
            bitmaps.accounts(tag_map.hw_queue).waits(tenant, true);
        }
        Self {
            tag_map,
            waiter,
            counted,
        }
    }

    /// Whether it is in the wait queue: it waits, or must get more.
    pub(crate) const fn is_queued(&self) -> bool {
        self.waiter.is_in_list()
    }

    /// Stays in the wait queue, but does not count as a wait until it is resumed.
    pub(crate) fn pause(mut self, bitmaps: &TagMaps) -> Self {
        self.uncount(bitmaps);
        self
    }

    /// Waits again after a [`pause`](Self::pause).
    pub(crate) fn resume(self, bitmaps: &TagMaps, tenant: TenantIndex) -> Self {
        Self::begin(bitmaps, self.tag_map, self.waiter, tenant)
    }

    fn uncount(&mut self, bitmaps: &TagMaps) {
        if let Some(tenant) = self.counted.take() {
            bitmaps.accounts(self.tag_map.hw_queue).waits(tenant, false);
        }
    }

    /// As a task, for one bit.
    #[inline]
    pub(crate) fn poll_one<'a>(
        &mut self,
        bitmaps: &'a TagMaps,
        cx: &Context<'_>,
    ) -> Poll<Result<PendingTag<'a>, GetError>> {
        let bit = self.waiter.poll_one(bitmaps.bitmap(self.tag_map), cx);
        bit.map(|bit| bit.map(|bit| bitmaps.pending_tag(self.tag_map, bit)))
    }

    /// Leaves the wait queue. Bits granted and not fetched go to others, and freezers are notified.
    pub(crate) fn end(&mut self, bitmaps: &TagMaps) {
        let _freezers = bitmaps.gate.wake_at_end();
        self.uncount(bitmaps);
        self.waiter.leave(bitmaps.bitmap(self.tag_map));
    }

    /// Returns a wait that ends when it is dropped.
    pub(crate) const fn ending(self, bitmaps: &TagMaps) -> EndingWait<'_> {
        EndingWait {
            bitmaps,
            wait: Some(self),
        }
    }
}

/// A [`TagWait`] that ends when it is dropped.
#[derive(Debug)]
pub(crate) struct EndingWait<'a> {
    bitmaps: &'a TagMaps,
    /// `None` once it is taken out.
    wait: Option<TagWait>,
}

impl<'a> EndingWait<'a> {
    /// Returns the wait, to be resumed later, without a wake.
    pub(crate) fn into_wait(mut self) -> TagWait {
        self.wait.take().expect("the wait is taken once")
    }

    fn parts(&mut self) -> (&'a SbitmapQueue, &mut TagWait) {
        let wait = self.wait.as_mut().expect("the wait has not been taken");
        (self.bitmaps.bitmap(wait.tag_map), wait)
    }

    /// As a thread, for one bit.
    pub(crate) fn block_one(&mut self, until: Option<Instant>) -> Result<PendingTag<'a>, GetError> {
        let (bitmap, wait) = self.parts();
        let (bit, tag_map) = (wait.waiter.block_one(bitmap, until)?, wait.tag_map);
        Ok(self.bitmaps.pending_tag(tag_map, bit))
    }

    /// As a task, for the next part.
    pub(crate) fn poll(
        &mut self,
        cx: &Context<'_>,
        bits: &mut Vec<usize>,
    ) -> Poll<Result<(), GetError>> {
        let (bitmap, wait) = self.parts();
        wait.waiter.poll_part(bitmap, cx, bits)
    }

    /// As a thread, for the next part.
    pub(crate) fn block(
        &mut self,
        until: Option<Instant>,
        bits: &mut Vec<usize>,
    ) -> Result<(), GetError> {
        let (bitmap, wait) = self.parts();
        wait.waiter.block_part(bitmap, until, bits)
    }

    /// The bits of the next part that are there without waiting.
    pub(crate) fn fetch(&mut self, bits: &mut Vec<usize>) -> Result<(), GetError> {
        let (bitmap, wait) = self.parts();
        wait.waiter.fetch_part(bitmap, bits)
    }
}

impl Drop for EndingWait<'_> {
    fn drop(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.end(self.bitmaps);
        }
    }
}

impl TagMaps {
    /// A wait for bits of a bitmap.
    #[inline(always)] // made where it stays
    pub(crate) fn wait_for(&self, tag_map: TagMapId, request: Request) -> TagWait {
        if let Some(accounts) = self.accounts_if_shared(tag_map, request.tenant) {
            if accounts.is_limited() {
                self.look_for_idle(tag_map.hw_queue);
            }
        }
        let waiter = self.bitmap(tag_map).waiter(request);
        TagWait::begin(self, tag_map, waiter, request.tenant)
    }
}
