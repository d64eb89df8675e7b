//! Looking at the bits in use.
//!
//! Bits above the depth are looked at too: after a shrink they may still be in use.

use super::Sbitmap;
use crate::cpu_hint::Hint;
use crate::layout::{low_mask, offsets};
use crate::snapshot::Snapshot;

impl Sbitmap {
    /// How many bits are in use. A snapshot; exact when nobody gets or puts.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.in_use()
            .map(|(_, mask)| mask.count_ones() as usize)
            .sum()
    }

    /// Whether a bit is in use.
    ///
    /// `false` means that each bit was free at some moment of the call, and that what its last
    /// owner wrote before giving it back is visible. After a `fence(SeqCst)` that follows the
    /// closing of a gate which getters look at after a fence of their own, `false` means that
    /// nobody is inside.
    #[must_use]
    pub fn is_any_set(&self) -> bool {
        self.in_use().any(|(_, mask)| mask != 0)
    }

    /// Whether this bit is in use; `false` for a bit the map does not have.
    #[must_use]
    pub fn is_set(&self, bit: usize) -> bool {
        self.full.locate(bit).is_ok_and(|(word, offset)| {
            self.words[word].in_use(self.full.word_depth(word)) >> offset & 1 == 1
        })
    }

    /// Calls `f` for each bit in use, from `start` on and once around, until it returns `false`.
    ///
    /// Gets and puts that happen meanwhile may or may not be seen. A `start` beyond the map is 0.
    pub fn for_each_set(&self, start: usize, f: impl FnMut(usize) -> bool) {
        let _ = self.iter_set(start).all(f);
    }

    /// The bits in use, from `start` on and once around; as
    /// [`for_each_set`](Sbitmap::for_each_set).
    ///
    /// Each word is looked at when the iterator comes to it.
    pub fn iter_set(&self, start: usize) -> impl Iterator<Item = usize> {
        let start = Hint::at(start).within(self.full).0 as usize;
        let (first, offset) = self.full.split(start);
        let words = self.words.len();
        let below = low_mask(offset);
        (first..words)
            .map(move |i| (i, if i == first { !below } else { u64::MAX }))
            .chain((0..first).map(|i| (i, u64::MAX)))
            // The part of the first word before `start` comes last.
            .chain((first..words).take(1).map(move |i| (i, below)))
            .flat_map(move |(i, among)| {
                let mask = self.words[i].in_use(self.full.word_depth(i)) & among;
                offsets(mask).map(move |offset| self.full.bit(i, offset))
            })
    }

    /// The first bit in use from `from` on.
    pub(crate) fn next_set(&self, from: usize) -> Option<usize> {
        // Around the end there are only smaller ones.
        self.iter_set(from).next().filter(|&bit| bit >= from)
    }

    fn in_use(&self) -> impl Iterator<Item = (usize, u64)> {
        self.words
            .iter()
            .enumerate()
            .map(|(i, word)| (i, word.in_use(self.full.word_depth(i))))
    }

    /// The state of the map, for people: `{}` and `{:#?}` print it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let depth = self.depth();
        let mut words: Vec<u64> = self.in_use().map(|(_, mask)| mask).collect();
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
