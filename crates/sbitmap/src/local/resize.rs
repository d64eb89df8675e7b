//! Another depth while the store is in use.

use super::{Local, Shape};
use crate::error::ResizeError;
use inflight_sync::atomic::Ordering;

impl Local {
    /// Changes the depth, between 1 and the largest laid out.
    ///
    /// Ids above a smaller depth stay with their owners; given back they rest in the words, where
    /// no getter looks. When the call returns, no later get takes an id above the depth.
    pub(super) fn resize_to(&self, depth: usize) -> Result<(), ResizeError> {
        if depth == 0 {
            return Err(ResizeError::Zero);
        }
        if depth > self.full.depth {
            return Err(ResizeError::AboveMaxDepth);
        }
        let mut episode = self.frozen();
        // Relaxed: putters that still see the old depth may push an id above the new one once the
        // stacks are open again; the getter that pops it sees to it.
        self.depth.store(depth, Ordering::Relaxed);
        if !self.stacks.is_empty() {
            episode.budget = Shape::budget(depth);
            self.slow.budget.store(episode.budget, Ordering::Relaxed);
        }
        Ok(())
    }
}
