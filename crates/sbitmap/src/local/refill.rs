//! Refilling this CPU's stack from the words.

use super::PerCpuStore;
use super::words::{self, Group};
use crate::word::offsets;
use inflight_sync::MutexGuard;
use inflight_sync::atomic::Ordering;

impl PerCpuStore {
    /// MA: the refill lock of this CPU's stack, if it is free and the stack open, or can be opened.
    pub(super) fn refill_here(&self) -> Option<(usize, MutexGuard<'_, ()>)> {
        let here = self.stacks.here()?;
        // A look that may be old spares a CPU without a stack the lock.
        if !self.stacks.is_open(here) && !self.can_activate() {
            return None;
        }
        let guard = self.stacks.refill_lock(here).try_lock()?;
        (self.stacks.is_open(here) || self.activate(here)).then_some((here, guard))
    }

    /// Takes half a stack from one word: one step for all of them. The first is the caller's, and
    /// so many more came into the stack.
    fn refilled(&self) -> Option<(Group, u32)> {
        let (here, _refill) = self.refill_here()?;
        let n = (self.cap() / 2).max(1);
        // Relaxed: as in `point_at`.
        let hint = self.stacks.hint(here);
        let from = hint.load(Ordering::Relaxed) as usize;
        let group = self.words.take(&self.reach(), from, n).ok()?;
        hint.store(group.word as u32, Ordering::Relaxed);
        let rest = group.mask & (group.mask - 1);
        let mut ids = [0; 1 << words::SHIFT_MAX];
        let mut n = 0;
        for offset in offsets(rest) {
            let id = self.full.bit(group.word, offset);
            // Each get of one of these would else wait for its state to come from another CPU.
            self.states.expect(id);
            ids[n] = id as u32;
            n += 1;
        }
        let pushed = self.stacks.push_all(&ids[..n]);
        if pushed < n {
            // This thread runs on another CPU by now, or a freezer waits for the lock: either way
            // the ids are in the words before it is let go (MR).
            let refused = offsets(rest).skip(pushed);
            let mask = refused.fold(0, |mask, offset| mask | 1 << offset);
            self.words.give(Group { mask, ..group });
        }
        Some((group, n as u32))
    }

    pub(super) fn refill(&self) -> Option<usize> {
        let (group, n) = self.refilled()?;
        if self.mode.load_relaxed().is_locked() {
            self.count_locked(n);
        }
        Some(self.only(group))
    }
}
