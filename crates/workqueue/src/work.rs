//! The reusable work item of the public API.

use crate::completion::{Wait, within};
use crate::error::WaitError;
use crate::item::{Name, OwnHandle, ReusableRef, Run};
use crate::work_item::WorkItem;
use inflight_sync::block_on;
use inflight_sync::time::Clock;
use std::any::type_name;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::Duration;

/// A function that can be queued again and again.
///
/// The work item of Linux's workqueues. It is pending from the moment it is queued until its run
/// begins; queueing it meanwhile changes nothing. It never runs twice at once, on whichever
/// workqueues it is queued: if it is queued while it runs, it runs again afterwards, on the
/// workqueue and the CPU for which it was queued then. Its workqueue counts a run that panics; the
/// work can then be queued again.
///
/// Clones are handles on the same work. Dropping the last handle does not cancel: a queued work
/// still runs. A function that queues its own work gets a handle from
/// [`current_work`](crate::current_work()): if it owned a handle, neither would ever be freed. A
/// [repeating](Work::repeating) work needs no handle.
///
/// ```
/// use inflight_workqueue::{Work, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("scan").bound().build()?;
/// let work = Work::new(|| println!("scanning"));
/// assert!(wq.queue(&work)?.is_queued());
/// work.flush_blocking()?; // it has run
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Work = WorkItem<false>;

impl Work {
    /// A work that runs `f` again and again, until `f` returns `Break`.
    ///
    /// It behaves as if `f` had queued its own work, on the workqueue that runs it, just before it
    /// returned `Continue`, but it is cheaper. The next run begins at once, before the other items
    /// that its worker has taken: up to 32 runs in a row, for up to about 20 us after the first. An
    /// item of the queue that no worker has taken yet ends the row. An ordered workqueue keeps its
    /// order: an item queued during a run comes before the next run. There are no rows if the time
    /// cannot be known (a clock of the user's, sampling switched off), for BH items, for traced
    /// items, and after a run that has blocked.
    ///
    /// Waiting for the work, stopping it, queueing it and freezing the queue end the row. `flush`
    /// waits for the present run or the one after it. `cancel_sync` and `disable` stop the work; a
    /// freeze holds it. `cancel` takes it back only if it happens to wait between two rows. A panic
    /// ends the work. So does a workqueue that takes no more items, which counts the work as
    /// [`refused`](crate::WorkqueueStats::refused). A `drain` waits until `f` returns `Break`. Each
    /// run counts as queued, started and completed when its row is over.
    ///
    /// ```
    /// use inflight_workqueue::{Work, WorkqueueSystem};
    /// use std::ops::ControlFlow;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("reap").bound().build()?;
    /// static LEFT: AtomicU32 = AtomicU32::new(10);
    /// let reap = Work::repeating("reap", || match LEFT.fetch_sub(1, Ordering::Relaxed) {
    ///     1 => ControlFlow::Break(()),
    ///     _ => ControlFlow::Continue(()),
    /// });
    /// wq.queue(&reap)?;
    /// wq.drain_blocking()?;
    /// assert_eq!(LEFT.load(Ordering::Relaxed), 0);
    /// assert_eq!(wq.stats().completed, 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn repeating(
        name: impl Into<Cow<'static, str>>,
        f: impl Fn() -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        let name = name.into();
        Self {
            item: ReusableRef::new(Repeating { name, f }),
        }
    }

    /// Waits until the instance that was queued last has ended; `true` if there was one.
    ///
    /// Instances queued later are not waited for, so a work that queues itself does not hold the
    /// caller. If the awaited instance is cancelled, the wait ends when the instance before it has
    /// ended. The first poll of the future chooses the instance. Dropping the future ends the wait.
    ///
    /// # Errors
    ///
    /// [`WaitError::WouldDeadlock`] from inside the work's own function, from an item of a queue
    /// with `max_active` 1 whose slot the awaited instance needs, and from any BH item. The slot is
    /// checked at the moment of the call, even if the limit is raised later.
    ///
    /// ```
    /// use inflight_workqueue::{Work, WorkqueueSystem};
    ///
    /// let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("jobs").bound().build()?;
    /// let work = Work::new(|| ());
    /// # let async_part = async {
    /// assert!(!work.flush().await?, "nothing was queued");
    /// assert!(wq.queue(&work)?.is_queued());
    /// work.flush().await?; // it has run
    /// # Ok::<(), Box<dyn std::error::Error>>(()) };
    /// # inflight_sync::block_on(async_part)?;
    /// work.flush_blocking()?; // on a thread
    /// work.flush_timeout(std::time::Duration::from_secs(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flush(&self) -> Wait<'_, Result<bool, WaitError>> {
        Wait::new(self.item.flush(None))
    }

    /// As [`flush`](Self::flush), for threads.
    pub fn flush_blocking(&self) -> Result<bool, WaitError> {
        block_on(self.item.flush(None))
    }

    /// As [`flush_blocking`](Work::flush_blocking), for at most `limit` of real time; then
    /// [`WaitError::TimedOut`].
    pub fn flush_timeout(&self, limit: Duration) -> Result<bool, WaitError> {
        within(&Clock::system(), limit, self.item.flush(None))
    }
}

struct Repeating<F> {
    name: Name,
    f: F,
}

impl<F: Fn() -> ControlFlow<()> + Send + Sync> Run for Repeating<F> {
    const REPEATS: bool = true;
    const HANDLE: OwnHandle = OwnHandle::Work;

    fn own_name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn function() -> &'static str {
        type_name::<F>()
    }

    fn run(&self) -> ControlFlow<()> {
        (self.f)()
    }
}
