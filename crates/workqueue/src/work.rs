//! A reusable work item, as its users see it.

use crate::completion::{Wait, within};
use crate::error::WaitError;
use crate::item::{Name, ReusableRef, Run};
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
/// begins; queueing it meanwhile changes nothing. It never runs twice at once, through whatever
/// workqueues it goes: queued while it runs, it runs again afterwards, with the workers that run it
/// now. A run that panics is counted by its workqueue, and the work can be queued again.
///
/// Clones are handles on the same work. Dropping the last handle does not cancel: what is queued
/// runs. A function that queues its own work takes a handle from
/// [`current_work`](crate::current_work), since one that it owned would keep both from being freed;
/// a [repeating](Work::repeating) work needs none.
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
    /// A work that runs `f` again and again, until that breaks.
    ///
    /// As if `f` had queued its own work just before it returned `Continue`, through the workqueue
    /// that it came by, and cheaper: the next run begins at once, up to 32 in a row, until 20 us
    /// after the first are over, before what its worker has taken to run after it; then that has
    /// its turn. An item of the queue that nobody has taken yet ends the row. (The clock is not
    /// looked at before each run: up to three more may begin in the row. If runs are small at first
    /// and long later, the rest waits for those.) An ordered
    /// workqueue keeps its order: what was queued during a run comes before the next one. Nor are
    /// there rows of runs where time cannot be known (a clock of the user's, sampling switched
    /// off), for BH items, for what is traced, and after a run that has blocked.
    ///
    /// Who waits for it, stops it, queues it or freezes the queue ends the row: `flush` waits for
    /// the run it found, or the one after that; `cancel_sync` and `disable` stop it, a freeze holds
    /// it. `cancel` takes it back only if it happens to wait between two rows. A panic ends it, and
    /// so does a workqueue that takes no items any more, which counts it as
    /// [`refused`](crate::WorkqueueStats::refused). A `drain` waits until it breaks. Each run
    /// counts as queued, started and completed, when its row is over.
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

    /// Waits until the instance that was queued last has ended; `true` if there was one to wait
    /// for.
    ///
    /// An instance queued later is not waited for, so work that queues itself does not hold the
    /// caller. If the awaited instance is cancelled, the wait ends when the one before it has
    /// ended. Which one it is, is decided when the future is polled first. Dropping the future ends
    /// the wait.
    ///
    /// # Errors
    ///
    /// [`WaitError::WouldDeadlock`] from inside the work's own function, and from an item of a
    /// queue with `max_active` 1 whose own slot the awaited instance needs. That counts at the
    /// moment of the call: a limit that is raised later would have helped. And from any BH item.
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

    /// As [`flush`](Work::flush), errors too, for threads. On a worker the wait counts as blocking.
    pub fn flush_blocking(&self) -> Result<bool, WaitError> {
        block_on(self.item.flush(None))
    }

    /// As [`flush_blocking`](Work::flush_blocking), at most for `limit` of real time; then
    /// [`WaitError::TimedOut`].
    pub fn flush_timeout(&self, limit: Duration) -> Result<bool, WaitError> {
        within(&Clock::system(), limit, self.item.flush(None))
    }
}

/// A function that says whether it is to run again.
struct Repeating<F> {
    name: Name,
    f: F,
}

impl<F: Fn() -> ControlFlow<()> + Send + Sync> Run for Repeating<F> {
    const REPEATS: bool = true;
    const IS_WORK: bool = true;

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
