//! Waiting for several ids: one waiter collects at a time, and no caller overtakes it.
//!
//! [`TenantQueues::collecting`](super::next_waiter::TenantQueues::collecting) is that waiter: it is
//! the next to be served until it has all.

use super::Turns;
use super::wait_queue::WaitQueue;
use crate::store::Store;

impl<S: Store> Turns<S> {
    /// While the next waiter collects several ids, no caller overtakes it.
    pub(super) fn end_turns_for_collector(&self, queue: &mut WaitQueue) {
        if queue.list.all_want_one() {
            return;
        }
        let next = self.next(queue);
        let Some(next) = next.and_then(|next| queue.list.node(next)) else {
            return;
        };
        if next.several && !next.collects {
            next.collects = true;
            self.end_turns();
        }
    }

    /// Ends all turns that have begun. With the lock.
    pub(super) fn end_turns(&self) {
        self.unlocked.add_grants(self.rules.life);
    }
}
