//! Waiting for a workqueue.

use super::Workqueue;
use crate::completion::{Wait, within};
use crate::error::WaitError;
use crate::workqueue_inner::{Destroy, Drain, WorkqueueInner};
use inflight_sync::block_on;
use std::time::Duration;

impl Workqueue {
    /// Waits until everything that was queued before this call has ended.
    ///
    /// What is queued later, by the queue's own items too, is not waited for; a chain of small
    /// items that queue each other may be, for some 20 us. While fifteen flushes of one of the
    /// queue's pools wait for different items, a further one there waits also for what is queued
    /// until the first of them ends. The flush begins with the call; dropping the future ends the
    /// wait.
    ///
    /// # Errors
    ///
    /// [`WaitError::WouldDeadlock`] if this is called inside an item of this queue. Also if an item
    /// awaits a future that others made and that waits for the item itself, or for what needs its
    /// only slot. And inside any BH item.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// # let async_part = async {
    /// wq.spawn(|| ()).detach();
    /// wq.flush().await?; // it has run
    /// # Ok::<(), inflight_workqueue::WaitError>(()) };
    /// # inflight_sync::block_on(async_part)?;
    /// wq.flush_blocking()?; // on a thread
    /// wq.flush_timeout(std::time::Duration::from_secs(60))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flush(&self) -> Wait<'static, Result<(), WaitError>> {
        let refused = self.inner().refuse_own_item();
        let flush = refused.map(|()| self.inner().begin_flush());
        Wait::new(async {
            let flush = flush?;
            flush
                .wait_unless(|| WorkqueueInner::refuse_flushed(&flush))
                .await
        })
    }

    /// As [`flush`](Workqueue::flush), errors too, for threads. On a worker the wait counts as
    /// blocking.
    pub fn flush_blocking(&self) -> Result<(), WaitError> {
        block_on(self.flush())
    }

    /// As [`flush_blocking`](Workqueue::flush_blocking), at most for `limit` on the system's clock;
    /// then [`WaitError::TimedOut`].
    pub fn flush_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        within(&self.inner().shared.clock, limit, self.flush())
    }

    /// Waits until the queue is empty. Meanwhile only its own items may queue on it, and wakers its
    /// futures; others get [`QueueError::Draining`](crate::QueueError::Draining). Afterwards it
    /// takes items again.
    ///
    /// What waits for its time is not waited for. What comes due meanwhile is queued when the last
    /// drain ends, in the order of the times; see [`DelayedWork`](crate::DelayedWork).
    ///
    /// Does not return while an item keeps queueing itself. Several drains may overlap. The drain
    /// begins with the call and ends with the future, however that ends.
    ///
    /// # Errors
    ///
    /// [`WaitError::WouldDeadlock`] inside an item of this queue, and inside any BH item, whether
    /// it calls this or awaits a future that others made. The drain ends then.
    ///
    /// ```
    /// # use inflight_workqueue::{Work, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// # let async_part = async {
    /// wq.drain().await?;
    /// assert!(wq.queue(&Work::new(|| ()))?.is_queued(), "it goes on");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) };
    /// # inflight_sync::block_on(async_part)?;
    /// wq.drain_blocking()?; // on a thread
    /// wq.drain_timeout(std::time::Duration::from_secs(60))?;
    /// wq.destroy_blocking()?; // for good
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self) -> Wait<'static, Result<(), WaitError>> {
        let inner = self.inner().clone();
        let drain = inner.refuse_own_item().map(|()| Drain::begin(&inner));
        Wait::new(async move {
            let _drain = drain?;
            inner.idle().await
        })
    }

    /// As [`drain`](Workqueue::drain), errors too, for threads. On a worker the wait counts as
    /// blocking.
    pub fn drain_blocking(&self) -> Result<(), WaitError> {
        block_on(self.drain())
    }

    /// As [`drain_blocking`](Workqueue::drain_blocking), at most for `limit` on the system's clock;
    /// then [`WaitError::TimedOut`]: the queue takes items again, and has some left.
    pub fn drain_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        within(&self.inner().shared.clock, limit, self.drain())
    }

    /// [Drains](Workqueue::drain) the queue and closes it for good. Later queueing gets
    /// [`QueueError::Destroyed`](crate::QueueError::Destroyed), and futures that have not ended end
    /// with that.
    ///
    /// The queue is closed by the call; dropping the future ends the wait alone.
    ///
    /// # Errors
    ///
    /// [`WaitError::WouldDeadlock`] inside an item of this queue, and inside any BH item, whether
    /// it calls this or awaits a future that others made. The queue stays closed then.
    pub fn destroy(&self) -> Wait<'static, Result<(), WaitError>> {
        let inner = self.inner().clone();
        let destroy = inner.refuse_own_item().map(|()| Destroy::begin(&inner));
        Wait::new(async move {
            let _destroy = destroy?;
            inner.idle().await
        })
    }

    /// As [`destroy`](Workqueue::destroy), errors too, for threads. On a worker the wait counts as
    /// blocking.
    pub fn destroy_blocking(&self) -> Result<(), WaitError> {
        block_on(self.destroy())
    }

    /// As [`destroy_blocking`](Workqueue::destroy_blocking), at most for `limit` on the system's
    /// clock; then [`WaitError::TimedOut`]: the queue is closed, and has items left, which run.
    pub fn destroy_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        within(&self.inner().shared.clock, limit, self.destroy())
    }
}
