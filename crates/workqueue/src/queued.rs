//! What came of a queueing.

/// What came of queueing an item.
///
/// ```
/// use inflight_workqueue::{Queued, Work, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("jobs").bound().build()?;
/// let work = Work::new(|| ());
/// assert_eq!(wq.queue(&work)?, Queued::Queued);
/// work.disable()?;
/// assert_eq!(wq.queue(&work)?, Queued::Disabled);
/// assert!(!Queued::AlreadyPending.is_queued());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// This call has queued it: a run will follow.
    Queued,
    /// It was queued already, by another call, and its run has not begun. That run sees everything
    /// this caller did before.
    AlreadyPending,
    /// It is disabled, or a `cancel_sync` is at work. No run follows from this call.
    Disabled,
}

impl Queued {
    /// Whether this call has queued the item.
    #[must_use]
    pub const fn is_queued(self) -> bool {
        matches!(self, Self::Queued)
    }
}

/// What came of moving the time of a [`DelayedWork`](crate::DelayedWork).
///
/// ```
/// use inflight_workqueue::{DelayedWork, Modified, WorkqueueSystem};
/// use std::time::Duration;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("timers").bound().build()?;
/// let work = DelayedWork::new(|| ());
/// let hour = Duration::from_secs(3600);
/// assert_eq!(wq.mod_delayed(&work, hour)?, Modified::Queued, "it was idle");
/// assert_eq!(wq.mod_delayed(&work, hour / 2)?, Modified::Moved);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modified {
    /// It was pending, and is so for the new time now.
    Moved,
    /// It was not pending; this call has queued it.
    Queued,
    /// It is disabled, or a `cancel_sync` is at work. Nothing has changed.
    Disabled,
}
