//! Putting an id: into this CPU's stack; or half the stack moves to the words with it; or only the
//! id does.

use super::PerCpuStore;
use super::batch::WordMasks;
use super::stack_limits::LARGEST_CAP;
use super::words::{WordMask, WordPut};
use crate::error::PutError;
use inflight_sync::atomic::Ordering;
use inflight_sync::rseq::Rseq;

/// How far the fast path of a put got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastPut {
    /// The id is in a stack.
    Done,
    /// Nothing has happened.
    Untried,
    /// The id has no owner any more, and its stack has not taken it.
    Ended,
}

impl PerCpuStore {
    /// The fast path of `put_id`.
    #[inline(always)]
    pub(crate) fn put_fast(&self, rseq: Option<Rseq>, id: usize) -> FastPut {
        // Relaxed: see `fast_depth`.
        let below = id < self.fast_depth.load(Ordering::Relaxed);
        let ended = below
            && match rseq {
                Some(_) => self.states.clear_owned_alone(id),
                None => self.states.clear_owned(id),
            };
        if !ended {
            return FastPut::Untried;
        }
        if self.stacks.push_once(rseq, id as u32) {
            FastPut::Done
        } else {
            FastPut::Ended
        }
    }

    /// Puts an id back. `true` if there may be waiters, which the caller serves.
    #[inline]
    pub(crate) fn put_id(&self, id: usize) -> Result<bool, PutError> {
        // Relaxed: as in `layout`.
        let below = id < self.depth.load(Ordering::Relaxed);
        if !below && id >= self.full.depth {
            return Err(PutError::OutOfRange { bit: id });
        }
        if !self.states.clear_owned(id) {
            return Err(PutError::NotAllocated { bit: id });
        }
        let seen = self.mode.load_relaxed();
        if below && seen.is_warm() {
            if seen.is_locked() {
                if self.stacks.push_locked(id as u32) {
                    self.count_locked(1);
                    return Ok(false);
                }
            } else if self.stacks.push(id as u32) {
                return Ok(false);
            }
        }
        self.put_slow(id, below)
    }

    /// Puts back an id that was popped although it was above the depth that its taker had read. If
    /// the id is below the depth by now, it is the taker's.
    ///
    /// The lock is held: if the depth grew in between, the id would be free and no waiter would
    /// have been told.
    #[cold]
    pub(crate) fn put_above_depth(&self, id: u32) -> Option<usize> {
        let id = id as usize;
        let _mode_lock = self.slow.mode_lock.lock();
        // Relaxed: changed with the lock.
        if id < self.depth.load(Ordering::Relaxed) {
            return Some(id);
        }
        self.put_in_words(self.word_mask(id));
        None
    }

    /// Continues `put_id`, or its fast path: the caller owned `id`, and its stack has not taken it.
    /// `below` says whether it is below the depth.
    #[cold]
    #[inline(never)]
    pub(crate) fn put_slow(&self, id: usize, below: bool) -> Result<bool, PutError> {
        if below && self.mode.load_relaxed().is_warm() {
            if let Some((here, _refill)) = self.refill_here() {
                if self.stacks.push(id as u32) {
                    return Ok(false);
                }
                if self.stacks.is_open(here) {
                    self.flush(id);
                    return Ok(false);
                }
            }
        }
        let ids = self.word_mask(id);
        let given = self.put_in_words(ids);
        self.set_hint(ids.word);
        if given.twice == 0 {
            Ok(self.somebody_waits(given.ticked))
        } else {
            Err(PutError::NotAllocated { bit: id })
        }
    }

    /// Moves half a stack to the words, with `id`. The caller holds a refill lock whose stack is
    /// open, so no freeze ends before this has (MR).
    fn flush(&self, id: usize) {
        let mut masks = WordMasks::new(self);
        masks.add(id);
        let mut others = [0; LARGEST_CAP / 2];
        let half = ((self.cap() / 2).max(1) as usize).min(others.len());
        let popped = self.stacks.pop_all(&mut others[..half]);
        for &other in &others[..popped] {
            masks.add(other as usize);
        }
        masks.finish();
    }

    pub(super) fn word_mask(&self, id: usize) -> WordMask {
        let (word, offset) = self.full.split(id);
        WordMask {
            word,
            mask: 1 << offset,
        }
    }

    /// P1, P2 and PM.
    pub(super) fn put_in_words(&self, ids: WordMask) -> WordPut {
        self.words.put(ids)
    }

    /// P3, after P1, P2 and PM: whether there may be waiters. Thaws if ids have been plentiful.
    pub(super) fn somebody_waits(&self, ticked: bool) -> bool {
        let seen = self.mode.load_relaxed();
        if seen.waiters() != 0 {
            return true;
        }
        if !seen.is_warm() && (ticked || cfg!(any(loom, shuttle))) {
            self.tick();
        }
        false
    }
}
