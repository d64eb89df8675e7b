//! Freeze, thaw, and what opens a stack.

use super::batch::Groups;
use super::{MOST_CPUS, Modes, PerCpuStore, STACKS_A_TICK};
use crate::word::offsets;
use inflight_sync::MutexGuard;
use inflight_sync::atomic::{Ordering, fence};

impl PerCpuStore {
    /// Brings every id into the words and keeps the stacks closed.
    ///
    /// On return the store is drained, or has been thawed since; while somebody waits it cannot
    /// be thawed.
    ///
    /// Ids are short: stacks will be locked for a while.
    #[cold]
    pub(crate) fn freeze(&self) {
        let mode_lock = self.slow.mode_lock.lock();
        // Relaxed is enough under E, which every change of mode holds.
        if !self.control.load_relaxed().is_drained() {
            self.drain_all(&mode_lock, self.unlock_after.is_some());
        }
    }

    /// As `freeze`, and stays so while the guard lives. It says nothing about how many ids there
    /// are.
    pub(super) fn frozen(&self) -> MutexGuard<'_, Modes> {
        let mode_lock = self.slow.mode_lock.lock();
        let seen = self.control.load_relaxed();
        if !seen.is_drained() {
            self.drain_all(&mode_lock, seen.is_locked());
        }
        mode_lock
    }

    /// F1 to Z.
    fn drain_all(&self, mode_lock: &Modes, locked_next: bool) {
        let locked = self.control.load_relaxed().is_locked();
        // Relaxed: see `fast_depth`.
        self.fast_depth.store(0, Ordering::Relaxed);
        self.control.set_cold(); // F1
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
            let _refill = self.stacks.refill_lock(i).lock(); // K: waits for a mover under way
            self.stacks.close(i);
            self.stacks.count(i).store(0, Ordering::Relaxed);
            // Relaxed: written with M of this stack. The fence of the next freezer orders it.
            self.slow.opened[i / 64].fetch_and(!(1 << (i % 64)), Ordering::Relaxed);
        }
        if !locked {
            self.stacks.barrier(); // B
        }
        let mut groups = Groups::new(self);
        for i in stacks() {
            let each = |id| groups.add(id as usize);
            if locked {
                self.stacks.drain_locked(i, each); // D
            } else {
                self.stacks.drain(i, each); // D
            }
        }
        groups.finish();
        // Relaxed, all: the budget is read under a refill lock after a thaw; the others steer.
        let closed = stacks().count() as u32;
        self.slow.closed.store(closed, Ordering::Relaxed);
        self.slow
            .budget
            .store(mode_lock.share.budget, Ordering::Relaxed);
        self.slow.freezes.fetch_add(1, Ordering::Relaxed);
        self.note_none();
        self.control.set_drained(locked_next); // Z
    }

    /// So many more ids came into this CPU's locked stack: they may be plenty by now.
    #[cold]
    #[inline(never)]
    pub(super) fn count_locked(&self, n: u32) {
        let (Some(here), Some(unlock_after)) = (self.stacks.here(), self.unlock_after) else {
            return;
        };
        let moved = self.stacks.count(here);
        // Relaxed: steers only, so that one which gets lost does no harm.
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
            return; // somebody freezes
        };
        let seen = self.control.load_relaxed();
        if seen.is_warm() && seen.is_locked() {
            self.drain_all(&mode_lock, false);
            self.thaw_by(&mode_lock);
        }
    }

    /// T. The caller holds E.
    fn thaw_by(&self, _: &Modes) {
        if self.control.thaw() && !self.control.load_relaxed().is_locked() {
            // Relaxed, both: see `fast_depth`.
            let depth = self.depth.load(Ordering::Relaxed);
            self.fast_depth.store(depth, Ordering::Relaxed);
        }
    }

    /// Lets the stacks come back, one by one, as they are used.
    #[cold]
    pub(crate) fn thaw(&self) {
        if self.stacks.is_empty() {
            return;
        }
        // A freezer at work is reason enough not to, and so are too few ids for a stack.
        let mode_lock = self.slow.mode_lock.try_lock();
        if let Some(mode_lock) = mode_lock.filter(|mode_lock| mode_lock.share.suffices()) {
            self.thaw_by(&mode_lock);
        }
    }

    /// Whether a stack could be opened: a guess.
    pub(super) fn can_activate(&self) -> bool {
        // Relaxed: `activate` decides.
        self.slow.budget.load(Ordering::Relaxed) >= self.cap()
    }

    /// Opens a stack. The caller holds its refill lock.
    pub(super) fn activate(&self, i: usize) -> bool {
        // The refill lock came here from a freezer after F1, if there was one since; and if none
        // was, the freezer to come waits for the lock.
        if !self.control.load_relaxed().is_warm() {
            return false;
        }
        // O1. Relaxed: see O2.
        self.slow.opened[i / 64].fetch_or(1 << (i % 64), Ordering::Relaxed);
        // Ordering: O2, pairs with F2 in `drain_all`: a freezer whose COLD is not seen sees that
        // this stack may be open.
        fence(Ordering::SeqCst);
        let seen = self.control.load_relaxed(); // O3
        if !seen.is_warm() {
            return false;
        }
        // Relaxed: only the amount matters. The freezer sets it while no stack can be opened.
        let cap = self.cap();
        let spend = |left: u32| left.checked_sub(cap);
        let spent = self
            .slow
            .budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend);
        if spent.is_ok() {
            if seen.is_locked() {
                self.stacks.open_locked(i, cap);
            } else {
                self.stacks.open(i, cap);
            }
        }
        spent.is_ok()
    }

    /// MA for any stack: what a thread does that was moved after it chose the stack.
    #[cfg(loom)]
    pub(crate) fn activate_remotely(&self, i: usize) -> bool {
        let _refill = self.stacks.refill_lock(i).lock();
        self.activate(i)
    }

    /// A getter met "none", or was about to: stay cold for a while.
    pub(super) fn note_none(&self) {
        // Relaxed: steers the thaw only.
        let now = self.slow.ticks.load(Ordering::Relaxed);
        self.slow.last_none.store(now, Ordering::Relaxed);
    }

    /// Some 32 ids have been put in cold mode and nobody waited.
    pub(super) fn tick(&self) {
        // Relaxed: as in `note_none`.
        let now = self.slow.ticks.fetch_add(1, Ordering::Relaxed);
        let none = self.slow.last_none.load(Ordering::Relaxed);
        let after = match self.thaw_after {
            Some(ticks) if !self.control.load_relaxed().is_locked() => ticks,
            _ => self.slow.closed.load(Ordering::Relaxed) / STACKS_A_TICK,
        };
        if now.wrapping_sub(none) >= after {
            self.thaw();
        }
    }
}
