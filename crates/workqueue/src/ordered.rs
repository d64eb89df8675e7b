//! Ordered queues: one pwq at a time, which has one slot, and no run out of order.
//!
//! A pwq of an ordered queue that moves to another pool has a *successor*, which is plugged until
//! the old pwq is idle.

use crate::attrs::Mode;
use crate::pwq::{Pwq, RETIRED};
use crate::worker_pool::PoolState;
use crate::workqueue_inner::WorkqueueInner;
use inflight_sync::Arc;
use std::ptr;

/// How many items of an ordered queue run at a time.
pub(crate) const ORDERED_LIMIT: usize = 1;

impl WorkqueueInner {
    /// Whether the limit of that pwq lets one item run at a time.
    pub(crate) fn has_one_slot(&self, pwq: &Pwq) -> bool {
        match pwq.nr_active.as_ref() {
            Some(nr_active) => nr_active.level().1 == 1,
            None => self.max_active() == 1,
        }
    }

    /// Whether an item that wants to run again may do so at once: the queue has no order to keep.
    pub(crate) fn may_rerun(&self) -> bool {
        !matches!(self.mode, Mode::Ordered | Mode::Bh)
    }

    /// Whether a pwq can serve a new map: in an ordered queue the present or a finished one.
    pub(crate) fn may_use_again(&self, pwq: &Pwq) -> bool {
        self.mode != Mode::Ordered || pwq.flags() & RETIRED == 0 || pwq.has_had_its_turn()
    }
}

impl Pwq {
    /// For pwqs without a shared limit: whether their items run one after the other.
    pub(crate) fn is_in_line_with(&self, other: &Self) -> bool {
        let moved = || self.wq.mode == Mode::Ordered && Arc::ptr_eq(&self.wq, &other.wq);
        ptr::eq(self, other) || moved()
    }

    /// It was retired, and accepts items again.
    pub(crate) fn open_again(&self, state: &mut PoolState) {
        self.set_flag(RETIRED, false);
        state.core.pwq_mut(self.index).retired = false;
    }

    /// If it is retired and idle, unplugs its successor.
    pub(crate) fn unplug_successor(&self) {
        let mut next = self.take_successor();
        while let Some(pwq) = next {
            let mut state = pwq.lock();
            // Its queue may have been detached meanwhile, with nothing in flight.
            if !pwq.is_gone() {
                state.core.set_stopped(pwq.index, |pwq| pwq.plugged = false);
            }
            pwq.pool.unlock(state, false);
            next = pwq.take_successor();
        }
    }

    /// Whether it is idle, does not wait for another pwq, and no pwq waits for it.
    pub(crate) fn has_had_its_turn(&self) -> bool {
        let state = self.lock();
        let pwq = state.core.pwq(self.index);
        pwq.is_idle() && !pwq.plugged && self.successor.lock().is_none()
    }

    fn take_successor(&self) -> Option<Arc<Self>> {
        let state = self.lock();
        if self.is_gone() {
            return None;
        }
        let pwq = state.core.pwq(self.index);
        let over = pwq.retired && pwq.is_idle() && !pwq.plugged;
        over.then(|| self.successor.lock().take()).flatten()
    }
}
