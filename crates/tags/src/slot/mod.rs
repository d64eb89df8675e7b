//! The slot of a tag: the payload, and the [record] of who owns it.

mod free;
mod record;

pub(crate) use free::PUT_AT_ONCE;
pub(crate) use record::{Phase, Record, SlotState};

use crate::queue_kind::QueueKind;
use crate::tag_maps::TagMaps;
use crate::token::{Generation, SlotId};
use inflight_sbitmap::SbitmapQueue;
use inflight_steering::{Link, SubmitInfo};
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicU32, Ordering};
use inflight_sync::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A slot: its number, its record and its payload.
///
/// It is in the table of its set, which is freed when no handle is left and no tag is held or in
/// flight: see [`teardown`](crate::teardown).
pub(crate) struct Slot<T> {
    pub(crate) record: Record,
    /// Of the same set, as is the next field: they live as long as the slot.
    bitmaps: NonNull<TagMaps>,
    /// The bitmap of its bit, and the bit.
    pub(crate) bitmap: NonNull<SbitmapQueue>,
    bit: usize,
    /// The part that all its tokens have in common.
    pub(crate) id: SlotId,
    /// Written by the owner, if hardware queues share tags.
    hw_queue: AtomicU32,
    tag: u32,
    /// Its submission, and the policy of its completion.
    pub(crate) info: SubmitInfo,
    /// Its link in a done list.
    pub(crate) link: Link,
    /// Initialised unless the record is `Absent`.
    payload: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: only the one owner of the slot accesses the payload, through `payload` and `payload_mut`,
// whose callers justify that. A change of owner may be a change of thread, hence T: Send. The
// pointers are to Sync data. Everything else in the slot is Sync.
unsafe impl<T: Send> Sync for Slot<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Slot<T> {}

impl<T> Slot<T> {
    /// The caller keeps `bitmaps` for as long as the slot.
    pub(crate) fn new(bitmaps: &Arc<TagMaps>, hw_queue: usize, tag: usize) -> Self {
        let (tag_map, bit) = bitmaps.layout.bit_of(hw_queue, tag);
        Self {
            record: Record::new(Generation::start()),
            bitmaps: NonNull::from(&**bitmaps),
            bitmap: NonNull::from(bitmaps.bitmap(tag_map)),
            bit,
            id: SlotId::new(bitmaps.set_id.number(), bitmaps.layout.flat(hw_queue, tag)),
            hw_queue: AtomicU32::new(hw_queue as u32),
            tag: tag as u32,
            info: SubmitInfo::new(),
            link: Link::new(),
            payload: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    #[inline]
    pub(crate) const fn bitmaps(&self) -> &TagMaps {
        // SAFETY: the set of this slot keeps them, by the contract of `new`, and frees them after
        // the slot.
        unsafe { self.bitmaps.as_ref() }
    }

    /// Writes the payload, for a caller that is the only user of an absent slot.
    pub(crate) fn make(&self, payload: T) {
        debug_assert!(self.record.is_absent(), "a payload is made once");
        // SAFETY: an absent slot has no owner, and its bit is beyond the depth; makers take turns.
        // There is no payload to drop.
        self.payload.with_mut(|cell| unsafe {
            (*cell).write(payload);
        });
        self.record.present();
    }

    #[inline]
    pub(crate) fn hw_queue(&self) -> usize {
        // Relaxed: as the record.
        self.hw_queue.load(Ordering::Relaxed) as usize
    }

    #[inline]
    pub(crate) const fn tag(&self) -> usize {
        self.tag as usize
    }

    /// Records that the request is submitted here and now. Not inlined: it would be most of
    /// `into_token`, and most sets have no completions.
    #[inline(never)]
    pub(crate) fn note_here(&self, polled: bool) {
        self.info
            .write(&self.bitmaps().policies, || polled || self.is_polled());
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
        // The pointer escapes `with`, because the tag's references outlive this call. So a model
        // sees an access only at this instant: it reports two unordered owners, but not an owner
        // that keeps a reference too long. The borrow checker prevents that, on the tag.
        self.payload.with(<*const MaybeUninit<T>>::cast)
    }

    /// Returns the payload, for the slot's owner, which has no other reference to it.
    #[inline]
    pub(crate) fn payload_mut(&self) -> *mut T {
        // It escapes, as in `payload`.
        self.payload.with_mut(<*mut MaybeUninit<T>>::cast)
    }

    /// Drops the payload if the caller may (K4, K6).
    pub(crate) fn drop_payload(&self) {
        if self.record.take_payload() {
            // SAFETY: the exchange to `Absent` succeeds once, from `Idle`, for no tag: the slot has
            // no owner, and without handles it gets none. Its payload was there.
            unsafe { self.payload_mut().drop_in_place() };
        }
    }
}

inflight_sync::debug_fields!([T] Slot<T>: |this|
    record = this.record, hw_queue = this.hw_queue(), tag = this.tag());
