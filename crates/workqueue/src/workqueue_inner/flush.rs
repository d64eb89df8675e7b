//! Waiting for a queue: flush.

use super::WorkqueueInner;
use crate::completion::Completion;
use crate::current;
use crate::error::WaitError;
use crate::worker_pool::QueueDeferred;
use inflight_sync::Arc;

impl WorkqueueInner {
    /// Refuses waits from inside the queue's own items, and from any BH item.
    pub(crate) fn refuse_own_item(&self) -> Result<(), WaitError> {
        current::refuse_wait(current::runs_item_of(self))
    }

    /// *flush* begins: done when all that was queued before this call has ended.
    pub(crate) fn begin_flush(&self) -> Arc<Completion> {
        let flush = Arc::new(Completion::of(1));
        let mut deferred = QueueDeferred::default();
        let control = self.control.lock();
        for pwq in &control.pwqs {
            pwq.begin_flush(&flush, &mut deferred);
        }
        drop(control);
        drop(deferred);
        flush.done();
        flush
    }
}
