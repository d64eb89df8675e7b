//! The waiters, and the tokens of woken threads: the state under the list's lock.

use super::list::{List, Node};

#[derive(Debug)]
pub(super) struct WaitQueue {
    pub(super) list: List,
    /// Of the last grant. `UnlockedState::grants` follows it.
    pub(super) serial: u32,
    /// Threads that were granted and woken in this wake_epoch and have not yet run.
    pub(super) tokens: u32,
    /// Ends when a token is given up for lost: it no longer counts.
    pub(super) wake_epoch: u32,
    /// Whether puts and gets know that there are waiters.
    pub(super) announced: bool,
    /// Whether the queue is about to be closed, or is: then somebody waits, for puts and gets.
    pub(super) closing: bool,
    /// Whether the queue is closed: for good.
    pub(super) closed: bool,
    /// Whether gets know that no waiter can be served.
    pub(super) held_up: bool,
    pub(super) waits: u64,
    pub(super) wakeups: u64,
}

impl WaitQueue {
    pub(super) const fn new(serial: u32) -> Self {
        Self {
            list: List::new(),
            serial,
            tokens: 0,
            wake_epoch: 0,
            announced: false,
            closing: false,
            closed: false,
            held_up: false,
            waits: 0,
            wakeups: 0,
        }
    }

    pub(super) fn needs_token(&self, next: u32, tokens: u32) -> bool {
        let node = || self.list.slots[next as usize].node.as_ref();
        self.tokens >= tokens && node().is_some_and(Node::sleeps)
    }

    /// A1: the token of a granted waiter comes back, unless it was given up before. Returns whether
    /// it did: the next head may have waited for it.
    pub(super) fn return_token(&mut self, token: Option<u32>) -> bool {
        let counts = token == Some(self.wake_epoch);
        self.tokens -= u32::from(counts);
        counts
    }
}
