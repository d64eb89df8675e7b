//! F3 and D3: waiting until no bit is in use any more. Then a freeze is in force, and a drain is
//! over.
//!
//! The waiter makes one pass over the bits. It waits at each bit, and does not read it again once
//! it was clear. After F2 or D2 that is enough: the pass has seen every earlier bit put, and a bit
//! that is set later is put back by its taker (B1).

use crate::error::FreezeError;
use crate::tag_layout::TagMapId;
use crate::tag_maps::TagMaps;
use inflight_sbitmap::tenancy::Tenancy as _;
use inflight_sync::Arc;
use inflight_sync::time::Instant;
use inflight_sync::wait::WaiterKey;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// One pass over the bits in use.
#[derive(Debug)]
pub(crate) struct UnusedPass {
    /// The maps that remain, the present one last.
    left: Vec<TagMapId>,
    /// Bits below this were clear in the present map.
    from: usize,
}

impl UnusedPass {
    /// Of all hardware queues.
    fn of_all(bitmaps: &TagMaps) -> Self {
        Self::of(bitmaps, |_| true)
    }

    /// Of the tables that have the bits of one hardware queue.
    pub(crate) fn of_hw_queue(bitmaps: &TagMaps, hw_queue: usize) -> Self {
        let table = bitmaps.layout.table(hw_queue);
        Self::of(bitmaps, |tag_map| tag_map.hw_queue == table)
    }

    fn of(bitmaps: &TagMaps, which: impl Fn(&TagMapId) -> bool) -> Self {
        Self {
            left: bitmaps.layout.tag_map_ids().filter(which).collect(),
            from: 0,
        }
    }

    /// Whether a bit is still in use. Continues where it stopped; the writes of the owners of
    /// earlier bits are visible.
    fn is_busy(&mut self, bitmaps: &TagMaps) -> bool {
        self.is_busy_with(bitmaps, |_, _| true)
    }

    /// As `is_busy`, but skips the bits for which `counts`, by table and tag, is false.
    pub(crate) fn is_busy_with(
        &mut self,
        bitmaps: &TagMaps,
        counts: impl Fn(usize, usize) -> bool,
    ) -> bool {
        while let Some(&tag_map) = self.left.last() {
            while let Some(bit) = bitmaps.bitmap(tag_map).next_set(self.from) {
                self.from = bit;
                if counts(tag_map.hw_queue, bitmaps.layout.tag_of(tag_map, bit)) {
                    return true;
                }
                self.from = bit + 1;
            }
            self.left.pop();
            self.from = 0;
        }
        false
    }
}

/// F3 without waiting.
pub(crate) fn is_unused(bitmaps: &TagMaps) -> Result<(), FreezeError> {
    let in_use = UnusedPass::of_all(bitmaps).is_busy(bitmaps);
    if in_use {
        Err(FreezeError::InUse)
    } else {
        Ok(())
    }
}

/// F3 for a thread, at most until the deadline.
pub(crate) fn wait_until_unused(
    bitmaps: &TagMaps,
    deadline: Option<Instant>,
) -> Result<(), FreezeError> {
    let mut pass = UnusedPass::of_all(bitmaps);
    let drained = &bitmaps.gate.drained;
    if bitmaps.wait_while(drained, deadline, || pass.is_busy(bitmaps)) {
        Ok(())
    } else {
        Err(FreezeError::TimedOut)
    }
}

/// Waits as a task until no tag is in use. The caller keeps the set quiesced or frozen.
pub(crate) struct UnusedWait {
    pub(super) bitmaps: Arc<TagMaps>,
    /// Set once it has begun.
    pass: Option<UnusedPass>,
    key: Option<WaiterKey>,
}

impl UnusedWait {
    pub(crate) const fn new(bitmaps: Arc<TagMaps>) -> Self {
        Self {
            bitmaps,
            pass: None,
            key: None,
        }
    }
}

impl Future for UnusedWait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let bitmaps = &*this.bitmaps;
        let pass = this.pass.get_or_insert_with(|| UnusedPass::of_all(bitmaps));
        let drained = &bitmaps.gate.drained;
        ready!(drained.poll_while(&mut this.key, cx, || pass.is_busy(bitmaps)));
        this.pass = None;
        Poll::Ready(())
    }
}

impl Drop for UnusedWait {
    fn drop(&mut self) {
        self.bitmaps.gate.drained.leave(&mut self.key);
    }
}

inflight_sync::debug_fields!(UnusedWait: |this| begun = this.pass.is_some());
