//! The end of a tag: frees the slot, puts the bit, and counts the tag out of its set.

use super::Slot;
use crate::tag_maps::{Owner, TagMaps};
use crate::teardown::Teardown;
use inflight_sbitmap::SbitmapQueue;
use inflight_sbitmap::tenancy::Tenancy as _;
use std::ptr::NonNull;

/// The most tags that are freed by one put.
pub(crate) const PUT_AT_ONCE: usize = 32;

impl<T> Slot<T> {
    /// The end of a tag: frees the slot (K1), and counts the tag out (K2).
    ///
    /// # Safety
    ///
    /// The caller owns the slot (PROTOCOL.md, "One owner"), and uses no reference to it or its set
    /// from now on. `bitmap` is the slot's.
    #[inline(never)]
    pub(crate) unsafe fn free(this: NonNull<Self>, bitmap: NonNull<SbitmapQueue>) {
        // SAFETY: the tag is not counted out yet, so its set lives.
        let slot = unsafe { this.as_ref() };
        slot.record.free();
        let gate = &slot.bitmaps().gate;
        let bitmaps = slot.bitmaps.as_ptr();
        // SAFETY: as above: the bitmap is the set's.
        let bitmap_now = unsafe { bitmap.as_ref() };
        // P1 to P3 without counts and without wakes: nothing here can panic.
        if gate.has_several_tenants() || !bitmap_now.put_fast(slot.bit) {
            // SAFETY: as above.
            unsafe { Self::free_slow(this, bitmap) };
        } else if gate.is_watched_after_put() {
            // SAFETY: as above.
            unsafe { Self::wake_and_end(this) };
        } else {
            // SAFETY: this is the end of a tag, which is not counted out yet.
            if let Some(late) = unsafe { LateEnd::unless_counted(1, bitmaps) } {
                late.run_one(this);
            }
        }
    }

    /// The rest of [`free`](Self::free) for a tag whose slot is free.
    ///
    /// # Safety
    ///
    /// As for `free`.
    #[inline(never)]
    unsafe fn free_slow(this: NonNull<Self>, bitmap: NonNull<SbitmapQueue>) {
        // SAFETY: the tag is not counted out yet, so its set lives.
        let slot = unsafe { this.as_ref() };
        let _out = CountOut {
            slots: &[this],
            bitmaps: slot.bitmaps.as_ptr(),
        };
        // SAFETY: as above.
        let bitmap = unsafe { bitmap.as_ref() };
        let tag_number = (slot.hw_queue(), slot.tag());
        slot.bitmaps().put(bitmap, slot.bit, tag_number);
    }

    /// P3 and K2.
    ///
    /// # Safety
    ///
    /// As for `free`, of a tag whose bit has been put.
    #[cold]
    #[inline(never)]
    unsafe fn wake_and_end(this: NonNull<Self>) {
        // SAFETY: the tag is not counted out yet, so its set lives.
        let slot = unsafe { this.as_ref() };
        let _out = CountOut {
            slots: &[this],
            bitmaps: slot.bitmaps.as_ptr(),
        };
        slot.bitmaps().gate.wake_freezers();
    }

    /// [`free`](Self::free) for up to [`PUT_AT_ONCE`] tags whose bits are in one bitmap, with one
    /// put.
    ///
    /// # Safety
    ///
    /// As for `free`, of each. They are different slots with the same bitmap.
    pub(crate) unsafe fn free_all(slots: &[NonNull<Self>]) {
        let Some(&first) = slots.first() else { return };
        let mut bits = [0; PUT_AT_ONCE];
        // SAFETY: the tags are not counted out yet, so their set lives.
        let first = unsafe { first.as_ref() };
        let _out = CountOut {
            slots,
            bitmaps: first.bitmaps.as_ptr(),
        };
        // SAFETY: as above: the bitmap is the set's.
        let bitmap = unsafe { first.bitmap.as_ref() };
        let gate = &first.bitmaps().gate;
        // Bits for which there can be no waiter are put at once, and wake no waiter.
        let (alone, mut left) = (!gate.has_several_tenants(), 0);
        for slot in slots {
            // SAFETY: as above.
            let slot = unsafe { slot.as_ref() };
            debug_assert_eq!(slot.bitmap, first.bitmap);
            slot.record.free();
            if !(alone && bitmap.put_fast(slot.bit)) {
                bits[left] = slot.bit;
                left += 1;
            }
        }
        // P2 and P3 for all, after the last of them.
        if left > 0 {
            let tag_number = (first.hw_queue(), first.tag());
            first.bitmaps().put_all(bitmap, &bits[..left], tag_number);
        } else if gate.is_watched_after_put() {
            gate.wake_freezers();
        }
    }
}

/// Does K2, K6 and K7 when it is dropped, so also if a waker panics in K1.
struct CountOut<'a, T> {
    /// Of one set.
    slots: &'a [NonNull<Slot<T>>],
    bitmaps: *const TagMaps,
}

impl<T> Drop for CountOut<'_, T> {
    fn drop(&mut self) {
        let n = self.slots.len() as u64;
        // SAFETY: this is the end of `n` tags, which are not counted out yet.
        if let Some(late) = unsafe { LateEnd::unless_counted(n, self.bitmaps) } {
            late.run(self.slots);
        }
    }
}

/// The end of tags that K2 has refused.
#[derive(Clone, Copy)]
struct LateEnd {
    bitmaps: *const TagMaps,
    /// Whether all handles are gone.
    orphaned: bool,
}

impl LateEnd {
    /// K2 for `n` tags. `None` if they are counted: the memory may be gone.
    ///
    /// # Safety
    ///
    /// They end here, once, are of the set of these bitmaps, and are not counted out yet.
    #[inline]
    unsafe fn unless_counted(n: u64, bitmaps: *const TagMaps) -> Option<Self> {
        // SAFETY: the tags are not counted out yet, so their set lives.
        let teardown = unsafe { TagMaps::teardown(bitmaps) };
        // SAFETY: by the contract.
        let orphaned = unsafe { Teardown::end(teardown, n) }?;
        Some(Self { bitmaps, orphaned })
    }

    /// [`run`](Self::run), kept off the path of a tag that is counted.
    #[cold]
    #[inline(never)]
    fn run_one<T>(self, slot: NonNull<Slot<T>>) {
        self.run(&[slot]);
    }

    /// K6 and K7 of each tag that K2 has refused.
    #[cold]
    fn run<T>(self, slots: &[NonNull<Slot<T>>]) {
        /// Does K7, and the rest for the other tags, also if the payload's drop panics.
        struct AtEnd<'a, T> {
            late: LateEnd,
            teardown: *const Teardown,
            set: Owner,
            others: &'a [NonNull<Slot<T>>],
        }
        impl<T> Drop for AtEnd<'_, T> {
            fn drop(&mut self) {
                // SAFETY: K2 has refused.
                if unsafe { Teardown::end_late(self.teardown) } {
                    // SAFETY: no other user is left.
                    unsafe { self.set.free() };
                } else {
                    self.late.run(self.others);
                }
            }
        }
        let Some((slot, others)) = slots.split_first() else {
            return;
        };
        // SAFETY: the tag is not counted out yet, so its set lives.
        let set = unsafe { TagMaps::owner(self.bitmaps) };
        // SAFETY: as above.
        let teardown = unsafe { TagMaps::teardown(self.bitmaps) };
        let _at_end = AtEnd {
            late: self,
            teardown,
            set,
            others,
        };
        if self.orphaned {
            // SAFETY: as above, until `_at_end` is dropped.
            unsafe { slot.as_ref() }.drop_payload();
        }
    }
}
