//! The topology value: made from this machine, a recorded tree or a description.

use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

use inflight_sync::{Arc, Sequence};

use crate::model::{Description, Model};
use crate::recording::Recording;
use crate::tree::{Disk, Tree, read_recording};
use crate::{
    Assumption, CpuSet, DiscoverError, PinError, PinGuard, Pod, Scope, SyntheticError, SysfsError,
    os, synthetic, sysfs,
};

/// The CPUs of a machine and what they share: cores, last-level caches, memory nodes.
///
/// A topology is a snapshot: it never changes, and a clone is another handle to the same one. Make
/// it in the thread that builds the pool or the tag set, because a thread sees only the CPUs on
/// which it may run. To follow a change of the machine, [refresh](Topology::refresh) it, which
/// makes a new one of the next [version](Topology::version).
///
/// CPUs that it does not know (of a machine that grew, or from an old hint) are not an error: they
/// have no pod and count as sharing a cache with every CPU.
///
/// `Display` shows the caches, the CPUs that are not in use and every
/// [assumption](Topology::assumptions), for a log.
///
/// ```
/// use inflight_topology::{Scope, Topology};
///
/// let big = Topology::synthetic("numa:2 cache:2 core:6 smt:2")?;
/// assert_eq!(big.cpus().len(), 48);
/// let first = &big.pods(Scope::Cache)[0];
/// assert_eq!(format!("{} on node {:?}", first.cpus(), first.node()), "0-5,24-29 on node Some(0)");
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone)]
pub struct Topology {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) origin: Origin,
    pub(crate) version: u64,
    /// Of all snapshots that come from the same first one.
    pub(crate) versions: Arc<Sequence>,
    model: Model,
}

#[derive(Clone, Debug)]
pub(crate) enum Origin {
    ThisMachine,
    /// The root it was read from.
    Recorded(PathBuf),
    Synthetic,
}

/// Making one.
impl Topology {
    /// Discovers this machine, as far as the calling thread may use it.
    ///
    /// On Linux the CPUs are those that are online and in the thread's affinity mask. The caches
    /// and cores that they share are read from `/sys`, which takes some tens of microseconds per
    /// CPU. Facts that are not described there are assumed, and [recorded](Topology::assumptions).
    /// On other systems all CPUs are taken to be alike.
    ///
    /// # Errors
    ///
    /// [`DiscoverError::NoCpus`] if the system reports no CPU.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::discover()?;
    /// assert!(!topo.cpus().is_empty());
    /// # Ok::<(), inflight_topology::DiscoverError>(())
    /// ```
    pub fn discover() -> Result<Self, DiscoverError> {
        let description = os::describe().ok_or(DiscoverError::NoCpus)?;
        Ok(Self::new(Origin::ThisMachine, description))
    }

    /// Makes the machine of a description in one line: `numa:2 cache:2 core:6 smt:2` has 2 memory
    /// nodes, in each 2 last-level caches, around each 6 cores, in each 2 hardware threads.
    ///
    /// Items may be in any order, with white space between; a count left out is 1. The first
    /// threads of all cores have the first numbers, then all second threads in the same order: the
    /// machine above has the first threads of its 24 cores as CPUs 0 to 23 and their siblings as 24
    /// to 47.
    ///
    /// - Uneven machines have a list with one count for each of what it is counted in: `numa:2
    ///   cache:1,2 core:8,4,4` has one cache of 8 cores on node 0 and two of 4 on node 1.
    /// - `offline:3,8-9` takes CPUs away; `isolated:4-5` keeps them out of
    ///   [`cpus`](Topology::cpus).
    /// - `fast:0-3` or `slow:4-7` make CPUs faster or slower than the others.
    ///
    /// # Errors
    ///
    /// A [`SyntheticError`] for an empty description, an unknown or repeated key, a count that is
    /// zero or no number, a list of the wrong length, CPUs the machine does not have, a machine
    /// without a usable CPU, and more than 1,024 CPUs.
    ///
    /// ```
    /// use inflight_topology::{CpuSet, Scope, Topology};
    ///
    /// let topo = Topology::synthetic("smt:2 core:4")?;
    /// assert_eq!(topo.pods(Scope::Smt)[1].cpus(), &CpuSet::from([1, 5]));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    pub fn synthetic(description: &str) -> Result<Self, SyntheticError> {
        Ok(Self::new(
            Origin::Synthetic,
            synthetic::describe(description)?,
        ))
    }

    /// Reads a machine that was recorded as a copy of its `/sys/devices/system/cpu` and `…/node`
    /// directories, or as one file.
    ///
    /// A directory `root` holds either `sys/devices/system/cpu` (the root of a copied file tree) or
    /// `devices/system/cpu` (a copied `/sys` itself). Usable are the online CPUs that the recorded
    /// `proc/self/status` allows; without that file, those that are not isolated. The affinity of
    /// the calling thread has no effect. Works on every operating system.
    ///
    /// A file `root` is a recording as `ci/record-topology` of the repository makes it: for each
    /// line of a file of such a tree one line with its path (`sys/devices/…`), a tab and its text.
    ///
    /// # Errors
    ///
    /// [`SysfsError::NotATree`] if `root` is no file and there is no such directory below it,
    /// [`SysfsError::NoCpus`] if no CPU is described there, [`SysfsError::BadFile`] if that may be
    /// because of a damaged file, or if the file `root` is no recording. Other damage is no error,
    /// but an [assumption](Topology::assumptions) that names the file.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let root = tempfile::tempdir()?;
    /// let cpu = root.path().join("sys/devices/system/cpu");
    /// std::fs::create_dir_all(&cpu)?;
    /// std::fs::write(cpu.join("online"), "0-3,8\n")?;
    ///
    /// let topo = Topology::from_sysfs(root.path())?;
    /// assert_eq!(topo.cpus().to_string(), "0-3,8");
    ///
    /// let file = root.path().join("machine.txt");
    /// std::fs::write(&file, "sys/devices/system/cpu/online\t0-3,8\n")?;
    /// assert_eq!(Topology::from_sysfs(&file)?, topo);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_sysfs(root: impl AsRef<Path>) -> Result<Self, SysfsError> {
        let root = root.as_ref();
        if root.is_file() {
            let recording = recorded(root).map_err(|reason| SysfsError::BadFile {
                file: root.to_owned(),
                reason,
            })?;
            return Self::read(&recording, Path::new("sys"), root);
        }
        let candidates = [root.join("sys"), root.to_owned()];
        let sys = candidates
            .iter()
            .find(|sys| sys.join("devices/system/cpu").is_dir());
        let sys = sys.ok_or_else(|| SysfsError::NotATree {
            root: root.to_owned(),
        })?;
        Self::read(&Disk, sys, root)
    }

    /// The machine recorded as `root`, whose tree has its `/sys` at `sys`.
    fn read(tree: &dyn Tree, sys: &Path, root: &Path) -> Result<Self, SysfsError> {
        let description = sysfs::read_tree(tree, sys, None).map_err(|bad| match bad {
            Some(bad) => SysfsError::BadFile {
                file: bad.file,
                reason: bad.reason,
            },
            None => SysfsError::NoCpus {
                root: root.to_owned(),
            },
        })?;
        Ok(Self::new(Origin::Recorded(root.to_owned()), description))
    }

    fn new(origin: Origin, description: Description) -> Self {
        let versions = Arc::new(Sequence::new());
        Self {
            inner: Arc::new(Inner {
                origin,
                version: versions.next(),
                versions,
                model: Model::new(description),
            }),
        }
    }

    /// This topology as the next of a line. Only for one that was just made and has no clone.
    pub(crate) fn in_line(mut self, versions: &Arc<Sequence>) -> Self {
        let inner = Arc::get_mut(&mut self.inner).expect("a topology just made has one handle");
        inner.version = versions.next();
        inner.versions = Arc::clone(versions);
        self
    }
}

fn recorded(file: &Path) -> Result<Recording, String> {
    let text = read_recording(file).map_err(|error| match error.get_ref() {
        Some(inner) if inner.is::<FromUtf8Error>() => "no text: unpack it first".to_owned(),
        _ => error.to_string(),
    })?;
    Recording::parse(&text)
}

/// Asking it.
impl Topology {
    /// Returns the CPUs that can be used: online, and allowed to the thread that made the topology.
    /// The pods of every scope are made of these.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::synthetic("core:3")?;
    /// assert_eq!(topo.cpus().to_string(), "0-2");
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.model().cpus
    }

    /// Returns the CPUs that were online, whether or not they can be used.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::discover()?;
    /// assert!(topo.cpus().is_subset(topo.online()));
    /// # Ok::<(), inflight_topology::DiscoverError>(())
    /// ```
    #[must_use]
    pub fn online(&self) -> &CpuSet {
        &self.model().online
    }

    /// Returns the CPUs that may ever be online on this machine. Other numbers name no CPU.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::discover()?;
    /// assert!(topo.online().is_subset(topo.possible()));
    /// # Ok::<(), inflight_topology::DiscoverError>(())
    /// ```
    #[must_use]
    pub fn possible(&self) -> &CpuSet {
        &self.model().possible
    }

    /// Returns the CPUs that the system keeps out of ordinary scheduling (`isolcpus`). They are
    /// outside the usual affinity mask and so not among [`cpus`](Topology::cpus), but a thread can
    /// be pinned to them.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// assert!(Topology::synthetic("core:4")?.isolated().is_empty());
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn isolated(&self) -> &CpuSet {
        &self.model().isolated
    }

    /// Returns the memory nodes that have usable CPUs, in ascending order.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// assert_eq!(Topology::synthetic("numa:2 core:4")?.nodes(), [0, 1]);
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn nodes(&self) -> &[usize] {
        &self.model().nodes
    }

    /// Returns the memory node of a CPU. Known of every usable CPU, and of other online ones
    /// (isolated, or not allowed to the thread that made the topology) if the machine describes
    /// them; `None` for any other number.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::synthetic("numa:2 core:4 isolated:5 offline:6")?;
    /// assert_eq!(topo.node_of(4), Some(1));
    /// assert_eq!(topo.node_of(5), Some(1)); // for a thread that polls there
    /// assert_eq!(topo.node_of(6), None);
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn node_of(&self, cpu: usize) -> Option<usize> {
        self.model().places.of(cpu).map(|place| place.node)
    }

    /// Returns the pods of a scope. Each of [`cpus`](Topology::cpus) is in one of them. Pods are
    /// numbered by their lowest CPU.
    ///
    /// ```
    /// use inflight_topology::{Scope, Topology};
    ///
    /// let topo = Topology::synthetic("cache:2 core:12")?;
    /// let shards: Vec<String> =
    ///     topo.pods(Scope::CacheShard).iter().map(|pod| pod.cpus().to_string()).collect();
    /// assert_eq!(shards, ["0-5", "6-11", "12-17", "18-23"]);
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn pods(&self, scope: Scope) -> &[Pod] {
        self.model().pods(scope).all()
    }

    /// Returns the pod of a usable CPU; `None` for any other number. Costs two loads from tables.
    ///
    /// ```
    /// use inflight_topology::{Scope, Topology};
    ///
    /// let topo = Topology::synthetic("cache:2 core:4")?;
    /// assert_eq!(topo.pod_of(Scope::Cache, 6).map(|pod| pod.id()), Some(1));
    /// assert!(topo.pod_of(Scope::System, usize::MAX).is_none());
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn pod_of(&self, scope: Scope, cpu: usize) -> Option<&Pod> {
        self.model().pods(scope).of(cpu)
    }

    /// Returns whether two CPUs share their last-level cache. Known of the same CPUs as
    /// [`node_of`](Topology::node_of). `true` if either is unknown: then a completion may run where
    /// it was seen, and that is always a correct place.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::synthetic("cache:2 core:6 smt:2")?;
    /// assert!(topo.shares_cache(0, 12));
    /// assert!(!topo.shares_cache(0, 6));
    /// assert!(topo.shares_cache(0, usize::MAX));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn shares_cache(&self, a: usize, b: usize) -> bool {
        let places = &self.model().places;
        match (places.of(a), places.of(b)) {
            (Some(a), Some(b)) => a.cache == b.cache,
            _ => true,
        }
    }

    /// Returns the gaps in the machine's description, and the assumption for each. Empty for a
    /// machine that is fully described.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// assert!(Topology::synthetic("core:4")?.assumptions().is_empty());
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn assumptions(&self) -> &[Assumption] {
        &self.model().assumptions
    }

    /// Returns whether the CPUs are those of this machine, so that threads can be pinned to them.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// assert!(Topology::discover()?.is_this_machine());
    /// assert!(!Topology::synthetic("core:4")?.is_this_machine());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_this_machine(&self) -> bool {
        matches!(self.inner.origin, Origin::ThisMachine)
    }

    /// Returns whether the machine describes this CPU.
    pub(crate) fn knows(&self, cpu: usize) -> bool {
        self.model().places.of(cpu).is_some()
    }

    pub(crate) fn model(&self) -> &Model {
        &self.inner.model
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

/// Using it.
impl Topology {
    /// Pins the calling thread to `cpus`, until the guard is dropped.
    ///
    /// CPUs of the set that are offline or not allowed to this process are ignored, as long as one
    /// remains. The set need not be part of [`cpus`](Topology::cpus): a thread may be pinned to
    /// [isolated](Topology::isolated) CPUs, or out of a mask that it inherited. Threads that it
    /// starts meanwhile inherit the pinning. A change of the process's CPU set by the system
    /// overrides it.
    ///
    /// # Errors
    ///
    /// [`PinError::EmptySet`], [`PinError::NotThisMachine`] for a synthetic or recorded topology,
    /// [`PinError::NoUsableCpu`], [`PinError::Unsupported`] on systems other than Linux, and
    /// [`PinError::Os`] for any other refusal. The thread's mask is then unchanged.
    ///
    /// ```
    /// use inflight_topology::{CpuSet, Topology};
    ///
    /// let topo = Topology::discover()?;
    /// # #[cfg(target_os = "linux")]
    /// # {
    /// let one: CpuSet = topo.cpus().iter().take(1).collect();
    /// let guard = topo.pin_current_thread(&one)?;
    /// assert!(one.contains(inflight_topology::current_cpu()));
    /// drop(guard);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pin_current_thread(&self, cpus: &CpuSet) -> Result<PinGuard, PinError> {
        self.check_pinnable(cpus)?;
        PinGuard::new(cpus)
    }

    /// Pins the calling thread to `cpus` for the rest of its life; for worker threads.
    ///
    /// It is [`pin_current_thread`](Topology::pin_current_thread) without the old mask. So it also
    /// works on Windows and FreeBSD, for a set of one CPU.
    ///
    /// Without a guard the thread cannot find out that an administrator moved it, or that a CPU
    /// went offline. A worker that needs to know keeps the guard of
    /// [`pin_current_thread`](Topology::pin_current_thread) for its life, and calls
    /// [`revalidate`](PinGuard::revalidate) now and then.
    ///
    /// # Errors
    ///
    /// The errors of [`pin_current_thread`](Topology::pin_current_thread).
    ///
    /// ```
    /// use inflight_topology::{PinError, Topology};
    ///
    /// // In the function of a worker thread:
    /// let topo = Topology::discover()?;
    /// match topo.pin_current_thread_for_good(topo.cpus()) {
    ///     Ok(()) => {}
    ///     Err(PinError::Unsupported { .. }) => println!("runs unpinned on this system"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pin_current_thread_for_good(&self, cpus: &CpuSet) -> Result<(), PinError> {
        self.check_pinnable(cpus)?;
        os::set(cpus)
    }

    fn check_pinnable(&self, cpus: &CpuSet) -> Result<(), PinError> {
        if cpus.is_empty() {
            return Err(PinError::EmptySet);
        }
        if !self.is_this_machine() {
            return Err(PinError::NotThisMachine { cpus: cpus.clone() });
        }
        Ok(())
    }
}

/// Two topologies are equal if they describe equal machines in every detail, assumptions included,
/// from any source. Versions do not count.
///
/// ```
/// use inflight_topology::Topology;
///
/// assert_eq!(Topology::synthetic("numa:1 core:4")?, Topology::synthetic("core:4 smt:1")?);
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
impl PartialEq for Topology {
    fn eq(&self, other: &Self) -> bool {
        self.model() == other.model()
    }
}

impl Eq for Topology {}
