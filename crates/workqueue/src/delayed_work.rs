//! The delayed work item of the public API.

mod delay;

use crate::completion::{Wait, within};
use crate::error::FlushError;
use crate::item::timer;
use crate::work_item::WorkItem;
use inflight_sync::block_on;
use inflight_sync::time::Clock;
use std::time::Duration;

/// A [`Work`](crate::Work) that can wait for a delay before it is queued.
///
/// The delayed work item of Linux's workqueues, pending from
/// [`queue_delayed`](crate::Workqueue::queue_delayed) until its run begins.
/// [`mod_delayed`](crate::Workqueue::mod_delayed) changes its time, and
/// [`flush`](DelayedWork::flush) queues it now. A function that queues its own delayed work again
/// gets a handle from [`current_delayed_work`](crate::current_delayed_work()): if it owned one,
/// neither would ever be freed.
///
/// During its delay it belongs to no queue: it does not count in the queue's statistics, nor for
/// its flush or drain. A delay can begin while the queue is drained. If it ends during the drain,
/// the work stays pending and is queued when the [drain](crate::Workqueue::drain) ends, even if one
/// of the queue's own items set the delay.
///
/// If the queue has been destroyed when the delay ends, the work is idle again and
/// [`WorkqueueStats::refused`](crate::WorkqueueStats::refused) counts it. The same happens to works
/// whose delay has not ended when the system is shut down.
///
/// A run never begins before its time on the system's [clock](crate::SystemBuilder::clock).
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
    /// If the work waits for its delay, queues it now. Then waits until the instance that was
    /// queued last has ended; `true` if there was one to wait for. A delay set after the flush has
    /// begun is not waited for, nor is a [`mod_delayed`](crate::Workqueue::mod_delayed) that has
    /// not finished.
    ///
    /// Otherwise as [`Work::flush`](crate::Work::flush).
    ///
    /// # Errors
    ///
    /// [`FlushError::WouldDeadlock`] as for a work; the work may have been queued by then, and its
    /// delay be over. [`FlushError::Rejected`] if the work waits for its delay and its queue does
    /// not take it now; its delay continues. If the queue is destroyed or its system ends during
    /// the call, the pending instance may have been cancelled.
    pub fn flush(&self) -> Wait<'_, Result<bool, FlushError>> {
        Wait::new(self.flush_now())
    }

    /// As [`flush`](Self::flush), for threads.
    pub fn flush_blocking(&self) -> Result<bool, FlushError> {
        block_on(self.flush_now())
    }

    /// As [`flush_blocking`](DelayedWork::flush_blocking), for at most `limit` of real time; then
    /// [`FlushError::TimedOut`].
    pub fn flush_timeout(&self, limit: Duration) -> Result<bool, FlushError> {
        within(&Clock::system(), limit, self.flush_now())
    }

    async fn flush_now(&self) -> Result<bool, FlushError> {
        self.item.refuse_own()?;
        let expedited = timer::expedite(&self.item).map_err(FlushError::Rejected)?;
        Ok(self.item.flush(expedited).await? || expedited.is_some())
    }
}
