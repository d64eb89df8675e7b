//! A list of completed requests: many push, one takes all. PROTOCOL.md, "Mailboxes".
//!
//! The list runs through the slots, newest first, so a push needs no memory and a take is one
//! exchange. Whoever takes it turns it round.

use super::Seat;
use crate::slot::Slot;
use crate::tag::Tag;
use inflight_sync::atomic::{AtomicPtr, Ordering};
use std::ptr::{self, NonNull};

/// What a slot in a mailbox points to: the next older one. Only the owner of the slot uses it, and
/// M2 hands it over, so all accesses are Relaxed.
#[derive(Debug)]
pub(crate) struct Link<T>(AtomicPtr<Slot<T>>);

impl<T> Link<T> {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

/// Null: open and empty. [`closed`]: closed. Else the newest slot in it, whose tag it owns, as it
/// does those of all slots its links lead to.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    head: AtomicPtr<Slot<T>>,
}

/// No slot is there: slots are aligned.
const fn closed<T>() -> *mut Slot<T> {
    const { assert!(align_of::<Slot<T>>() > 1) };
    ptr::without_provenance_mut(1)
}

/// Whether a push was the first one since the mailbox was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// Whoever pushed has to wake.
    WasEmpty,
    /// Somebody has been woken, or is about to be, and has not taken yet.
    Joined,
}

impl Pushed {
    pub(super) fn was_empty(self) -> bool {
        matches!(self, Self::WasEmpty)
    }
}

impl<T> Mailbox<T> {
    pub(super) fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: a hint; M2 finds out.
        self.head.load(Ordering::Relaxed) == closed()
    }

    pub(super) fn is_empty(&self) -> bool {
        // Relaxed: a hint, except for a pusher, who reads its own push or what came after.
        let head = self.head.load(Ordering::Relaxed);
        head.is_null() || head == closed()
    }

    /// M4. What was in it; whatever is pushed later comes back.
    pub(super) fn close(&self) -> Batch<T> {
        // Ordering: M4, pairs with the Release of M2, as M3 does.
        Batch::of(self.head.swap(closed(), Ordering::Acquire))
    }

    /// M5. Takes pushes again, if it was closed.
    pub(super) fn open(&self) {
        let open = ptr::null_mut();
        // Relaxed: nothing is handed over. Why ignored: it was open.
        let _ = self
            .head
            .compare_exchange(closed(), open, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// M3. Everything in it.
    pub(super) fn take(&self) -> Batch<T> {
        let mut head = self.head.load(Ordering::Relaxed);
        // An exchange and not a swap, which would open a closed mailbox for a moment.
        while !head.is_null() && head != closed() {
            // Ordering: M3, pairs with the Release of M2, also of the earlier pushes: each M2
            // continues the release sequences of those before it.
            match self.head.compare_exchange_weak(
                head,
                ptr::null_mut(),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Batch::of(head),
                Err(found) => head = found,
            }
        }
        Batch::of(ptr::null_mut())
    }
}

impl<T: Send> Mailbox<T> {
    /// M1 and M2. Before an M2 that would find it empty `first(true)` is called, and `first(false)`
    /// if it found something else: by the time the tag is somebody else's, that has been counted.
    ///
    /// # Errors
    /// It is closed; the tag comes back.
    pub(super) fn push(&self, tag: Tag<T>, first: impl Fn(bool)) -> Result<Pushed, Tag<T>> {
        let slot = tag.into_raw();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == closed() {
                // SAFETY: the pointer is the tag's, which has not been pushed.
                return Err(unsafe { Tag::from_raw(slot) });
            }
            // SAFETY: the tag has not ended, so it keeps the slot, and it is ours until M2.
            let link = unsafe { &slot.as_ref().link.0 };
            // M1.
            link.store(head, Ordering::Relaxed);
            if head.is_null() {
                first(true);
            }
            // Ordering: M2, pairs with the Acquire of M3 and M4: who takes the list sees the link,
            // and the payload as it was handed over.
            match self.head.compare_exchange_weak(
                head,
                slot.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) if head.is_null() => return Ok(Pushed::WasEmpty),
                Ok(_) => return Ok(Pushed::Joined),
                Err(found) => {
                    if head.is_null() {
                        first(false);
                    }
                    head = found;
                }
            }
        }
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// What was taken out of a mailbox, in the order in which it was pushed. Dropping it frees the
/// rest.
#[derive(Debug)]
pub(super) struct Batch<T> {
    oldest: *mut Slot<T>,
    len: u64,
}

impl<T> Batch<T> {
    /// Turns the list round. The caller has just taken it.
    fn of(head: *mut Slot<T>) -> Self {
        let (mut oldest, mut len) = (ptr::null_mut(), 0);
        let mut newest = if head == closed() {
            ptr::null_mut()
        } else {
            head
        };
        while !newest.is_null() {
            // SAFETY: a slot in the list, kept by its tag, which has not ended, and ours since M3
            // or M4.
            let link = unsafe { &(*newest).link.0 };
            let next = link.load(Ordering::Relaxed);
            link.store(oldest, Ordering::Relaxed);
            oldest = newest;
            newest = next;
            len += 1;
        }
        Self { oldest, len }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whose they are, in their order.
    pub(super) fn seats(&self) -> impl Iterator<Item = Seat> {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let slot = NonNull::new(next)?;
            // SAFETY: as in `of`; all that are left in the batch are.
            let slot = unsafe { slot.as_ref() };
            next = slot.link.0.load(Ordering::Relaxed);
            Some(slot.note.seat())
        })
    }
}

impl<T> Iterator for Batch<T> {
    type Item = Tag<T>;

    fn next(&mut self) -> Option<Tag<T>> {
        let slot = NonNull::new(self.oldest)?;
        // SAFETY: as in `of`.
        self.oldest = unsafe { slot.as_ref() }.link.0.load(Ordering::Relaxed);
        self.len -= 1;
        // SAFETY: the pointer was a tag's, pushed once and taken once, and is left here once.
        Some(unsafe { Tag::from_raw(slot) })
    }
}

impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
