//! A work item that is queued when its time has come, as its users see it.

use crate::error::{DisableError, FlushError, NotDisabled, WouldDeadlock};
use crate::item::{Item, Reusable, WorkRef};
use std::borrow::Cow;
use std::fmt;

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
/// assert!(work.flush()?, "now, and it has run");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct DelayedWork {
    pub(crate) item: WorkRef,
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
            item: Item::lasting(Reusable {
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
    /// assert!(!DelayedWork::new(|| ()).flush()?, "nothing was queued");
    /// # Ok::<(), inflight_workqueue::FlushError>(())
    /// ```
    pub fn flush(&self) -> Result<bool, FlushError> {
        self.item.refuse_own()?;
        let place = self.item.place();
        let queue = place.armed().map(|(armed, _)| armed.queue().clone());
        let Some(queue) = queue else {
            drop(place);
            return Ok(self.item.flush()?);
        };
        let queued = queue.expedite(&self.item, place);
        queued.map_err(FlushError::Rejected)?;
        // If it has ended already, there was something to wait for all the same.
        self.item.flush()?;
        Ok(true)
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
        self.item.cancel()
    }

    /// Takes a pending instance back, from its timer too, and waits for a running one; `true` if
    /// one was pending. As [`Work::cancel_sync`](crate::Work::cancel_sync) in all else.
    ///
    /// # Errors
    ///
    /// [`WouldDeadlock`] from inside the work's own function, and from any BH item.
    ///
    /// ```
    /// use inflight_workqueue::DelayedWork;
    ///
    /// let work = DelayedWork::new(|| ());
    /// work.cancel_sync()?; // neither pending nor running now
    /// # Ok::<(), inflight_workqueue::WouldDeadlock>(())
    /// ```
    pub fn cancel_sync(&self) -> Result<bool, WouldDeadlock> {
        self.item.cancel_sync()
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
        Ok(self.item.disable()?.0)
    }

    /// As [`disable`](DelayedWork::disable), and waits for a running instance.
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
    /// work.disable_sync()?; // it is not running, and will not
    /// # Ok::<(), inflight_workqueue::DisableError>(())
    /// ```
    pub fn disable_sync(&self) -> Result<bool, DisableError> {
        self.item.disable_sync()
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
        f.debug_tuple("DelayedWork").field(&self.item).finish()
    }
}
