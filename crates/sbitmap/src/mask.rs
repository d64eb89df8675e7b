//! Several bits of one word.

use crate::error::PutError;
use crate::layout::{Layout, low_mask, offsets};

/// Bits of one word, taken in one atomic step: `first + i` for each set bit `i` of `mask`.
///
/// ```
/// use inflight_sbitmap::{BitMask, Sbitmap};
/// let map = Sbitmap::builder(64).build().unwrap();
/// let got: BitMask = map.try_get_mask(4).unwrap();
/// assert_eq!(got.mask, 0b1111);
/// assert_eq!((got.iter().count(), got.count()), (4, 4));
/// map.put_mask(got).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitMask {
    /// The lowest bit of the mask.
    pub first: usize,
    /// The bits from `first` on; bit 0 is always set in the result of
    /// [`try_get_mask`](crate::Sbitmap::try_get_mask).
    pub mask: u64,
}

impl BitMask {
    /// No bits. As the value for "none" it keeps a mask in two registers; an `Option` would go
    /// through memory, and would be read there in another width than it was written.
    pub(crate) const EMPTY: Self = Self { first: 0, mask: 0 };

    /// `None` if it has no bits.
    #[inline]
    pub(crate) fn some(self) -> Option<Self> {
        (self.mask != 0).then_some(self)
    }

    /// Word and offset of the first bit, if no bit is beyond that word or the depth.
    pub(crate) fn locate(self, layout: Layout) -> Result<(usize, u32), PutError> {
        let (word, offset) = layout.locate(self.first)?;
        let beyond = self.mask & !low_mask(layout.word_depth(word) - offset);
        if beyond != 0 {
            let bit = self.first.saturating_add(beyond.trailing_zeros() as usize);
            return Err(if bit < layout.depth {
                PutError::BeyondWord { bit }
            } else {
                PutError::OutOfRange { bit }
            });
        }
        Ok((word, offset))
    }

    /// Returns the bits, lowest first. Bits beyond `usize::MAX` of a mask made by hand are left
    /// out.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        offsets(self.mask).filter_map(move |offset| self.first.checked_add(offset as usize))
    }

    /// Returns the number of bits.
    #[must_use]
    pub const fn count(self) -> usize {
        self.mask.count_ones() as usize
    }
}
