//! Changing the depth while the set is in use.
//!
//! ```text
//! R1 make the slots    R2 heavy fence    R3 the bitmaps' depth    R4 their waiters
//! ```
//!
//! Tags above a lower depth stay valid until they are freed. R4 gives new tags to waiters, in their
//! order, and to tenants whose share the new tags enlarge. It runs wakers, so it comes after the
//! lock. PROTOCOL-freeze.md has the proof.

use crate::error::ResizeError;
use crate::set::TagSet;
use crate::shared::Shared;
use crate::tag_layout::TagMapId;
use crate::tag_maps::TagMaps;
use inflight_sbitmap::tenancy::Tenancy as _;
use inflight_sync::atomic::Ordering;
use inflight_sync::panics::FirstPanic;

impl<T> Shared<T> {
    /// Makes the missing slots for `depth` tags in these tables, and those beyond the depth. Under
    /// the lock.
    pub(crate) fn make_slots(&self, tables: std::ops::Range<usize>, depth: usize) {
        let layout = self.bitmaps.layout;
        for table in tables {
            for tag in (0..depth).chain(layout.depth..layout.stride()) {
                let slot = self.slot(table, tag);
                if slot.record.is_absent() {
                    let building = self.bitmaps.size.begin_build_closure();
                    let payload = (self.payload)(table, tag);
                    drop(building);
                    slot.make(payload);
                }
            }
        }
    }

    fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        let bitmaps: &TagMaps = &self.bitmaps;
        let (layout, size) = (bitmaps.layout, &bitmaps.size);
        let (least, most) = (layout.reserved + 1, layout.depth);
        if !(least..=most).contains(&depth) {
            return Err(ResizeError::Depth { depth, least, most });
        }
        let change = size.change();
        // R1.
        self.make_slots(0..layout.tables_of(size.hw_queues()), depth);
        // R2.
        bitmaps.gate.publish();
        // Relaxed: a statistic.
        size.depth.store(depth, Ordering::Relaxed);
        // R3.
        let normal = depth - layout.reserved;
        for hw_queue in 0..layout.tables() {
            bitmaps.accounts(hw_queue).set_depth(normal);
            let set = bitmaps.bitmap(TagMapId::normal(hw_queue)).set_depth(normal);
            debug_assert!(set.is_ok(), "the limits are the bitmap's own");
        }
        drop(change);
        // R4.
        let mut panic = FirstPanic::default();
        for hw_queue in 0..layout.tables() {
            panic.run(|| bitmaps.bitmap(TagMapId::normal(hw_queue)).depth_changed());
            panic.run(|| bitmaps.shares_changed(hw_queue));
        }
        panic.finish();
        Ok(())
    }
}

impl<T: Send + 'static> TagSet<T> {
    /// Changes the depth of every hardware queue, while the set is in use: between
    /// `reserved + 1` and the builder's [`max_depth`](crate::TagSetBuilder::max_depth).
    ///
    /// Shrinking succeeds while tags are in use: those above the new depth stay valid, and vanish
    /// when they are freed. Growing makes the new slots by the build closure, and gives the new
    /// tags to waiters. A slot is made once: a second growth finds its data as the last owner left
    /// it.
    ///
    /// # Errors
    ///
    /// [`ResizeError::Depth`] if the depth is outside these limits; the set is unchanged.
    ///
    /// # Panics
    ///
    /// Panics with the build closure, and in a build closure of the same set, which must not change
    /// it; the depth is then unchanged. Panics with a waiter's waker, when all hardware queues have
    /// the new depth.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().depth(2).max_depth(8).build(|_, tag| tag)?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let two = dev.try_alloc_batch(8);
    /// assert_eq!(two.len(), 2);
    /// set.resize(8)?;
    /// assert_eq!(dev.try_alloc_batch(8).len(), 6);
    /// set.resize(1)?; // tag 1 is still held
    /// drop(two);
    /// assert_eq!((set.depth(), dev.try_alloc_batch(8).len()), (1, 1));
    /// assert!(set.resize(9).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        self.shared.resize(depth)
    }
}
