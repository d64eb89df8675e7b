//! The errors of making a topology.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

/// The error of discovering this machine.
///
/// ```
/// use inflight_topology::DiscoverError;
///
/// assert_eq!(DiscoverError::NoCpus.to_string(), "the system reports no CPU");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiscoverError {
    /// Neither the affinity mask nor the description of the system could be read.
    NoCpus,
}

impl fmt::Display for DiscoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpus => f.write_str("the system reports no CPU"),
        }
    }
}

impl Error for DiscoverError {}

/// The error of reading a recorded tree.
///
/// ```
/// use inflight_topology::{SysfsError, Topology};
///
/// let error = Topology::from_sysfs("/no/such/tree").unwrap_err();
/// assert_eq!(error, SysfsError::NotATree { root: "/no/such/tree".into() });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SysfsError {
    /// The root has neither `sys/devices/system/cpu` nor `devices/system/cpu`.
    NotATree {
        /// The root.
        root: PathBuf,
    },
    /// The tree describes no CPU.
    NoCpus {
        /// The root.
        root: PathBuf,
    },
    /// The tree describes no CPU, and a file that should is damaged.
    BadFile {
        /// The first such file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl fmt::Display for SysfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATree { root } => write!(
                f,
                "{} has neither sys/devices/system/cpu nor devices/system/cpu",
                root.display()
            ),
            Self::NoCpus { root } => write!(f, "{} describes no CPU", root.display()),
            Self::BadFile { file, reason } => {
                write!(
                    f,
                    "no CPU is described, and {} is damaged: {reason}",
                    file.display()
                )
            }
        }
    }
}

impl Error for SysfsError {}
