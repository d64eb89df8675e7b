//! What can go wrong, one small enum for each kind of operation.

mod join;
mod wait;

pub use join::{JoinError, PanicPayload, Rejected};
pub use wait::{DisableError, EnableError, FlushError, NotDisabled, WaitError};

use inflight_topology::DiscoverError;
use std::error::Error;
use std::fmt;
use std::io;

/// Why a workqueue did not take an item. The item is as if it had never been queued.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// The workqueue is being drained and takes only what its own items queue. Try again
    /// afterwards.
    Draining,
    /// The workqueue has been destroyed.
    Destroyed,
    /// The system is shutting down or has been.
    ShutDown,
    /// The machine has no CPU of this number.
    NoSuchCpu(usize),
    /// No usable CPU belongs to a memory node of this number.
    NoSuchNode(usize),
    /// The pool has no worker, and the system refused a thread for the first one.
    NoWorker(io::ErrorKind),
    /// The system refused the thread that waits until delayed items are due.
    NoTimer(io::ErrorKind),
    /// There are as many workqueues and pools in this process as it can tell apart: about a million
    /// pairs.
    TooManyQueues,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Draining => f.write_str("the workqueue is being drained"),
            Self::Destroyed => f.write_str("the workqueue has been destroyed"),
            Self::ShutDown => f.write_str("the workqueue system has been shut down"),
            Self::NoSuchCpu(cpu) => write!(f, "there is no CPU {cpu}"),
            Self::NoSuchNode(node) => write!(f, "memory node {node} has no usable CPU"),
            Self::NoWorker(kind) => write!(f, "no thread for the pool's first worker: {kind}"),
            Self::NoTimer(kind) => write!(f, "no thread to wait for delayed items: {kind}"),
            Self::TooManyQueues => f.write_str("there are too many workqueues"),
        }
    }
}

impl Error for QueueError {}

/// A limit that a workqueue cannot have.
///
/// ```
/// use inflight_workqueue::MaxActiveError;
///
/// let error = MaxActiveError::OutOfRange { asked: 4096 };
/// assert_eq!(error.to_string(), "max_active is 1 to 2048, not 4096");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaxActiveError {
    /// It is above [`MAX_ACTIVE_LIMIT`](crate::MAX_ACTIVE_LIMIT).
    OutOfRange {
        /// What was asked for.
        asked: usize,
    },
    /// An ordered workqueue has one active item at most.
    Ordered,
    /// A BH workqueue has no limit.
    Bh,
}

impl fmt::Display for MaxActiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { asked } => {
                let limit = crate::MAX_ACTIVE_LIMIT;
                write!(f, "max_active is 1 to {limit}, not {asked}")
            }
            Self::Ordered => f.write_str("max_active of an ordered workqueue is 1"),
            Self::Bh => f.write_str("a BH workqueue has no max_active"),
        }
    }
}

impl Error for MaxActiveError {}

/// Why what a memory node is sure of was not changed.
///
/// ```
/// use inflight_workqueue::MinActiveError;
///
/// let error = MinActiveError::OutOfRange { asked: 9, max_active: 8 };
/// assert_eq!(error.to_string(), "min_active is 1 to max_active, which is 8, not 9");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MinActiveError {
    /// It is outside 1 to the queue's limit.
    OutOfRange {
        /// What was asked for.
        asked: usize,
        /// The limit at that time.
        max_active: usize,
    },
    /// Only an unbound workqueue with [`Share::PerNode`](crate::Share::PerNode) gives each node a
    /// part.
    NotPerNode,
}

impl fmt::Display for MinActiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { asked, max_active } => write!(
                f,
                "min_active is 1 to max_active, which is {max_active}, not {asked}"
            ),
            Self::NotPerNode => {
                f.write_str("only an unbound workqueue with Share::PerNode has a min_active")
            }
        }
    }
}

impl Error for MinActiveError {}

/// Why a workqueue was not made.
///
/// ```
/// use inflight_workqueue::{BuildError, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// assert_eq!(sys.workqueue("").bound().build().unwrap_err(), BuildError::EmptyName);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The name is empty.
    EmptyName,
    /// The name has a control character, a line break for instance.
    ControlCharacter,
    /// The name has more than 31 bytes.
    NameTooLong {
        /// How many it has.
        bytes: usize,
    },
    /// The limit is out of range.
    MaxActive(MaxActiveError),
    /// The attributes are wrong.
    Attrs(AttrsError),
    /// A BH workqueue can be highpri, and nothing else: this is what it cannot be.
    NotBh(&'static str),
    /// The system refused the threads of the queue's rescuer.
    NoRescuer(io::ErrorKind),
    /// The system is shutting down or has been.
    ShutDown,
    /// As [`QueueError::TooManyQueues`].
    TooManyQueues,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => f.write_str("a workqueue has a name"),
            Self::ControlCharacter => f.write_str("a workqueue's name has no control characters"),
            Self::NameTooLong { bytes } => {
                let limit = crate::NAME_LIMIT;
                write!(
                    f,
                    "a workqueue's name has at most {limit} bytes, not {bytes}"
                )
            }
            Self::MaxActive(e) => e.fmt(f),
            Self::Attrs(e) => e.fmt(f),
            Self::NotBh(what) => write!(f, "a BH workqueue cannot be {what}"),
            Self::NoRescuer(kind) => write!(f, "no thread for the workqueue's rescuer: {kind}"),
            Self::ShutDown => QueueError::ShutDown.fmt(f),
            Self::TooManyQueues => QueueError::TooManyQueues.fmt(f),
        }
    }
}

impl Error for BuildError {}

/// Why there is no poller.
///
/// ```
/// use inflight_workqueue::{PollerError, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let first = sys.bh_poller(0, || ())?;
/// assert_eq!(sys.bh_poller(0, || ()).unwrap_err(), PollerError::Taken(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollerError {
    /// The CPU has a poller.
    Taken(usize),
    /// No CPU has this number.
    NoSuchCpu(usize),
    /// The system refused the thread that asks whether the poller is late.
    NoTimer(io::ErrorKind),
    /// The system is shutting down or has been.
    ShutDown,
}

impl fmt::Display for PollerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(cpu) => write!(f, "CPU {cpu} has a poller"),
            Self::NoSuchCpu(cpu) => QueueError::NoSuchCpu(*cpu).fmt(f),
            Self::NoTimer(kind) => write!(f, "no thread to wait for a late poller: {kind}"),
            Self::ShutDown => QueueError::ShutDown.fmt(f),
        }
    }
}

impl Error for PollerError {}

/// Why a system was not made.
///
/// ```
/// use inflight_workqueue::{SystemError, WorkqueueSystem};
///
/// let sys: Result<WorkqueueSystem, SystemError> = WorkqueueSystem::builder().build();
/// assert!(sys.is_ok());
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum SystemError {
    /// No topology was given, and this machine's could not be read.
    Topology(DiscoverError),
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology(e) => {
                write!(
                    f,
                    "no topology was given and this machine's is unreadable: {e}"
                )
            }
        }
    }
}

impl Error for SystemError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Topology(e) => Some(e),
        }
    }
}

/// Why attributes, or what holds for all unbound queues, were not changed. Nothing has changed.
///
/// ```
/// use inflight_workqueue::{Attrs, AttrsError, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("events").bound().build()?;
/// assert_eq!(wq.set_attrs(Attrs::new()), Err(AttrsError::NotUnbound));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttrsError {
    /// The workqueue is bound or BH: its items run on the CPUs they are queued on.
    NotUnbound,
    /// No priority is called that: they go from -20 to 19.
    Nice {
        /// The priority asked for.
        asked: i32,
    },
    /// None of these CPUs can be used.
    NoCpu,
    /// A new pool needs a worker, and the system refused it a thread.
    NoWorker(io::ErrorKind),
    /// The workqueue system has been shut down, and a new pool would be needed.
    ShutDown,
    /// As [`QueueError::TooManyQueues`].
    TooManyQueues,
}

impl fmt::Display for AttrsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUnbound => f.write_str("only unbound and ordered workqueues have attributes"),
            Self::Nice { asked } => write!(f, "nice goes from -20 to 19, not to {asked}"),
            Self::NoCpu => f.write_str("none of these CPUs can be used"),
            Self::NoWorker(kind) => write!(f, "no thread for a new pool's first worker: {kind}"),
            Self::ShutDown => f.write_str("the workqueue system has been shut down"),
            Self::TooManyQueues => QueueError::TooManyQueues.fmt(f),
        }
    }
}

impl Error for AttrsError {}
