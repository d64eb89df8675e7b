//! The events on an item's word. `PROTOCOL.md`, part *item*.

use super::Header;
use super::word::*;
use crate::queued::Queued;
use inflight_sync::atomic::Ordering;

impl Header {
    /// The word, for a thread that reads it under the lock of the pool that it names.
    pub(crate) fn load(&self) -> u64 {
        // Ordering: Acquire, pairs with *end*: a thread that sees that a run has ended sees what it
        // did.
        self.word.load(Ordering::Acquire)
    }

    /// *queue*, of a task that is not shared yet and was made pending: on that pwq.
    #[inline]
    pub(crate) fn set_first_pwq(&self, pwq: u32) {
        // Relaxed: the pool's lock publishes it.
        let word = with_pwq(PENDING | HANDLES, pwq);
        self.word.store(word, Ordering::Relaxed);
    }

    /// The word, if the item can be queued. Otherwise what to tell a caller of *queue*.
    ///
    /// "Already pending" is a read-modify-write: it proves that the flag is set now, and it
    /// releases what the caller did before to the run that will clear it.
    #[inline]
    pub(crate) fn not_pending(&self) -> Result<u64, Queued> {
        loop {
            let seen = self.word.load(Ordering::Relaxed);
            if seen & REFUSING != 0 {
                return Err(Queued::Disabled);
            }
            if seen & PENDING == 0 {
                return Ok(seen);
            }
            if self.confirm(seen) {
                return Err(Queued::AlreadyPending);
            }
        }
    }

    /// *queue*: sets PENDING if the item can be queued. The queue has accepted it: the caller holds
    /// the lock under which that was decided, or *appends*. `pwq` is the pwq that it is queued on;
    /// `None` for a timer.
    #[inline]
    pub(crate) fn set_pending(&self, pwq: Option<u32>) -> Result<Seq, Queued> {
        loop {
            let seen = self.not_pending()?;
            let queued = (seen | PENDING).wrapping_add(SEQ_ONE);
            let new = match pwq {
                Some(pwq) => with_pwq(queued, pwq),
                None => with_pwq(queued, 0) | TIMER,
            };
            // Ordering: Release, pairs with the Acquire of *claim*.
            let set =
                self.word
                    .compare_exchange_weak(seen, new, Ordering::Release, Ordering::Relaxed);
            if set.is_ok() {
                return Ok(seq(new));
            }
        }
    }

    /// *redirect*: moves the live queueing from its timer to a pwq, under the lock of its pool or
    /// before an *append*. Returns the word before; `None` if it was cancelled.
    pub(crate) fn redirect(&self, seq: Seq, pwq: u32) -> Option<u64> {
        let to = |seen: u64| is_live(seen, seq).then(|| with_pwq(seen & !TIMER, pwq));
        // Relaxed: the lock, or the batch's own thread, orders this with who draws the entry; a
        // cancel changes the same word.
        let moved = self
            .word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, to);
        moved.ok()
    }

    /// *cancel*, of a queueing that is parked or waits for its delay, or else under the lock of the
    /// pool that the word names: clears PENDING and sets `then`. `None` if the word is no longer
    /// `seen`. Returns the word before.
    pub(crate) fn take_pending(&self, seen: u64, then: u64) -> Option<u64> {
        self.change_pending(seen, seen & !PENDING | then)
    }

    /// The same, but it stays pending as a new queueing with a delay, which is returned too.
    pub(crate) fn move_pending(&self, seen: u64) -> Option<(u64, Seq)> {
        let new = (seen | TIMER).wrapping_add(SEQ_ONE);
        Some((self.change_pending(seen, new)?, seq(new)))
    }

    fn change_pending(&self, seen: u64, new: u64) -> Option<u64> {
        let timer = new & PENDING;
        let gone = PARKED | AWAITED | COLOUR | if timer == 0 { TIMER } else { 0 };
        let new = with_pwq(new, 0) & !gone;
        // Ordering: AcqRel; the caller sees what was done before the queueing, and the runs of
        // later queueings see what the caller did before.
        let taken = self
            .word
            .compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed);
        taken.ok()
    }

    /// A cancel of nothing, or a queueing that finds PENDING: a read-modify-write all the same, so
    /// that the next run sees what the caller did. `false` if the word is no longer `seen`.
    pub(crate) fn confirm(&self, seen: u64) -> bool {
        // Ordering: Release, pairs with the Acquire of the next *claim*. A cancel has acquired what
        // it needs by the load of `seen`.
        let same = self
            .word
            .compare_exchange(seen, seen, Ordering::Release, Ordering::Relaxed);
        same.is_ok()
    }

    /// *wait*: sets AWAITED and returns the word before.
    pub(super) fn await_end(&self) -> u64 {
        // Ordering: Acquire, pairs with *end*. The end finds the waiter by the event's own
        // protocol.
        self.word.fetch_or(AWAITED, Ordering::Acquire)
    }

    /// Sets or clears one of DISABLED and CANCELLING, under the lock of `Extra`.
    pub(super) fn set_blocked(&self, bit: u64, on: bool) {
        // Relaxed: the word alone decides between this and *queue*.
        if on {
            self.word.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}
