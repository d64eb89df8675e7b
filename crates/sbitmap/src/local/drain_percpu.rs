//! When and how the ids in the CPUs' stacks are taken back: all stacks are closed and emptied into
//! the words.
//!
//! | when | by |
//! |---|---|
//! | a get found no id in its CPU's stack and in the words | `drain_if_undrained` |
//! | a caller is about to sleep for an id (G4), or the queue is closed | `drain_percpu`, in `store.rs` |
//! | all ids must be looked at, or the depth or the stacks' limits change | `frozen` |
//! | stacks were locked for so many ids that sections may be used again | `count_locked` |

use super::batch::WordMasks;
use super::mode_word::Mode;
use super::{MOST_CPUS, NextLimits, PerCpuStore};
use crate::layout::offsets;
use inflight_sync::MutexGuard;
use inflight_sync::atomic::{Ordering, fence};

impl PerCpuStore {
    /// A get found no id in this mode: an id in a stack is out of its reach. Returns whether to
    /// look again, because the store was not drained.
    pub(super) fn drain_if_undrained(&self, seen: Mode) -> bool {
        let undrained = !seen.is_drained();
        if undrained {
            self.freeze(); // or waits for the freeze in progress
        }
        undrained
    }

    /// Counts `n` more ids in this CPU's locked stack: ids may be plentiful by now.
    #[cold]
    #[inline(never)]
    pub(super) fn count_locked(&self, n: u32) {
        let (Some(here), Some(unlock_after)) = (self.stacks.here(), self.unlock_after) else {
            return;
        };
        let moved = self.stacks.count(here);
        // Relaxed: only steers, so a lost count does no harm.
        let now = moved.load(Ordering::Relaxed).wrapping_add(n);
        moved.store(now, Ordering::Relaxed);
        if now >= unlock_after {
            self.let_sections_in();
        }
    }

    /// Closes and empties the locked stacks, and thaws for sections at once.
    #[cold]
    fn let_sections_in(&self) {
        let Some(mode_lock) = self.slow.mode_lock.try_lock() else {
            return; // a freeze is in progress
        };
        let seen = self.mode.load_relaxed();
        if seen.is_warm() && seen.is_locked() {
            self.drain_all(&mode_lock, false);
            self.thaw_by(&mode_lock);
        }
    }

    /// Moves every id into the words and keeps the stacks closed.
    ///
    /// On return the store is drained, or has been thawed since. It cannot be thawed while a caller
    /// waits.
    ///
    /// Ids are short: stacks will be locked for a while.
    #[cold]
    pub(crate) fn freeze(&self) {
        let mode_lock = self.slow.mode_lock.lock();
        // Relaxed is enough under E, which every change of mode holds.
        if !self.mode.load_relaxed().is_drained() {
            self.drain_all(&mode_lock, self.unlock_after.is_some());
        }
    }

    /// As `freeze`, but the store stays frozen while the guard lives. It says nothing about how
    /// many ids there are.
    pub(super) fn frozen(&self) -> MutexGuard<'_, NextLimits> {
        let mode_lock = self.slow.mode_lock.lock();
        let seen = self.mode.load_relaxed();
        if !seen.is_drained() {
            self.drain_all(&mode_lock, seen.is_locked());
        }
        mode_lock
    }

    /// F1 to Z.
    fn drain_all(&self, mode_lock: &NextLimits, locked_next: bool) {
        let locked = self.mode.load_relaxed().is_locked();
        // Relaxed: see `fast_depth`.
        self.fast_depth.store(0, Ordering::Relaxed);
        self.mode.set_cold(); // F1
        // Ordering: F2, pairs with O2 in `activate`: an activator that is not seen in `opened` sees
        // COLD.
        fence(Ordering::SeqCst);
        let mut opened = [0; MOST_CPUS.div_ceil(64)];
        for (opened, word) in opened.iter_mut().zip(&self.slow.opened) {
            // Relaxed: see above.
            *opened = word.load(Ordering::Relaxed);
        }
        let stacks = || {
            let words = opened.iter().enumerate().take(self.slow.opened.len());
            words.flat_map(|(i, &word)| offsets(word).map(move |bit| 64 * i + bit as usize))
        };
        for i in stacks() {
            let _refill = self.stacks.refill_lock(i).lock(); // K: waits for a move in progress
            self.stacks.close(i);
            self.stacks.count(i).store(0, Ordering::Relaxed);
            // Relaxed: written with M of this stack. The fence of the next freezer orders it.
            self.slow.opened[i / 64].fetch_and(!(1 << (i % 64)), Ordering::Relaxed);
        }
        if !locked {
            self.stacks.barrier(); // B
        }
        let mut masks = WordMasks::new(self);
        for i in stacks() {
            let each = |id| masks.add(id as usize);
            if locked {
                self.stacks.drain_locked(i, each); // D
            } else {
                self.stacks.drain(i, each); // D
            }
        }
        masks.finish();
        // Relaxed, all: the budget is read under a refill lock after a thaw; the others only steer.
        let closed = stacks().count() as u32;
        self.slow.closed.store(closed, Ordering::Relaxed);
        self.slow
            .budget
            .store(mode_lock.limits.budget, Ordering::Relaxed);
        self.slow.freezes.fetch_add(1, Ordering::Relaxed);
        self.note_none();
        self.mode.set_drained(locked_next); // Z
    }
}
