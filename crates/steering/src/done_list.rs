//! A list of completed requests: many threads push, one takes all. `PROTOCOL.md` has the proofs.
//!
//! The links are in the requests, newest first, so a push needs no memory and a take is one
//! exchange. The taker reverses the list.

use crate::item::{Item, TenantId};
use inflight_sync::atomic::{AtomicPtr, Ordering};
use inflight_sync::panics::call_for_each;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// Null: open and empty. [`closed`]: closed. Else the newest request in it, which it owns, as it
/// does all that the links lead to.
#[derive(Debug)]
pub(crate) struct DoneList<I: Item> {
    head: AtomicPtr<()>,
    /// Requests go in and come out, and are never shared.
    owns: PhantomData<fn() -> I>,
}

/// No request is there: they are aligned.
const fn closed() -> *mut () {
    ptr::without_provenance_mut(1)
}

impl<I: Item> DoneList<I> {
    pub(crate) fn new() -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            owns: PhantomData,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: a hint; M2 finds out.
        self.head.load(Ordering::Relaxed) == closed()
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a hint, except for a pusher, who reads its own push or what came after.
        let head = self.head.load(Ordering::Relaxed);
        head.is_null() || head == closed()
    }

    /// M4. Returns its contents; later pushes are refused.
    pub(crate) fn close(&self) -> Batch<I> {
        // Ordering: M4, pairs with the Release of M2, as M3 does.
        Batch::of(self.head.swap(closed(), Ordering::Acquire))
    }

    /// M5. Accepts pushes again, if it was closed.
    pub(crate) fn open(&self) {
        let open = ptr::null_mut();
        // Relaxed: nothing is handed over. Why ignored: it was open.
        let _ = self
            .head
            .compare_exchange(closed(), open, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// M3. Returns its contents.
    pub(crate) fn take(&self) -> Batch<I> {
        let mut head = self.head.load(Ordering::Relaxed);
        // An exchange and not a swap, which would open a closed done list for a moment.
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

    /// M1 and M2. Returns whether it was empty: then the pusher has to wake. Otherwise a worker has
    /// been woken, or is about to be, and has not taken yet.
    ///
    /// Before an M2 that would find it empty `first(true)` is called, and `first(false)` if it
    /// found something else: so the request is counted before it belongs to another thread.
    ///
    /// # Errors
    /// If it is closed; the request comes back.
    pub(crate) fn push(&self, item: I, first: impl Fn(bool)) -> Result<bool, I> {
        let raw = item.into_raw();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            if head == closed() {
                // SAFETY: from `into_raw` above, and it has not been pushed.
                return Err(unsafe { I::from_raw(raw) });
            }
            // SAFETY: from `into_raw`, and ours until M2.
            let link = &unsafe { I::link(raw) }.0;
            // M1.
            link.store(head, Ordering::Relaxed);
            if head.is_null() {
                first(true);
            }
            // Ordering: M2, pairs with the Acquire of M3 and M4: who takes the list sees the link,
            // and the payload as it was handed over.
            match self.head.compare_exchange_weak(
                head,
                raw.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(head.is_null()),
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

impl<I: Item> Drop for DoneList<I> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// The requests taken from a done list, in the order in which they were pushed. Dropping it frees
/// the rest.
#[derive(Debug)]
pub(crate) struct Batch<I: Item> {
    oldest: *mut (),
    len: u64,
    owns: PhantomData<I>,
}

impl<I: Item> Batch<I> {
    /// Reverses a list that the caller has just taken.
    fn of(head: *mut ()) -> Self {
        let (mut oldest, mut len) = (ptr::null_mut(), 0);
        let mut newest = if head == closed() {
            ptr::null_mut()
        } else {
            head
        };
        while let Some(raw) = NonNull::new(newest) {
            // SAFETY: a request in the list, from `into_raw`, and ours since M3 or M4.
            let link = &unsafe { I::link(raw) }.0;
            let next = link.load(Ordering::Relaxed);
            link.store(oldest, Ordering::Relaxed);
            oldest = newest;
            newest = next;
            len += 1;
        }
        Self {
            oldest,
            len,
            owns: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns their tenants, in their order.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let raw = NonNull::new(next)?;
            // SAFETY: as in `of`; all that are left in the batch are.
            next = unsafe { I::link(raw) }.0.load(Ordering::Relaxed);
            // SAFETY: as above.
            Some(unsafe { I::tenant_of(raw) })
        })
    }
}

impl<I: Item> Iterator for Batch<I> {
    type Item = I;

    fn next(&mut self) -> Option<I> {
        let raw = NonNull::new(self.oldest)?;
        // SAFETY: as in `of`.
        self.oldest = unsafe { I::link(raw) }.0.load(Ordering::Relaxed);
        self.len -= 1;
        // SAFETY: from `into_raw`, pushed once and taken once, and left here once.
        Some(unsafe { I::from_raw(raw) })
    }
}

impl<I: Item> Drop for Batch<I> {
    fn drop(&mut self) {
        // All of them, also if one panics.
        call_for_each(self, drop);
    }
}
