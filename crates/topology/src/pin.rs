//! Keeping the calling thread on some CPUs.

use std::error::Error;
use std::fmt;
use std::marker::PhantomData;

use crate::{CpuSet, os};

/// The calling thread is pinned until this is dropped; then it may run where it might before.
///
/// Made by [`Topology::pin_current_thread`](crate::Topology::pin_current_thread). The guard
/// belongs to its thread and cannot be sent to another one. Nested guards are dropped innermost
/// first, as the language does with locals; otherwise an older mask comes back too early.
///
/// ```
/// use inflight_topology::{CpuSet, Topology};
///
/// let topo = Topology::discover()?;
/// let first: CpuSet = topo.cpus().iter().take(1).collect();
/// # #[cfg(target_os = "linux")]
/// {
///     let _pinned = topo.pin_current_thread(&first)?;
///     assert_eq!(Topology::discover()?.cpus(), &first);
/// }
/// assert_eq!(Topology::discover()?.cpus(), topo.cpus());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail,E0277
/// fn to_another_thread(guard: impl Send) {}
/// fn wrong(guard: inflight_topology::PinGuard) {
///     to_another_thread(guard);
/// }
/// ```
#[must_use = "the thread is unpinned again when the guard is dropped"]
#[derive(Debug)]
pub struct PinGuard {
    /// Where the thread might run before; `None` once there is nothing left to restore.
    previous: Option<CpuSet>,
    /// The mask belongs to one thread, so the guard must not leave it.
    thread: PhantomData<*mut ()>,
}

impl PinGuard {
    pub(crate) fn new(cpus: &CpuSet) -> Result<Self, PinError> {
        Ok(Self {
            previous: Some(os::pin(cpus)?),
            thread: PhantomData,
        })
    }

    /// Restores the old mask now, and says whether that worked. Dropping the guard does the same
    /// and ignores a failure.
    ///
    /// # Errors
    ///
    /// [`PinError::NoUsableCpu`] if none of the old CPUs is left (they went offline, or the
    /// process was moved to other CPUs meanwhile), [`PinError::Os`] for any other refusal. The
    /// thread then stays where it is.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::discover()?;
    /// # #[cfg(target_os = "linux")]
    /// topo.pin_current_thread(topo.cpus())?.restore()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore(mut self) -> Result<(), PinError> {
        self.previous
            .take()
            .map_or(Ok(()), |previous| os::set(&previous))
    }

    /// Leaves the thread pinned for good.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::discover()?;
    /// # #[cfg(target_os = "linux")]
    /// topo.pin_current_thread(topo.cpus())?.keep();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep(mut self) {
        self.previous = None;
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        if let Some(previous) = self.previous.take() {
            // Nobody is left to tell; `restore` is for those who want to know.
            let _ = os::set(&previous);
        }
    }
}

/// Why a thread was not pinned. It runs where it ran before.
///
/// ```
/// use inflight_topology::{CpuSet, PinError, Topology};
///
/// let topo = Topology::discover()?;
/// let error = topo.pin_current_thread(&CpuSet::new()).unwrap_err();
/// assert_eq!(error, PinError::EmptySet);
/// assert_eq!(error.to_string(), "cannot pin a thread to no CPU at all");
/// # Ok::<(), inflight_topology::DiscoverError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinError {
    /// The set is empty.
    EmptySet,
    /// The topology is a synthetic or recorded one: its CPUs are not those of this machine.
    NotThisMachine {
        /// The set asked for.
        cpus: CpuSet,
    },
    /// No CPU of the set is online and open to this process.
    NoUsableCpu {
        /// The set asked for.
        cpus: CpuSet,
        /// The system's error number.
        errno: i32,
    },
    /// This operating system has no way to do it, or none that this crate knows.
    Unsupported {
        /// The set asked for.
        cpus: CpuSet,
    },
    /// The system refused for another reason.
    Os {
        /// The set asked for.
        cpus: CpuSet,
        /// The system's error number.
        errno: i32,
    },
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptySet => f.write_str("cannot pin a thread to no CPU at all"),
            Self::NotThisMachine { cpus } => {
                write!(
                    f,
                    "cannot pin to CPUs {cpus}: the topology is not that of this machine"
                )
            }
            Self::NoUsableCpu { cpus, errno } => write!(
                f,
                "cannot pin to CPUs {cpus}: none is online and open to this process (errno \
                 {errno})"
            ),
            Self::Unsupported { cpus } => {
                write!(
                    f,
                    "cannot pin to CPUs {cpus}: not supported on this operating system"
                )
            }
            Self::Os { cpus, errno } => {
                write!(
                    f,
                    "cannot pin to CPUs {cpus}: the system refused (errno {errno})"
                )
            }
        }
    }
}

impl Error for PinError {}
