//! What stacks may hold, while the store is in use.

use super::{Modes, PerCpuStore, Share};
use inflight_sync::atomic::Ordering;

impl PerCpuStore {
    /// So many CPUs use the ids from now on.
    pub(crate) fn set_users(&self, users: usize) {
        if self.slow.mode_lock.lock().users == users {
            return;
        }
        let mut mode_lock = self.frozen();
        mode_lock.users = users;
        self.share_out(&mut mode_lock);
    }

    /// The stacks are closed, and open with what suits the depth and the users.
    pub(super) fn share_out(&self, mode_lock: &mut Modes) {
        // Relaxed, all: changed with E held.
        let share = Share::of(self.depth.load(Ordering::Relaxed), mode_lock.users);
        mode_lock.share = share;
        self.cap.store(share.cap, Ordering::Relaxed);
        self.slow.budget.store(share.budget, Ordering::Relaxed);
    }
}
