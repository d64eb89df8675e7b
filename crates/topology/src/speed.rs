//! The speed of CPUs, relative to each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::{CpuSet, Topology};

/// A class of equally fast CPUs: the greater, the faster.
///
/// Machines with unequal cores (big and little, performance and efficiency) describe how the cores
/// compare; a class is a rank in that order. Ordinary machines have one class. Classes of different
/// topologies do not compare.
///
/// Sharing a cache and being as fast are separate: on a small machine all cores may share one cache
/// and still differ.
///
/// ```
/// use inflight_topology::Topology;
///
/// let topo = Topology::synthetic("core:8 slow:4-7")?;
/// assert!(topo.shares_cache(0, 4));
/// assert!(topo.speed_of(0) > topo.speed_of(4));
/// assert_eq!(topo.speed_of(0).map(|class| class.rank()), Some(1));
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpeedClass(u32);

impl SpeedClass {
    /// Returns the position of the class among those of its topology, from 0 for the slowest.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::synthetic("core:4")?;
    /// assert_eq!(topo.speed_of(3).map(|class| class.rank()), Some(0));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn rank(self) -> usize {
        self.0 as usize
    }
}

impl Topology {
    /// Returns the speed class of a CPU; known of the same CPUs as [`node_of`](Topology::node_of).
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::synthetic("core:4 fast:0-1")?;
    /// assert_eq!(topo.speed_of(0), topo.speed_of(1));
    /// assert!(topo.speed_of(1) > topo.speed_of(2));
    /// assert_eq!(topo.speed_of(4), None);
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn speed_of(&self, cpu: usize) -> Option<SpeedClass> {
        self.model().speeds.of(cpu)
    }

    /// Returns the CPUs of each speed class, from the slowest class to the fastest: all whose speed
    /// is [known](Topology::speed_of), usable or not.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::synthetic("core:4 fast:0-1")?;
    /// let classes: Vec<String> = topo.speed_classes().iter().map(|c| c.to_string()).collect();
    /// assert_eq!(classes, ["2-3", "0-1"]);
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn speed_classes(&self) -> &[CpuSet] {
        &self.model().speeds.classes
    }
}

/// The classes, and the way from a CPU to its class.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Speeds {
    /// From the slowest; no set is empty.
    classes: Vec<CpuSet>,
    /// By CPU id; `None` for ids that are no CPU of the topology.
    class_of: Vec<Option<SpeedClass>>,
}

impl Speeds {
    /// Ranks what is said about each CPU, in whatever unit.
    pub(crate) fn by_capacity(capacities: &BTreeMap<usize, u32>) -> Self {
        let distinct: BTreeSet<u32> = capacities.values().copied().collect();
        let rank: BTreeMap<u32, u32> = distinct.into_iter().zip(0..).collect();
        let mut classes = vec![CpuSet::new(); rank.len()];
        let end = capacities.keys().last().map_or(0, |last| last + 1);
        let mut class_of = vec![None; end];
        for (&cpu, capacity) in capacities {
            let class = SpeedClass(rank[capacity]);
            classes[class.rank()].insert(cpu);
            class_of[cpu] = Some(class);
        }
        Self { classes, class_of }
    }

    fn of(&self, cpu: usize) -> Option<SpeedClass> {
        self.class_of.get(cpu).copied().flatten()
    }
}
