//! The waiters, and the tokens of woken threads: the state under the list's lock.

use super::list::{List, Node};

#[derive(Debug)]
pub(super) struct WaitQueue {
    pub(super) list: List,
    /// Threads that were granted and woken in this wake epoch and have not yet run.
    pub(super) tokens: u32,
    /// Incremented when tokens are given up: they no longer count.
    pub(super) wake_epoch: u32,
    /// Whether the queue is about to be closed, or is closed: then puts and gets see a waiter.
    pub(super) closing: bool,
    /// Whether the queue is closed, for good.
    pub(super) closed: bool,
    pub(super) waits: u64,
}

// With its lock it takes two cache lines.
#[cfg(all(target_pointer_width = "64", not(any(loom, shuttle))))]
const _: () = assert!(size_of::<inflight_sync::Mutex<WaitQueue>>() <= 128);

impl WaitQueue {
    pub(super) const fn new() -> Self {
        Self {
            list: List::new(),
            tokens: 0,
            wake_epoch: 0,
            closing: false,
            closed: false,
            waits: 0,
        }
    }

    pub(super) fn needs_token(&self, next: u32, tokens: u32) -> bool {
        let node = || self.list.slots[next as usize].node.as_ref();
        self.tokens >= tokens && node().is_some_and(Node::sleeps)
    }

    /// A1: a granted waiter returns its token, unless it was given up before. Returns whether it
    /// did: the next head may have waited for it.
    pub(super) fn return_token(&mut self, token: Option<u32>) -> bool {
        let counts = token == Some(self.wake_epoch);
        self.tokens -= u32::from(counts);
        counts
    }
}
