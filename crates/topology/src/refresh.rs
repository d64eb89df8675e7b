//! Following a machine that changes.

use std::error::Error;
use std::fmt;

use crate::topology::Origin;
use crate::{DiscoverError, SysfsError, Topology};

/// The result of a [refresh](Topology::refresh).
///
/// ```
/// use inflight_topology::{Refresh, Topology};
///
/// let topo = Topology::synthetic("core:4")?;
/// assert!(matches!(topo.refresh()?, Refresh::Unchanged));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a changed machine is in the new snapshot, never in the old one"]
pub enum Refresh {
    /// The machine is unchanged; the old snapshot still holds.
    Unchanged,
    /// The machine has changed; this is a new snapshot, of the next version.
    Changed(Topology),
}

impl Topology {
    /// Returns the number of this snapshot in the sequence of [refreshes](Topology::refresh) of one
    /// first snapshot: 1 for the first, and one more for each change, whichever snapshot was
    /// refreshed.
    ///
    /// A table derived from a topology keeps the topology's version; if the versions differ, the
    /// table is old. Clones have the same version. Versions of topologies that were made separately
    /// do not compare.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::discover()?;
    /// assert_eq!(topo.version(), 1);
    /// # Ok::<(), inflight_topology::DiscoverError>(())
    /// ```
    #[must_use]
    pub fn version(&self) -> u64 {
        self.inner().version
    }

    /// Reads this machine, or the recorded tree, again. A synthetic machine never changes.
    ///
    /// Hotplug adds and removes CPUs, and an administrator may change the CPU set of a process at
    /// any time, which also rewrites the masks of its threads. So a program that pins should
    /// refresh from time to time (every ten seconds is enough, because a refresh takes milliseconds
    /// on a large machine) and whenever a thread cannot be pinned any more.
    ///
    /// Like [`discover`](Topology::discover), it sees only the CPUs that the calling thread may
    /// use. A thread pinned to one CPU finds a machine of one CPU: call it from a thread that is
    /// not pinned.
    ///
    /// # Errors
    ///
    /// [`RefreshError`] if no machine is found any more. The old snapshot can still be used.
    ///
    /// ```
    /// use std::fs::{create_dir_all, write};
    ///
    /// use inflight_topology::{Refresh, Topology};
    ///
    /// let root = tempfile::tempdir()?;
    /// let cpu = root.path().join("sys/devices/system/cpu");
    /// create_dir_all(&cpu)?;
    /// write(cpu.join("online"), "0-3\n")?;
    /// let topo = Topology::from_sysfs(root.path())?;
    ///
    /// write(cpu.join("online"), "0-2\n")?;                    // CPU 3 goes offline
    /// let Refresh::Changed(new) = topo.refresh()? else { unreachable!() };
    /// assert_eq!((new.version(), new.cpus().to_string()), (2, "0-2".to_owned()));
    /// assert_eq!((topo.version(), topo.cpus().to_string()), (1, "0-3".to_owned()));
    /// assert!(matches!(new.refresh()?, Refresh::Unchanged));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refresh(&self) -> Result<Refresh, RefreshError> {
        let now = match &self.inner().origin {
            Origin::ThisMachine => Self::discover()?,
            Origin::Recorded(root) => Self::from_sysfs(root)?,
            Origin::Synthetic => return Ok(Refresh::Unchanged),
        };
        if now == *self {
            return Ok(Refresh::Unchanged);
        }
        Ok(Refresh::Changed(now.in_line(&self.inner().versions)))
    }
}

/// The error of a refresh.
///
/// ```
/// use inflight_topology::{DiscoverError, RefreshError};
///
/// let error = RefreshError::from(DiscoverError::NoCpus);
/// assert_eq!(error.to_string(), "the system reports no CPU");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefreshError {
    /// This machine cannot be discovered.
    Discover(DiscoverError),
    /// The recorded tree is gone or damaged.
    Sysfs(SysfsError),
}

impl From<DiscoverError> for RefreshError {
    fn from(error: DiscoverError) -> Self {
        Self::Discover(error)
    }
}

impl From<SysfsError> for RefreshError {
    fn from(error: SysfsError) -> Self {
        Self::Sysfs(error)
    }
}

impl fmt::Display for RefreshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Discover(error) => error.fmt(f),
            Self::Sysfs(error) => error.fmt(f),
        }
    }
}

impl Error for RefreshError {}
