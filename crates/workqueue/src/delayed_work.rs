//! A work item that is queued when its time has come, as its users see it.

pub(crate) mod timer;

use crate::cancel::{self, Until};
use crate::completion::Wait;
use crate::error::{DisableError, FlushError, NotDisabled, WaitError};
use crate::item::ReusableRef;
use crate::work::{Once, describe};
use std::borrow::Cow;
use std::fmt;
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
/// statistics nor for its flush or drain. If the queue takes no items when the time comes, because
/// it is being drained (even if one of its own items has set the time), or has been destroyed, the
/// work is idle again and [`WorkqueueStats::refused`](crate::WorkqueueStats::refused) counts it.
/// The same happens to what still waits for its time when the system is shut down.
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
#[derive(Clone)]
pub struct DelayedWork {
    pub(crate) item: ReusableRef,
}

impl DelayedWork {
    /// A delayed work that runs `f`.
    ///
    /// ```
    /// let work = inflight_workqueue::DelayedWork::new(|| println!("called"));
    /// # let _ = work;
    /// ```
    pub fn new<F: Fn() + Send + Sync + 'static>(f: F) -> Self {
        Self::named(std::any::type_name::<F>(), f)
    }

    /// A work with a name of its own, for traces, stall reports and panics. Without, it has the
    /// name of its function's type.
    ///
    /// ```
    /// let work = inflight_workqueue::DelayedWork::named("rescan", || println!("called"));
    /// assert_eq!(work.name(), "rescan");
    /// ```
    pub fn named(name: impl Into<Cow<'static, str>>, f: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            item: ReusableRef::new(Once::<_, false> {
                name: name.into(),
                f,
            }),
        }
    }

    /// The name it was given, or that of its function's type.
    ///
    /// ```
    /// fn rescan() {}
    /// assert!(inflight_workqueue::DelayedWork::new(rescan).name().ends_with("rescan"));
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        self.item.name()
    }

    /// Queues it now if it waits for its time, and waits until the instance that was queued last
    /// has ended; `true` if there was one to wait for.
    ///
    /// As [`Work::flush`](crate::Work::flush) in all else.
    ///
    /// # Errors
    ///
    /// [`FlushError::WouldDeadlock`] as for a work. [`FlushError::Rejected`] if it waits for its
    /// time and its queue does not take it now; it goes on waiting for its time.
    ///
    /// ```
    /// use inflight_workqueue::DelayedWork;
    ///
    /// let work = DelayedWork::new(|| ());
    /// # let async_part = async {
    /// assert!(!work.flush().await?, "nothing was queued");
    /// # Ok::<(), inflight_workqueue::FlushError>(()) };
    /// # inflight_sync::block_on(async_part)?;
    /// # Ok::<(), inflight_workqueue::FlushError>(())
    /// ```
    pub fn flush(&self) -> Wait<'_, Result<bool, FlushError>> {
        Wait::new(async {
            let waited = self.expedite()?;
            Ok(self.item.flush().await? || waited)
        })
    }

    /// As [`flush`](DelayedWork::flush), for threads. On a worker the wait counts as blocking.
    ///
    /// # Errors
    ///
    /// As [`flush`](DelayedWork::flush).
    ///
    /// ```
    /// use inflight_workqueue::DelayedWork;
    ///
    /// assert!(!DelayedWork::new(|| ()).flush_blocking()?, "nothing was queued");
    /// # Ok::<(), inflight_workqueue::FlushError>(())
    /// ```
    pub fn flush_blocking(&self) -> Result<bool, FlushError> {
        self.flush_until(&Until::Forever)
    }

    /// As [`flush_blocking`](DelayedWork::flush_blocking), at most for `limit`, of real time.
    ///
    /// # Errors
    ///
    /// As [`flush`](DelayedWork::flush), and [`FlushError::TimedOut`].
    ///
    /// ```
    /// use inflight_workqueue::DelayedWork;
    ///
    /// let work = DelayedWork::new(|| ());
    /// assert!(!work.flush_timeout(std::time::Duration::from_secs(1))?);
    /// # Ok::<(), inflight_workqueue::FlushError>(())
    /// ```
    pub fn flush_timeout(&self, limit: Duration) -> Result<bool, FlushError> {
        self.flush_until(&Until::after(limit))
    }

    fn flush_until(&self, until: &Until) -> Result<bool, FlushError> {
        let waited = self.expedite()?;
        Ok(self.item.flush_until(until)? || waited)
    }

    /// If it waits for its time, it is queued now.
    fn expedite(&self) -> Result<bool, FlushError> {
        self.item.refuse_own()?;
        timer::expedite(&self.item).map_err(FlushError::Rejected)
    }

    /// Takes a pending instance back, from its timer too; `true` if there was one. A run that has
    /// begun goes on.
    ///
    /// ```
    /// # use inflight_workqueue::{DelayedWork, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// let work = DelayedWork::new(|| ());
    /// assert!(wq.queue_delayed(&work, std::time::Duration::from_secs(3600))?.is_queued());
    /// assert!(work.cancel(), "it was pending");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(clippy::must_use_candidate)] // Called for its effect as often as for its answer.
    pub fn cancel(&self) -> bool {
        cancel::cancel(&self.item)
    }

    /// Takes a pending instance back, from its timer too, and waits for a running one; `true` if
    /// one was pending. As [`Work::cancel_sync`](crate::Work::cancel_sync) in all else.
    ///
    /// # Errors
    ///
    /// [`WaitError::WouldDeadlock`] from inside the work's own function, and from any BH item.
    ///
    /// ```
    /// use inflight_workqueue::DelayedWork;
    ///
    /// let work = DelayedWork::new(|| ());
    /// # let async_part = async {
    /// work.cancel_sync().await?; // neither pending nor running now
    /// # Ok::<(), inflight_workqueue::WaitError>(()) };
    /// # inflight_sync::block_on(async_part)?;
    /// # Ok::<(), inflight_workqueue::WaitError>(())
    /// ```
    pub fn cancel_sync(&self) -> Wait<'_, Result<bool, WaitError>> {
        Wait::new(self.item.cancel_sync())
    }

    /// As [`cancel_sync`](DelayedWork::cancel_sync), for threads.
    ///
    /// # Errors
    ///
    /// As [`cancel_sync`](DelayedWork::cancel_sync).
    ///
    /// ```
    /// use inflight_workqueue::DelayedWork;
    ///
    /// DelayedWork::new(|| ()).cancel_sync_blocking()?; // neither pending nor running now
    /// # Ok::<(), inflight_workqueue::WaitError>(())
    /// ```
    pub fn cancel_sync_blocking(&self) -> Result<bool, WaitError> {
        self.item.cancel_sync_until(&Until::Forever)
    }

    /// As [`cancel_sync_blocking`](DelayedWork::cancel_sync_blocking), at most for `limit`, of real
    /// time. If that is over, the pending instance has been taken back all the same.
    ///
    /// # Errors
    ///
    /// As [`cancel_sync`](DelayedWork::cancel_sync), and [`WaitError::TimedOut`].
    ///
    /// ```
    /// use inflight_workqueue::DelayedWork;
    ///
    /// let work = DelayedWork::new(|| ());
    /// work.cancel_sync_timeout(std::time::Duration::from_secs(1))?;
    /// # Ok::<(), inflight_workqueue::WaitError>(())
    /// ```
    pub fn cancel_sync_timeout(&self, limit: Duration) -> Result<bool, WaitError> {
        self.item.cancel_sync_until(&Until::after(limit))
    }

    /// Forbids queueing until [`enable`](DelayedWork::enable), and takes a pending instance back,
    /// from its timer too; `true` if there was one. As [`Work::disable`](crate::Work::disable) in
    /// all else.
    ///
    /// # Errors
    ///
    /// [`DisableError::DepthOverflow`] at the 65,536th level.
    ///
    /// ```
    /// use inflight_workqueue::DelayedWork;
    ///
    /// let work = DelayedWork::new(|| ());
    /// work.disable()?;
    /// assert!(work.enable()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disable(&self) -> Result<bool, DisableError> {
        Ok(self.item.disable_now()?.0)
    }

    /// As [`disable`](DelayedWork::disable), and waits for a running instance. As
    /// [`Work::disable_sync`](crate::Work::disable_sync) in all else.
    ///
    /// # Errors
    ///
    /// [`DisableError::DepthOverflow`] at the 65,536th level, [`DisableError::WouldDeadlock`] from
    /// inside the work's own function, and from any BH item.
    ///
    /// ```
    /// use inflight_workqueue::DelayedWork;
    ///
    /// let work = DelayedWork::new(|| ());
    /// # let async_part = async {
    /// work.disable_sync().await?; // it is not running, and will not
    /// # Ok::<(), inflight_workqueue::DisableError>(()) };
    /// # inflight_sync::block_on(async_part)?;
    /// # Ok::<(), inflight_workqueue::DisableError>(())
    /// ```
    pub fn disable_sync(&self) -> Wait<'_, Result<bool, DisableError>> {
        Wait::new(self.item.disable_sync())
    }

    /// As [`disable_sync`](DelayedWork::disable_sync), for threads.
    ///
    /// # Errors
    ///
    /// As [`disable_sync`](DelayedWork::disable_sync).
    ///
    /// ```
    /// use inflight_workqueue::DelayedWork;
    ///
    /// DelayedWork::new(|| ()).disable_sync_blocking()?; // it is not running, and will not
    /// # Ok::<(), inflight_workqueue::DisableError>(())
    /// ```
    pub fn disable_sync_blocking(&self) -> Result<bool, DisableError> {
        self.item.disable_sync_until(&Until::Forever)
    }

    /// As [`disable_sync_blocking`](DelayedWork::disable_sync_blocking), at most for `limit`, of
    /// real time. If that is over, the work is disabled all the same.
    ///
    /// # Errors
    ///
    /// As [`disable_sync`](DelayedWork::disable_sync), and [`DisableError::TimedOut`].
    ///
    /// ```
    /// use inflight_workqueue::DelayedWork;
    ///
    /// let work = DelayedWork::new(|| ());
    /// work.disable_sync_timeout(std::time::Duration::from_secs(1))?;
    /// # Ok::<(), inflight_workqueue::DisableError>(())
    /// ```
    pub fn disable_sync_timeout(&self, limit: Duration) -> Result<bool, DisableError> {
        self.item.disable_sync_until(&Until::after(limit))
    }

    /// Takes one level of [`disable`](DelayedWork::disable) back; `true` if the work can be queued
    /// again. Queues nothing by itself.
    ///
    /// # Errors
    ///
    /// [`NotDisabled`] if there is no level to take back.
    ///
    /// ```
    /// use inflight_workqueue::{DelayedWork, NotDisabled};
    ///
    /// assert_eq!(DelayedWork::new(|| ()).enable(), Err(NotDisabled));
    /// ```
    pub fn enable(&self) -> Result<bool, NotDisabled> {
        self.item.enable()
    }

    /// Whether it waits for its time, or is queued and its run has not begun. Others may change
    /// that at any moment.
    ///
    /// ```
    /// assert!(!inflight_workqueue::DelayedWork::new(|| ()).is_pending());
    /// ```
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.item.activity().0
    }

    /// Whether it is being run. Others may change that at any moment.
    ///
    /// ```
    /// assert!(!inflight_workqueue::DelayedWork::new(|| ()).is_running());
    /// ```
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.item.activity().1
    }
}

impl fmt::Debug for DelayedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, "DelayedWork", &self.item)
    }
}
