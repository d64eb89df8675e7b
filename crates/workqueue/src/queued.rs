//! The results of queueing.

/// The result of queueing an item.
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
    /// This call queued the item: a run will follow.
    Queued,
    /// Another call had queued it, and its run, which sees all that this caller did, has not begun.
    AlreadyPending,
    /// The item is disabled, or a `cancel_sync` is in progress. No run follows from this call.
    Disabled,
}

impl Queued {
    /// Whether this call queued the item.
    #[must_use]
    pub const fn is_queued(self) -> bool {
        matches!(self, Self::Queued)
    }
}

/// The result of [`mod_delayed`](crate::Workqueue::mod_delayed) on a
/// [`DelayedWork`](crate::DelayedWork).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modified {
    /// The work was pending, and is now pending with the new time.
    Moved,
    /// The work was not pending; this call queued it.
    Queued,
    /// The work is disabled, or a `cancel_sync` is in progress. Nothing has changed.
    Disabled,
}
