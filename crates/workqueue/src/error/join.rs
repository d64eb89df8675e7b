//! Why a spawned function has no result.

use super::{QueueError, WaitError};
use crate::panics::message;
use inflight_sync::{Mutex, Printed};
use std::any::Any;
use std::borrow::Cow;

/// The name of an item: the type of its function unless the user gives another one.
pub(crate) type Name = Cow<'static, str>;

/// Why a spawned function has no result. See [`PanicPayload`] for an example.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The function panicked.
    #[error("the function {} panicked{}", Printed(.0.item()), match .0.message() {
        Some(message) => format!(": {message}"),
        None => String::new(),
    })]
    Panicked(PanicPayload),
    /// The function was cancelled before it began, or the future before it completed.
    #[error("cancelled: a function before it began, or a future before it completed")]
    Cancelled,
    /// The workqueue did not take the function, or ended before the future had completed: the
    /// future may have begun.
    #[error("a function was not queued, or its queue ended before a future completed: {0}")]
    Rejected(#[source] QueueError),
    /// The wait would deadlock: the caller is the function itself, holds the only slot that the
    /// function could run in, or is an item of a BH queue.
    #[error("{}", WaitError::WouldDeadlock)]
    WouldDeadlock,
    /// The time limit of the wait has passed. The handle can be waited for again.
    #[error("{}", WaitError::TimedOut)]
    TimedOut,
    /// The handle was polled again after it had given its result.
    #[error("the result has already been taken")]
    Taken,
}

/// The value that a panicking function threw.
///
/// ```
/// use inflight_workqueue::{JoinError, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("jobs").bound().build()?;
/// fn rescan() {
///     panic!("no disk");
/// }
/// let Err(JoinError::Panicked(p)) = wq.spawn(rescan).wait() else { panic!("it panics") };
/// assert!(p.item().ends_with("rescan"));
/// assert_eq!(p.message(), Some("no disk"));
/// assert!(p.into_inner().is::<&str>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PanicPayload {
    item: Name,
    message: Option<String>,
    /// The lock is never contended. It makes the error `Sync`, as error types are expected to be.
    payload: Mutex<Box<dyn Any + Send>>,
}

impl PanicPayload {
    pub(crate) fn new(item: Name, payload: Box<dyn Any + Send>) -> Self {
        Self {
            item,
            message: message(&payload),
            payload: Mutex::new(payload),
        }
    }

    /// The name of the item that panicked; by default the type of its function.
    #[must_use]
    pub fn item(&self) -> &str {
        &self.item
    }

    /// The message, if the value is a text, as with `panic!`.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// The value itself, for `downcast` or `std::panic::resume_unwind`.
    #[must_use]
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.payload.into_inner()
    }
}

inflight_sync::debug_fields!(PanicPayload: |this| item = this.item, message = this.message);

/// A function that a workqueue refused, and the reason. See
/// [`try_spawn`](crate::Workqueue::try_spawn) for an example.
#[derive(thiserror::Error)]
#[error("the function was not queued: {error}")]
pub struct Rejected<F> {
    #[source]
    error: QueueError,
    f: F,
}

impl<F> Rejected<F> {
    pub(crate) fn new(error: QueueError, f: F) -> Self {
        Self { error, f }
    }

    /// The reason.
    #[must_use]
    pub fn error(&self) -> QueueError {
        self.error
    }

    /// The function.
    #[must_use]
    pub fn into_inner(self) -> F {
        self.f
    }
}

inflight_sync::debug_fields!([F] Rejected<F>: |this| error = this.error);
