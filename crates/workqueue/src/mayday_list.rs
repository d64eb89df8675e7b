//! The calls for a rescuer.

use crate::inbox::Inbox;
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;

/// Pools that get no threads while items of a queue wait there: oldest call first, each once.
pub(crate) struct MaydayList<P> {
    pub(crate) inbox: Inbox<Arc<P>>,
    /// Relaxed: a statistic.
    maydays: AtomicU64,
}

impl<P> Default for MaydayList<P> {
    fn default() -> Self {
        Self {
            inbox: Inbox::default(),
            maydays: AtomicU64::new(0),
        }
    }
}

impl<P> MaydayList<P> {
    /// *mayday*: an item of the queue waits in a pool that gets no threads.
    pub(crate) fn call(&self, pool: &Arc<P>) {
        let counted = |calls: &VecDeque<Arc<P>>| {
            let is_new = !calls.iter().any(|p| Arc::ptr_eq(p, pool));
            // Before the rescuer is woken.
            self.maydays.fetch_add(u64::from(is_new), Ordering::Relaxed);
            is_new
        };
        // A pool that is already on the list comes back.
        drop(self.inbox.push(pool.clone(), counted, || Ok(())));
    }

    pub(crate) fn maydays(&self) -> u64 {
        self.maydays.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_is_on_the_list_does_not_count_again() {
        let (list, pools) = (MaydayList::default(), [1, 2].map(Arc::new));
        for pool in [0, 1, 0, 1] {
            list.call(&pools[pool]);
        }
        assert_eq!(list.maydays(), 2);
    }
}
