//! The fast path of an allocation: a normal tag, if one is free and nothing prevents it.
//!
//! The path for sets with one hardware queue and one tenant is short enough to be inlined, and ends
//! with the checks that end any allocation; others take `alloc_fast_mapped`.

use crate::queue_kind::QueueKind;
use crate::tag::Tag;
use crate::tenant::Tenant;

impl<T: Send + 'static> Tenant<T> {
    /// A tag of a kind of hardware queue, if one is free and nothing prevents it.
    #[inline(always)]
    pub(super) fn alloc_fast(&self, kind: QueueKind) -> Option<Tag<T>> {
        let bitmaps = &*self.shared.bitmaps;
        // A check beforehand, so that a frozen set's bitmaps are left alone.
        if !bitmaps.gate.state().is_plain() {
            return self.alloc_fast_mapped(kind);
        }
        let Some(tag_map) = bitmaps.only_tag_map() else {
            return self.alloc_fast_mapped(kind);
        };
        // A1.
        let bitmap = bitmaps.first();
        let bit = bitmap.try_get()?;
        self.make_tag_of_bit::<true>(bitmap, tag_map, bit)
    }

    /// As `alloc_fast`, for several hardware queues and several tenants.
    #[inline(never)]
    fn alloc_fast_mapped(&self, kind: QueueKind) -> Option<Tag<T>> {
        let bitmaps = &*self.shared.bitmaps;
        if !bitmaps.gate.state().is_open() {
            return None;
        }
        let tag_map = self.mapped_tag_map(kind);
        let tenant = self.tenant_index();
        if bitmaps.accounts_if_shared(tag_map, tenant).is_some() {
            return None;
        }
        // A1.
        let bitmap = bitmaps.bitmap(tag_map);
        let bit = bitmap.try_get()?;
        self.make_tag_of_bit::<false>(bitmap, tag_map, bit)
    }
}
