//! The kind of a workqueue, and where its items may run.

use crate::error::AttrsError;
use inflight_topology::{CpuSet, Scope};
use std::fmt;

/// Where the items of an unbound workqueue run, and with which priority.
///
/// Queues whose attributes lead to equal pools share them.
/// [`Workqueue::set_attrs`](crate::Workqueue::set_attrs) changes the attributes of a queue in use.
///
/// ```
/// use inflight_topology::{CpuSet, Scope};
/// use inflight_workqueue::{Attrs, Concurrency};
///
/// let attrs = Attrs::new().scope(Scope::Numa).strict(true).cpumask(CpuSet::from([0, 1]));
/// assert_eq!(attrs.to_string(), "numa strict cpus 0-1");
/// assert_eq!(attrs.clone().default_scope().to_string(), "default strict cpus 0-1");
/// let sums = Attrs::new().scope(Scope::Cpu).strict(true).concurrency(Concurrency::Unmanaged);
/// assert_eq!(sums.nice(5).to_string(), "cpu strict nice 5 unmanaged");
/// assert_eq!((attrs.get_scope(), attrs.is_strict()), (Some(Scope::Numa), true));
/// assert_eq!((attrs.get_nice(), attrs.get_cpumask().len()), (0, 2));
/// assert_eq!(attrs.get_concurrency(), Concurrency::Managed);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// `None` for the system's default.
    scope: Option<Scope>,
    strict: bool,
    nice: i32,
    /// Empty for all.
    cpus: CpuSet,
    concurrency: Concurrency,
}

/// How many workers of a pool may run items of an unbound queue at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concurrency {
    /// As many as the pool has CPUs; when a worker blocks, another one runs.
    #[default]
    Managed,
    /// As many as `max_active` permits, as in unbound pools of the kernel; the scheduler shares the
    /// CPUs among them. For items that compute for long.
    Unmanaged,
}

impl fmt::Display for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Managed => "managed",
            Self::Unmanaged => "unmanaged",
        })
    }
}

/// The valid nice values.
pub(crate) const NICE: std::ops::RangeInclusive<i32> = -20..=19;

/// The nice value of highpri workers and rescuers.
pub(crate) const HIGHPRI: i32 = -20;

impl Attrs {
    /// The [default scope](crate::SystemBuilder::default_scope) of the system (`cache_shard` unless
    /// changed), not strict, all CPUs, the priority of the process.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            scope: None,
            strict: false,
            nice: 0,
            cpus: CpuSet::new(),
            concurrency: Concurrency::Managed,
        }
    }

    /// The group of CPUs that shares a pool. An item goes to the pool of the CPU it is queued on.
    #[must_use]
    pub fn scope(self, scope: Scope) -> Self {
        let scope = Some(scope);
        Self { scope, ..self }
    }

    /// Uses the default scope of the system, also if that changes later.
    #[must_use]
    pub fn default_scope(self) -> Self {
        Self {
            scope: None,
            ..self
        }
    }

    /// Whether the workers are pinned to their group of CPUs. Strict queues keep their caches warm,
    /// but do not use idle CPUs of other groups; see the affinity scopes of cmwq.
    #[must_use]
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// The nice value of the workers: -20 to 19, lower is preferred; 0 is the priority of the
    /// process. If the system refuses it, the workers run without it
    /// ([`nice_refused`](crate::WorkqueueSystem::nice_refused)). A
    /// [`highpri`](crate::WorkqueueBuilder::highpri) queue always has -20.
    #[must_use]
    pub fn nice(self, nice: i32) -> Self {
        Self { nice, ..self }
    }

    /// The CPUs whose pools the queue may use; the empty set means all.
    ///
    /// The queue uses the CPUs of this set that are in the system's
    /// [unbound mask](crate::WorkqueueSystem::set_unbound_cpumask), or the whole mask if they have
    /// none in common. An item queued on a CPU outside goes to the pool of the remaining CPUs of
    /// its group, or else to a pool of all CPUs that the queue uses.
    ///
    /// ```
    /// use inflight_topology::{CpuSet, Topology};
    /// use inflight_workqueue::{Attrs, WorkqueueSystem};
    ///
    /// let topo = Topology::synthetic("core:4")?;
    /// let sys = WorkqueueSystem::builder().topology(topo).build()?;
    /// let attrs = Attrs::new().strict(true).cpumask(CpuSet::from([2, 3]));
    /// let wq = sys.workqueue("two").unbound(attrs).build()?;
    /// wq.spawn(|| ()).wait()?;
    /// assert!(sys.dump().contains("pool u0 cpus 2-3 strict"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cpumask(self, cpus: CpuSet) -> Self {
        Self { cpus, ..self }
    }

    /// Whether a pool runs as many workers as it has CPUs, or as many as `max_active` permits.
    #[must_use]
    pub fn concurrency(self, concurrency: Concurrency) -> Self {
        Self {
            concurrency,
            ..self
        }
    }

    pub(crate) fn is_unmanaged(&self) -> bool {
        self.concurrency == Concurrency::Unmanaged
    }

    /// The scope; `None` for the system's default.
    #[must_use]
    pub fn get_scope(&self) -> Option<Scope> {
        self.scope
    }

    /// Whether the workers are pinned to their group of CPUs.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// The nice value of the workers.
    #[must_use]
    pub fn get_nice(&self) -> i32 {
        self.nice
    }

    /// The CPUs that were set; empty for all.
    #[must_use]
    pub fn get_cpumask(&self) -> &CpuSet {
        &self.cpus
    }

    /// How many workers of a pool may run the items at once.
    #[must_use]
    pub fn get_concurrency(&self) -> Concurrency {
        self.concurrency
    }

    pub(crate) fn check(&self) -> Result<(), AttrsError> {
        if NICE.contains(&self.nice) {
            return Ok(());
        }
        Err(AttrsError::Nice { asked: self.nice })
    }
}

impl fmt::Display for Attrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Some(scope) => scope.fmt(f)?,
            None => f.write_str("default")?,
        }
        if self.strict {
            f.write_str(" strict")?;
        }
        if self.nice != 0 {
            write!(f, " nice {}", self.nice)?;
        }
        if !self.cpus.is_empty() {
            write!(f, " cpus {}", self.cpus)?;
        }
        if self.is_unmanaged() {
            f.write_str(" unmanaged")?;
        }
        Ok(())
    }
}

/// The kind of a workqueue.
///
/// ```
/// use inflight_workqueue::{Attrs, Kind, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("any").unbound(Attrs::new()).build()?;
/// assert_eq!(wq.kind(), Kind::Unbound(Attrs::new()));
/// assert_eq!(wq.kind().to_string(), "unbound default");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An item runs on the CPU that it is queued on. `max_active` counts for each CPU.
    Bound,
    /// An item runs in the group of its CPU. `max_active` counts for the whole queue.
    Unbound(Attrs),
    /// As unbound, but one item at a time, in the order in which they were queued.
    Ordered(Attrs),
    /// Items run one after the other on the CPU that they are queued on, and never sleep. A
    /// [`BhPoller`](crate::BhPoller) runs them, or a thread if there is none. There is no limit.
    Bh,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bound => f.write_str("bound"),
            Self::Bh => f.write_str("bh"),
            Self::Unbound(attrs) => write!(f, "unbound {attrs}"),
            Self::Ordered(attrs) => write!(f, "ordered {attrs}"),
        }
    }
}

/// The part of a queue's kind that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Bound,
    Bh,
    Unbound,
    Ordered,
}

impl Mode {
    pub(crate) fn with(self, attrs: Attrs) -> Kind {
        match self {
            Self::Bound => Kind::Bound,
            Self::Bh => Kind::Bh,
            Self::Unbound => Kind::Unbound(attrs),
            Self::Ordered => Kind::Ordered(attrs),
        }
    }

    pub(crate) fn is_bound(self) -> bool {
        matches!(self, Self::Bound | Self::Bh)
    }
}

impl Kind {
    pub(crate) fn mode(&self) -> Mode {
        match self {
            Self::Bound => Mode::Bound,
            Self::Bh => Mode::Bh,
            Self::Unbound(_) => Mode::Unbound,
            Self::Ordered(_) => Mode::Ordered,
        }
    }

    /// The defaults for a bound or BH queue, which does not use them.
    pub(crate) fn attrs(&self) -> Attrs {
        match self {
            Self::Bound | Self::Bh => Attrs::new(),
            Self::Unbound(attrs) | Self::Ordered(attrs) => attrs.clone(),
        }
    }
}
