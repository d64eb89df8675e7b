//! The thaw of a set, with the last of its freezes and quiesces: T1 and T2. Refused callers wait
//! for it: B2.

use super::gate::{FreezeGate, STOPPED, wait_while};
use inflight_sync::atomic::Ordering;
use inflight_sync::time::{Clock, Instant};
use inflight_sync::wait::WaiterKey;
use std::task::{Context, Poll};

impl FreezeGate {
    /// Ends one freeze or quiesce.
    pub(crate) fn open(&self, unit: u64) {
        // Ordering: T1, pairs with the Acquire load in `state`.
        if self.word.state.fetch_sub(unit, Ordering::Release) & STOPPED == unit {
            self.thawed.notify_all();
        }
    }

    /// B2 for a thread, at most until the deadline. Returns whether the set was thawed.
    pub(crate) fn wait_thaw(&self, until: Option<(&Clock, Instant)>) -> bool {
        wait_while(&self.thawed, until, || self.is_stopped())
    }

    /// B2 for a task, which keeps its key and leaves with `leave_thaw`.
    pub(crate) fn poll_thaw(&self, key: &mut Option<WaiterKey>, cx: &Context<'_>) -> Poll<()> {
        self.thawed.poll_while(key, cx, || self.is_stopped())
    }
}
