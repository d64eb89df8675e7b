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
    /// Where the thread was told to run.
    cpus: CpuSet,
    /// Where the thread might run before; `None` once there is nothing left to restore.
    previous: Option<CpuSet>,
    /// The mask belongs to one thread, so the guard must not leave it.
    thread: PhantomData<*mut ()>,
}

impl PinGuard {
    pub(crate) fn new(cpus: &CpuSet) -> Result<Self, PinError> {
        Ok(Self {
            cpus: cpus.clone(),
            previous: Some(os::pin(cpus)?),
            thread: PhantomData,
        })
    }

    /// The set that was asked for.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::discover()?;
    /// # #[cfg(target_os = "linux")]
    /// assert_eq!(topo.pin_current_thread(topo.cpus())?.cpus(), topo.cpus());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Looks whether the thread still runs where it was told to, and tells it again if not.
    ///
    /// A change of the process's CPU set, or a CPU that went offline, rewrites the masks of
    /// threads without telling them; when the CPUs come back, the mask may stay as it is. So ask
    /// from time to time; a [refresh](crate::Topology::refresh) that finds a change is a good
    /// moment. Costs a microsecond or two.
    ///
    /// # Errors
    ///
    /// [`PinError::Os`] if the system does not tell the mask, or refuses for another reason than
    /// that none of the CPUs is left; that is [`PinCheck::Lost`].
    ///
    /// ```
    /// use inflight_topology::{PinCheck, Topology};
    ///
    /// let topo = Topology::discover()?;
    /// # #[cfg(target_os = "linux")]
    /// # {
    /// let guard = topo.pin_current_thread(topo.cpus())?;
    /// match guard.revalidate()? {
    ///     PinCheck::Held => {}
    ///     PinCheck::Narrowed { vanished } => println!("CPUs {vanished} are gone"),
    ///     PinCheck::Lost { now } => println!("all are gone; running on {now}"),
    /// }
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn revalidate(&self) -> Result<PinCheck, PinError> {
        if os::current(&self.cpus)? == self.cpus {
            return Ok(PinCheck::Held);
        }
        let set = os::set(&self.cpus);
        let now = os::current(&self.cpus)?;
        match set {
            Ok(()) => {
                let vanished = self.cpus.difference(&now);
                Ok(if vanished.is_empty() {
                    PinCheck::Held
                } else {
                    PinCheck::Narrowed { vanished }
                })
            }
            Err(PinError::NoUsableCpu { .. }) => Ok(PinCheck::Lost { now }),
            Err(error) => Err(error),
        }
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

/// What [`PinGuard::revalidate`] found.
///
/// ```
/// use inflight_topology::{PinCheck, Topology};
///
/// let topo = Topology::discover()?;
/// # #[cfg(target_os = "linux")]
/// assert_eq!(topo.pin_current_thread(topo.cpus())?.revalidate()?, PinCheck::Held);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a pinning that was lost stays lost until the CPUs come back"]
pub enum PinCheck {
    /// The thread runs on the set asked for, and all of it; it was told again if need be.
    Held,
    /// The thread runs on a part of the set.
    Narrowed {
        /// CPUs of the set that are offline or closed to this process.
        vanished: CpuSet,
    },
    /// No CPU of the set is online and open to this process any more.
    Lost {
        /// Where the thread runs instead.
        now: CpuSet,
    },
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

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle))))]
mod tests {
    use super::{CpuSet, PhantomData, PinCheck, PinGuard, os};

    /// Such CPUs cannot be pinned to; to a guard it looks as if they had left.
    #[test]
    fn a_set_that_is_gone_is_lost_and_the_thread_runs_on() {
        let guard = PinGuard {
            cpus: CpuSet::from([65_534, 65_535]),
            previous: None,
            thread: PhantomData,
        };
        let now = os::current(&guard.cpus).expect("the own mask");
        assert_eq!(guard.revalidate(), Ok(PinCheck::Lost { now: now.clone() }));
        assert_eq!(os::current(&guard.cpus), Ok(now));
    }
}
