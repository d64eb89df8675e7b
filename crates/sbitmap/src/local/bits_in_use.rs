//! Reading the ids in use: exact, because the stacks are closed meanwhile.

use super::PerCpuStore;
use crate::layout::low_mask;
use crate::snapshot::Snapshot;
use inflight_sync::atomic::Ordering;

impl PerCpuStore {
    /// The ids in use, word by word. Freezes, so that ids in stacks do not look like ids in use.
    fn in_use(&self) -> Vec<u64> {
        let _frozen = self.frozen();
        (0..self.words.len()).map(|i| self.in_use_of(i)).collect()
    }

    /// The ids in use of one word, in a frozen store.
    fn in_use_of(&self, word: usize) -> u64 {
        !self.words.free(word) & low_mask(self.full.word_depth(word))
    }

    pub(crate) fn max_depth(&self) -> usize {
        self.full.depth
    }

    pub(crate) fn weight(&self) -> usize {
        self.in_use().iter().map(|w| w.count_ones() as usize).sum()
    }

    pub(crate) fn next_set(&self, from: usize) -> Option<usize> {
        let _frozen = self.frozen();
        let mut from_there = self.full.set_bits(from, |i| self.in_use_of(i));
        // After the wrap there are only smaller ones.
        from_there.next().filter(|&id| id >= from)
    }

    pub(crate) fn is_set(&self, id: usize) -> bool {
        let (word, offset) = self.full.split(id);
        let _frozen = self.frozen();
        id < self.full.depth && self.in_use_of(word) >> offset & 1 == 1
    }

    pub(crate) fn for_each_set(&self, start: usize, f: impl FnMut(usize) -> bool) {
        let in_use = self.in_use();
        let _all = self.full.set_bits(start, |i| in_use[i]).all(f);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let (layout, words) = (self.layout(), self.in_use());
        Snapshot {
            depth: layout.depth,
            max_depth: self.full.depth,
            busy: words.iter().map(|w| w.count_ones() as usize).sum(),
            cleared: 0,
            bits_per_word: layout.bits_per_word(),
            map_nr: layout.words(),
            words,
            round_robin: false,
            alloc_hint: (0..self.stacks.len())
                .map(|i| self.stacks.hint(i).load(Ordering::Relaxed) << self.full.shift)
                .collect(),
        }
    }
}
