//! Freeing a bit: it leaves its tenant's account, waiters are woken, freezers are notified.

use crate::shares::ShareAccounts;
use crate::tag_layout::{TagMap, TagMapId};
use crate::tag_maps::TagMaps;
use inflight_sbitmap::SbitmapQueue;
use inflight_sbitmap::tenancy::ShareLimiter as _;

impl TagMaps {
    /// Puts the bit of a tag whose slot its owner has freed: P1 to P3. `tag` is its hardware queue
    /// and number.
    pub(crate) fn put(&self, bitmap: &SbitmapQueue, bit: usize, tag: (usize, usize)) {
        let put = || bitmap.put(bit).is_ok();
        self.put_by(tag, |accounts| accounts.gives(bit), put);
    }

    /// [`put`](Self::put) for several bits of one bitmap, with one check for waiters. `tag` is one
    /// of them.
    pub(crate) fn put_all(&self, bitmap: &SbitmapQueue, bits: &[usize], tag: (usize, usize)) {
        let put = || bitmap.put_batch(bits).is_ok();
        self.put_by(tag, |accounts| accounts.gives_all(bits), put);
    }

    #[inline]
    fn put_by(
        &self,
        (hw_queue, tag): (usize, usize),
        uncount: impl FnOnce(&ShareAccounts),
        put: impl FnOnce() -> bool,
    ) {
        // P2 and P3 follow P1 also if a waker panics in P1.
        let _freezers = self.gate.wake_at_end();
        let counted = self.gate.has_several_tenants();
        if counted && self.layout.bit_of(hw_queue, tag).0.kind == TagMap::Normal {
            // C3. First, so that a waiter woken by the bit finds the share without it.
            uncount(self.accounts(hw_queue));
        }
        let put = put();
        debug_assert!(put, "the bits came from this bitmap");
        if counted && self.accounts(hw_queue).is_limited() {
            self.look_for_idle(hw_queue);
        }
    }

    /// B1 for a bit that was taken and does not become a tag.
    #[cold]
    #[inline(never)]
    pub(crate) fn put_refused(&self, tag_map: TagMapId, bit: usize) {
        drop(self.pending_tag(tag_map, bit));
    }
}
