//! The methods that [`Work`](crate::Work) and [`DelayedWork`](crate::DelayedWork) share.

use crate::cancel;
use crate::completion::{Wait, within};
use crate::error::{DisableError, NotDisabled, WaitError};
use crate::item::{Name, OwnHandle, ReusableRef, Run};
use inflight_sync::block_on;
use inflight_sync::time::Clock;
use std::any::type_name;
use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

/// A function that can be queued again and again: a [`Work`](crate::Work), which is queued at once,
/// or a [`DelayedWork`](crate::DelayedWork), which can be queued after a delay.
///
/// ```
/// use inflight_workqueue::{DelayedWork, Work, WorkItem};
///
/// fn stop<const DELAYED: bool>(item: &WorkItem<DELAYED>) {
///     item.cancel();
/// }
/// stop(&Work::new(|| ()));
/// stop(&DelayedWork::new(|| ()));
/// ```
#[derive(Clone)]
pub struct WorkItem<const DELAYED: bool> {
    pub(crate) item: ReusableRef,
}

impl<const DELAYED: bool> WorkItem<DELAYED> {
    /// A work that runs `f`.
    pub fn new<F: Fn() + Send + Sync + 'static>(f: F) -> Self {
        Self {
            item: ReusableRef::new(Once::<_, DELAYED> { name: None, f }),
        }
    }

    /// A work that runs `f` and has a name for traces, stall reports and panics. Without a name,
    /// the type of the function serves as its name.
    ///
    /// ```
    /// let work = inflight_workqueue::Work::named("rescan", || println!("called"));
    /// assert_eq!(work.name(), "rescan");
    /// ```
    pub fn named(name: impl Into<Cow<'static, str>>, f: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            item: ReusableRef::new(Once::<_, DELAYED> {
                name: Some(name.into()),
                f,
            }),
        }
    }

    /// The name, or the type of the function.
    #[must_use]
    pub fn name(&self) -> &str {
        self.item.name()
    }

    /// Cancels a pending instance, also one that waits for its delay; `true` if there was one. A
    /// run that has begun continues.
    ///
    /// Takes constant time and the lock of one pool.
    ///
    /// ```
    /// let work = inflight_workqueue::Work::new(|| ());
    /// assert!(!work.is_pending() && !work.is_running());
    /// assert!(!work.cancel(), "it was not pending");
    /// ```
    #[allow(clippy::must_use_candidate)] // Called for its effect as often as for its answer.
    pub fn cancel(&self) -> bool {
        cancel::cancel(&self.item)
    }

    /// Cancels a pending instance, also one that waits for its delay, and waits for a running one;
    /// `true` if one was pending.
    ///
    /// Meanwhile no caller can queue the work, not even the work itself, so a work that queues
    /// itself stops. Such calls return [`Queued::Disabled`](crate::Queued::Disabled), and nothing
    /// is queued for them later. Afterwards the work can be used again. The first poll of the
    /// future cancels the instance. Dropping the future ends the wait, and the work can be queued
    /// again.
    ///
    /// # Errors
    ///
    /// [`WaitError::WouldDeadlock`] from inside the work's own function, and from any BH item.
    ///
    /// ```
    /// # use inflight_workqueue::Work;
    /// let work = Work::new(|| ());
    /// # let async_part = async {
    /// assert!(!work.cancel_sync().await?, "it was not pending");
    /// # Ok::<(), inflight_workqueue::WaitError>(()) };
    /// # inflight_sync::block_on(async_part)?;
    /// work.cancel_sync_blocking()?; // on a thread
    /// work.cancel_sync_timeout(std::time::Duration::from_secs(1))?;
    /// # Ok::<(), inflight_workqueue::WaitError>(())
    /// ```
    pub fn cancel_sync(&self) -> Wait<'_, Result<bool, WaitError>> {
        Wait::new(self.item.cancel_sync())
    }

    /// As [`cancel_sync`](WorkItem::cancel_sync), for threads.
    pub fn cancel_sync_blocking(&self) -> Result<bool, WaitError> {
        block_on(self.item.cancel_sync())
    }

    /// As [`cancel_sync_blocking`](WorkItem::cancel_sync_blocking), for at most `limit` of real
    /// time; then [`WaitError::TimedOut`]: the pending instance has been cancelled all the same.
    pub fn cancel_sync_timeout(&self, limit: Duration) -> Result<bool, WaitError> {
        within(&Clock::system(), limit, self.item.cancel_sync())
    }

    /// Whether the work waits for its delay, or is queued and its run has not begun. Other threads
    /// may change that at any moment.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.item.activity().0
    }

    /// Whether the work runs. Other threads may change that at any moment.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.item.activity().1
    }

    /// Forbids queueing until [`enable`](WorkItem::enable), and cancels a pending instance; `true`
    /// if there was one. Calls nest: each needs its own `enable`. What runs goes on.
    ///
    /// # Errors
    ///
    /// [`DisableError::DepthOverflow`] at the 65,536th level.
    ///
    /// ```
    /// use inflight_workqueue::{NotDisabled, Work};
    ///
    /// let work = Work::new(|| ());
    /// work.disable()?;
    /// assert!(work.enable()?, "it can be queued again");
    /// assert_eq!(work.enable(), Err(NotDisabled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disable(&self) -> Result<bool, DisableError> {
        Ok(self.item.disable_now()?.0)
    }

    /// As [`disable`](WorkItem::disable), and waits for a running instance. The first poll of the
    /// future disables the work, which stays disabled if the future is dropped.
    ///
    /// # Errors
    ///
    /// [`DisableError::DepthOverflow`] at the 65,536th level. [`DisableError::WouldDeadlock`] from
    /// inside the work's own function, and from any BH item. The work is then not disabled by this
    /// call.
    pub fn disable_sync(&self) -> Wait<'_, Result<bool, DisableError>> {
        Wait::new(self.item.disable_sync())
    }

    /// As [`disable_sync`](WorkItem::disable_sync), for threads.
    pub fn disable_sync_blocking(&self) -> Result<bool, DisableError> {
        block_on(self.item.disable_sync())
    }

    /// As [`disable_sync_blocking`](WorkItem::disable_sync_blocking), for at most `limit` of real
    /// time; then [`DisableError::TimedOut`]: the work is disabled all the same.
    pub fn disable_sync_timeout(&self, limit: Duration) -> Result<bool, DisableError> {
        within(&Clock::system(), limit, self.item.disable_sync())
    }

    /// Removes one level of [`disable`](WorkItem::disable); `true` if the work can be queued again.
    /// Queues nothing: calls that were refused are not repeated.
    ///
    /// # Errors
    ///
    /// [`NotDisabled`] if the work is not disabled. A pending instance stays.
    pub fn enable(&self) -> Result<bool, NotDisabled> {
        self.item.enable()
    }
}

impl<const DELAYED: bool> fmt::Debug for WorkItem<DELAYED> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pending, running) = self.item.activity();
        f.debug_struct(if DELAYED { "DelayedWork" } else { "Work" })
            .field("name", &self.item.name())
            .field("pending", &pending)
            .field("running", &running)
            .finish_non_exhaustive()
    }
}

struct Once<F, const DELAYED: bool> {
    name: Option<Name>,
    f: F,
}

impl<F: Fn() + Send + Sync, const DELAYED: bool> Run for Once<F, DELAYED> {
    const HANDLE: OwnHandle = match DELAYED {
        false => OwnHandle::Work,
        true => OwnHandle::DelayedWork,
    };

    fn own_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn function() -> &'static str {
        type_name::<F>()
    }

    fn run(&self) -> ControlFlow<()> {
        (self.f)();
        ControlFlow::Break(())
    }
}
