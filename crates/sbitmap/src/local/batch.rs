//! Several ids at once, one step for each word.

use super::PerCpuStore;
use super::words::Group;

/// How many words are collected for at a time.
const OPEN: usize = if cfg!(loom) { 2 } else { 8 };

/// Collects ids by word and gives each word's ids back in one step (P1).
pub(super) struct Groups<'a> {
    store: &'a PerCpuStore,
    open: [Group; OPEN],
    /// The one added to last: ids mostly come in runs of one word, as a refill took them.
    last: usize,
    ticked: bool,
}

impl<'a> Groups<'a> {
    #[inline]
    pub(super) fn new(store: &'a PerCpuStore) -> Self {
        Self {
            store,
            open: [Group { word: 0, mask: 0 }; OPEN],
            last: 0,
            ticked: false,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, id: usize) {
        let group = self.store.group(id);
        if self.open[self.last].word != group.word {
            self.turn_to(group.word);
        }
        self.open[self.last].mask |= group.mask;
    }

    /// Finds the place of another word, or makes it.
    fn turn_to(&mut self, word: usize) {
        if let Some(found) = self.open.iter().position(|open| open.word == word) {
            self.last = found;
        } else {
            self.last = (self.last + 1) % OPEN;
            let fresh = Group { word, mask: 0 };
            let old = std::mem::replace(&mut self.open[self.last], fresh);
            self.give(old);
        }
    }

    fn give(&mut self, group: Group) {
        if group.mask != 0 {
            self.ticked |= self.store.give(group).ticked;
        }
    }

    /// The word of the last one added.
    pub(super) const fn last_word(&self) -> usize {
        self.open[self.last].word
    }

    /// Gives the rest. Returns whether a tick has passed.
    pub(super) fn finish(mut self) -> bool {
        for i in 0..OPEN {
            self.give(self.open[i]);
        }
        self.ticked
    }
}
