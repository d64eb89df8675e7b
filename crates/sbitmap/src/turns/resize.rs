//! The effect of a change of the depth on waiters.

use super::Turns;
use super::list::{NodeKey, WaiterState};
use super::wait_queue::WaitQueue;
use crate::error::ResizeError;
use crate::store::Store;
use inflight_sync::wait::{Notify, Wakers};

impl<S: Store> Turns<S> {
    /// Sets the depth. [`depth_changed`](Self::depth_changed) has to follow, after all locks of the
    /// caller.
    pub(crate) fn set_depth(&self, depth: usize) -> Result<(), ResizeError> {
        self.store.resize(depth)
    }

    /// Tells the waiters.
    pub(crate) fn depth_changed(&self) {
        let mut queue = self.wait_queue.lock();
        // A waiter that joins after this sees the depth; one that joined before is in the list.
        let refused = queue.refuse_above(self.store.depth());
        let mut wakers = Wakers::default();
        if !refused.is_empty() {
            drop(queue);
            wakers.wake(refused);
            queue = self.wait_queue.lock();
        }
        self.serve_and_wake(queue, wakers);
    }
}

impl WaitQueue {
    /// Ends the wait of those that want more than `depth` ids together; the others take what there
    /// is, and continue. Returns those to wake.
    fn refuse_above(&mut self, depth: usize) -> Vec<Notify> {
        let keys: Vec<NodeKey> = self.list.newest_first().collect();
        let mut refused = Vec::new();
        for key in keys {
            let Some(node) = self.list.node(key) else {
                continue;
            };
            node.part = node.part.min(depth);
            if node.least_depth > depth {
                let watchdog = self.replace_watchdog(key);
                let node = self.list.unlink(key);
                node.state = WaiterState::Refused { depth };
                refused.extend(node.notify.take());
                refused.extend(watchdog);
            }
        }
        refused
    }
}
