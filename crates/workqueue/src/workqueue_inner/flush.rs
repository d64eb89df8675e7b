//! Waiting for a queue: flush and drain.

use super::WorkqueueInner;
use crate::completion::Completion;
use crate::current;
use crate::error::WaitError;
use crate::worker_pool::Later;
use inflight_sync::Arc;

impl WorkqueueInner {
    /// Refuses waits from inside the queue's own items, and from any BH item.
    pub(crate) fn refuse_own_item(&self) -> Result<(), WaitError> {
        current::refuse_wait(current::runs_item_of(self))
    }

    /// *flush* begins: done when all that was queued before this call has ended.
    pub(crate) fn begin_flush(&self) -> Arc<Completion> {
        let flush = Arc::new(Completion::of(1));
        let mut later = Later::default();
        let control = self.control.lock();
        for pwq in &control.pwqs {
            pwq.begin_flush(&flush, &mut later);
        }
        drop(control);
        drop(later);
        flush.done();
        flush
    }
}

/// While it lives only the queue's own items may queue.
pub(crate) struct Drain(Arc<WorkqueueInner>);

impl Drain {
    pub(crate) fn begin(wq: &Arc<WorkqueueInner>) -> Self {
        wq.begin_drain();
        Self(wq.clone())
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.0.end_drain();
    }
}

/// Somebody waits until the queue, which is closed, is empty: he ends the futures then.
pub(crate) struct Destroy(Arc<WorkqueueInner>);

impl Destroy {
    pub(crate) fn begin(wq: &Arc<WorkqueueInner>) -> Self {
        wq.begin_destroy();
        Self(wq.clone())
    }
}

impl Drop for Destroy {
    fn drop(&mut self) {
        self.0.end_destroy();
    }
}
