//! A work item that is queued when its time has come, as its users see it.

mod delay;

use crate::completion::{Wait, within};
use crate::error::FlushError;
use crate::item::timer;
use crate::work_item::WorkItem;
use inflight_sync::block_on;
use inflight_sync::time::Clock;
use std::time::Duration;

/// A [`Work`](crate::Work) that can wait for its time before it is queued.
///
/// The delayed work item of Linux's workqueues. It is pending from
/// [`queue_delayed`](crate::Workqueue::queue_delayed) until its run begins, so while it waits for
/// its time too; [`mod_delayed`](crate::Workqueue::mod_delayed) moves that time, and
/// [`flush`](DelayedWork::flush) makes it now. In all else it is a work: it never runs twice at
/// once, clones are handles on the same work, and dropping the last handle does not cancel.
///
/// While it waits for its time it belongs to no queue yet: it counts neither in the queue's
/// statistics nor for its flush or drain. A time may be set while the queue is drained. If it comes
/// then, the work goes on waiting, and is queued when the [drain](crate::Workqueue::drain) ends,
/// even if one of the queue's own items has set the time.
///
/// If the queue has been destroyed when the time comes, the work is idle again and
/// [`WorkqueueStats::refused`](crate::WorkqueueStats::refused) counts it. The same happens to what
/// still waits for its time when the system is shut down.
///
/// The time is that of the system's [clock](crate::SystemBuilder::clock). A run begins no earlier.
///
/// ```
/// use inflight_workqueue::{DelayedWork, WorkqueueSystem};
/// use std::time::Duration;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("flusher").bound().build()?;
/// let work = DelayedWork::new(|| println!("written back"));
/// assert!(wq.queue_delayed(&work, Duration::from_secs(3600))?.is_queued());
/// assert!(work.flush_blocking()?, "now, and it has run");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type DelayedWork = WorkItem<true>;

impl DelayedWork {
    /// Queues it now if it waits for its time, and waits until the instance that was queued last
    /// has ended; `true` if there was one to wait for. A time that is set after the flush has
    /// begun is not waited for, nor is a [`mod_delayed`](crate::Workqueue::mod_delayed) on its way.
    ///
    /// As [`Work::flush`](crate::Work::flush) in all else.
    ///
    /// # Errors
    ///
    /// [`FlushError::WouldDeadlock`] as for a work. [`FlushError::Rejected`] if it waits for its
    /// time and its queue does not take it now; it goes on waiting for its time. If the queue is
    /// destroyed or its system ends during the call, the work may have been taken back.
    pub fn flush(&self) -> Wait<'_, Result<bool, FlushError>> {
        Wait::new(self.flush_now())
    }

    /// As [`flush`](DelayedWork::flush), errors too, for threads. On a worker the wait counts as
    /// blocking.
    pub fn flush_blocking(&self) -> Result<bool, FlushError> {
        block_on(self.flush_now())
    }

    /// As [`flush_blocking`](DelayedWork::flush_blocking), at most for `limit` of real time; then
    /// [`FlushError::TimedOut`].
    pub fn flush_timeout(&self, limit: Duration) -> Result<bool, FlushError> {
        within(&Clock::system(), limit, self.flush_now())
    }

    /// If it waits for its time, it is queued now.
    async fn flush_now(&self) -> Result<bool, FlushError> {
        self.item.refuse_own()?;
        let expedited = timer::expedite(&self.item).map_err(FlushError::Rejected)?;
        Ok(self.item.flush(expedited).await? || expedited.is_some())
    }
}
