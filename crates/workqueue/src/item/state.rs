//! The events on an item's word. `PROTOCOL.md`, part *item*.

use super::Header;
use super::word::*;
use crate::queued::Queued;
use inflight_sync::atomic::Ordering;

impl Header {
    /// The word, for who looks at it under the lock of the pool that it names.
    pub(crate) fn load(&self) -> u64 {
        // Ordering: Acquire, pairs with *end*: who sees that a run has ended sees what it did.
        self.word.load(Ordering::Acquire)
    }

    /// *queue*, of a task that nobody else knows yet and that has been born pending: on that pwq.
    #[inline]
    pub(crate) fn set_first_pwq(&self, pwq: u32) {
        // Relaxed: the pool's lock publishes it.
        let word = with_pwq(PENDING | HANDLES, pwq);
        self.word.store(word, Ordering::Relaxed);
    }

    /// *queue*: sets PENDING, unless it is there or the item takes nothing. `pwq` is the one that
    /// it is about to be queued on; `None` for a timer.
    ///
    /// A refusal is a read-modify-write too: it proves that the flag is set now, and it releases
    /// what the caller did before to the run that will clear it.
    pub(crate) fn set_pending(&self, pwq: Option<u32>) -> Result<Seq, Queued> {
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            if seen & REFUSING != 0 {
                return Err(Queued::Disabled);
            }
            let pending = seen & PENDING != 0;
            let new = if pending {
                seen
            } else {
                let queued = (seen | PENDING).wrapping_add(SEQ_ONE);
                match pwq {
                    Some(pwq) => with_pwq(queued, pwq),
                    None => with_pwq(queued, 0) | TIMER,
                }
            };
            // Ordering: Release, pairs with the Acquire of *claim*.
            let set =
                self.word
                    .compare_exchange_weak(seen, new, Ordering::Release, Ordering::Relaxed);
            match set {
                Ok(_) if pending => return Err(Queued::AlreadyPending),
                Ok(_) => return Ok(seq(new)),
                Err(now) => seen = now,
            }
        }
    }

    /// *redirect*: the live queueing goes to another pwq, or from its timer to one. `false`: it was
    /// cancelled.
    pub(crate) fn redirect(&self, seq: Seq, pwq: u32) -> bool {
        let to = |seen: u64| is_live(seen, seq).then(|| with_pwq(seen & !TIMER, pwq));
        // Relaxed: until the entry is pushed, under a lock, nobody but a cancel looks at it.
        let moved = self
            .word
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, to);
        moved.is_ok()
    }

    /// *cancel*, of a queueing that is parked, waits for its time or, under the lock of the pool
    /// that the word names, is anywhere else: it is pending no more, and `then` is set. `None` if
    /// the word is not `seen` any more. Returns what the word was.
    pub(crate) fn take_pending(&self, seen: u64, then: u64) -> Option<u64> {
        self.change_pending(seen, seen & !PENDING | then)
    }

    /// The same, but it stays pending, as a new queueing that waits for its time. Returns that.
    pub(crate) fn move_pending(&self, seen: u64) -> Option<(u64, Seq)> {
        let new = (seen | TIMER).wrapping_add(SEQ_ONE);
        Some((self.change_pending(seen, new)?, seq(new)))
    }

    fn change_pending(&self, seen: u64, new: u64) -> Option<u64> {
        let timer = new & PENDING;
        let gone = PARKED | AWAITED | COLOUR | if timer == 0 { TIMER } else { 0 };
        let new = with_pwq(new, 0) & !gone;
        // Ordering: AcqRel; what was queued before is seen by the caller, and what the caller did
        // before is seen by the runs of later queueings.
        let taken = self
            .word
            .compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed);
        taken.ok()
    }

    /// A cancel finds nothing pending: a read-modify-write all the same, so that the runs of later
    /// queueings see what the caller did before. `false` if the word is not `seen` any more.
    pub(crate) fn confirm(&self, seen: u64) -> bool {
        // Ordering: Release, pairs with the Acquire of the next *claim*. What was to be seen here
        // the load of `seen` has seen.
        let same = self
            .word
            .compare_exchange(seen, seen, Ordering::Release, Ordering::Relaxed);
        same.is_ok()
    }

    /// *wait*: the word, with AWAITED set.
    pub(super) fn await_end(&self) -> u64 {
        // Ordering: Acquire, pairs with *end*. Who ends finds the waiter by the event's own
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
