//! Limits what a caller asks for to what the machine has.

use crate::{CpuSet, Scope, Topology};

/// Masks, as concurrency-managed workqueues apply the attributes of an unbound queue.
impl Topology {
    /// The CPUs a thread of this process may be pinned to: those its control group (cpuset) allows
    /// and that were online. [`cpus`](Topology::cpus) lie within; they are fewer if the mask of the
    /// thread that made the topology was narrower, or if CPUs are [isolated](Topology::isolated).
    ///
    /// Where no control group is described, every online CPU is allowed.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::synthetic("core:4 isolated:3")?;
    /// assert_eq!(topo.cpus().to_string(), "0-2");
    /// assert_eq!(topo.allowed().to_string(), "0-3");
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn allowed(&self) -> &CpuSet {
        &self.model().allowed
    }

    /// The part of `requested` that can be used; if nothing of it can, or nothing is requested, all
    /// usable CPUs.
    ///
    /// So a request is only a wish: work must run somewhere, even after the last CPU of its mask
    /// has gone.
    ///
    /// ```
    /// use inflight_topology::{CpuSet, Topology};
    ///
    /// let topo = Topology::synthetic("core:4")?;
    /// assert_eq!(topo.effective_mask(&CpuSet::from([2, 3, 9])), CpuSet::from([2, 3]));
    /// assert_eq!(&topo.effective_mask(&CpuSet::from([9])), topo.cpus());
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn effective_mask(&self, requested: &CpuSet) -> CpuSet {
        non_empty(requested.intersection(self.cpus())).unwrap_or_else(|| self.cpus().clone())
    }

    /// Where work of the pod of `cpu` runs if only `requested` CPUs may be used: the part of the
    /// pod within the [effective mask](Topology::effective_mask), or the whole effective mask if
    /// the pod has no part in it or `cpu` is in no pod.
    ///
    /// ```
    /// use inflight_topology::{CpuSet, Scope, Topology};
    ///
    /// let topo = Topology::synthetic("cache:2 core:4")?; // caches 0-3 and 4-7
    /// let requested = CpuSet::from([2, 3]);
    /// assert_eq!(topo.pod_mask(Scope::Cache, 0, &requested).to_string(), "2-3");
    /// assert_eq!(topo.pod_mask(Scope::Smt, 3, &requested).to_string(), "3");
    /// assert_eq!(topo.pod_mask(Scope::Cache, 4, &requested).to_string(), "2-3"); // its own: none
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn pod_mask(&self, scope: Scope, cpu: usize, requested: &CpuSet) -> CpuSet {
        let effective = self.effective_mask(requested);
        self.pod_of(scope, cpu)
            .and_then(|pod| non_empty(pod.cpus().intersection(&effective)))
            .unwrap_or(effective)
    }

    /// How far memory node `to` is from node `from`, as the firmware says: 10 is a node's own
    /// memory, 20 costs about twice as much. `None` if the machine does not say.
    ///
    /// ```
    /// use inflight_topology::Topology;
    ///
    /// let topo = Topology::synthetic("numa:2 core:4")?;
    /// assert_eq!(topo.node_distance(0, 0), Some(10));
    /// assert_eq!(topo.node_distance(0, 1), Some(20));
    /// assert_eq!(topo.node_distance(0, 2), None);
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn node_distance(&self, from: usize, to: usize) -> Option<u32> {
        self.model().distances.get(&(from, to)).copied()
    }
}

fn non_empty(set: CpuSet) -> Option<CpuSet> {
    (!set.is_empty()).then_some(set)
}
