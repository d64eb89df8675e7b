//! Why waits end without what they were for, and what is said of disabled works.

use super::QueueError;
use std::error::Error;
use std::fmt;

/// Why a wait has ended without what it was for.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The wait could only end by the caller's own return, or the caller is an item of a BH queue,
    /// which may not sleep. It was not begun.
    ///
    /// The first is found by looking at what the calling worker runs, and at what waits for its
    /// slot if `max_active` is 1. A cycle over several items, each waiting for the next, is not
    /// found; nor are items that together hold all slots of a larger limit.
    WouldDeadlock,
    /// The time is over.
    TimedOut,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WouldDeadlock => {
                "the wait could end only by the caller's own return, or the caller is an item of a \
                 BH workqueue, which may not wait"
            }
            Self::TimedOut => "the time for the wait is over",
        })
    }
}

impl Error for WaitError {}

/// Why a work was not disabled.
///
/// ```
/// use inflight_workqueue::{DisableError, WaitError};
///
/// assert_eq!(DisableError::from(WaitError::TimedOut), DisableError::TimedOut);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DisableError {
    /// It has been disabled 65,535 times without being enabled. Nothing has changed.
    DepthOverflow,
    /// The caller is the work itself, which cannot wait for its own end, or an item of a BH queue.
    /// Nothing has changed.
    WouldDeadlock,
    /// The time is over, and an instance still runs. The work is disabled.
    TimedOut,
}

impl fmt::Display for DisableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DepthOverflow => f.write_str("the work is disabled 65535 times over"),
            Self::WouldDeadlock => WaitError::WouldDeadlock.fmt(f),
            Self::TimedOut => WaitError::TimedOut.fmt(f),
        }
    }
}

impl Error for DisableError {}

impl From<WaitError> for DisableError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::WouldDeadlock => Self::WouldDeadlock,
            WaitError::TimedOut => Self::TimedOut,
        }
    }
}

/// The work was enabled more often than disabled. Nothing has changed.
///
/// ```
/// use inflight_workqueue::{NotDisabled, Work};
///
/// assert_eq!(Work::new(|| ()).enable(), Err(NotDisabled));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDisabled;

impl fmt::Display for NotDisabled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the work is not disabled")
    }
}

impl Error for NotDisabled {}

/// Why a work was not enabled and queued.
///
/// ```
/// use inflight_workqueue::{EnableError, Work, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("jobs").bound().build()?;
/// assert_eq!(wq.enable_and_queue(&Work::new(|| ())), Err(EnableError::NotDisabled));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnableError {
    /// It is not disabled. Nothing has changed.
    NotDisabled,
    /// The workqueue did not take it. It is enabled.
    Rejected(QueueError),
}

impl fmt::Display for EnableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDisabled => NotDisabled.fmt(f),
            Self::Rejected(e) => write!(f, "the work was enabled but not queued: {e}"),
        }
    }
}

impl Error for EnableError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotDisabled => None,
            Self::Rejected(e) => Some(e),
        }
    }
}

impl From<NotDisabled> for EnableError {
    fn from(_: NotDisabled) -> Self {
        Self::NotDisabled
    }
}

/// Why a delayed work was not flushed.
///
/// ```
/// use inflight_workqueue::{FlushError, WaitError};
///
/// assert_eq!(FlushError::from(WaitError::TimedOut), FlushError::TimedOut);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlushError {
    /// The wait could only end by the caller's own return, or the caller is an item of a BH queue.
    WouldDeadlock,
    /// The time for the wait is over.
    TimedOut,
    /// It waits for its time, and its workqueue does not take it now. It goes on waiting.
    Rejected(QueueError),
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldDeadlock => WaitError::WouldDeadlock.fmt(f),
            Self::TimedOut => WaitError::TimedOut.fmt(f),
            Self::Rejected(e) => write!(f, "the work was not queued now: {e}"),
        }
    }
}

impl Error for FlushError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::WouldDeadlock | Self::TimedOut => None,
            Self::Rejected(e) => Some(e),
        }
    }
}

impl From<WaitError> for FlushError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::WouldDeadlock => Self::WouldDeadlock,
            WaitError::TimedOut => Self::TimedOut,
        }
    }
}
