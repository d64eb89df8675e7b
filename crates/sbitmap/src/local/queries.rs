//! The store's state, exact where the stacks are closed for the look.

use super::PerCpuStore;
use crate::error::{PutError, ResizeError};
use crate::layout::low_mask;
use crate::mask::BitMask;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::word::offsets;
use inflight_sync::atomic::Ordering;

impl PerCpuStore {
    /// The ids in use, word by word. Freezes, so ids in stacks do not look like ids in use.
    fn in_use(&self) -> Vec<u64> {
        let _frozen = self.frozen();
        (0..self.words.len()).map(|i| self.in_use_of(i)).collect()
    }

    /// Those of one word, in a store that is frozen.
    fn in_use_of(&self, word: usize) -> u64 {
        !self.words.free(word) & low_mask(self.full.word_depth(word))
    }
}

impl Store for PerCpuStore {
    #[inline]
    fn try_get(&self) -> Option<usize> {
        self.get()
    }

    fn try_get_batch(&self, n: usize, ids: &mut Vec<usize>) -> usize {
        self.get_batch(n, ids)
    }

    #[inline]
    fn try_get_mask(&self, n: usize) -> BitMask {
        self.get_mask(n)
    }

    fn try_get_shallow(&self, limit: usize) -> Option<usize> {
        self.get_shallow(limit)
    }

    fn take(&self) -> Option<usize> {
        self.take_shared(&self.reach())
    }

    #[inline]
    fn set_owned(&self, id: usize) {
        self.states.begin(id);
    }

    #[inline]
    fn put(&self, id: usize) -> Result<bool, PutError> {
        self.give_back(id)
    }

    fn put_batch(&self, ids: &[usize]) -> (usize, bool, Result<(), PutError>) {
        self.give_back_batch(ids.iter().copied())
    }

    #[inline]
    fn put_mask(&self, ids: BitMask) -> (usize, bool, Result<(), PutError>) {
        self.give_back_mask(ids)
    }

    fn waiters(&self) -> usize {
        self.control.load_relaxed().waiters()
    }

    fn set_waiters(&self, n: usize) {
        self.control.set_waiters(n);
    }

    fn is_drained(&self) -> bool {
        self.control.load().is_drained()
    }

    fn drain_percpu(&self) {
        self.freeze();
    }

    fn depth(&self) -> usize {
        self.layout().depth
    }

    fn max_depth(&self) -> usize {
        self.full.depth
    }

    fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        self.resize_to(depth)
    }

    fn weight(&self) -> usize {
        self.in_use().iter().map(|w| w.count_ones() as usize).sum()
    }

    fn next_set(&self, from: usize) -> Option<usize> {
        let _frozen = self.frozen();
        let (first, offset) = self.full.split(from);
        (first..self.words.len()).find_map(|i| {
            let below = if i == first { low_mask(offset) } else { 0 };
            let next = offsets(self.in_use_of(i) & !below).next()?;
            Some(self.full.bit(i, next))
        })
    }

    fn is_set(&self, id: usize) -> bool {
        let (word, offset) = self.full.split(id);
        let _frozen = self.frozen();
        id < self.full.depth && self.in_use_of(word) >> offset & 1 == 1
    }

    fn for_each_set(&self, start: usize, f: &mut dyn FnMut(usize) -> bool) {
        let start = if start < self.full.depth { start } else { 0 };
        let ids: Vec<usize> = self
            .in_use()
            .iter()
            .enumerate()
            .flat_map(|(i, &word)| offsets(word).map(move |o| self.full.bit(i, o)))
            .collect();
        let from = ids.partition_point(|&id| id < start);
        let _all = ids[from..].iter().chain(&ids[..from]).all(|&id| f(id));
    }

    fn snapshot(&self) -> Snapshot {
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
