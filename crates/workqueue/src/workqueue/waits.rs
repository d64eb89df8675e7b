//! Flush, drain and destroy.

use super::Workqueue;
use crate::completion::{Wait, within};
use crate::error::WaitError;
use crate::workqueue_inner::{Destroy, Drain, WorkqueueInner};
use inflight_sync::block_on;
use std::time::Duration;

impl Workqueue {
    /// Waits until everything that was queued before this call has ended.
    ///
    /// Items queued later are not waited for, even if the queue's own items queue them. A chain of
    /// small items that queue each other may be waited for, for about 20 us. While fifteen flushes
    /// of one of the queue's pools wait for different items, a further flush there also waits for
    /// items queued until the first of them ends. The flush begins with the call. Dropping the
    /// future ends the wait.
    ///
    /// # Errors
    ///
    /// [`WaitError::WouldDeadlock`] inside an item of this queue, inside a work that is queued here
    /// while it runs elsewhere, and inside any BH item. Also if an item awaits a flush begun
    /// elsewhere, and that flush waits for the item itself or for an item that needs its only slot.
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

    /// As [`flush`](Self::flush), for threads.
    pub fn flush_blocking(&self) -> Result<(), WaitError> {
        block_on(self.flush())
    }

    /// As [`flush_blocking`](Workqueue::flush_blocking), for at most `limit` on the system's clock;
    /// then [`WaitError::TimedOut`].
    pub fn flush_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        within(&self.inner().shared.clock, limit, self.flush())
    }

    /// Waits until the queue is empty. Meanwhile only its own items may queue on it, and wakers may
    /// queue its futures; others get [`QueueError::Draining`](crate::QueueError::Draining).
    /// Afterwards the queue takes items again.
    ///
    /// Items whose delay has not passed are not waited for. Those that come due meanwhile are
    /// queued when the last drain ends, in the order of their times; see
    /// [`DelayedWork`](crate::DelayedWork).
    ///
    /// The drain does not end while an item keeps queueing itself. Several drains may overlap. The
    /// drain begins with the call. It ends when the future completes or is dropped.
    ///
    /// # Errors
    ///
    /// [`WaitError::WouldDeadlock`] inside an item of this queue, inside a work that is queued here
    /// while it runs elsewhere, and inside any BH item, whether the item calls this or awaits a
    /// future made elsewhere. The drain then ends.
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

    /// As [`drain`](Self::drain), for threads.
    pub fn drain_blocking(&self) -> Result<(), WaitError> {
        block_on(self.drain())
    }

    /// As [`drain_blocking`](Workqueue::drain_blocking), for at most `limit` on the system's clock;
    /// then [`WaitError::TimedOut`]: the queue takes items again and is not empty.
    pub fn drain_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        within(&self.inner().shared.clock, limit, self.drain())
    }

    /// [Drains](Workqueue::drain) the queue and closes it for good. Later queueing gets
    /// [`QueueError::Destroyed`](crate::QueueError::Destroyed), and futures that have not ended end
    /// with that error.
    ///
    /// The call closes the queue. Dropping the future ends only the wait.
    ///
    /// # Errors
    ///
    /// [`WaitError::WouldDeadlock`] inside an item of this queue, inside a work that is queued here
    /// while it runs elsewhere, and inside any BH item. If the item calls this, the queue stays
    /// open, and the future has this error wherever it is awaited.
    /// If the item awaits a future made elsewhere, the queue stays closed.
    pub fn destroy(&self) -> Wait<'static, Result<(), WaitError>> {
        let inner = self.inner().clone();
        let destroy = inner.refuse_own_item().map(|()| Destroy::begin(&inner));
        Wait::new(async move {
            let _destroy = destroy?;
            inner.idle().await
        })
    }

    /// As [`destroy`](Self::destroy), for threads.
    pub fn destroy_blocking(&self) -> Result<(), WaitError> {
        block_on(self.destroy())
    }

    /// As [`destroy_blocking`](Workqueue::destroy_blocking), for at most `limit` on the system's
    /// clock; then [`WaitError::TimedOut`]: the queue is closed, and the items that it still has
    /// run.
    pub fn destroy_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        within(&self.inner().shared.clock, limit, self.destroy())
    }
}
