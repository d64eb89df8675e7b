//! Affinity as a hint for threads that work with one shard.

use super::Reach;
use crate::{CpuSet, Scope, Topology};

/// Where a thread is kept that registers with a shard. Applied once, not for each operation: a
/// forced move costs tens of microseconds, even a change of the mask alone about one.
///
/// ```
/// use inflight_topology::{CpuSet, Topology, wake::{PinPolicy, Reach}};
///
/// let topo = Topology::synthetic("cache:2 core:2")?;
/// let cpus = PinPolicy::CacheOfShard.cpus(1, 0, Reach::SameCache, &topo);
/// assert_eq!(cpus, Some(&CpuSet::from([0, 1])));
/// // The shard is in another cache: not without being asked.
/// assert_eq!(PinPolicy::CacheOfShard.cpus(1, 2, Reach::SameCache, &topo), None);
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PinPolicy {
    /// Nowhere in particular.
    #[default]
    None,
    /// On the CPUs of the last-level cache of its shard.
    CacheOfShard,
    /// On the CPU of its shard.
    CpuOfShard,
}

impl PinPolicy {
    /// All of them.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::PinPolicy::ALL.len(), 3);
    /// ```
    pub const ALL: [Self; 3] = [Self::None, Self::CacheOfShard, Self::CpuOfShard];

    /// The CPUs to pin a thread to that now runs on CPU `current` and works with the shard of CPU
    /// `shard`; `None` to leave it alone: because that is the policy, the shard's CPU is unknown,
    /// or it is out of `reach`.
    ///
    /// ```
    /// use inflight_topology::{CpuSet, Topology, wake::{PinPolicy, Reach}};
    ///
    /// let topo = Topology::synthetic("cache:2 core:2")?;
    /// let cpus = PinPolicy::CpuOfShard.cpus(1, 3, Reach::Anywhere, &topo);
    /// assert_eq!(cpus, Some(&CpuSet::from([3])));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn cpus(
        self,
        current: usize,
        shard: usize,
        reach: Reach,
        topology: &Topology,
    ) -> Option<&CpuSet> {
        let scope = match self {
            Self::None => return None,
            Self::CacheOfShard => Scope::Cache,
            Self::CpuOfShard => Scope::Cpu,
        };
        let pod = topology.pod_of(scope, shard)?;
        reach.allows(current, shard, topology).then(|| pod.cpus())
    }
}
