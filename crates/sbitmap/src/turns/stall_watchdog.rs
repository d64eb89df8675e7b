//! When a woken thread that does not run is given up: after some puts, or when the watchdog, one of
//! the sleeping threads, has checked twice.

use super::list::{NIL, Node, NodeKey};
use super::next_waiter::ListEnds;
use super::wait_queue::WaitQueue;
use inflight_sync::wait::Notify;
use std::time::Duration;

/// After how many puts that found its token out the token is given up.
pub(super) const STALL_LIMIT: u32 = if cfg!(loom) { 2 } else { 64 };

/// How long a woken thread may take before the watchdog gives it up. Doubles for a watchdog that
/// finds nothing, up to this times `WATCH_LONGEST`.
pub(super) const WATCH: Duration = Duration::from_millis(10);
pub(super) const WATCH_LONGEST: u32 = 32;

impl WaitQueue {
    /// Gives up all tokens. Returns whether there were any.
    pub(super) fn give_up_tokens(&mut self) -> bool {
        self.wake_epoch = self.wake_epoch.wrapping_add(1);
        std::mem::take(&mut self.tokens) > 0
    }

    /// The list that this waiter is in.
    fn ends_of(&mut self, waiter: NodeKey) -> Option<&mut ListEnds> {
        let (tenant, large) = self
            .list
            .peek(waiter)
            .map(|node| (node.tenant, node.large))?;
        Some(self.list.tenants.ends(tenant, large))
    }

    /// Makes a thread the watchdog of its list: the newest of those at the back.
    pub(super) fn set_watchdog(&mut self, key: NodeKey, front: bool) {
        let ends = self.ends_of(key);
        if let Some(ends) = ends.filter(|ends| !front || ends.watchdog == NIL) {
            ends.watchdog = key.index;
        }
    }

    pub(super) fn is_watchdog(&mut self, key: NodeKey) -> bool {
        self.ends_of(key)
            .is_some_and(|ends| ends.watchdog == key.index)
    }

    /// The watchdog leaves before its turn: another thread takes over, and must be woken. Its node
    /// is still here.
    ///
    /// A watchdog that leaves in its turn was behind all other threads of its list except those at
    /// the front, and these have left by then.
    pub(super) fn replace_watchdog(&mut self, leaves: NodeKey) -> Option<Notify> {
        if !self.is_watchdog(leaves) {
            return None;
        }
        self.choose_watchdog(leaves, Some(leaves))
    }

    /// A waiter that was a task is now a thread, or the other way round. Returns the new watchdog
    /// to wake.
    pub(super) fn change_watchdog(&mut self, changed: NodeKey) -> Option<Notify> {
        let before = self.ends_of(changed)?.watchdog;
        let notify = self.choose_watchdog(changed, None);
        let after = self.ends_of(changed)?.watchdog;
        notify.filter(|_| after != before && after != changed.index)
    }

    /// Makes the newest remaining thread of a waiter's list its watchdog.
    fn choose_watchdog(&mut self, of: NodeKey, leaves: Option<NodeKey>) -> Option<Notify> {
        let (tenant, large) = self.list.peek(of).map(|node| (node.tenant, node.large))?;
        let is_thread = |key: &NodeKey| {
            let node = self.list.peek(*key);
            let here = |n: &Node| n.is_thread && (n.tenant, n.large) == (tenant, large);
            Some(*key) != leaves && node.is_some_and(here)
        };
        let next = self.list.newest_first().find(is_thread);
        self.ends_of(of)?.watchdog = next.map_or(NIL, |key| key.index);
        match &self.list.peek(next?)?.notify {
            Some(Notify::Thread(unparker)) => Some(Notify::Thread(unparker.clone())),
            _ => None,
        }
    }
}
