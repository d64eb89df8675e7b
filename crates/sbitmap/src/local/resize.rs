//! Another depth, or other CPUs, while the store is in use.

use super::{Episode, Local, Share};
use crate::error::ResizeError;
use inflight_sync::atomic::Ordering;

impl Local {
    /// Changes the depth, between 1 and the largest laid out.
    ///
    /// Ids above a smaller depth stay with their owners; given back they rest in the words, where
    /// no getter looks. When the call returns, no later get takes an id above the depth.
    pub(super) fn resize_to(&self, depth: usize) -> Result<(), ResizeError> {
        ResizeError::check(depth, self.full.depth)?;
        let mut episode = self.frozen();
        // Relaxed: putters that still see the old depth may push an id above the new one once the
        // stacks are open again; the getter that pops it sees to it.
        self.depth.store(depth, Ordering::Relaxed);
        self.share_out(&mut episode);
        Ok(())
    }

    /// So many CPUs use the ids from now on.
    pub(crate) fn set_users(&self, users: usize) {
        if self.slow.episode.lock().users == users {
            return;
        }
        let mut episode = self.frozen();
        episode.users = users;
        self.share_out(&mut episode);
    }

    /// The stacks are closed, and open with what suits the depth and the users.
    fn share_out(&self, episode: &mut Episode) {
        // Relaxed, all: changed with E held.
        let share = Share::of(self.depth.load(Ordering::Relaxed), episode.users);
        episode.share = share;
        self.cap.store(share.cap, Ordering::Relaxed);
        self.slow.budget.store(share.budget, Ordering::Relaxed);
    }
}
