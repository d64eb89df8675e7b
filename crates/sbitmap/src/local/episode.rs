//! Freeze, thaw, and what opens a stack.

use super::{Episode, Local};
use crate::local::batch::Groups;
use inflight_sync::MutexGuard;
use inflight_sync::atomic::Ordering;

impl Local {
    /// Brings every id into the words and keeps the stacks closed.
    ///
    /// On return the store is drained, or has been thawed since; while somebody waits it cannot
    /// be thawed.
    #[cold]
    pub(crate) fn freeze(&self) {
        drop(self.frozen());
    }

    /// As `freeze`, and stays so while the guard lives.
    pub(super) fn frozen(&self) -> MutexGuard<'_, Episode> {
        let episode = self.slow.episode.lock();
        // Relaxed is enough under E, which every change of mode holds.
        if self.control.glance().is_drained() {
            return episode;
        }
        self.control.set_cold(); // F1
        for (i, mover) in self.movers.iter().enumerate() {
            let _mover = mover.lock(); // K: waits for a mover that is under way
            self.stacks.close(i);
        }
        self.stacks.barrier(); // B
        let mut groups = Groups::new(self);
        for i in 0..self.stacks.len() {
            self.stacks.drain(i, |id| groups.add(usize::from(id))); // D
            self.drain_bundle(i);
        }
        groups.finish();
        // Relaxed, all three: the budget is read under a mover lock after a thaw; the others steer.
        self.slow.budget.store(episode.budget, Ordering::Relaxed);
        self.slow.freezes.fetch_add(1, Ordering::Relaxed);
        self.note_none();
        self.control.set_drained(); // Z
        episode
    }

    /// Lets the stacks come back, one by one, as they are used.
    #[cold]
    pub(crate) fn thaw(&self) {
        if self.stacks.is_empty() {
            return;
        }
        // A freezer at work is reason enough not to.
        if let Some(_episode) = self.slow.episode.try_lock() {
            self.control.thaw(); // T
        }
    }

    /// Whether a stack could be opened: a guess.
    pub(super) fn can_activate(&self) -> bool {
        // Relaxed: `activate` decides.
        self.slow.budget.load(Ordering::Relaxed) >= self.cap
    }

    /// Opens a stack. The caller holds its mover lock.
    pub(super) fn activate(&self, i: usize) -> bool {
        // The mover lock came here from a freezer after F1, if there was one since; and if none
        // was, the freezer to come waits for the lock.
        if !self.control.glance().is_warm() {
            return false;
        }
        // Relaxed: only the amount matters. The freezer sets it while no stack can be opened.
        let spend = |left: u32| left.checked_sub(self.cap);
        let spent = self
            .slow
            .budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend);
        if spent.is_ok() {
            self.stacks.open(i, self.cap);
        }
        spent.is_ok()
    }

    /// MA for any stack: what a thread does that was moved after it chose the stack.
    #[cfg(loom)]
    pub(crate) fn activate_remotely(&self, i: usize) -> bool {
        let _mover = self.movers[i].lock();
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
        if now.wrapping_sub(none) >= self.thaw_after {
            self.thaw();
        }
    }
}
