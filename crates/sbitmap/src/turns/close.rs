//! The effect of a close on waiters and newcomers.

use super::Turns;
use super::list::{NodeKey, WaiterState};
use super::wait_queue::WaitQueue;
use super::wake::WakeSet;
use crate::store::Store;
use inflight_sync::wait::{Notify, Wakers};

impl<S: Store> Turns<S> {
    /// Gives out no more ids, and wakes all waiters, which then see that the queue is closed.
    ///
    /// Gets see a waiter for good: that refuses them, and keeps the store drained. The store is
    /// drained before any caller is refused: a caller that sees the queue closed, or has closed it
    /// at the same time, finds no id in a stack.
    pub(crate) fn close(&self) {
        let mut queue = self.wait_queue.lock();
        queue.closing = true;
        self.announce(&mut queue);
        drop(queue);
        self.store.drain_percpu();
        let mut queue = self.wait_queue.lock();
        if std::mem::replace(&mut queue.closed, true) {
            return;
        }
        self.end_turns();
        let refused = queue.refuse_all();
        let mut chosen = WakeSet::default();
        self.serve(&mut queue, None, &mut chosen);
        // Wakers run without the lock, and at the end, because one may panic.
        drop(queue);
        let mut wakers = Wakers::default();
        wakers.wake(refused);
        self.wake(self.wait_queue.lock(), &mut chosen, wakers);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.wait_queue.lock().closed
    }
}

impl WaitQueue {
    /// Ends the wait of all waiters. Returns those to wake.
    fn refuse_all(&mut self) -> Vec<Notify> {
        let keys: Vec<NodeKey> = self.list.newest_first().collect();
        let refuse = |key| {
            let node = self.list.unlink(key);
            node.state = WaiterState::Refused { depth: 0 };
            node.notify.take()
        };
        keys.into_iter().rev().filter_map(refuse).collect()
    }
}
