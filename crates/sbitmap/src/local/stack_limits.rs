//! How many ids a CPU may keep in its stack, and all CPUs together.

use super::{NextLimits, PerCpuStore};
use inflight_sync::atomic::Ordering;
use inflight_sync::percpu::CAPACITY;

/// The most that a CPU keeps. Almost half of a stack's cache lines are then still free.
pub(super) const LARGEST_CAP: usize = 32;

/// How many of the ids the stacks may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackLimits {
    /// In one stack.
    pub(crate) cap: u32,
    /// In all of them.
    pub(crate) budget: u32,
}

impl StackLimits {
    /// Half of the ids stay in the words, whatever the number of CPUs; the other half is shared by
    /// the CPUs that use them.
    pub(crate) fn of(depth: usize, users: usize) -> Self {
        let cap = (depth / (2 * users.max(1))).clamp(2, LARGEST_CAP.min(CAPACITY));
        Self {
            cap: cap as u32,
            budget: (depth / 2) as u32,
        }
    }

    /// Whether the budget allows a single stack.
    pub(super) const fn suffices(self) -> bool {
        self.budget >= self.cap
    }
}

impl PerCpuStore {
    /// Sets the number of CPUs that use the ids.
    pub(crate) fn set_users(&self, users: usize) {
        if self.slow.mode_lock.lock().users == users {
            return;
        }
        let mut mode_lock = self.frozen();
        mode_lock.users = users;
        self.set_stack_limits(&mut mode_lock);
    }

    /// Closes the stacks, which then open with the limits for the depth and the users.
    pub(super) fn set_stack_limits(&self, mode_lock: &mut NextLimits) {
        // Relaxed, all: changed with E held.
        let limits = StackLimits::of(self.depth.load(Ordering::Relaxed), mode_lock.users);
        mode_lock.limits = limits;
        self.cap.store(limits.cap, Ordering::Relaxed);
        self.slow.budget.store(limits.budget, Ordering::Relaxed);
    }
}
