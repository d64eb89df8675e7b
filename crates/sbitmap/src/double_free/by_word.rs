//! The states of the bits of one word: for the shared bitmap.

use super::{BitState, Check};
use crate::layout::offsets;
use inflight_sync::CachePadded;
use std::ops::Range;

/// One for each bit; none when trusted. A word's bits are mostly used by one CPU, so its states
/// share lines only among themselves.
#[derive(Debug)]
pub(crate) struct WordStates(Option<Box<BitStates>>);

#[cfg(not(loom))]
type BitStates = CachePadded<[BitState; 64]>;
/// Each atomic costs a model time, so there are no more than needed.
#[cfg(loom)]
type BitStates = CachePadded<Vec<BitState>>;

impl WordStates {
    pub(crate) fn new(bits: usize, check: Check) -> Self {
        debug_assert!(bits <= 64);
        #[cfg(not(loom))]
        let states = || [(); 64].map(|()| BitState::free());
        #[cfg(loom)]
        let states = || (0..bits).map(|_| BitState::free()).collect();
        Self((check != Check::Trusted).then(|| Box::new(CachePadded::new(states()))))
    }

    #[inline]
    pub(crate) fn set_owned_mask(&self, mask: u64, held: bool) {
        let Some(states) = &self.0 else { return };
        if let Some(run) = run(mask) {
            return states[run].iter().for_each(|state| state.set_owned(held));
        }
        for offset in offsets(mask) {
            states[offset as usize].set_owned(held);
        }
    }

    /// Ends the ownership of a bit. `false` if nobody owned it.
    #[inline]
    pub(crate) fn clear_owned(&self, offset: u32, check: Check) -> bool {
        let states = self.0.as_ref();
        states.is_none_or(|states| states[offset as usize].clear_owned(check))
    }

    /// `clear_owned` for several: those of `mask` that were owned.
    pub(crate) fn clear_owned_mask(&self, mask: u64, check: Check) -> u64 {
        if self.clear_owned_run(mask, check) {
            return mask;
        }
        let held = offsets(mask).filter(|&offset| self.clear_owned(offset, check));
        held.fold(0, |held, offset| held | 1 << offset)
    }

    /// As `clear_owned` of all bits of a mask without holes. `false`: nothing has happened.
    fn clear_owned_run(&self, mask: u64, check: Check) -> bool {
        let Some(states) = &self.0 else {
            return true;
        };
        let Some(run) = run(mask).filter(|_| check != Check::Racing) else {
            return false;
        };
        let states = &states[run];
        let held = states.iter().all(BitState::is_owned);
        if held {
            states.iter().for_each(|state| state.set_owned(false));
        }
        held
    }
}

/// The positions of the set bits if there are several, and no hole between them.
fn run(mask: u64) -> Option<Range<usize>> {
    let first = mask.trailing_zeros();
    let bits = mask.checked_shr(first)?;
    let whole = bits > 1 && bits & bits.wrapping_add(1) == 0;
    whole.then(|| first as usize..(first + bits.trailing_ones()) as usize)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::run;
    use crate::layout::low_mask;

    #[test]
    fn a_run_is_several_bits_without_a_hole() {
        for first in 0..64 {
            for n in 0..=64 - first {
                let mask = low_mask(n).checked_shl(first).unwrap_or(0);
                let whole = first as usize..(first + n) as usize;
                assert_eq!(run(mask), (n > 1).then_some(whole), "{mask:b}");
                if n > 2 {
                    assert_eq!(run(mask & !(2 << first)), None, "{mask:b} with a hole");
                }
            }
        }
    }
}
