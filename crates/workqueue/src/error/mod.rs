//! Error types: a small enum for each kind of operation.

mod join;
mod wait;

pub(crate) use join::Name;
pub use join::{JoinError, PanicPayload, Rejected};
pub use wait::{DisableError, EnableError, FlushError, NotDisabled, WaitError};

use crate::consts::{MAX_ACTIVE_LIMIT, NAME_LIMIT};
use inflight_topology::{CpuSet, DiscoverError};
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
