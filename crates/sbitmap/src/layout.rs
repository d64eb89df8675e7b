//! The number of words of a depth, and their bits in use. Pure arithmetic.

use crate::error::PutError;

/// The largest depth of a bitmap: 2^24 bits.
///
/// ```
/// use inflight_sbitmap::{MAX_DEPTH, Sbitmap};
/// assert!(Sbitmap::builder(MAX_DEPTH + 1).build().is_err());
/// ```
pub const MAX_DEPTH: usize = 1 << 24;

/// log2 of the bits in a machine word of the map.
pub(crate) const SHIFT_MAX: u32 = 6;

/// A bitmap of 4 or more bits has at least this many words, so that it spreads over cache lines.
const WORDS_WANTED: usize = 4;

/// A map that may grow has at most this many partial words: a search visits them all.
const WORDS_ENOUGH: usize = 64;

/// A number of bits, divided into words of `2^shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) depth: usize,
    pub(crate) shift: u32,
}

impl Layout {
    /// `shift` must be at most [`SHIFT_MAX`]. Without one, the words are chosen for `depth`, but
    /// there are no more of them than [`WORDS_ENOUGH`] at `max_depth` unless they are full words.
    pub(crate) fn new(depth: usize, max_depth: usize, shift: Option<u32>) -> Self {
        let shift = shift.unwrap_or_else(|| auto_shift(depth, max_depth));
        debug_assert!(shift <= SHIFT_MAX);
        Self { depth, shift }
    }

    /// The same words, used up to another depth.
    pub(crate) const fn with_depth(self, depth: usize) -> Self {
        Self { depth, ..self }
    }

    pub(crate) const fn bits_per_word(self) -> usize {
        1 << self.shift
    }

    pub(crate) const fn words(self) -> usize {
        self.depth.div_ceil(self.bits_per_word())
    }

    /// How many bits of word `i` are below the depth.
    pub(crate) const fn word_depth(self, i: usize) -> u32 {
        let left = self.depth.saturating_sub(i << self.shift);
        if left < self.bits_per_word() {
            left as u32
        } else {
            1 << self.shift
        }
    }

    /// Word and offset of a bit.
    pub(crate) const fn split(self, bit: usize) -> (usize, u32) {
        let offset = bit & (self.bits_per_word() - 1);
        (bit >> self.shift, offset as u32)
    }

    /// Word and offset of a bit, if there is such a bit.
    #[inline]
    pub(crate) const fn locate(self, bit: usize) -> Result<(usize, u32), PutError> {
        if bit < self.depth {
            Ok(self.split(bit))
        } else {
            Err(PutError::OutOfRange { bit })
        }
    }

    /// The bit at an offset of a word.
    pub(crate) const fn bit(self, word: usize, offset: u32) -> usize {
        (word << self.shift) + offset as usize
    }

    /// The bits that `of_word` has, from `start` on and once around. A `start` beyond the last bit
    /// counts as 0. Each word is read when the iterator reaches it.
    pub(crate) fn set_bits(
        self,
        start: usize,
        of_word: impl Fn(usize) -> u64,
    ) -> impl Iterator<Item = usize> {
        let (first, offset) = self.split(if start < self.depth { start } else { 0 });
        let words = self.words();
        let below = low_mask(offset);
        (first..words)
            .map(move |i| (i, if i == first { !below } else { u64::MAX }))
            .chain((0..first).map(|i| (i, u64::MAX)))
            // The part of the first word before `start` comes last.
            .chain((first..words).take(1).map(move |i| (i, below)))
            .flat_map(move |(i, among)| {
                offsets(of_word(i) & among).map(move |offset| self.bit(i, offset))
            })
    }
}

fn auto_shift(depth: usize, max_depth: usize) -> u32 {
    let mut shift = SHIFT_MAX;
    if depth >= WORDS_WANTED {
        while WORDS_WANTED << shift > depth {
            shift -= 1;
        }
    }
    while shift < SHIFT_MAX && max_depth > WORDS_ENOUGH << shift {
        shift += 1;
    }
    shift
}

/// The lowest `n` bits set.
pub(crate) const fn low_mask(n: u32) -> u64 {
    if n >= u64::BITS {
        u64::MAX
    } else {
        (1 << n) - 1
    }
}

/// The positions of the set bits, lowest first.
pub(crate) fn offsets(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let offset = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (offset < u64::BITS).then_some(offset)
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn layout(depth: usize) -> Layout {
        Layout::new(depth, depth, None)
    }

    /// A map that may grow begins with the words of its depth, unless they would be too many.
    #[test]
    fn a2_room_to_grow() {
        let bits = |depth, max| Layout::new(depth, max, None).bits_per_word();
        assert_eq!(bits(64, 1024), 16);
        assert_eq!(bits(64, 1025), 32);
        assert_eq!(bits(4, 1024), 16);
        assert_eq!(bits(4, MAX_DEPTH), 64);
        assert_eq!(bits(0, 8), 64);
    }

    #[test]
    fn a3_bits_and_words_are_inverse() {
        for depth in [1, 4, 10, 64, 127, 1024] {
            let layout = layout(depth);
            let mut seen = 0;
            for word in 0..layout.words() {
                for offset in 0..layout.word_depth(word) {
                    assert_eq!(layout.bit(word, offset), seen);
                    assert_eq!(layout.split(seen), (word, offset));
                    seen += 1;
                }
            }
            assert_eq!(seen, depth);
        }
    }
}
