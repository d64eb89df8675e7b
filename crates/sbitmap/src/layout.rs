//! How many words a depth makes, and which bits of them count. Pure arithmetic.

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

/// A map that may grow has at most this many words that are not whole: a search visits them all.
const WORDS_ENOUGH: usize = 64;

/// A number of bits, cut into words of `2^shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) depth: usize,
    pub(crate) shift: u32,
}

impl Layout {
    /// `shift` must be at most [`SHIFT_MAX`]. Without one, words are cut for `depth`, but there are
    /// no more of them than [`WORDS_ENOUGH`] at `max_depth` unless they are whole.
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

    /// How many bits of word `i` count: all, but for the last word; none beyond.
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

    /// How many bits of each word are open to users who may hold `limit` bits of the whole map.
    ///
    /// Each word gives its proportional share, rounded down; what is missing to `limit` is given by
    /// the first words, one bit each. So the shares add up to exactly `limit`.
    pub(crate) const fn shallow(self, limit: usize) -> Shallow {
        let mut shallow = Shallow {
            layout: self,
            limit,
            missing: 0,
        };
        if limit < self.depth {
            let last = self.words() - 1;
            shallow.missing = limit - (shallow.share(0) * last + shallow.share(last));
        }
        shallow
    }
}

/// A limit spread over the words of a layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shallow {
    layout: Layout,
    limit: usize,
    /// How many of the first words give one bit more than their share.
    missing: usize,
}

impl Shallow {
    const fn share(self, i: usize) -> usize {
        self.layout.word_depth(i) as usize * self.limit / self.layout.depth
    }

    /// How many bits of word `i` are open.
    pub(crate) const fn word_depth(self, i: usize) -> u32 {
        if self.limit >= self.layout.depth {
            return self.layout.word_depth(i);
        }
        (self.share(i) + (i < self.missing) as usize) as u32
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn layout(depth: usize) -> Layout {
        Layout::new(depth, depth, None)
    }

    #[test]
    fn a1_a2_a3_automatic_shift() {
        let table = [
            (1, 64, 1, 1),
            (3, 64, 1, 3),
            (4, 1, 4, 1),
            (8, 2, 4, 2),
            (10, 2, 5, 2),
            (16, 4, 4, 4),
            (31, 4, 8, 3),
            (32, 8, 4, 8),
            (64, 16, 4, 16),
            (127, 16, 8, 15),
            (128, 32, 4, 32),
            (256, 64, 4, 64),
            (1023, 64, 16, 63),
            (1024, 64, 16, 64),
            (2048, 64, 32, 64),
            (10240, 64, 160, 64),
        ];
        for (depth, bits, words, last) in table {
            let layout = layout(depth);
            assert_eq!(layout.bits_per_word(), bits, "depth {depth}");
            assert_eq!(layout.words(), words, "depth {depth}");
            assert_eq!(layout.word_depth(words - 1), last, "depth {depth}");
        }
        assert_eq!(layout(0).words(), 0);
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
    fn a20_g7_shallow_split_vectors() {
        let split = |limit| [0, 1, 2, 3].map(|i| layout(64).shallow(limit).word_depth(i));
        assert_eq!(split(1), [1, 0, 0, 0]);
        assert_eq!(split(6), [2, 2, 1, 1]);
        assert_eq!(split(48), [12, 12, 12, 12]);
        assert_eq!(split(63).iter().sum::<u32>(), 63);
        assert_eq!(split(64), [16; 4]);
        assert_eq!(split(1000), [16; 4]);
    }

    #[test]
    fn a20_shallow_split_is_exact() {
        // Under an interpreter a part must do.
        let small = if cfg!(miri) { 20 } else { 300 };
        let large: &[usize] = if cfg!(miri) {
            &[67]
        } else {
            &[511, 1000, 1023, 1024]
        };
        for depth in (1..small).chain(large.iter().copied()) {
            let layout = layout(depth);
            for limit in 0..=depth + 1 {
                let sum: usize = (0..layout.words())
                    .map(|i| layout.shallow(limit).word_depth(i) as usize)
                    .sum();
                assert_eq!(sum, limit.min(depth), "depth {depth} limit {limit}");
                for i in 0..layout.words() {
                    assert!(layout.shallow(limit).word_depth(i) <= layout.word_depth(i));
                }
            }
        }
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

    #[test]
    fn low_masks() {
        assert_eq!(
            [0, 1, 3, 63, 64].map(low_mask),
            [0, 1, 7, u64::MAX >> 1, u64::MAX]
        );
    }
}
