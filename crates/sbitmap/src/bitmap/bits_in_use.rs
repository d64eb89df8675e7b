//! Reading the bits in use.
//!
//! Bits above the depth are included: after a shrink they may still be in use.

use super::Sbitmap;
use crate::snapshot::Snapshot;

impl Sbitmap {
    /// Returns the number of bits in use. A snapshot; exact while there are no gets and puts.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.in_use().map(|mask| mask.count_ones() as usize).sum()
    }

    /// Returns whether any bit is in use.
    ///
    /// `false` means that each bit was free at some moment of the call, and that the writes of its
    /// last owner before the put are visible. After a `fence(SeqCst)` that follows the closing of a
    /// gate, which getters check after a fence of their own, `false` means that no getter is
    /// inside.
    #[must_use]
    pub fn is_any_set(&self) -> bool {
        self.in_use().any(|mask| mask != 0)
    }

    /// Returns whether this bit is in use; `false` for a bit that the map does not have.
    #[must_use]
    pub fn is_set(&self, bit: usize) -> bool {
        let place = self.full.locate(bit);
        place.is_ok_and(|(word, offset)| self.in_use_of(word) >> offset & 1 == 1)
    }

    /// Calls `f` for each bit in use, from `start` on and once around, until it returns `false`.
    ///
    /// Gets and puts of the same time may be seen or not. A `start` beyond the map is 0.
    pub fn for_each_set(&self, start: usize, f: impl FnMut(usize) -> bool) {
        let _ = self.iter_set(start).all(f);
    }

    /// Returns the bits in use, from `start` on and once around; as
    /// [`for_each_set`](Sbitmap::for_each_set).
    ///
    /// The iterator reads each word when it comes to it.
    pub fn iter_set(&self, start: usize) -> impl Iterator<Item = usize> {
        self.full.set_bits(start, |i| self.in_use_of(i))
    }

    /// Returns the first bit in use from `from` on.
    pub(crate) fn next_set(&self, from: usize) -> Option<usize> {
        // After the wrap there are only smaller ones.
        self.iter_set(from).next().filter(|&bit| bit >= from)
    }

    fn in_use(&self) -> impl Iterator<Item = u64> {
        (0..self.words.len()).map(|i| self.in_use_of(i))
    }

    fn in_use_of(&self, word: usize) -> u64 {
        self.words[word].in_use(self.full.word_depth(word))
    }

    /// Returns the state of the map, for people: `{}` and `{:#?}` print it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let depth = self.depth();
        let mut words: Vec<u64> = self.in_use().collect();
        let used = words.iter().rposition(|&word| word != 0);
        let map_nr = self.full.with_depth(depth).words();
        words.truncate(map_nr.max(used.map_or(0, |last| last + 1)));
        Snapshot {
            depth,
            max_depth: self.max_depth(),
            busy: words.iter().map(|w| w.count_ones() as usize).sum(),
            cleared: self.words.iter().map(|w| w.parked() as usize).sum(),
            bits_per_word: self.bits_per_word(),
            map_nr,
            words,
            round_robin: self.in_turn,
            alloc_hint: self.hints.all(),
        }
    }
}
