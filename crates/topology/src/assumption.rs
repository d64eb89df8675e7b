//! The assumptions of a topology.

use std::fmt;
use std::path::PathBuf;

use crate::{CpuSet, Scope};

/// A fact that the description of a machine left out, or contradicted, and the assumption in its
/// place.
///
/// A topology is never refused because a part of it is unknown; the simplest reading is taken and
/// recorded here. `Display` writes one sentence for a log.
///
/// ```
/// use inflight_topology::{Assumption, Topology};
///
/// let topo = Topology::discover()?;
/// for assumption in topo.assumptions() {
///     if let Assumption::CacheUnknown { cpus } = assumption {
///         println!("placement among CPUs {cpus} goes by package, not by cache");
///     }
/// }
/// # Ok::<(), inflight_topology::DiscoverError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Assumption {
    /// No list of online CPUs; `cpus` are taken to be online, because they have a directory or
    /// because this process may run on them.
    OnlineUnknown {
        /// The CPUs taken to be online.
        cpus: CpuSet,
    },
    /// No list of possible CPUs has these, though they are online; they are taken to be possible.
    PossibleUnknown {
        /// The CPUs concerned.
        cpus: CpuSet,
    },
    /// The list of online CPUs has none of the CPUs this process may run on (a container that
    /// renumbers CPUs); the latter are taken.
    OnlineContradicted {
        /// The CPUs this process may run on.
        cpus: CpuSet,
    },
    /// The affinity mask could not be read; every online CPU counts as usable.
    AffinityUnknown {
        /// The system's error number.
        errno: i32,
    },
    /// CPUs were added or removed while they were read, in the last attempt too; these are left
    /// out.
    Unsteady {
        /// The CPUs left out.
        cpus: CpuSet,
    },
    /// No hardware threads are listed for these CPUs; each counts as a core of its own.
    SiblingsUnknown {
        /// The CPUs concerned.
        cpus: CpuSet,
    },
    /// The last-level caches of these CPUs, or of some CPUs of their package, are not described;
    /// the CPUs of a package count as sharing one cache.
    CacheUnknown {
        /// The CPUs concerned: always all described CPUs of their packages.
        cpus: CpuSet,
    },
    /// Threads of one core are listed in different last-level caches, which cannot be; the caches
    /// of such a core count as one.
    CoreAcrossCaches {
        /// The CPUs of those caches.
        cpus: CpuSet,
    },
    /// Neither the caches nor the packages of these CPUs are described; all of them count as
    /// sharing one cache.
    PackageUnknown {
        /// The CPUs concerned.
        cpus: CpuSet,
    },
    /// The memory node of these CPUs is not described; they count as CPUs of `node`.
    NodeUnknown {
        /// The CPUs concerned.
        cpus: CpuSet,
        /// The lowest node that has CPUs, or 0.
        node: usize,
    },
    /// The speed of these CPUs, compared with others, is not described, or described in two ways;
    /// all CPUs count as equally fast.
    SpeedUnknown {
        /// The CPUs concerned.
        cpus: CpuSet,
    },
    /// The lists of CPUs in a group contradict each other. Two CPUs are in one group if each is in
    /// the other's list, and so are all CPUs that share with either; a CPU listed by two nodes
    /// belongs to the first.
    ListsDisagree {
        /// [`Scope::Smt`], [`Scope::Cache`] or [`Scope::Numa`].
        scope: Scope,
        /// The CPUs whose list differs from their group.
        cpus: CpuSet,
    },
    /// Files exist but cannot be read or are malformed; they count as absent.
    Unreadable {
        /// The first of these files.
        first: PathBuf,
        /// The fault of that file.
        reason: String,
        /// The number of such files.
        files: usize,
    },
    /// On this operating system only the CPUs are read.
    SystemNotRead,
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnlineUnknown { cpus } => {
                write!(f, "no list of online CPUs: {cpus} taken to be online")
            }
            Self::PossibleUnknown { cpus } => {
                write!(
                    f,
                    "CPUs {cpus} online but not listed as possible: taken to be possible"
                )
            }
            Self::OnlineContradicted { cpus } => write!(
                f,
                "no CPU this process may run on is listed as online: {cpus} taken to be online"
            ),
            Self::AffinityUnknown { errno } => write!(
                f,
                "affinity mask not readable (errno {errno}): all online CPUs taken to be usable"
            ),
            Self::Unsteady { cpus } => {
                write!(f, "CPUs {cpus} came or went while they were read: left out")
            }
            Self::SiblingsUnknown { cpus } => {
                write!(
                    f,
                    "hardware threads of CPUs {cpus} unknown: each taken to be a core"
                )
            }
            Self::CacheUnknown { cpus } => write!(
                f,
                "caches of CPUs {cpus} not fully known: each package taken to share one cache"
            ),
            Self::CoreAcrossCaches { cpus } => write!(
                f,
                "threads of one core in different caches of CPUs {cpus}: taken to be one cache"
            ),
            Self::PackageUnknown { cpus } => write!(
                f,
                "caches and packages of CPUs {cpus} unknown: all taken to share one cache"
            ),
            Self::NodeUnknown { cpus, node } => {
                write!(
                    f,
                    "memory node of CPUs {cpus} unknown: taken to be node {node}"
                )
            }
            Self::SpeedUnknown { cpus } => write!(
                f,
                "speed of CPUs {cpus} unknown: all CPUs taken to be equally fast"
            ),
            Self::ListsDisagree { scope, cpus } => write!(
                f,
                "CPUs {cpus} and others disagree about their {scope} group: only CPUs that list \
                 each other taken to be in one group"
            ),
            Self::Unreadable {
                first,
                reason,
                files,
            } => {
                let first = first.display();
                write!(
                    f,
                    "{files} damaged files, first {first} ({reason}): taken to be absent"
                )
            }
            Self::SystemNotRead => f.write_str(
                "only the CPUs are read on this operating system: all taken to be alike",
            ),
        }
    }
}
