//! The interface of the store for waiters: an id, or several at once.

use super::PerCpuStore;
use super::batch::WordMasks;
use super::words::{self, WordDepths, WordMask};
use crate::error::{PutError, ResizeError};
use crate::layout::offsets;
use crate::mask::BitMask;
use crate::newcomer_policy::must_wait;
use crate::store::Store;
use inflight_sync::atomic::Ordering;

impl Store for PerCpuStore {
    #[inline]
    fn try_get(&self) -> Option<usize> {
        self.get()
    }

    fn try_get_batch(&self, n: usize, ids: &mut Vec<usize>) -> usize {
        let before = ids.len();
        while ids.len() - before < n {
            let Some(id) = self.get() else { break };
            ids.push(id);
        }
        ids.len() - before
    }

    /// Takes up to `n` ids of one word, bypassing the stacks; or a single id, if necessary from a
    /// stack. Empty if there is none.
    fn try_get_mask(&self, n: usize) -> BitMask {
        let n = n.min(1 << words::SHIFT_MAX) as u32;
        if n == 0 || must_wait(self.mode.load_relaxed().waiters()) {
            return BitMask::EMPTY;
        }
        if let Ok(WordMask { word, mask }) = self.words.take(&self.depths(), self.hint(), n) {
            self.set_hint(word);
            let lowest = mask.trailing_zeros();
            let taken = BitMask {
                first: self.full.bit(word, lowest),
                mask: mask >> lowest,
            };
            taken.iter().for_each(|id| self.states.set_owned(id));
            return taken;
        }
        // The last ids may be in stacks: only a freeze can tell, which `get` does.
        let last = self.get();
        last.map_or(BitMask::EMPTY, |first| BitMask { first, mask: 1 })
    }

    /// Takes one of the ids open to `limit`, from the words.
    fn try_get_shallow(&self, limit: usize) -> Option<usize> {
        loop {
            let seen = self.mode.load();
            if must_wait(seen.waiters()) {
                return None;
            }
            let depths = WordDepths::shallow(self.layout(), limit);
            match self.words.take(&depths, self.hint(), 1) {
                Ok(ids) => {
                    let id = self.full.bit(ids.word, ids.mask.trailing_zeros());
                    self.states.set_owned(id);
                    return Some(id);
                }
                // Some ids may be in stacks.
                Err(_) if self.drain_if_undrained(seen) => {}
                Err(scan) => {
                    if self.words.are_still_empty(&depths, scan) && self.mode.is_still(seen) {
                        self.note_none();
                        return None;
                    }
                }
            }
        }
    }

    fn take(&self) -> Option<usize> {
        self.take_from_words(&self.depths())
    }

    #[inline]
    fn set_owned(&self, id: usize) {
        self.states.set_owned(id);
    }

    #[inline]
    fn put(&self, id: usize) -> Result<bool, PutError> {
        self.put_id(id)
    }

    /// P1 to P3 for several ids: how many came back, whether there may be waiters, and the first
    /// error.
    fn put_batch(&self, ids: &[usize]) -> (usize, bool, Result<(), PutError>) {
        let (mut freed, mut result) = (0, Ok(()));
        let mut masks = WordMasks::new(self);
        for &id in ids {
            if id >= self.full.depth {
                result = result.and(Err(PutError::OutOfRange { bit: id }));
            } else if !self.states.clear_owned(id) {
                result = result.and(Err(PutError::NotAllocated { bit: id }));
            } else {
                masks.add(id);
                freed += 1;
            }
        }
        // The next get finds them there, with the word in its cache.
        self.set_hint(masks.last_word());
        let ticked = masks.finish();
        (freed, freed != 0 && self.somebody_waits(ticked), result)
    }

    fn put_mask(&self, ids: BitMask) -> (usize, bool, Result<(), PutError>) {
        let (word, offset) = match ids.locate(self.full) {
            Ok(place) => place,
            Err(e) => return (0, false, Err(e)),
        };
        let held = self.states.clear_owned_mask(ids);
        let put = WordMask {
            word,
            mask: held << offset,
        };
        // P1 to P3.
        let waiting = put.mask != 0 && self.somebody_waits(self.put_in_words(put).ticked);
        let result = match offsets(ids.mask & !held).next() {
            None => Ok(()),
            Some(offset) => Err(PutError::NotAllocated {
                bit: ids.first + offset as usize,
            }),
        };
        (held.count_ones() as usize, waiting, result)
    }

    fn waiters(&self) -> usize {
        self.mode.load_relaxed().waiters()
    }

    fn set_waiters(&self, n: usize) {
        self.mode.set_waiters(n);
    }

    fn is_drained(&self) -> bool {
        self.mode.load().is_drained()
    }

    fn drain_percpu(&self) {
        self.freeze();
    }

    fn depth(&self) -> usize {
        self.layout().depth
    }

    fn free(&self) -> usize {
        let depths = WordDepths::all(self.layout());
        let free = |i| (self.words.free(i) & depths.mask(i)).count_ones() as usize;
        (0..self.layout().words()).map(free).sum()
    }

    /// Ids above a smaller depth stay with their owners. Once put, they stay in the words, where no
    /// getter looks. When the call returns, no later get takes an id above the depth.
    fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        ResizeError::check(depth, self.full.depth)?;
        let mut mode_lock = self.frozen();
        // Relaxed: putters that still see the old depth may push an id above the new one once the
        // stacks are open again; the getter that pops it puts it back.
        self.depth.store(depth, Ordering::Relaxed);
        self.set_stack_limits(&mut mode_lock);
        Ok(())
    }
}
