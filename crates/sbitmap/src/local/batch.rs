//! Several ids at once, one step for each word.

use super::PerCpuStore;
use super::words::Group;
use crate::error::PutError;
use crate::mask::BitMask;
use crate::word::offsets;
#[cfg(test)]
use inflight_sync::atomic::Ordering;

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

impl PerCpuStore {
    /// P1 to P3 for several: how many came back, whether somebody may wait, and the first error.
    pub(super) fn give_back_batch(
        &self,
        ids: impl Iterator<Item = usize>,
    ) -> (usize, bool, Result<(), PutError>) {
        let (mut freed, mut result) = (0, Ok(()));
        let mut groups = Groups::new(self);
        for id in ids {
            if id >= self.full.depth {
                result = result.and(Err(PutError::OutOfRange { bit: id }));
            } else if !self.states.end(id) {
                result = result.and(Err(PutError::NotAllocated { bit: id }));
            } else {
                groups.add(id);
                freed += 1;
            }
        }
        // The next get finds them there, and the word in its cache.
        self.point_at(groups.last_word());
        let ticked = groups.finish();
        (freed, freed != 0 && self.look(ticked), result)
    }

    pub(super) fn get_batch(&self, n: usize, ids: &mut Vec<usize>) -> usize {
        let before = ids.len();
        while ids.len() - before < n {
            let Some(id) = self.get() else { break };
            ids.push(id);
        }
        ids.len() - before
    }

    /// Up to `n` ids of one word, past the stacks; or a single id, if need be out of a stack. Empty
    /// if there is none.
    pub(super) fn get_mask(&self, n: usize) -> BitMask {
        let n = n.min(1 << super::words::SHIFT_MAX) as u32;
        if n == 0 || self.control.load_relaxed().waiters() != 0 {
            return BitMask::EMPTY;
        }
        if let Ok(Group { word, mask }) = self.words.take(&self.reach(), self.hint(), n) {
            self.point_at(word);
            let lowest = mask.trailing_zeros();
            let taken = BitMask {
                first: self.full.bit(word, lowest),
                mask: mask >> lowest,
            };
            taken.iter().for_each(|id| self.states.begin(id));
            return taken;
        }
        // The last ids may be in stacks: to know is to freeze, which `get` does.
        let last = self.get();
        last.map_or(BitMask::EMPTY, |first| BitMask { first, mask: 1 })
    }

    pub(super) fn give_back_mask(&self, ids: BitMask) -> (usize, bool, Result<(), PutError>) {
        if ids.first >= self.full.depth {
            return (0, false, Err(PutError::OutOfRange { bit: ids.first }));
        }
        let (word, offset) = self.full.split(ids.first);
        let room = self.full.word_depth(word) - offset;
        let beyond = ids.mask & !crate::layout::low_mask(room);
        if beyond != 0 {
            let bit = ids.first.saturating_add(beyond.trailing_zeros() as usize);
            return (0, false, Err(PutError::OutOfRange { bit }));
        }
        let held = self.states.end_all(ids);
        let group = Group {
            word,
            mask: held << offset,
        };
        // P1 to P3.
        let waiting = group.mask != 0 && self.look(self.give(group).ticked);
        let result = match offsets(ids.mask & !held).next() {
            None => Ok(()),
            Some(offset) => Err(PutError::NotAllocated {
                bit: ids.first + offset as usize,
            }),
        };
        (held.count_ones() as usize, waiting, result)
    }

    /// One id of those open to `limit`, from the words.
    pub(super) fn get_shallow(&self, limit: usize) -> Option<usize> {
        loop {
            let seen = self.control.load();
            if seen.waiters() != 0 {
                return None;
            }
            let reach = super::Reach::shallow(self.layout(), limit);
            match self.words.take(&reach, self.hint(), 1) {
                Ok(group) => {
                    let id = self.full.bit(group.word, group.mask.trailing_zeros());
                    self.states.begin(id);
                    return Some(id);
                }
                Err(scan) if seen.is_drained() => {
                    if self.words.are_still_empty(&reach, scan) && self.control.is_still(seen) {
                        self.note_none();
                        return None;
                    }
                }
                // Some may be in stacks.
                Err(_) => self.freeze(),
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.control.load().is_locked()
    }

    /// How often the stacks were closed and emptied.
    #[cfg(test)]
    pub(crate) fn freezes(&self) -> u32 {
        self.slow.freezes.load(Ordering::Relaxed)
    }
}
