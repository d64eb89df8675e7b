//! What kind of workqueue it is, and where its items may run.

use inflight_sync::Arc;
use inflight_topology::{CpuSet, Scope, Topology};

/// Where the items of an unbound workqueue run.
///
/// Queues with equal attributes share their pools.
///
/// ```
/// use inflight_topology::Scope;
/// use inflight_workqueue::Attrs;
///
/// let attrs = Attrs::new().scope(Scope::Numa).strict(true);
/// assert_ne!(attrs, Attrs::new());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attrs {
    scope: Scope,
    strict: bool,
}

impl Attrs {
    /// Workers for each last-level cache, free to leave it when the scheduler likes.
    ///
    /// ```
    /// use inflight_topology::Scope;
    /// use inflight_workqueue::Attrs;
    ///
    /// assert_eq!(Attrs::new(), Attrs::new().scope(Scope::Cache).strict(false));
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self {
            scope: Scope::Cache,
            strict: false,
        }
    }

    /// How wide the group of CPUs is that shares a pool. An item goes to the pool of the CPU it is
    /// queued on.
    ///
    /// ```
    /// let attrs = inflight_workqueue::Attrs::new().scope(inflight_topology::Scope::System);
    /// # let _ = attrs;
    /// ```
    #[must_use]
    pub const fn scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// Whether the workers are pinned to their group of CPUs. Strict queues keep their caches warm
    /// and leave other groups idle; see the affinity scopes of cmwq.
    ///
    /// ```
    /// let attrs = inflight_workqueue::Attrs::new().strict(true);
    /// # let _ = attrs;
    /// ```
    #[must_use]
    pub const fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    pub(crate) const fn get_scope(self) -> Scope {
        self.scope
    }

    pub(crate) const fn is_strict(self) -> bool {
        self.strict
    }
}

impl Default for Attrs {
    fn default() -> Self {
        Self::new()
    }
}

/// What kind of workqueue it is.
///
/// ```
/// use inflight_workqueue::{Attrs, Kind, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("any").unbound(Attrs::new()).build()?;
/// assert_eq!(wq.kind(), Kind::Unbound(Attrs::new()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An item runs on the CPU it is queued on, under concurrency management. `max_active` counts
    /// for each CPU.
    Bound,
    /// An item runs in the group of CPUs it is queued on. `max_active` counts for the whole queue.
    Unbound(Attrs),
    /// As unbound, one item at a time, in the order in which they were queued.
    Ordered(Attrs),
}

/// Which workers serve a pool. Queues whose places are equal share the pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) cpus: Cpus,
    /// Its workers have high priority.
    pub(crate) high: bool,
}

/// Where the workers of a pool run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cpus {
    /// On one CPU.
    One(usize),
    /// On some CPUs, pinned to them if `strict`.
    Pod { cpus: CpuSet, strict: bool },
}

impl Place {
    /// How many workers may run at once.
    pub(crate) fn target(&self) -> usize {
        match &self.cpus {
            Cpus::One(_) => 1,
            Cpus::Pod { cpus, .. } => cpus.len(),
        }
    }
}

/// Where the items of a queue can go: for each CPU one of a few places.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) places: Vec<Place>,
    /// Index into `places` by CPU number; `None` for numbers that are no usable CPU.
    by_cpu: Vec<Option<u32>>,
}

impl Layout {
    pub(crate) fn new(topology: &Topology, kind: Kind, high: bool) -> Arc<Self> {
        let (places, sets): (Vec<Cpus>, Vec<CpuSet>) = match kind {
            Kind::Bound => topology
                .cpus()
                .iter()
                .map(|cpu| (Cpus::One(cpu), CpuSet::from([cpu])))
                .unzip(),
            Kind::Unbound(Attrs { scope, strict }) | Kind::Ordered(Attrs { scope, strict }) => {
                let pods = topology.pods(scope).iter().map(|pod| pod.cpus().clone());
                let pods = pods.map(|cpus| {
                    (
                        Cpus::Pod {
                            cpus: cpus.clone(),
                            strict,
                        },
                        cpus,
                    )
                });
                pods.unzip()
            }
        };
        let places = places
            .into_iter()
            .map(|cpus| Place { cpus, high })
            .collect();
        let mut by_cpu = vec![None; topology.cpus().last().map_or(0, |last| last + 1)];
        for (index, set) in sets.iter().enumerate() {
            for cpu in set {
                by_cpu[cpu] = u32::try_from(index).ok();
            }
        }
        Arc::new(Self { places, by_cpu })
    }

    /// The place for an item queued on `cpu`. Any number will do: a CPU that is offline, or that
    /// this process may not use, has another one stand in.
    pub(crate) fn place_of(&self, cpu: usize) -> usize {
        match self.by_cpu.get(cpu).copied().flatten() {
            Some(index) => index as usize,
            None => cpu % self.places.len(),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_number_has_a_place() {
        let topology = Topology::synthetic("cache:2 core:2").unwrap();
        let bound = Layout::new(&topology, Kind::Bound, false);
        assert_eq!(bound.places[bound.place_of(3)].cpus, Cpus::One(3));
        assert!(bound.place_of(4_000) < 4, "an unknown CPU has a stand-in");
        let unbound = Layout::new(&topology, Kind::Unbound(Attrs::new()), true);
        assert_eq!((unbound.place_of(1), unbound.place_of(2)), (0, 1));
        assert_eq!(unbound.places[1].target(), 2);
    }
}
