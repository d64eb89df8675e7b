//! Several ids at once, with one step for each word.

use super::PerCpuStore;
use super::words::WordMask;

/// How many words are collected at a time.
const OPEN: usize = if cfg!(loom) { 2 } else { 8 };

/// Collects ids by word and puts each word's ids in one step (P1).
pub(super) struct WordMasks<'a> {
    store: &'a PerCpuStore,
    open: [WordMask; OPEN],
    /// The word that was added to last: ids mostly come in runs of one word, as a refill took them.
    last: usize,
    ticked: bool,
}

impl<'a> WordMasks<'a> {
    #[inline]
    pub(super) fn new(store: &'a PerCpuStore) -> Self {
        Self {
            store,
            open: [WordMask { word: 0, mask: 0 }; OPEN],
            last: 0,
            ticked: false,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, id: usize) {
        let ids = self.store.word_mask(id);
        if self.open[self.last].word != ids.word {
            self.open_word(ids.word);
        }
        self.open[self.last].mask |= ids.mask;
    }

    /// Finds another word's entry, or makes it.
    fn open_word(&mut self, word: usize) {
        if let Some(found) = self.open.iter().position(|open| open.word == word) {
            self.last = found;
        } else {
            self.last = (self.last + 1) % OPEN;
            let fresh = WordMask { word, mask: 0 };
            let old = std::mem::replace(&mut self.open[self.last], fresh);
            self.put(old);
        }
    }

    fn put(&mut self, ids: WordMask) {
        if ids.mask != 0 {
            self.ticked |= self.store.put_in_words(ids).ticked;
        }
    }

    /// The word of the last id added.
    pub(super) const fn last_word(&self) -> usize {
        self.open[self.last].word
    }

    /// Puts the rest. Returns whether a tick has passed.
    pub(super) fn finish(mut self) -> bool {
        for i in 0..OPEN {
            self.put(self.open[i]);
        }
        self.ticked
    }
}
