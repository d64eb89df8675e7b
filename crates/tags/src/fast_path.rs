//! The short way of an allocation: a normal tag, when there is one and nothing stands in the way.
//!
//! What all sets with one hardware queue and one tenant share is short enough to be inlined, and
//! ends with the looks that any allocation ends with; others take `alloc_fast_mapped`.

use crate::options::AllocOptions;
use crate::queue_kind::QueueKind;
use crate::slot::{PUT_AT_ONCE, Slot};
use crate::tag::Tag;
use crate::tag_maps::{TagMap, TagMapId, TagMaps};
use crate::tenant_handle::Tenant;
use inflight_sbitmap::SbitmapQueue;
use inflight_sync::cpu;
use std::ptr::NonNull;

impl<T: Send + 'static> Tenant<T> {
    /// One try for a normal tag near the caller. `None` says nothing: the long way knows more.
    #[inline(always)]
    pub(crate) fn alloc_fast(&self, kind: QueueKind) -> Option<Tag<T>> {
        let shared = &*self.shared;
        let bitmaps = &*shared.bitmaps;
        // A look beforehand, so that a frozen set's bitmaps are left alone.
        if !bitmaps.gate().state().is_plain() || bitmaps.geometry().hw_queues > 1 {
            return self.alloc_fast_mapped(kind);
        }
        // A1.
        let bitmap = bitmaps.first();
        let bit = bitmap.try_get()?;
        self.finish::<true>(bitmap, ONLY, bit, |bitmaps| {
            bitmaps.gate().state_after_get().is_plain()
        })
    }

    /// The end of every allocation of one bit, after A1: A2 and A3, which are `admits`, and a tag;
    /// or B1. `ALONE`: there is one hardware queue, and there has been one tenant.
    #[inline(always)]
    pub(crate) fn finish<const ALONE: bool>(
        &self,
        bitmap: &SbitmapQueue,
        target: TagMapId,
        bit: usize,
        admits: impl FnOnce(&TagMaps) -> bool,
    ) -> Option<Tag<T>> {
        let bitmaps = self.bitmaps();
        let slot = self.slot_of(target, bit);
        if !ALONE {
            self.note_hw_queue(target, slot);
        }
        if !admits(bitmaps) {
            bitmaps.refused(target, bit);
            return None;
        }
        if !ALONE {
            self.count_allocs(1);
        }
        // SAFETY: the bit was taken for the caller alone, and it was admitted.
        Some(unsafe { self.own(slot, bitmap) })
    }

    #[inline(always)]
    pub(crate) fn slot_of(&self, target: TagMapId, bit: usize) -> &Slot<T> {
        let tag = self.bitmaps().tag_of(target, bit);
        self.shared.slot(target.hw_queue, tag)
    }

    /// Between A1 and A2, where all hardware queues share their tags: whose it is to be. So who
    /// drains a hardware queue sees that with the bit.
    #[inline(always)]
    pub(crate) fn note_hw_queue(&self, target: TagMapId, slot: &Slot<T>) {
        if self.bitmaps().geometry().shared {
            slot.set_hw_queue(target.hw_queue);
        }
    }

    /// The tag of a slot whose bit was admitted.
    ///
    /// # Safety
    ///
    /// The bit was taken from `bitmap`, the slot's, for the caller alone (A1: PROTOCOL.md, "One
    /// owner"), and admitted.
    #[inline(always)]
    pub(crate) unsafe fn own(&self, slot: &Slot<T>, bitmap: &SbitmapQueue) -> Tag<T> {
        slot.record.grant();
        slot.info.begin(self.id);
        // SAFETY: by the contract.
        unsafe { Tag::own(slot, NonNull::from(bitmap)) }
    }

    /// Up to `n` of them, if there is one hardware queue: then they are all of the same.
    pub(crate) fn batch_fast(&self, options: AllocOptions, n: usize) -> Vec<Tag<T>> {
        let mut tags = Vec::new();
        let one = self.bitmaps().geometry().hw_queues == 1;
        if one && !options.reserved && options.named().is_none() {
            tags.reserve(n.min(PUT_AT_ONCE));
            while tags.len() < n {
                let Some(tag) = self.alloc_fast(options.kind) else {
                    break;
                };
                tags.push(tag);
            }
        }
        tags
    }

    /// As `alloc_fast`, for several hardware queues and several tenants.
    #[inline(never)]
    fn alloc_fast_mapped(&self, kind: QueueKind) -> Option<Tag<T>> {
        let shared = &*self.shared;
        let bitmaps = &*shared.bitmaps;
        if !bitmaps.gate().state().is_open() {
            return None;
        }
        let hw_queue = match bitmaps.geometry().hw_queues {
            1 => 0,
            _ => shared.map.hw_queue_of(kind, cpu::current()),
        };
        let target = TagMapId {
            hw_queue,
            kind: TagMap::Normal,
        };
        if bitmaps.limits(target, self.class()).is_some() {
            return None;
        }
        // A1.
        let bitmap = bitmaps.bitmap(target);
        let bit = bitmap.try_get()?;
        self.finish::<false>(bitmap, target, bit, |bitmaps| {
            let open = bitmaps.gate().state_after_get().is_open();
            open && hw_queue < bitmaps.size().hw_queues()
        })
    }
}

const ONLY: TagMapId = TagMapId {
    hw_queue: 0,
    kind: TagMap::Normal,
};
