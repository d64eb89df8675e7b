//! *flush*: of a queue, through the [colours](crate::flush_colour) of each of its pwqs; and of an
//! item, through the number of its last queueing.

use crate::completion::{Completion, wait_unless};
use crate::current::{self, Running};
use crate::error::WaitError;
use crate::flush_colour::FlushNumber;
use crate::item::word::{self, PENDING, Seq, TIMER};
use crate::item::{Header, ReusableRef};
use crate::pwq::{self, Pwq};
use crate::worker_pool::QueueDeferred;
use crate::workqueue_inner::WorkqueueInner;
use inflight_sync::{Arc, Weak};
use smallvec::SmallVec;

impl WorkqueueInner {
    /// Refuses waits from inside the queue's own items, from a work that is queued here while it
    /// runs elsewhere, and from any BH item.
    pub(crate) fn refuse_own_item(&self) -> Result<(), WaitError> {
        let is_here = |running: &Running| {
            std::ptr::eq(&*running.pwq().wq, self) || running.is_queued_in(self)
        };
        current::refuse_wait(current::runs(is_here))
    }

    /// *flush* begins: it is done when everything that was queued before this call has ended.
    pub(crate) fn begin_flush(&self) -> Arc<Completion> {
        let flush = Arc::new(Completion::new(1));
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

    /// Refuses to wait for a flush that waits for the caller's item, or for an item that needs the
    /// caller's slot. Refuses any wait in a BH item.
    pub(crate) fn refuse_flushed(flush: &Arc<Completion>) -> Result<(), WaitError> {
        let own = current::runs(|running| {
            let control = running.pwq().wq.control.lock();
            control.pwqs.iter().any(|pwq| {
                let number = pwq.number_of(flush);
                number.is_some_and(|number| {
                    if std::ptr::eq(&**pwq, running.pwq()) {
                        let mut state = pwq.lock();
                        let pwq = state.core.pwq_mut(pwq.index);
                        return pwq.waits_for(number, running.colour);
                    }
                    running.holds_slot_for(pwq)
                })
            })
        });
        current::refuse_wait(own)
    }
}

impl ReusableRef {
    /// `expedited`: the number of the queueing whose delay this flush ended.
    pub(crate) async fn flush(&self, expedited: Option<Seq>) -> Result<bool, WaitError> {
        self.refuse_own()?;
        let Some(last) = self.unended(expedited) else {
            return Ok(false);
        };
        let refuse = || {
            let header = self.header();
            let is_last = || word::seq(header.load()) == last;
            let behind = current::runs_any() && is_last() && is_behind_caller(header);
            current::refuse_wait(behind || current::runs_item(self.ptr()))
        };
        let ended = &self.extra().ended;
        wait_unless(ended, || self.holds(last), refuse).await?;
        Ok(true)
    }
}

/// Whether an item is queued and waits for the caller's own slot.
pub(crate) fn is_behind_caller(header: &Header) -> bool {
    pwq_of(header).is_some_and(|pwq| current::runs(|running| running.holds_slot_for(&pwq)))
}

/// Where an item is queued; `None` from when it runs.
pub(crate) fn pwq_of(header: &Header) -> Option<Arc<Pwq>> {
    let seen = header.load();
    let queued = seen & (PENDING | TIMER) == PENDING;
    queued.then(|| pwq::by_id(word::pwq(seen))).flatten()
}

impl Pwq {
    /// A flush begins: `flush` waits for one more event, the end of what is in flight here now.
    pub(crate) fn begin_flush(&self, flush: &Arc<Completion>, deferred: &mut QueueDeferred) {
        let mut state = self.lock();
        let pwq = state.core.pwq_mut(self.index);
        if let Some(number) = pwq.begin_flush() {
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

    fn number_of(&self, flush: &Arc<Completion>) -> Option<FlushNumber> {
        let flushes = self.flushes.lock();
        let this = |(_, known): &&(_, Weak<_>)| known.as_ptr() == Arc::as_ptr(flush);
        flushes.iter().find(this).map(|(number, _)| *number)
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
        for flush in done {
            flush.done();
        }
    }
}
