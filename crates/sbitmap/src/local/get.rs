//! Getting an id: from this CPU's stack, else refilled from the words, else from all CPUs' stacks,
//! which are drained first.

use super::PerCpuStore;
use super::words::{WordDepths, WordMask};
use crate::newcomer_policy::must_wait;
use inflight_sync::atomic::Ordering;
use inflight_sync::rseq::Rseq;

impl PerCpuStore {
    /// The fast path of `get`: tries this CPU's stack once, and does nothing that could take long.
    ///
    /// The error is an id for `put_above_depth`, if any.
    #[inline(always)]
    pub(crate) fn get_fast(&self, rseq: Option<Rseq>) -> Result<usize, Option<u32>> {
        // Relaxed: see `fast_depth`.
        let depth = self.fast_depth.load(Ordering::Relaxed);
        if depth == 0 {
            return Err(None);
        }
        let id = self.stacks.pop_once(rseq, depth)?;
        self.states.set_owned(id);
        Ok(id)
    }

    /// Takes an id unless there are waiters; without waiters `None` is exact.
    #[inline]
    pub(crate) fn get(&self) -> Option<usize> {
        // Relaxed: as in `layout`.
        let depth = self.depth.load(Ordering::Relaxed);
        let seen = self.mode.load_relaxed();
        let popped = if !seen.is_warm() {
            Err(None) // Closed stacks are empty.
        } else if seen.is_locked() {
            let popped = self.stacks.pop_locked();
            popped.filter(|&id| (id as usize) < depth).ok_or(popped)
        } else {
            self.stacks.pop_below(depth)
        };
        let id = match popped {
            Ok(id) => id as usize,
            Err(None) => self.get_slow(None, self.where_to_look()?)?,
            Err(other) => self.get_slow(other, self.hint())?,
        };
        self.states.set_owned(id);
        Some(id)
    }

    /// The word to begin at; or `None` if there are no ids, as `get_slow` finds it, in the common
    /// case. For callers that ask repeatedly.
    #[inline]
    fn where_to_look(&self) -> Option<usize> {
        let hint = self.hint();
        if self.words.may_have_ids(hint) {
            return Some(hint);
        }
        let seen = self.mode.load(); // A0
        if !seen.is_drained() {
            return Some(hint);
        }
        let found = self.words.first_with_ids(hint); // A1 and A2
        if found.is_none() && self.mode.is_still(seen) {
            self.note_none(); // A3
            return None;
        }
        Some(found.unwrap_or(hint))
    }

    /// `popped` is an id above the depth that a push during a resize left in a stack.
    #[cold]
    #[inline(never)]
    pub(super) fn get_slow(&self, popped: Option<u32>, from: usize) -> Option<usize> {
        let kept = popped.and_then(|id| self.put_above_depth(id));
        if kept.is_some() {
            return kept;
        }
        loop {
            let seen = self.mode.load(); // A0
            if must_wait(seen.waiters()) {
                return None;
            }
            if seen.is_warm() {
                if let Some(id) = self
                    .refill()
                    .or_else(|| self.take_from_words(&self.depths()))
                {
                    return Some(id);
                }
            }
            if !self.drain_if_undrained(seen) {
                let depths = self.depths();
                match self.words.take(&depths, from, 1) {
                    Ok(ids) => {
                        self.set_hint(ids.word);
                        let id = self.id_of(ids);
                        // Its neighbours are taken next, as they were put one after the other.
                        self.states.prefetch(id + 3);
                        return Some(id);
                    }
                    // A2 and A3.
                    Err(scan) => {
                        if self.words.are_still_empty(&depths, scan) && self.mode.is_still(seen) {
                            self.note_none();
                            return None;
                        }
                    }
                }
            }
        }
    }

    /// Takes one id from any word.
    pub(super) fn take_from_words(&self, depths: &WordDepths) -> Option<usize> {
        let ids = self.words.take(depths, self.hint(), 1).ok()?;
        self.set_hint(ids.word);
        Some(self.id_of(ids))
    }

    pub(super) fn id_of(&self, ids: WordMask) -> usize {
        self.full.bit(ids.word, ids.mask.trailing_zeros())
    }

    /// The word where this CPU begins its search.
    pub(super) fn hint(&self) -> usize {
        self.stacks
            .here()
            .map_or(0, |i| self.stacks.hint(i).load(Ordering::Relaxed) as usize)
    }

    /// This CPU continues at `word`.
    pub(super) fn set_hint(&self, word: usize) {
        if let Some(here) = self.stacks.here() {
            let hint = self.stacks.hint(here);
            // Relaxed: any value is correct. The load avoids writing a line that others read.
            if hint.load(Ordering::Relaxed) as usize != word {
                hint.store(word as u32, Ordering::Relaxed);
            }
        }
    }
}
