//! When the stacks come back, one by one: with locks after ids ran short, and for sections once ids
//! have been plentiful for a while.

use super::{NextLimits, PerCpuStore};
use inflight_sync::atomic::{Ordering, fence};

/// Thaw after this many ticks, of 32 puts each, in which no get met "none".
///
/// A freeze with the barrier interrupts every CPU that runs the process, which costs as much as
/// many puts. Staying cold while ids are plentiful costs an exchange on a shared word for each of
/// them.
pub(super) const THAW_AFTER: u32 = 4;

/// A freeze without the barrier takes two locks for each stack that was open: wait one tick for so
/// many stacks, and only the first tick if there were fewer.
const STACKS_A_TICK: u32 = 16;

/// After so many ids in the locked stack of a CPU without a freeze, sections are allowed.
///
/// So many puts without a lock make up for the cost of a barrier.
pub(super) const UNLOCK_AFTER: u32 = 2_048;

impl PerCpuStore {
    /// T. The caller holds E.
    pub(super) fn thaw_by(&self, _: &NextLimits) {
        if self.mode.thaw() && !self.mode.load_relaxed().is_locked() {
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
        // Not during a freeze, and not with too few ids for a stack.
        let mode_lock = self.slow.mode_lock.try_lock();
        if let Some(mode_lock) = mode_lock.filter(|mode_lock| mode_lock.limits.suffices()) {
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
        // The refill lock came here from a freezer after F1, if there was one since; if not, the
        // next freezer waits for the lock.
        if !self.mode.load_relaxed().is_warm() {
            return false;
        }
        // O1. Relaxed: see O2.
        self.slow.opened[i / 64].fetch_or(1 << (i % 64), Ordering::Relaxed);
        // Ordering: O2, pairs with F2 in `drain_all`: a freezer whose COLD is not seen here sees
        // that this stack may be open.
        fence(Ordering::SeqCst);
        let seen = self.mode.load_relaxed(); // O3
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

    /// A getter found no id, or was about to: stays cold for a while.
    pub(super) fn note_none(&self) {
        // Relaxed: only steers the thaw.
        let now = self.slow.ticks.load(Ordering::Relaxed);
        self.slow.last_none.store(now, Ordering::Relaxed);
    }

    /// About 32 ids have been put in cold mode without a waiter.
    pub(super) fn tick(&self) {
        // Relaxed: as in `note_none`.
        let now = self.slow.ticks.fetch_add(1, Ordering::Relaxed);
        let none = self.slow.last_none.load(Ordering::Relaxed);
        let after = match self.thaw_after {
            Some(ticks) if !self.mode.load_relaxed().is_locked() => ticks,
            _ => self.slow.closed.load(Ordering::Relaxed) / STACKS_A_TICK,
        };
        if now.wrapping_sub(none) >= after {
            self.thaw();
        }
    }
}
