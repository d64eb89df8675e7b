//! Flush of a queue: of all its pwqs, each by its [colours](crate::flush_colour).

use crate::completion::Completion;
use crate::current;
use crate::error::WaitError;
use crate::flush_colour::FlushNumber;
use crate::pwq::Pwq;
use crate::worker_pool::QueueDeferred;
use crate::workqueue_inner::WorkqueueInner;
use inflight_sync::Arc;
use smallvec::SmallVec;

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

impl Pwq {
    /// A flush begins: `flush` is done once more when what is in flight now has ended.
    pub(crate) fn begin_flush(&self, flush: &Arc<Completion>, deferred: &mut QueueDeferred) {
        let mut state = self.lock();
        if let Some(number) = state.core.begin_flush(self.index) {
            flush.add();
            let mut flushes = self.flushes.lock();
            if flushes.len() == flushes.capacity() {
                flushes.retain(|(_, flush)| flush.strong_count() > 0);
                let room = flushes.len() + 1;
                flushes.reserve(room);
            }
            flushes.push((number, Arc::downgrade(flush)));
        }
        self.pool.unlock_deferred(state, false, deferred);
    }

    /// Flushes below that number are over.
    pub(crate) fn flushed(&self, over: FlushNumber) {
        let mut done = SmallVec::<[Arc<Completion>; 4]>::new();
        self.flushes.lock().retain(|(number, flush)| {
            let waits = *number >= over;
            if !waits {
                done.extend(flush.upgrade());
            }
            waits
        });
        done.iter().for_each(|flush| flush.done());
    }
}
