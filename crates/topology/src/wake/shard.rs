//! Shards: one per pod of a scope, each with a worker and its load.

use crate::{Scope, Topology};

/// What a worker of a shard has to do: kept in one atomic, so that both numbers are of one moment.
///
/// ```
/// use inflight_topology::wake::ShardLoad;
///
/// let load = ShardLoad::new(3, 1);
/// assert_eq!(ShardLoad::from_bits(load.to_bits()), load);
/// assert_eq!((load.queued(), load.active()), (3, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShardLoad {
    queued: u32,
    active: u32,
}

impl ShardLoad {
    /// Items that wait and items that run.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::ShardLoad::new(0, 1).active(), 1);
    /// ```
    #[must_use]
    pub const fn new(queued: u32, active: u32) -> Self {
        Self { queued, active }
    }

    /// Both numbers in one word.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::ShardLoad::new(1, 2).to_bits(), (1 << 32) + 2);
    /// ```
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.queued as u64) << 32 | self.active as u64
    }

    /// From one word; every word is a load.
    ///
    /// ```
    /// use inflight_topology::wake::ShardLoad;
    ///
    /// assert_eq!(ShardLoad::from_bits((1 << 32) + 2), ShardLoad::new(1, 2));
    /// ```
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self::new((bits >> 32) as u32, bits as u32)
    }

    /// Items that wait.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::ShardLoad::new(5, 1).queued(), 5);
    /// ```
    #[must_use]
    pub const fn queued(self) -> u32 {
        self.queued
    }

    /// Items that run.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::ShardLoad::new(5, 1).active(), 1);
    /// ```
    #[must_use]
    pub const fn active(self) -> u32 {
        self.active
    }

    /// Whether the worker sleeps after the item it runs: one runs, no other, and none waits.
    ///
    /// ```
    /// use inflight_topology::wake::ShardLoad;
    ///
    /// assert!(ShardLoad::new(0, 1).sleeps_next());
    /// assert!(!ShardLoad::new(1, 1).sleeps_next());
    /// assert!(!ShardLoad::new(0, 2).sleeps_next());
    /// assert!(!ShardLoad::new(0, 0).sleeps_next()); // nothing runs, so this is no worker's word
    /// ```
    #[must_use]
    pub const fn sleeps_next(self) -> bool {
        self.queued == 0 && self.active == 1
    }
}

/// Who wakes the thread.
///
/// ```
/// use inflight_topology::wake::{ShardLoad, WakeSource};
///
/// let source = WakeSource::BoundWorker(ShardLoad::new(0, 1));
/// assert_ne!(source, WakeSource::Thread);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WakeSource {
    /// An interrupt, or what stands for one: the CPU it came to may be idle.
    Interrupt,
    /// A thread about which nothing is known; it may go on running for long.
    Thread,
    /// The worker bound to its CPU, from within an item, as the item's last act; with the load of
    /// its shard at that moment.
    BoundWorker(ShardLoad),
}

/// The shard of a CPU, where every pod of `scope` is one: the number of its pod, and for numbers
/// that name no CPU of the topology some shard, always the same.
///
/// For work that may start on any shard; the hint costs nearness when it is wrong, never
/// correctness. Completions of unknown submitters run where they are seen instead.
///
/// ```
/// use inflight_topology::{Scope, Topology, wake::shard_of};
///
/// let topo = Topology::synthetic("cache:2 core:4")?;
/// assert_eq!(shard_of(&topo, Scope::Cache, 6), 1);
/// assert!(shard_of(&topo, Scope::Cache, usize::MAX) < 2);
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[must_use]
pub fn shard_of(topology: &Topology, scope: Scope, cpu: usize) -> usize {
    topology
        .pod_of(scope, cpu)
        .map_or_else(|| cpu % topology.pods(scope).len().max(1), crate::Pod::id)
}
