//! The permission to have one request in flight, and the request's data.

use crate::slot::Slot;
use inflight_sbitmap::SbitmapQueue;
use inflight_steering::{Policies, SubmitInfo};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::time::Duration;

/// A tag: the permission to have one request in flight, with the slot that holds its data.
///
/// Dereferences to the slot's `T`, which no other code can reach. Dropping the tag frees it and
/// wakes the next waiter. [`into_token`](Tag::into_token) puts it in flight instead: from then on
/// no code can reach the `T` until [`TagSet::redeem`](crate::TagSet::redeem) returns the tag.
///
/// A tag keeps its set's memory, so it may outlive all handles of its set. A tag that is leaked
/// (`std::mem::forget`) is never free again, and a freeze waits for it for ever.
///
/// # Panics
///
/// Dropping a tag runs the wakers of waiting tasks. If one panics, the drop panics, after the tag
/// is free and all chosen waiters are woken. While the thread is unwinding already, such a panic is
/// swallowed.
///
/// The idea is the request of blk-mq, whose number in the tag map and whose memory are one.
///
/// ```
/// use inflight_tags::{AllocOptions, TagSet};
/// let set = TagSet::builder().depth(2).build(|_hwq, _tag| vec![0u8; 512])?;
/// let dev = set.add_tenant("nvme0n1")?;
/// let mut tag = dev.try_alloc()?;
/// tag[0] = 7;
/// let token = tag.into_token(); // submitted
/// let tag = set.redeem(token)?; // completed
/// assert_eq!(tag[0], 7);
/// drop(tag);
/// assert_eq!(set.in_use(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the tag is freed when it is dropped"]
pub struct Tag<T> {
    /// Lives while the tag does: see [`teardown`](crate::teardown).
    slot: NonNull<Slot<T>>,
    /// The slot's bitmap, so that a free need not wait for the slot's cache line.
    pub(crate) bitmap: NonNull<SbitmapQueue>,
    /// A tag owns its T.
    payload: PhantomData<T>,
}

// SAFETY: a tag is its T and a pointer to what all threads may use.
unsafe impl<T: Send> Send for Tag<T> {}
// SAFETY: a shared tag gives shared references to its T, and to what all threads may use.
unsafe impl<T: Sync> Sync for Tag<T> {}

impl<T> Tag<T> {
    /// The tag of a slot.
    ///
    /// # Safety
    ///
    /// The caller owns the slot, by A1, S2 or S4 (PROTOCOL.md, "One owner"), and gives the
    /// ownership to the tag. `bitmap` is the slot's.
    #[inline]
    pub(crate) unsafe fn own(slot: &Slot<T>, bitmap: NonNull<SbitmapQueue>) -> Self {
        debug_assert!(
            slot.record.is_owned() && slot.record.is_tag(),
            "nobody gives away what is in flight"
        );
        Self {
            slot: NonNull::from(slot),
            bitmap,
            payload: PhantomData,
        }
    }

    #[inline]
    const fn slot(&self) -> &Slot<T> {
        // SAFETY: a tag that has not ended keeps its set (PROTOCOL.md, "Memory").
        unsafe { self.slot.as_ref() }
    }

    /// Returns the tag as a pointer, without freeing it; `from_raw` makes it a tag again.
    pub(crate) fn into_raw(self) -> NonNull<Slot<T>> {
        ManuallyDrop::new(self).slot
    }

    /// # Safety
    ///
    /// The pointer comes from `into_raw`, and becomes a tag again only once.
    pub(crate) const unsafe fn from_raw(slot: NonNull<Slot<T>>) -> Self {
        // SAFETY: the tag has not ended, so its slot lives.
        let bitmap = unsafe { slot.as_ref() }.bitmap;
        Self {
            slot,
            bitmap,
            payload: PhantomData,
        }
    }

    pub(crate) fn is_polled(&self) -> bool {
        self.slot().is_polled()
    }

    pub(crate) const fn info(&self) -> &SubmitInfo {
        &self.slot().info
    }

    /// Returns the set's present policies for completions.
    pub(crate) const fn policies(&self) -> &Policies {
        &self.slot().bitmaps().policies
    }

    /// Puts the tag in flight and returns the number that names it: a ring's user data.
    ///
    /// The number is never 0 and never `u64::MAX`. Each call returns another number, also for the
    /// same slot, until the slot has been used more than 2^33 times.
    /// [`TagSet::redeem`](crate::TagSet::redeem) returns the tag.
    ///
    /// The slot stays alive and does not move until the tag is redeemed, because a device may work
    /// on its buffers. If all handles of the set are dropped before that, the tag can no longer be
    /// redeemed, and the slot is leaked rather than freed while the device may use it.
    ///
    /// The redeeming thread must get the token in a way that orders memory: a channel, a lock, an
    /// atomic stored with Release and loaded with Acquire, or a device's ring, whose doorbell or
    /// system call orders memory too. A token passed by a Relaxed store alone may arrive before the
    /// slot is seen in flight, and be refused.
    ///
    /// The call notes the time for [`InFlight::age`](crate::InFlight::age), unless the set was
    /// built without [`ages`](crate::TagSetBuilder::ages).
    #[must_use = "only the token brings the tag back"]
    #[inline]
    pub fn into_token(self) -> u64 {
        self.issue(false)
    }

    /// Does [`into_token`](Tag::into_token) after `f` has made the submission from the request's
    /// data and the token. Returns the result of `f`.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// struct Entry { address: *mut u8, user_data: u64 } // a ring's
    /// let set = TagSet::builder().depth(1).build(|_, _| vec![0u8; 512])?;
    /// let tag = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// let entry = tag.into_token_with(|buffer, token| Entry {
    ///     address: buffer.as_mut_ptr(),
    ///     user_data: token,
    /// });
    /// assert!(!entry.address.is_null());
    /// drop(set.redeem(entry.user_data)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics with `f`; the tag is then freed.
    #[must_use = "only the token brings the tag back"]
    #[inline]
    pub fn into_token_with<R>(mut self, f: impl FnOnce(&mut T, u64) -> R) -> R {
        let generation = self.slot().record.next_issue().generation;
        let token = self.slot().id.token(generation);
        let entry = f(&mut self, token);
        let issued = self.into_token();
        debug_assert_eq!(issued, token, "nobody else issues it");
        entry
    }

    /// Returns the tag's hardware queue.
    #[must_use]
    pub fn hw_queue(&self) -> usize {
        self.slot().hw_queue()
    }

    /// Returns the tag's number within its hardware queue, reserved tags first.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().hw_queues(4).depth(3).reserved(2).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let tag = dev.try_alloc_with(AllocOptions::new().hw_queue(3))?;
    /// assert_eq!((tag.hw_queue(), tag.index(), tag.unique()), (3, 2, 0x0003_0002));
    /// assert!(dev.try_alloc_with(AllocOptions::new().reserved())?.index() < 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn index(&self) -> usize {
        self.slot().tag()
    }

    /// Returns hardware queue and index as one number: `hw_queue << 16 | index`, as blk-mq's unique
    /// tag.
    ///
    /// It names the slot, not this use of it. For a device to echo, take the number of
    /// [`into_token`](Tag::into_token).
    /// [`HwQueues::place_of_unique`](crate::HwQueues::place_of_unique) splits the number again, and
    /// [`index`](Tag::index) has an example.
    #[must_use]
    pub fn unique(&self) -> u32 {
        // The builder allows at most 2^16 hardware queues and 10,240 tags each.
        ((self.slot().hw_queue() as u32) << 16) | self.slot().tag() as u32
    }

    /// Sets the time after which the request [expires](crate::TagSet::expire), counted from
    /// [`into_token`](Tag::into_token), or from [`track`](Tag::track), which may have come before.
    /// It replaces the set's timeout until the tag is freed. It has no effect in a set built with
    /// [`ages(false)`](crate::TagSetBuilder::ages), where nothing expires. How late an expired
    /// request may be reported is described at [`TagSet::expired`](crate::TagSet::expired).
    ///
    /// # Panics
    ///
    /// If no other tag has a timeout as short, tasks that wait for timeouts are woken. Panics with
    /// the first panic of their wakers, after all are woken.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let mut tag = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// tag.set_timeout(Duration::ZERO);
    /// let token = tag.into_token();
    /// set.expire(|late| assert_eq!(late, token));
    /// drop(set.redeem_timed_out(token)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_timeout(&mut self, timeout: Duration) {
        let slot = self.slot();
        slot.record.set_timeout(timeout);
        slot.bitmaps().note_timeout(timeout);
    }

    /// Returns the address of the request's data, to be given to a device.
    ///
    /// The address is the same for the life of the slot. The data belongs to this tag, and from
    /// [`into_token`](Tag::into_token) on to the device, until the tag is redeemed. Following the
    /// pointer is `unsafe`, and correct while no other code does.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(1).build(|_, _| [0u8; 512])?;
    /// let mut tag = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// let buffer = tag.as_mut_ptr().cast::<u8>(); // for the ring's entry
    /// let token = tag.into_token();
    /// let mut tag = set.redeem(token)?;
    /// assert_eq!(tag.as_mut_ptr().cast(), buffer, "it has not moved");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> NonNull<T> {
        // SAFETY: the payload is in the slot, whose address is not null.
        unsafe { NonNull::new_unchecked(self.slot().payload_mut()) }
    }

    /// Begins the request's time while its tag is held, for example by a worker that does the work
    /// itself, without a token. When the time is up (the set's, or that of
    /// [`set_timeout`](Tag::set_timeout)), [`TagSet::expired`](crate::TagSet::expired) and the like
    /// return the request, once. The tag stays with its owner, to whom
    /// [`is_overdue`](Tag::is_overdue) then says `true`. Tracking ends when the tag is freed or put
    /// in flight, which begins the time anew.
    ///
    /// Returns a number for this time, which [`Expired::id`](crate::Expired::id) names: a key for
    /// what the handler of the timeout has to find. Another call begins a new time, with a new
    /// number, which is reported too. It is no token: a tag that is held cannot be redeemed.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let mut tag = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// tag.set_timeout(Duration::ZERO);
    /// let id = tag.track();
    /// let late = set.try_expired().expect("its time is up");
    /// assert_eq!((late.id(), late.token()), (id, None), "nobody can redeem what is held");
    /// assert!(tag.is_overdue());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn track(&mut self) -> u64 {
        let slot = self.slot();
        let generation = slot.record.track(slot.bitmaps().stamp());
        slot.id.token(generation)
    }

    /// Returns whether the time of a [tracked](Tag::track) request was reported to be up.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.slot().record.is_reported()
    }

    /// S1. `polled`: see [`into_polled_token`](Self::into_polled_token).
    #[inline]
    pub(crate) fn issue(self, polled: bool) -> u64 {
        // The tag does not end: the caller that redeems it owns it next.
        let this = ManuallyDrop::new(self);
        let slot = this.slot();
        // Read before S1: afterwards another thread may own the slot, and free it with its set.
        let (stamp, id) = (slot.bitmaps().stamp(), slot.id);
        if slot.bitmaps().policies.is_on() {
            slot.note_here(polled);
        }
        let generation = slot.record.issue(stamp);
        id.token(generation)
    }
}

impl<T> Deref for Tag<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the tag owns the slot (PROTOCOL.md, "One owner"; `own` requires it),
        // and a shared borrow of the tag excludes `deref_mut`.
        unsafe { &*self.slot().payload() }
    }
}

impl<T> DerefMut for Tag<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the tag owns the slot (PROTOCOL.md, "One owner"; `own` requires it),
        // and it is borrowed exclusively.
        unsafe { &mut *self.slot().payload_mut() }
    }
}

// The payload is in its slot, however the tag moves.
impl<T> Unpin for Tag<T> {}

impl<T> Drop for Tag<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the tag owns the slot, and ends here.
        unsafe { Slot::free(self.slot, self.bitmap) };
    }
}

inflight_sync::debug_fields!([T] Tag<T>: |this| hw_queue = this.hw_queue(), index = this.index());
