//! One pass over the bits in use, by somebody who waits until none is left: F3 and D3.
//!
//! Each bit is waited for in its place, and not looked at again once it was seen clear. After F2
//! or D2 that is enough: what was given out before was seen to be back, and a bit that is set
//! later is one that its taker puts back (B1).

use crate::tag_maps::{TagMapId, TagMaps};
use inflight_sbitmap::tenancy::Tenancy as _;

#[derive(Debug)]
pub(crate) struct DrainPass {
    /// Those not yet passed, the present one last.
    targets: Vec<TagMapId>,
    /// Bits below were seen clear in the present one.
    from: usize,
}

impl DrainPass {
    /// Of all hardware queues.
    pub(crate) fn of_all(bitmaps: &TagMaps) -> Self {
        Self::of(bitmaps, |_| true)
    }

    /// Of the tables in which the bits of one hardware queue are.
    pub(crate) fn of_hw_queue(bitmaps: &TagMaps, hw_queue: usize) -> Self {
        let table = bitmaps.geometry().table(hw_queue);
        Self::of(bitmaps, |target| target.hw_queue == table)
    }

    fn of(bitmaps: &TagMaps, which: impl Fn(&TagMapId) -> bool) -> Self {
        Self {
            targets: bitmaps.targets().filter(which).collect(),
            from: 0,
        }
    }

    /// Whether a bit is in the way. Goes on where it was left; what the owners of those passed
    /// wrote is visible.
    pub(crate) fn is_busy(&mut self, bitmaps: &TagMaps) -> bool {
        self.is_busy_with(bitmaps, |_, _| true)
    }

    /// As `is_busy`. Bits that `counts` says nothing of, by table and tag, are passed as they are.
    pub(crate) fn is_busy_with(
        &mut self,
        bitmaps: &TagMaps,
        counts: impl Fn(usize, usize) -> bool,
    ) -> bool {
        while let Some(&target) = self.targets.last() {
            while let Some(bit) = bitmaps.bitmap(target).next_set(self.from) {
                self.from = bit;
                if counts(target.hw_queue, bitmaps.tag_of(target, bit)) {
                    return true;
                }
                self.from = bit + 1;
            }
            self.targets.pop();
            self.from = 0;
        }
        false
    }
}
