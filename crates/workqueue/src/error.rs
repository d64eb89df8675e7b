//! Error types: a small enum for each kind of operation.

use crate::consts::{MAX_ACTIVE_LIMIT, NAME_LIMIT};
use crate::panics::{Payload, message};
use inflight_sync::{Mutex, Printed};
use inflight_topology::{CpuSet, DiscoverError};
use std::borrow::Cow;
use std::io;

/// Why a workqueue refused an item. The item is as if it had never been queued.
///
/// ```
/// use inflight_workqueue::{QueueError, Work, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("gone").bound().build()?;
/// wq.destroy_blocking()?;
/// assert_eq!(wq.queue(&Work::new(|| ())), Err(QueueError::Destroyed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The workqueue is being drained and takes only what its own items queue. Try again
    /// afterwards, or queue with a delay: items that come due during the drain are queued after it.
    #[error("the workqueue is being drained")]
    Draining,
    /// The workqueue has been destroyed.
    #[error("the workqueue has been destroyed")]
    Destroyed,
    /// The system is shutting down or has been shut down.
    #[error("the workqueue system has been shut down")]
    ShutDown,
    /// The machine has no CPU with this number.
    #[error("there is no CPU {0}")]
    NoSuchCpu(usize),
    /// No usable CPU belongs to a memory node with this number.
    #[error("memory node {0} has no usable CPU")]
    NoSuchNode(usize),
    /// The pool has no worker, and the system refused a thread for the first one.
    #[error("the system refused a thread for the pool's first worker: {0}")]
    NoWorker(io::ErrorKind),
    /// The system refused the timer's thread, which delayed items need.
    #[error("the system refused the timer's thread: {0}")]
    NoTimer(io::ErrorKind),
    /// The process has reached the largest number of pairs of workqueue and pool, about a million.
    #[error("there are too many workqueues")]
    TooManyQueues,
}

/// An invalid limit for a workqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaxActiveError {
    /// The limit is above [`MAX_ACTIVE_LIMIT`].
    #[error("max_active {asked} is not in 1 to {limit}", limit = MAX_ACTIVE_LIMIT)]
    OutOfRange {
        /// The limit that was asked for.
        asked: usize,
    },
    /// An ordered workqueue has at most one active item.
    #[error("the max_active of an ordered workqueue is always 1")]
    Ordered,
    /// A BH workqueue has no limit.
    #[error("a BH workqueue has no max_active")]
    Bh,
}

/// Why the `min_active` of a workqueue was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MinActiveError {
    /// The value is outside 1 to the queue's limit.
    #[error("min_active {asked} is not in 1 to {max_active} (max_active)")]
    OutOfRange {
        /// The value that was asked for.
        asked: usize,
        /// The limit at that time.
        max_active: usize,
    },
    /// Only an unbound workqueue with [`Share::PerNode`](crate::Share::PerNode) has a `min_active`.
    #[error("only an unbound workqueue with Share::PerNode has a min_active")]
    NotPerNode,
}

/// Why a workqueue was not made.
///
/// ```
/// use inflight_workqueue::{BuildError, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// assert_eq!(sys.workqueue("").bound().build().unwrap_err(), BuildError::EmptyName);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The name is empty.
    #[error("the name of the workqueue is empty")]
    EmptyName,
    /// The name has a control character, for instance a line break.
    #[error("the name of the workqueue has a control character")]
    ControlCharacter,
    /// The name has more than 31 bytes.
    #[error("the name of the workqueue has {bytes} bytes, more than {NAME_LIMIT}")]
    NameTooLong {
        /// The length of the name.
        bytes: usize,
    },
    /// The limit is out of range.
    #[error("{0}")]
    MaxActive(MaxActiveError),
    /// `min_active` is outside 1 to the limit.
    #[error("{0}")]
    MinActive(MinActiveError),
    /// The attributes are invalid.
    #[error("{0}")]
    Attrs(AttrsError),
    /// [`highpri`](crate::WorkqueueBuilder::highpri) is the only option of a BH workqueue: this one
    /// is not allowed.
    #[error("a BH workqueue cannot have the option {0}")]
    NotBh(&'static str),
    /// The system refused the threads for the queue's rescuer.
    #[error("the system refused a thread for the workqueue's rescuer: {0}")]
    NoRescuer(io::ErrorKind),
    /// The system is shutting down or has been shut down.
    #[error("{}", QueueError::ShutDown)]
    ShutDown,
    /// As [`QueueError::TooManyQueues`].
    #[error("{}", QueueError::TooManyQueues)]
    TooManyQueues,
}

/// Why a poller was not made.
///
/// ```
/// use inflight_workqueue::{PollerError, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let first = sys.bh_poller(0, || ())?;
/// assert_eq!(sys.bh_poller(0, || ()).unwrap_err(), PollerError::Taken(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PollerError {
    /// The CPU has a poller already.
    #[error("CPU {0} already has a poller")]
    Taken(usize),
    /// No CPU has this number.
    #[error("{}", QueueError::NoSuchCpu(*.0))]
    NoSuchCpu(usize),
    /// The system refused the timer's thread, which detects a late poller.
    #[error("the system refused the timer's thread: {0}")]
    NoTimer(io::ErrorKind),
    /// The system is shutting down or has been shut down.
    #[error("{}", QueueError::ShutDown)]
    ShutDown,
}

/// Why a system was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SystemError {
    /// No topology was given, and this machine's could not be read.
    #[error("no topology was given, and this machine's cannot be read: {0}")]
    Topology(#[source] DiscoverError),
}

/// Why attributes, or the settings of all unbound queues, were not changed. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttrsError {
    /// The workqueue is bound or BH: its items run on the CPUs that they are queued on.
    #[error("only unbound and ordered workqueues have attributes")]
    NotUnbound,
    /// The nice value is outside -20 to 19.
    #[error("nice {asked} is not in -20 to 19")]
    Nice {
        /// The nice value that was asked for.
        asked: i32,
    },
    /// None of these CPUs can be used.
    #[error("none of these CPUs can be used: {}", named(cpus))]
    NoCpu {
        /// The CPUs that were asked for.
        cpus: CpuSet,
    },
    /// A new pool needs a worker, and the system refused the thread.
    #[error("the system refused a thread for a new pool's first worker: {0}")]
    NoWorker(io::ErrorKind),
    /// The system has been shut down, and the change would need a new pool.
    #[error("{}", QueueError::ShutDown)]
    ShutDown,
    /// As [`QueueError::TooManyQueues`].
    #[error("{}", QueueError::TooManyQueues)]
    TooManyQueues,
}

fn named(cpus: &CpuSet) -> String {
    if cpus.is_empty() {
        "the set is empty".to_owned()
    } else {
        format!("\"{cpus}\"")
    }
}

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
    payload: Mutex<Payload>,
}

impl PanicPayload {
    pub(crate) fn new(item: Name, payload: Payload) -> Self {
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
    pub fn into_inner(self) -> Box<dyn std::any::Any + Send> {
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
