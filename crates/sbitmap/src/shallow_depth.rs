//! How a shallow depth is spread over the words.

use crate::layout::Layout;

impl Layout {
    /// How many bits of each word are open to users that may hold `limit` bits of the whole map.
    ///
    /// Each word gives its proportional share, rounded down; the first words give one more bit each
    /// until the sum is exactly `limit`.
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
