//! Deferred clear: moving freed bits back to where getters look.
//!
//! A getter that finds no zero in `word` but a few parked bits takes one of them directly, by
//! clearing it in `cleared`. If more bits are parked, it moves them back, in this order:
//!
//! ```text
//! M1 take the mask out of `cleared`      M2 remove it from `word`
//! ```
//!
//! The other order would lose a bit that is taken and freed between the two steps: M1 would discard
//! its new bit in `cleared`. M1 and M2 run under the word's lock, and `moves` is odd from before M1
//! until after M2: a getter that finds `cleared` empty between them must not report "full". It
//! reads `moves` before and after (`refill`), and if a move was in progress, it looks once more
//! under the lock.

use super::Word;
use inflight_sync::Mutex;
use inflight_sync::atomic::{AtomicU64, Ordering};

/// If at most so many bits are parked, getters take them one by one: near exhaustion that is the
/// common case, and a move for so few costs more than it saves. Models have few bits, and move two.
const FEW: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 4 };

#[derive(Debug, Default)]
pub(super) struct ClearedBits {
    /// 1 = freed and not yet moved back to `word`. Putters set bits; movers take them all.
    pub(super) cleared: AtomicU64,
    /// Odd while a mover is between M1 and M2. Written under the lock.
    pub(super) moves: AtomicU64,
    /// Movers come one by one.
    pub(super) swap_lock: Mutex<()>,
    /// 1 = taken for a waiter that has not fetched it yet: in use, and must not be put.
    pub(super) granted: AtomicU64,
}

/// What a refill found when `word` had nothing.
pub(super) enum Refill {
    Took(u32),
    /// Bits are back in `word`.
    Again,
    Full,
}

/// Whether `bits` has at most `FEW` bits.
const fn is_few(bits: u64) -> bool {
    let (mut rest, mut i) = (bits, 0);
    while i < FEW {
        rest &= rest.wrapping_sub(1); // without its lowest bit
        i += 1;
    }
    rest == 0
}

impl Word {
    /// `word` has no searched zero: takes one of few parked bits, moves many back, or finds that
    /// there are none.
    #[inline(never)]
    pub(super) fn refill(&self, searched: u64) -> Refill {
        // Ordering: Acquire pairs with the Release that ends a move: the moved bits are seen.
        let moves = self.freed.moves.load(Ordering::Acquire);
        // Ordering: Acquire pairs with the Release of M1: if a move took bits from here, the second
        // read of `moves` sees that it had begun.
        let parked = self.freed.cleared.load(Ordering::Acquire) & searched;
        if parked != 0 && is_few(parked) {
            let bit = parked & parked.wrapping_neg();
            // Ordering: Acquire pairs with the Release in `put` and in M1.
            let before = self.freed.cleared.fetch_and(!bit, Ordering::Acquire);
            if before & bit != 0 {
                return Refill::Took(bit.trailing_zeros());
            }
        } else if parked == 0 && moves % 2 == 0 {
            // Relaxed, both: ordered by the loads before them.
            let full = self.word.load(Ordering::Relaxed) & searched == searched;
            if full && self.freed.moves.load(Ordering::Relaxed) == moves {
                return Refill::Full;
            }
        }
        if self.deferred_clear(searched) {
            Refill::Again
        } else {
            Refill::Full
        }
    }

    /// Moves the parked bits back. Returns whether a bit of `searched` is then free.
    pub(super) fn deferred_clear(&self, searched: u64) -> bool {
        let _moving = self.freed.swap_lock.lock();
        // Relaxed, and a load first, so that a full word stays shared in all caches. A waiter's
        // fence makes the bit of every put that did not see it visible here.
        if self.freed.cleared.load(Ordering::Relaxed) != 0 && self.move_parked() & searched != 0 {
            return true;
        }
        // Another getter may have moved bits since the last look. Its lock section came before this
        // one, so Relaxed sees what it left. Only searched bits count, or a getter that may not
        // have the others would repeat for ever.
        self.word.load(Ordering::Relaxed) & searched != searched
    }

    /// Moves the parked bits back, also if there are none: every get that later takes a bit of this
    /// word acquires what the caller has written before.
    pub(crate) fn flush(&self) {
        let _moving = self.freed.swap_lock.lock();
        self.move_parked();
    }

    /// M1 and M2, under the lock. Returns the bits moved.
    fn move_parked(&self) -> u64 {
        // Relaxed: the lock orders movers, and M1 publishes the odd number.
        let moves = self.freed.moves.load(Ordering::Relaxed);
        self.freed.moves.store(moves + 1, Ordering::Relaxed);
        // Ordering: M1, Acquire pairs with the Release in `put`; Release pairs with the Acquire in
        // `refill`, which for `flush` sees what its caller wrote, with D1 in `held`, and with the
        // look of `in_use`.
        let parked = self.freed.cleared.swap(0, Ordering::AcqRel);
        // Ordering: M2, Release pairs with the Acquire in `take_zero`, `take_range` and `in_use`.
        self.word.fetch_and(!parked, Ordering::Release);
        // Ordering: Release pairs with the Acquire in `refill` and `in_use`, and with D2 in `held`.
        self.freed.moves.store(moves + 2, Ordering::Release);
        parked
    }

    /// How many bits are parked.
    pub(crate) fn parked(&self) -> u32 {
        self.freed.cleared.load(Ordering::Relaxed).count_ones()
    }
}
