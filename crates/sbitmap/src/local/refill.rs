//! Refilling this CPU's stack from the words.

use super::PerCpuStore;
use super::words::{self, WordMask};
use crate::layout::offsets;
use inflight_sync::MutexGuard;
use inflight_sync::atomic::Ordering;

impl PerCpuStore {
    /// MA: takes the refill lock of this CPU's stack, if it is free and the stack is open or can be
    /// opened.
    pub(super) fn refill_here(&self) -> Option<(usize, MutexGuard<'_, ()>)> {
        let here = self.stacks.here()?;
        // A check that may be outdated saves a CPU without a stack the lock.
        if !self.stacks.is_open(here) && !self.can_activate() {
            return None;
        }
        let guard = self.stacks.refill_lock(here).try_lock()?;
        (self.stacks.is_open(here) || self.activate(here)).then_some((here, guard))
    }

    /// Takes half a stack from one word, in one step. The first id is the caller's; also returns
    /// how many more came into the stack.
    fn refilled(&self) -> Option<(WordMask, u32)> {
        let (here, _refill) = self.refill_here()?;
        let n = (self.cap() / 2).max(1);
        // Relaxed: as in `set_hint`.
        let hint = self.stacks.hint(here);
        let from = hint.load(Ordering::Relaxed) as usize;
        let taken = self.words.take(&self.depths(), from, n).ok()?;
        hint.store(taken.word as u32, Ordering::Relaxed);
        let rest = taken.mask & (taken.mask - 1);
        let mut ids = [0; 1 << words::SHIFT_MAX];
        let mut n = 0;
        for offset in offsets(rest) {
            let id = self.full.bit(taken.word, offset);
            // Otherwise each get of one of these would wait for its state to come from another CPU.
            self.states.prefetch(id);
            ids[n] = id as u32;
            n += 1;
        }
        let pushed = self.stacks.push_all(&ids[..n]);
        if pushed < n {
            // This thread runs on another CPU by now, or a freezer waits for the lock: either way
            // the ids are in the words before the lock is released (MR).
            let refused = offsets(rest).skip(pushed);
            let mask = refused.fold(0, |mask, offset| mask | 1 << offset);
            self.words.put(WordMask { mask, ..taken });
        }
        Some((taken, n as u32))
    }

    pub(super) fn refill(&self) -> Option<usize> {
        let (ids, n) = self.refilled()?;
        if self.mode.load_relaxed().is_locked() {
            self.count_locked(n);
        }
        Some(self.id_of(ids))
    }
}
