//! Why waits fail, and errors about disabled works.

use super::QueueError;

/// Why a wait failed.
///
/// ```
/// use inflight_workqueue::{WaitError, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("own").bound().build()?;
/// let inside = wq.clone();
/// let flushed = wq.spawn(move || inside.flush_blocking()).wait()?;
/// assert_eq!(flushed, Err(WaitError::WouldDeadlock));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The wait could end only by the caller's own return, or the caller is an item of a BH queue.
    /// No wait was begun; or the awaited future has ended, and with it a drain.
    ///
    /// Two cases are detected: what the calling worker runs, and what waits for its slot if
    /// `max_active` is 1. A cycle over several items, each waiting for the next, is not detected.
    /// Neither are items that together hold all slots of a larger limit.
    #[error(
        "the wait could end only by the caller's own return, or the caller is an item of a BH \
         workqueue, which may not wait"
    )]
    WouldDeadlock,
    /// The time limit has passed.
    #[error("the wait timed out")]
    TimedOut,
}

/// Why a work was not disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DisableError {
    /// The work has been disabled 65,535 times without being enabled. Nothing has changed.
    #[error("the work is already disabled 65535 times")]
    DepthOverflow,
    /// The caller is the work itself, or an item of a BH queue. Nothing has changed.
    #[error("{}", WaitError::WouldDeadlock)]
    WouldDeadlock,
    /// The time limit has passed, and an instance still runs. The work is disabled.
    #[error("{}", WaitError::TimedOut)]
    TimedOut,
}

impl From<WaitError> for DisableError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::WouldDeadlock => Self::WouldDeadlock,
            WaitError::TimedOut => Self::TimedOut,
        }
    }
}

/// The work was enabled more often than it was disabled. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the work is not disabled")]
pub struct NotDisabled;

/// Why a work was not [enabled and queued](crate::Workqueue::enable_and_queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnableError {
    /// The work is not disabled. Nothing has changed.
    #[error("{}", NotDisabled)]
    NotDisabled,
    /// The workqueue refused the work. It is enabled.
    #[error("the work was enabled but not queued: {0}")]
    Rejected(#[source] QueueError),
}

impl From<NotDisabled> for EnableError {
    fn from(_: NotDisabled) -> Self {
        Self::NotDisabled
    }
}

/// Why a delayed work was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlushError {
    /// The wait could end only by the caller's own return, or the caller is an item of a BH queue.
    #[error("{}", WaitError::WouldDeadlock)]
    WouldDeadlock,
    /// The time limit has passed.
    #[error("{}", WaitError::TimedOut)]
    TimedOut,
    /// The work waits for its delay, and its workqueue does not take it now. Its delay continues.
    #[error("the work was not queued: {0}")]
    Rejected(#[source] QueueError),
}

impl From<WaitError> for FlushError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::WouldDeadlock => Self::WouldDeadlock,
            WaitError::TimedOut => Self::TimedOut,
        }
    }
}
