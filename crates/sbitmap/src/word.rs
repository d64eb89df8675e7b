//! One word of the bitmap: up to 64 bits, their deferred clear, and their double-free check.
//!
//! Two lines. Getters work on `word` (1 = taken, or freed and not yet moved back). Putters set bits
//! in `cleared`. A bit is *in use* iff word = 1 and cleared = 0, *parked* iff both are 1, *free*
//! iff word = 0. `deferred_clear` moves the parked bits back.
//!
//! Writes of one owner reach the next in two hops: put releases `cleared`, M1 acquires it, M2
//! releases `word`, the next get acquires it; or in one, where a parked bit is taken directly. All
//! accesses in between are RMWs, which keep the release sequences alive; nobody writes either word
//! with a plain store.

mod deferred_clear;

use crate::double_free::{Check, WordStates};
use crate::layout::low_mask;
use deferred_clear::{ClearedBits, Refill};
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::{CachePadded, Mutex};

#[derive(Debug)]
pub(crate) struct Word {
    /// 1 = in use or parked. Getters set bits; movers and batch puts clear them.
    word: CachePadded<AtomicU64>,
    freed: CachePadded<ClearedBits>,
    states: WordStates,
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
    pub(crate) fn new(bits: usize, check: Check) -> Self {
        Self {
            word: CachePadded::new(AtomicU64::new(0)),
            freed: CachePadded::new(ClearedBits {
                cleared: AtomicU64::new(0),
                moves: AtomicU64::new(0),
                swap_lock: Mutex::new(()),
            }),
            states: WordStates::new(bits, check),
        }
    }

    /// Takes one bit. `None` is exact for the bits searched, but for puts that come later.
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
                Refill::Took(offset) => {
                    self.states.set_owned_mask(1 << offset, true);
                    return Some(offset);
                }
                Refill::Again => {}
                Refill::Full => return None,
            }
        }
    }

    /// Finds a zero in `word` and sets it. Goes round again only when another getter was faster.
    #[inline]
    fn take_zero(&self, search: Search) -> Option<u32> {
        let mut from = search.from;
        loop {
            // Relaxed: a stale view costs a failed RMW, or a call of `deferred_clear`, which locks.
            let zeros = !self.word.load(Ordering::Relaxed) & search.mask();
            let ahead = zeros & !low_mask(from);
            let offset = if ahead != 0 { ahead } else { zeros }.trailing_zeros();
            if offset == u64::BITS {
                return None;
            }
            let bit = 1 << offset;
            // Ordering: Acquire pairs with the Release in `move_parked` (M2) and `put_mask`.
            if self.word.fetch_or(bit, Ordering::Acquire) & bit == 0 {
                return Some(offset);
            }
            from = offset + 1;
        }
    }

    /// Takes those of the `n` bits from the first free one that are free, in one step.
    ///
    /// `None` if they would not fit below `depth`.
    pub(crate) fn take_range(&self, n: u32, depth: u32) -> Option<(u32, u64)> {
        // Parked bits would cut the free ranges into pieces. Relaxed: one missed is found by the
        // next call.
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
                Ok(_) => {
                    let gained = range & !word;
                    self.states.set_owned_mask(gained, true);
                    return Some((first, gained >> first));
                }
                Err(now) => word = now,
            }
        }
    }

    /// Parks a bit. `false`: nobody held it.
    #[inline]
    pub(crate) fn put(&self, offset: u32, check: Check) -> bool {
        if !self.states.clear_owned(offset, check) {
            return false;
        }
        // Ordering: Release pairs with the Acquire of M1 in `move_parked`: the owner's writes come
        // first.
        self.freed.cleared.fetch_or(1 << offset, Ordering::Release);
        true
    }

    /// Says whether a bit that was taken has an owner: until it has, a put of it is an error.
    #[inline]
    pub(crate) fn set_owned(&self, offset: u32, owned: bool) {
        self.states.set_owned_mask(1 << offset, owned);
    }

    /// Gives several bits back in one step, directly: none of them is parked, so `cleared` needs no
    /// look.
    ///
    /// Bits that are not allocated are left out. Returns the others.
    pub(crate) fn put_mask(&self, mask: u64, check: Check) -> u64 {
        let held = self.states.clear_owned_mask(mask, check);
        if held != 0 {
            // Ordering: Release pairs with the Acquire in `take_zero` and `take_range`.
            self.word.fetch_and(!held, Ordering::Release);
        }
        held
    }

    /// The bits in use. A snapshot; exact when nobody gets or puts.
    ///
    /// A clear bit was free at some moment of the call, and what its owner wrote before giving it
    /// back is visible.
    pub(crate) fn in_use(&self, depth: u32) -> u64 {
        // Ordering: Acquire pairs with the Release in `move_parked` (M2) and `put_mask`.
        let word = self.word.load(Ordering::Acquire);
        // Ordering: Acquire pairs with the Release in `put`.
        let cleared = self.freed.cleared.load(Ordering::Acquire);
        word & !cleared & low_mask(depth)
    }

    /// Sets a bit, whoever has it; returns whether it was clear. See
    /// [`Sbitmap::set`](crate::Sbitmap::set).
    pub(crate) fn set(&self, offset: u32) -> bool {
        let bit = 1 << offset;
        // Ordering: Release pairs with the Acquire in `clear` and `in_use`; Acquire pairs with the
        // Release in `clear`.
        self.word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Clears a bit, whoever has it; returns whether it was set.
    pub(crate) fn clear(&self, offset: u32) -> bool {
        let bit = 1 << offset;
        // Ordering: Acquire pairs with the Release in `set`; Release pairs with the Acquire there.
        self.word.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Of a mask in which one bit is not held the others are given back, with holes and without.
    #[test]
    fn a_mask_that_is_held_in_part_goes_back_in_part() {
        for (taken, mask) in [(0b0111_u64, 0b1111_u64), (0b1110, 0b1111), (0b1001, 0b1011)] {
            for check in [Check::Sequential, Check::Racing] {
                let word = Word::new(4, check);
                assert_eq!(word.take_range(4, 4), Some((0, 0b1111)));
                let free = 0b1111 & !taken;
                assert_eq!(word.put_mask(free, check), free);
                assert_eq!(word.put_mask(mask, check), mask & taken);
                assert_eq!(word.in_use(4), taken & !mask);
                assert_eq!(word.put_mask(mask & taken, check), 0, "once");
            }
        }
    }

    /// A4. Getters and putters of a word have a line each, and words share none.
    #[test]
    fn a4_lines_are_not_shared() {
        let words = [(); 2].map(|()| Word::new(64, Check::Sequential));
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
        let word = Word::new(4, Check::Trusted);
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
