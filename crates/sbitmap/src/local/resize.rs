//! Changing the depth while the store is in use.

use super::PerCpuStore;
use crate::error::ResizeError;
use inflight_sync::atomic::Ordering;

impl PerCpuStore {
    /// Changes the depth, between 1 and the largest of the layout.
    ///
    /// Ids above a smaller depth stay with their owners. Once put, they stay in the words, where no
    /// getter looks. When the call returns, no later get takes an id above the depth.
    pub(super) fn change_depth(&self, depth: usize) -> Result<(), ResizeError> {
        ResizeError::check(depth, self.full.depth)?;
        let mut mode_lock = self.frozen();
        // Relaxed: putters that still see the old depth may push an id above the new one once the
        // stacks are open again; the getter that pops it puts it back.
        self.depth.store(depth, Ordering::Relaxed);
        self.set_stack_limits(&mut mode_lock);
        Ok(())
    }
}
