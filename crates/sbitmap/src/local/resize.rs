//! Another depth, or other CPUs, while the store is in use.

use super::{Modes, PerCpuStore, Share};
use crate::error::ResizeError;
use inflight_sync::atomic::Ordering;

impl PerCpuStore {
    /// Changes the depth, between 1 and the largest laid out.
    ///
    /// Ids above a smaller depth stay with their owners; given back they rest in the words, where
    /// no getter looks. When the call returns, no later get takes an id above the depth.
    pub(super) fn resize_to(&self, depth: usize) -> Result<(), ResizeError> {
        ResizeError::check(depth, self.full.depth)?;
        let mut mode_lock = self.frozen();
        // Relaxed: putters that still see the old depth may push an id above the new one once the
        // stacks are open again; the getter that pops it sees to it.
        self.depth.store(depth, Ordering::Relaxed);
        self.share_out(&mut mode_lock);
        Ok(())
    }

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
    fn share_out(&self, mode_lock: &mut Modes) {
        // Relaxed, all: changed with E held.
        let share = Share::of(self.depth.load(Ordering::Relaxed), mode_lock.users);
        mode_lock.share = share;
        self.cap.store(share.cap, Ordering::Relaxed);
        self.slow.budget.store(share.budget, Ordering::Relaxed);
    }
}
