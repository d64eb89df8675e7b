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

/// What came of [moving the time](crate::Workqueue::mod_delayed) of a
/// [`DelayedWork`](crate::DelayedWork).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modified {
    /// It was pending, and is so for the new time now.
    Moved,
    /// It was not pending; this call has queued it.
    Queued,
    /// It is disabled, or a `cancel_sync` is at work. Nothing has changed.
    Disabled,
}
