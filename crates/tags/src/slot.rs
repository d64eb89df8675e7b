//! One tag's slot: the payload, and the [record](record) that says whose it is.

mod record;

pub(crate) use record::{Phase, Record};

use crate::queue_kind::QueueKind;
use crate::tag_maps::{Owner, TagMaps};
use crate::teardown::{End, Teardown};
use crate::token::{Generation, Place};
use inflight_sbitmap::SbitmapQueue;
use inflight_sbitmap::tenancy::Tenancy as _;
use inflight_steering::{Link, SubmitInfo};
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicU32, Ordering};
use inflight_sync::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// How many tags are freed by one put, at most.
pub(crate) const PUT_AT_ONCE: usize = 32;

/// A slot: its place, its record and its payload.
///
/// It lies in the table of its set, which is freed when no handle is left and no tag is held
/// or in flight: see [`teardown`](crate::teardown).
pub(crate) struct Slot<T> {
    pub(crate) record: Record,
    /// Of the same set, as is the next: they live as long as the slot.
    bitmaps: NonNull<TagMaps>,
    /// Where its bit is, and which.
    pub(crate) bitmap: NonNull<SbitmapQueue>,
    bit: usize,
    /// What all its tokens have in common.
    place: Place,
    /// Written by the owner, where hardware queues share tags.
    hw_queue: AtomicU32,
    pub(crate) tag: usize,
    /// Who submitted it, and how it wants to be completed.
    pub(crate) info: SubmitInfo,
    /// Its place in a done list.
    pub(crate) link: Link,
    /// There unless the record is `Absent`.
    payload: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the payload is reached only by the one owner of the slot, through `payload` and
// `payload_mut`, whose callers answer for that; moving from owner to owner is moving between
// threads, hence T: Send. The pointer is to what is Sync. Everything else in the slot is Sync.
unsafe impl<T: Send> Sync for Slot<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Slot<T> {}

impl<T> Slot<T> {
    /// The caller keeps `bitmaps` for as long as the slot.
    pub(crate) fn new(bitmaps: &Arc<TagMaps>, hw_queue: usize, tag: usize) -> Self {
        let (target, bit) = bitmaps.bit_of(hw_queue, tag);
        Self {
            record: Record::new(Generation::start()),
            bitmaps: NonNull::from(&**bitmaps),
            bitmap: NonNull::from(bitmaps.bitmap(target)),
            bit,
            place: Place::new(bitmaps.set_id(), bitmaps.geometry().flat(hw_queue, tag)),
            hw_queue: AtomicU32::new(hw_queue as u32),
            tag,
            info: SubmitInfo::new(),
            link: Link::new(),
            payload: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    #[inline]
    pub(crate) const fn bitmaps(&self) -> &TagMaps {
        // SAFETY: the set that this slot belongs to keeps them, by the contract of `new`, and
        // frees them after the slot.
        unsafe { self.bitmaps.as_ref() }
    }

    /// Puts the payload there, for whoever is alone with a slot that is absent.
    pub(crate) fn make(&self, payload: T) {
        debug_assert!(self.record.is_absent(), "a payload is made once");
        // SAFETY: nobody owns an absent slot, and its bit is beyond the depth; makers take turns.
        // There is no payload to drop.
        self.payload.with_mut(|place| unsafe {
            (*place).write(payload);
        });
        self.record.present();
    }

    #[inline]
    pub(crate) fn hw_queue(&self) -> usize {
        // Relaxed: as the record.
        self.hw_queue.load(Ordering::Relaxed) as usize
    }

    /// The request is submitted here and now. Not inlined: it would be the better part of
    /// `into_token`, and most sets have no completions.
    #[inline(never)]
    pub(crate) fn note_here(&self, polled: bool) {
        self.info
            .write(self.bitmaps().policies(), || polled || self.is_polled());
    }

    /// Whether its hardware queue is one for polled requests.
    pub(crate) fn is_polled(&self) -> bool {
        self.bitmaps().kind_of(self.hw_queue()) == QueueKind::Poll
    }

    /// For the owner of a tag that all hardware queues share.
    #[inline]
    pub(crate) fn set_hw_queue(&self, hw_queue: usize) {
        // Relaxed: as the record.
        self.hw_queue.store(hw_queue as u32, Ordering::Relaxed);
    }

    /// The payload, for the slot's owner.
    #[inline]
    pub(crate) fn payload(&self) -> *const T {
        // The pointer escapes `with`, for the tag's references outlive this call. So a model sees
        // an access at this instant only: it reports two owners who come here unordered, not one
        // who keeps a reference too long. The borrow checker does that, on the tag.
        self.payload.with(<*const MaybeUninit<T>>::cast)
    }

    /// The payload, for the slot's owner, who has no other reference to it.
    #[inline]
    pub(crate) fn payload_mut(&self) -> *mut T {
        // It escapes, as in `payload`.
        self.payload.with_mut(<*mut MaybeUninit<T>>::cast)
    }

    /// Drops the payload if it is the caller's to drop (K4, K6).
    pub(crate) fn drop_payload(&self) {
        if self.record.take_payload() {
            // SAFETY: the exchange to `Absent` succeeds once, from `Idle`, for no tag: nobody owns
            // the slot, and without handles nobody will. Its payload was there.
            unsafe { self.payload_mut().drop_in_place() };
        }
    }

    #[inline]
    pub(crate) const fn place(&self) -> Place {
        self.place
    }

    /// The end of a tag: gives the slot back (K1), and counts out (K2).
    ///
    /// # Safety
    ///
    /// The caller owns the slot (PROTOCOL.md, "One owner"), and has no reference to it or its set
    /// from now on. `bitmap` is the slot's.
    #[inline(never)]
    pub(crate) unsafe fn free(this: NonNull<Self>, bitmap: NonNull<SbitmapQueue>) {
        // SAFETY: the tag is not counted out yet, so its set lives.
        let slot = unsafe { this.as_ref() };
        // SAFETY: as above.
        let home = unsafe { bitmap.as_ref() };
        slot.record.free();
        let gate = slot.bitmaps().gate();
        let bitmaps = slot.bitmaps.as_ptr();
        // P1 to P3 where nobody counts and nobody is told: nothing here can panic.
        if gate.is_many() || !home.put_fast(slot.bit) {
            // SAFETY: as above.
            unsafe { Self::free_slow(this, bitmap) };
        } else if gate.is_watched_after_put() {
            // SAFETY: as above.
            unsafe { Self::wake_and_end(this) };
        } else {
            drop(CountOut {
                slot: this,
                bitmaps,
            });
        }
    }

    /// The rest of [`free`](Self::free) of a tag whose slot is free.
    ///
    /// # Safety
    ///
    /// As for `free`.
    #[inline(never)]
    unsafe fn free_slow(this: NonNull<Self>, bitmap: NonNull<SbitmapQueue>) {
        // SAFETY: the tag is not counted out yet, so its set lives.
        let slot = unsafe { this.as_ref() };
        let _out = CountOut {
            slot: this,
            bitmaps: slot.bitmaps.as_ptr(),
        };
        // SAFETY: as above.
        let bitmap = unsafe { bitmap.as_ref() };
        let place = (slot.hw_queue(), slot.tag);
        slot.bitmaps().put(bitmap, slot.bit, place);
    }

    /// P3 and K2.
    ///
    /// # Safety
    ///
    /// As for `free`, of a tag whose bit is back.
    #[cold]
    #[inline(never)]
    unsafe fn wake_and_end(this: NonNull<Self>) {
        // SAFETY: the tag is not counted out yet, so its set lives.
        let bitmaps = unsafe { this.as_ref() }.bitmaps.as_ptr();
        let out = CountOut {
            slot: this,
            bitmaps,
        };
        // SAFETY: as above.
        unsafe { out.slot.as_ref() }
            .bitmaps()
            .gate()
            .wake_freezers();
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
        let _out = CountOutAll {
            slots,
            bitmaps: first.bitmaps.as_ptr(),
        };
        // SAFETY: as above: the bitmap is the set's.
        let bitmap = unsafe { first.bitmap.as_ref() };
        let gate = first.bitmaps().gate();
        // Those for which nobody can be waiting go back at once; nobody is woken by them.
        let (alone, mut rest) = (!gate.is_many(), 0);
        for slot in slots {
            // SAFETY: as above.
            let slot = unsafe { slot.as_ref() };
            debug_assert_eq!(slot.bitmap, first.bitmap);
            slot.record.free();
            if !(alone && bitmap.put_fast(slot.bit)) {
                bits[rest] = slot.bit;
                rest += 1;
            }
        }
        // P2 and P3 for all, after the last of them.
        if rest > 0 {
            let place = (first.hw_queue(), first.tag);
            first.bitmaps().put_all(bitmap, &bits[..rest], place);
        } else if gate.is_watched_after_put() {
            gate.wake_freezers();
        }
    }
}

/// Does K2, K6 and K7 when it is dropped, so also if a waker panics in K1.
struct CountOut<T> {
    slot: NonNull<Slot<T>>,
    bitmaps: *const TagMaps,
}

impl<T> Drop for CountOut<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the tag is not counted out yet, so its set lives.
        let teardown = unsafe { TagMaps::teardown(self.bitmaps) };
        // SAFETY: this is the end of a tag, once.
        if let End::Refused(orphaned) = unsafe { Teardown::end(teardown, 1) } {
            Self::late(self.slot, self.bitmaps, teardown, orphaned);
        }
    }
}

impl<T> CountOut<T> {
    #[cold]
    #[inline(never)]
    fn late(
        slot: NonNull<Slot<T>>,
        bitmaps: *const TagMaps,
        teardown: *const Teardown,
        orphaned: bool,
    ) {
        /// Counts out also if the payload's drop panics.
        struct Last {
            set: Owner,
            teardown: *const Teardown,
        }
        impl Drop for Last {
            fn drop(&mut self) {
                // SAFETY: K2 has refused.
                if unsafe { Teardown::end_late(self.teardown) } {
                    // SAFETY: nobody else is left.
                    unsafe { self.set.free() };
                }
            }
        }
        // SAFETY: the tag is not counted out yet, so its set lives.
        let set = unsafe { TagMaps::owner(bitmaps) };
        let _last = Last { set, teardown };
        if orphaned {
            // SAFETY: as above, until `_last` is dropped.
            unsafe { slot.as_ref() }.drop_payload();
        }
    }
}

/// As [`CountOut`], for several tags of one set.
struct CountOutAll<'a, T> {
    slots: &'a [NonNull<Slot<T>>],
    bitmaps: *const TagMaps,
}

impl<T> Drop for CountOutAll<'_, T> {
    fn drop(&mut self) {
        /// Counts the rest out also if a payload's drop panics.
        struct Rest<'a, T> {
            slots: std::slice::Iter<'a, NonNull<Slot<T>>>,
            bitmaps: *const TagMaps,
            teardown: *const Teardown,
            orphaned: bool,
        }
        impl<T> Rest<'_, T> {
            fn run(&mut self) {
                for &slot in self.slots.by_ref() {
                    CountOut::late(slot, self.bitmaps, self.teardown, self.orphaned);
                }
            }
        }
        impl<T> Drop for Rest<'_, T> {
            fn drop(&mut self) {
                self.run();
            }
        }
        // SAFETY: the tags are not counted out yet, so their set lives.
        let teardown = unsafe { TagMaps::teardown(self.bitmaps) };
        // SAFETY: this is the end of so many tags, once.
        if let End::Refused(orphaned) = unsafe { Teardown::end(teardown, self.slots.len() as u64) }
        {
            let mut late = Rest {
                slots: self.slots.iter(),
                bitmaps: self.bitmaps,
                teardown,
                orphaned,
            };
            late.run();
        }
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("record", &self.record)
            .field("hw_queue", &self.hw_queue())
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}
