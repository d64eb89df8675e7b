//! Turning a bit that was taken into a tag, or refusing it if the set was frozen, closed or changed
//! meanwhile.

use crate::pending_tag::{PendingTag, PendingTags};
use crate::slot::Slot;
use crate::tag::Tag;
use crate::tag_layout::TagMapId;
use crate::tag_maps::TagMaps;
use crate::tenant::Tenant;
use inflight_sbitmap::SbitmapQueue;
use std::ptr::NonNull;

impl TagMaps {
    /// A2 and A3, after A1, with A4 and D4: whether bits of the hardware queue may become tags.
    #[inline]
    fn admits(&self, hw_queue: usize) -> bool {
        let state = self.gate.state_after_get();
        let open = state.is_open()
            || state.refuses().is_none() && self.admits_while_some_are_inactive(hw_queue);
        open && hw_queue < self.size.hw_queues()
    }

    /// D4 and D5.
    #[cold]
    fn admits_while_some_are_inactive(&self, hw_queue: usize) -> bool {
        if self.active_queues.stand_in(hw_queue) != hw_queue {
            return false;
        }
        // D5: a drain may have taken the bit for one of another hardware queue.
        if self.layout.shared_tags {
            self.gate.drained.notify_all();
        }
        true
    }
}

impl<T> Tenant<T> {
    /// The end of every allocation of one bit, after A1: A2 and A3, and a tag; or B1. `ALONE`:
    /// there is one hardware queue, and there has been one tenant.
    #[inline(always)]
    pub(super) fn make_tag_of_bit<const ALONE: bool>(
        &self,
        bitmap: &SbitmapQueue,
        tag_map: TagMapId,
        bit: usize,
    ) -> Option<Tag<T>> {
        let bitmaps = &*self.shared.bitmaps;
        let slot = self.slot_of(tag_map, bit);
        let admitted = if ALONE {
            bitmaps.gate.state_after_get().is_plain()
        } else {
            self.note_hw_queue(tag_map, slot);
            // D5 may run a waker. If it panics, the bit goes back.
            let pending = bitmaps.pending_tag(tag_map, bit);
            let admitted = bitmaps.admits(tag_map.hw_queue);
            pending.into_bit();
            admitted
        };
        if !admitted {
            bitmaps.put_refused(tag_map, bit);
            return None;
        }
        if !ALONE {
            self.count_allocs(1);
        }
        // SAFETY: the bit was taken for the caller alone, and it was admitted.
        Some(unsafe { self.own(slot, bitmap) })
    }

    /// [`make_tag_of_bit`](Self::make_tag_of_bit) for a bit that the slow path took.
    pub(crate) fn make_tag(&self, bit: PendingTag<'_>) -> Option<Tag<T>> {
        let (tag_map, bit) = bit.into_bit();
        let bitmap = self.shared.bitmaps.bitmap(tag_map);
        self.make_tag_of_bit::<false>(bitmap, tag_map, bit)
    }

    /// The same for several, with one check for all of them.
    pub(super) fn make_tags(&self, bits: PendingTags<'_>) -> Option<Vec<Tag<T>>> {
        let (bitmaps, tag_map) = (&*self.shared.bitmaps, bits.tag_map);
        for bit in bits.bits() {
            self.note_hw_queue(tag_map, self.slot_of(tag_map, bit));
        }
        if !bitmaps.admits(tag_map.hw_queue) {
            return None;
        }
        self.count_allocs(bits.len() as u64);
        let bitmap = bitmaps.bitmap(tag_map);
        let slots = bits.into_bits().into_iter();
        let slots = slots.map(|bit| self.slot_of(tag_map, bit));
        // SAFETY: the bits were taken for this call alone, and they were admitted.
        Some(
            slots
                .map(|slot| unsafe { self.own(slot, bitmap) })
                .collect(),
        )
    }

    #[inline(always)]
    fn slot_of(&self, tag_map: TagMapId, bit: usize) -> &Slot<T> {
        let tag = self.shared.bitmaps.layout.tag_of(tag_map, bit);
        self.shared.slot(tag_map.hw_queue, tag)
    }

    /// Between A1 and A2, if all hardware queues share their tags: records the hardware queue of
    /// the bit, so that a drain of it sees that with the bit.
    #[inline(always)]
    fn note_hw_queue(&self, tag_map: TagMapId, slot: &Slot<T>) {
        if self.shared.bitmaps.layout.shared_tags {
            slot.set_hw_queue(tag_map.hw_queue);
        }
    }

    /// The tag of a slot whose bit was admitted.
    ///
    /// # Safety
    ///
    /// The bit was taken from `bitmap`, the slot's, for the caller alone (A1: PROTOCOL.md, "One
    /// owner"), and admitted.
    #[inline(always)]
    unsafe fn own(&self, slot: &Slot<T>, bitmap: &SbitmapQueue) -> Tag<T> {
        slot.record.grant();
        slot.info.begin(self.id);
        // SAFETY: by the contract.
        unsafe { Tag::own(slot, NonNull::from(bitmap)) }
    }
}
