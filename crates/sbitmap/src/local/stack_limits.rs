//! How many ids a CPU may keep in its stack, and all CPUs together.

use super::{NextLimits, PerCpuStore};
use inflight_sync::atomic::Ordering;
use inflight_sync::percpu::CAPACITY;

/// The most that a CPU keeps. Almost half of a stack's lines are then still free.
pub(super) const LARGEST_CAP: usize = 32;

/// How much of the ids the stacks may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackLimits {
    /// One stack.
    pub(crate) cap: u32,
    /// All of them.
    pub(crate) budget: u32,
}

impl StackLimits {
    /// Half of the ids stay in the words, whatever the number of CPUs; the other half is for those
    /// that use them.
    pub(crate) fn of(depth: usize, users: usize) -> Self {
        let cap = (depth / (2 * users.max(1))).clamp(2, LARGEST_CAP.min(CAPACITY));
        Self {
            cap: cap as u32,
            budget: (depth / 2) as u32,
        }
    }

    /// Whether a single stack may hold its part.
    pub(super) const fn suffices(self) -> bool {
        self.budget >= self.cap
    }
}

impl PerCpuStore {
    /// So many CPUs use the ids from now on.
    pub(crate) fn set_users(&self, users: usize) {
        if self.slow.mode_lock.lock().users == users {
            return;
        }
        let mut mode_lock = self.frozen();
        mode_lock.users = users;
        self.set_stack_limits(&mut mode_lock);
    }

    /// The stacks are closed, and open with what suits the depth and the users.
    pub(super) fn set_stack_limits(&self, mode_lock: &mut NextLimits) {
        // Relaxed, all: changed with E held.
        let limits = StackLimits::of(self.depth.load(Ordering::Relaxed), mode_lock.users);
        mode_lock.limits = limits;
        self.cap.store(limits.cap, Ordering::Relaxed);
        self.slow.budget.store(limits.budget, Ordering::Relaxed);
    }
}
