//! An item never runs twice at once: who begins a run, where an entry waits that is taken
//! meanwhile, and what the end does with it. `PROTOCOL.md`, part *item*.

use super::word::{self, *};
use super::{Header, ItemPtr, NotRun};
use crate::panics::contained;
use inflight_sync::atomic::Ordering;

/// An entry that waited in its item while the item ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    pub(crate) pwq: u32,
    pub(crate) seq: Seq,
    pub(crate) colour: u8,
}

impl Parked {
    /// What the end of a run has found in the word.
    pub(super) fn of(word: u64) -> Option<Self> {
        (word & PARKED != 0).then_some(Self {
            pwq: word::pwq(word),
            seq: word::seq(word),
            colour: word::colour(word),
        })
    }
}

impl Header {
    /// *claim*: replaces PENDING by RUNNING, right before the run.
    #[inline]
    pub(crate) fn claim(&self, seq: Seq) -> Result<(), NotRun> {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            if !is_live(seen, seq) {
                return Err(NotRun::Stale);
            }
            if seen & RUNNING != 0 {
                return Err(NotRun::Elsewhere);
            }
            debug_assert_eq!(seen & PARKED, 0, "an entry that is drawn is not parked");
            let new = with_pwq(seen & !PENDING | RUNNING, 0);
            // Ordering: Acquire, pairs with *queue*, also of those that found PENDING, and with the
            // *end* before.
            let claimed =
                self.word
                    .compare_exchange_weak(seen, new, Ordering::Acquire, Ordering::Relaxed);
            match claimed {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// *park*, under the lock of the entry's pool, if the item runs and the queueing is live.
    pub(crate) fn park(&self, seq: Seq, colour: u8) -> bool {
        let into = |seen: u64| {
            let parks = is_live(seen, seq) && seen & RUNNING != 0;
            parks.then(|| with_colour(seen | PARKED, colour))
        };
        // Relaxed: the lock orders this with *put back* and with *cancel*.
        self.word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, into)
            .is_ok()
    }
}

impl ItemPtr {
    /// *claim*, for the owner of the entry of that queueing. If it was cancelled, drops the entry.
    ///
    /// # Safety
    ///
    /// The caller has the entry, which keeps the item alive.
    #[inline]
    pub(super) unsafe fn claim(self, seq: Seq) -> Result<(), NotRun> {
        // SAFETY: the caller's promise.
        let claimed = unsafe { self.header() }.claim(seq);
        if claimed == Err(NotRun::Stale) {
            // SAFETY: the cancel has left a reference with the entry.
            unsafe { self.release() };
        }
        claimed
    }

    /// *end*, of an item whose end can be waited for more than once. Returns the word before, and
    /// whether to notify waiters; if so, the caller has a reference.
    ///
    /// Not a method of the header: another thread may free the item before this returns, and a
    /// reference that is an argument promises that it lives until then.
    ///
    /// # Safety
    ///
    /// The caller has set RUNNING, and this clears it.
    pub(super) unsafe fn end(self) -> (u64, bool) {
        // SAFETY: RUNNING keeps the item alive. Nothing is read after it is cleared.
        let header = unsafe { self.header() };
        let mut seen = header.word.load(Ordering::Relaxed);
        let mut tells = false;
        loop {
            if seen & AWAITED != 0 && !tells {
                // A waiter has a handle, which it may drop as soon as RUNNING is cleared. If there
                // is no handle, AWAITED is of a wait that was given up.
                tells = header.add_to_refs();
            }
            let new = seen & !(RUNNING | PARKED | AWAITED | COLOUR);
            // Ordering: Release, pairs with the next *claim* and with the waiters; Acquire, pairs
            // with the last handle's Release: this may free the item.
            let ended =
                header
                    .word
                    .compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed);
            match ended {
                Ok(old) => return (old, tells),
                Err(now) => seen = now,
            }
        }
    }

    /// The last step of a run that has cleared RUNNING.
    ///
    /// # Safety
    ///
    /// `old` is the word at that moment, and the caller does not use the item after this unless
    /// `old` has PENDING.
    pub(super) unsafe fn free_after(self, old: u64) {
        if old & (PENDING | HANDLES) == 0 {
            // SAFETY: the item has not been freed.
            let free = unsafe { self.header() }.vtable.free;
            // SAFETY: RUNNING was the last that kept it alive.
            let _ = contained(|| unsafe { free(self) });
        }
    }
}
