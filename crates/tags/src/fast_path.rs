//! The short way of an allocation: a normal tag, when there is one and nothing stands in the way.
//!
//! What all sets with one hardware queue and one tenant share is short enough to be inlined, and
//! ends with the looks that any allocation ends with; others take `alloc_fast_mapped`.

use crate::bitmaps::{TagMap, TagMapId};
use crate::options::AllocOptions;
use crate::queue_kind::QueueKind;
use crate::slot::PUT_AT_ONCE;
use crate::tag::Tag;
use crate::tenant_handle::Tenant;
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
        let slot = shared.slot(0, bitmaps.tag_of(ONLY, bit));
        if !bitmaps.gate().state_after_get().is_plain() {
            bitmaps.refused(ONLY, bit);
            return None;
        }
        slot.record.grant();
        slot.info.begin(self.id);
        // SAFETY: the bit came from the bitmap for this call alone, so the slot is the caller's by
        // A1: PROTOCOL.md, "One owner".
        Some(unsafe { Tag::own(slot, NonNull::from(bitmap)) })
    }

    /// Up to `n` of them, if there is one hardware queue: then they are all of the same.
    pub(crate) fn quick_batch(&self, options: AllocOptions, n: usize) -> Vec<Tag<T>> {
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
        let geometry = bitmaps.geometry();
        let slot = shared.slot(hw_queue, bitmaps.tag_of(target, bit));
        if geometry.shared {
            slot.set_hw_queue(hw_queue);
        }
        let admitted = bitmaps.gate().state_after_get().is_open();
        if !admitted || hw_queue >= bitmaps.size().hw_queues() {
            bitmaps.refused(target, bit);
            return None;
        }
        self.count_allocs(1);
        slot.record.grant();
        slot.info.begin(self.id);
        // SAFETY: as in `alloc_fast`.
        Some(unsafe { Tag::own(slot, NonNull::from(bitmap)) })
    }
}

const ONLY: TagMapId = TagMapId {
    hw_queue: 0,
    kind: TagMap::Normal,
};
