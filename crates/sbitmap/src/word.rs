//! One word of the bitmap: up to 64 bits, their deferred clear, and their double-free check.
//!
//! Two cache lines. Getters use `word` (1 = taken, or freed and not yet moved back). Putters set
//! bits in `cleared`. A bit is *in use* iff word = 1 and cleared = 0, *parked* iff both are 1,
//! *free* iff word = 0. `deferred_clear` moves the parked bits back. A put of a bit that is not in
//! use is refused: `held` checks.
//!
//! Writes of one owner reach the next in two hops: put releases `cleared`, M1 acquires it, M2
//! releases `word`, the next get acquires it; or in one hop, if a parked bit is taken directly. All
//! accesses in between are RMWs, which keep the release sequences alive; neither word is written
//! with a plain store.

mod deferred_clear;

use crate::double_free::Check;
use crate::layout::low_mask;
use deferred_clear::{ClearedBits, Refill};
use inflight_sync::CachePadded;
use inflight_sync::atomic::{AtomicU64, Ordering};

/// All bits are free at first.
#[derive(Debug, Default)]
pub(crate) struct Word {
    /// 1 = in use or parked. Getters set bits; movers and batch puts clear them.
    word: CachePadded<AtomicU64>,
    freed: CachePadded<ClearedBits>,
}

/// Which bits of a word a getter may take: those below `depth`, and where it begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    pub(crate) depth: u32,
    pub(crate) from: u32,
    /// Whether bits below `from` come last instead of never.
    pub(crate) wrap: bool,
}

impl Search {
    /// All bits below `depth`, the lowest first.
    pub(crate) const fn of_all(depth: u32) -> Self {
        Self {
            depth,
            from: 0,
            wrap: true,
        }
    }

    #[inline]
    fn mask(self) -> u64 {
        let below_depth = low_mask(self.depth);
        if self.wrap {
            below_depth
        } else {
            below_depth & !low_mask(self.from)
        }
    }
}

impl Word {
    /// Takes one bit. `None` is exact for the bits searched, except for later puts.
    #[inline]
    pub(crate) fn try_get(&self, search: Search) -> Option<u32> {
        if search.depth == 0 {
            return None;
        }
        let searched = search.mask();
        loop {
            let taken = self
                .take_zero(search)
                .map_or_else(|| self.refill(searched), Refill::Took);
            match taken {
                Refill::Took(offset) => return Some(offset),
                Refill::Again => {}
                Refill::Full => return None,
            }
        }
    }

    /// Finds a zero in `word` and sets it. Repeats only when another getter was faster.
    #[inline]
    fn take_zero(&self, search: Search) -> Option<u32> {
        // Relaxed: an outdated value only costs a failed exchange, or a call of `refill`, which may
        // lock.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let zeros = !word & search.mask();
            let ahead = zeros & !low_mask(search.from);
            let zero = if ahead != 0 { ahead } else { zeros };
            if zero == 0 {
                return None;
            }
            let bit = zero & zero.wrapping_neg();
            // Ordering: Acquire pairs with the Release in `move_parked` (M2) and `put_mask`.
            let taken = self.word.compare_exchange_weak(
                word,
                word | bit,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => return Some(bit.trailing_zeros()),
                Err(now) => word = now,
            }
        }
    }

    /// Of the `n` bits from the first free one on, takes those that are free, in one step.
    ///
    /// `None` if they would not fit below `depth`.
    pub(crate) fn take_range(&self, n: u32, depth: u32) -> Option<(u32, u64)> {
        // Parked bits would split the free ranges. Relaxed: the next call finds one that is missed.
        if self.freed.cleared.load(Ordering::Relaxed) != 0 {
            self.flush();
        }
        // Relaxed: the exchange below checks the value.
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let first = (!word).trailing_zeros();
            if first + n > depth {
                return None;
            }
            let range = low_mask(n) << first;
            // Ordering: Acquire pairs with the Release in `move_parked` (M2) and `put_mask`.
            let taken = self.word.compare_exchange_weak(
                word,
                word | range,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => return Some((first, (range & !word) >> first)),
                Err(now) => word = now,
            }
        }
    }

    /// Puts a bit: parks it, or clears it as `put_mask` does if puts may race. `false` if it was
    /// not held.
    #[inline]
    pub(crate) fn put(&self, offset: u32, check: Check) -> bool {
        let bit = 1 << offset;
        match check {
            Check::Racing => return self.put_mask(bit, check) != 0,
            Check::Sequential if self.held(bit) == 0 => return false,
            Check::Sequential | Check::Trusted => {}
        }
        // Ordering: Release pairs with the Acquire of M1 in `move_parked`: the owner's writes come
        // first.
        self.freed.cleared.fetch_or(bit, Ordering::Release);
        true
    }

    /// Puts several bits in one step, directly: none of them is parked, so `cleared` is not read.
    ///
    /// Bits that are not allocated are left out. Returns the others.
    pub(crate) fn put_mask(&self, mask: u64, check: Check) -> u64 {
        let held = match check {
            Check::Trusted => mask,
            Check::Sequential | Check::Racing => self.held(mask),
        };
        if held == 0 {
            return 0;
        }
        // Ordering: Release pairs with the Acquire in `take_zero` and `take_range`.
        let before = self.word.fetch_and(!held, Ordering::Release);
        // If all puts are direct, as they are if puts may race, one of two racing puts fails here.
        held & before
    }

    /// Those of `mask` that have an owner.
    ///
    /// Exact for a put that does not race with another put of the same bit, whatever movers do. If
    /// the other put's bit is gone from `cleared`, a move has taken it (D1), and then `moves` is
    /// odd (D2), or the bit is gone from `word` too (D3).
    #[inline]
    fn held(&self, mask: u64) -> u64 {
        // Ordering: D1, Acquire pairs with the Release of M1: a thread that misses a bit taken by
        // M1 sees the odd `moves`, or a later one.
        let cleared = self.freed.cleared.load(Ordering::Acquire);
        // Ordering: D2, Acquire pairs with the Release that ends a move: M2 is seen.
        let moves = self.freed.moves.load(Ordering::Acquire);
        if moves % 2 != 0 {
            return self.held_while_no_move(mask);
        }
        // Relaxed, both. D3 is ordered by D2. A bit is set in `granted` before its waiter is woken,
        // and the waiter clears it there before it can put the bit.
        let word = self.word.load(Ordering::Relaxed);
        mask & word & !cleared & !self.freed.granted.load(Ordering::Relaxed)
    }

    #[cold]
    fn held_while_no_move(&self, mask: u64) -> u64 {
        let _no_move = self.freed.swap_lock.lock();
        // Relaxed, all: the lock orders movers.
        let word = self.word.load(Ordering::Relaxed);
        let cleared = self.freed.cleared.load(Ordering::Relaxed);
        mask & word & !cleared & !self.freed.granted.load(Ordering::Relaxed)
    }

    /// Marks whether a taken bit is kept for a waiter: until the waiter has fetched it, a put of it
    /// is an error.
    pub(crate) fn set_granted(&self, offset: u32, granted: bool) {
        let bit = 1 << offset;
        // Relaxed, both: the next putter has the bit from the waiter, or put it before.
        if granted {
            self.freed.granted.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.freed.granted.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Returns the bits in use. A snapshot; exact while there are no gets and puts.
    ///
    /// A clear bit was free at some moment of the call, and its owner's writes before the put are
    /// visible. A set bit was in use at some moment: no move came between the two looks.
    pub(crate) fn in_use(&self, depth: u32) -> u64 {
        // Ordering: Acquire pairs with the Release that ends a move: M2 is seen.
        let moves = self.freed.moves.load(Ordering::Acquire);
        let in_use = self.look_at_use();
        // Relaxed: a look that misses a bit that M1 took has acquired M1 through `cleared`, so this
        // load sees the odd number, or a later one.
        if moves % 2 == 0 && self.freed.moves.load(Ordering::Relaxed) == moves {
            in_use & low_mask(depth)
        } else {
            self.in_use_while_no_move() & low_mask(depth)
        }
    }

    fn look_at_use(&self) -> u64 {
        // Ordering: Acquire pairs with the Release in `move_parked` (M2) and `put_mask`.
        let word = self.word.load(Ordering::Acquire);
        // Ordering: Acquire pairs with the Release in `put` and that of M1.
        let cleared = self.freed.cleared.load(Ordering::Acquire);
        word & !cleared
    }

    #[cold]
    fn in_use_while_no_move(&self) -> u64 {
        let _no_move = self.freed.swap_lock.lock();
        self.look_at_use()
    }

    /// Sets a bit, with or without owner; returns whether it was clear. See
    /// [`Sbitmap::set`](crate::Sbitmap::set).
    pub(crate) fn set(&self, offset: u32) -> bool {
        let bit = 1 << offset;
        // Ordering: Release pairs with the Acquire in `clear` and `in_use`; Acquire pairs with the
        // Release in `clear`.
        self.word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Clears a bit, with or without owner; returns whether it was set.
    pub(crate) fn clear(&self, offset: u32) -> bool {
        let bit = 1 << offset;
        // Ordering: Acquire pairs with the Release in `set`; Release pairs with the Acquire there.
        self.word.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// If one bit of a mask is not held, the others are put back, with holes and without.
    #[test]
    fn a_mask_that_is_held_in_part_goes_back_in_part() {
        for (taken, mask) in [(0b0111_u64, 0b1111_u64), (0b1110, 0b1111), (0b1001, 0b1011)] {
            for check in [Check::Sequential, Check::Racing] {
                let word = Word::default();
                assert_eq!(word.take_range(4, 4), Some((0, 0b1111)));
                let free = 0b1111 & !taken;
                assert_eq!(word.put_mask(free, check), free);
                assert_eq!(word.put_mask(mask, check), mask & taken);
                assert_eq!(word.in_use(4), taken & !mask);
                assert_eq!(word.put_mask(mask & taken, check), 0, "once");
            }
        }
    }

    /// A4. Getters and putters of a word have separate cache lines, and words share none.
    #[test]
    fn a4_lines_are_not_shared() {
        let words = [(); 2].map(|()| Word::default());
        let place = |word: &Word| std::ptr::from_ref(&*word.word) as usize / 64;
        let freed = |word: &Word| std::ptr::from_ref(&*word.freed) as usize / 64;
        let mut lines = [&words[0], &words[1]]
            .map(|w| [place(w), freed(w)])
            .concat();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 4);
    }

    /// A27, H19. Only searched bits count as "maybe free".
    #[test]
    fn a27_bits_outside_the_search_do_not_count() {
        let word = Word::default();
        let in_turn = |from| Search {
            depth: 4,
            from,
            wrap: false,
        };
        assert_eq!(
            [0, 1, 2, 3].map(|i| word.try_get(in_turn(i))),
            [0, 1, 2, 3].map(Some)
        );
        assert_eq!(word.put_mask(0b0001, Check::Trusted), 0b0001);
        assert_eq!(word.try_get(in_turn(3)), None);
        assert!(!word.deferred_clear(0b1000) && word.deferred_clear(0b0001));
        assert_eq!(word.try_get(in_turn(0)), Some(0));
    }
}
