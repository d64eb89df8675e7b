//! Pods: the groups of CPUs of one scope.

use std::collections::BTreeMap;

use crate::CpuSet;

/// A group of CPUs of one [`Scope`](crate::Scope).
///
/// Each CPU of a topology is in exactly one pod of a scope.
///
/// ```
/// use inflight_topology::{Scope, Topology};
///
/// let topo = Topology::synthetic("numa:2 core:2 smt:2")?;
/// let pod = topo.pod_of(Scope::Smt, 7).expect("CPU 7 exists");
/// assert_eq!((pod.id(), pod.node(), pod.cpus().to_string()), (3, Some(1), "3,7".to_owned()));
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    id: usize,
    cpus: CpuSet,
    node: Option<usize>,
}

impl Pod {
    /// Returns the position of this pod among the pods of its scope, from 0. Pods are numbered by
    /// their lowest CPU.
    ///
    /// ```
    /// use inflight_topology::{Scope, Topology};
    ///
    /// let topo = Topology::synthetic("cache:3 core:2")?;
    /// let ids: Vec<usize> = topo.pods(Scope::Cache).iter().map(|pod| pod.id()).collect();
    /// assert_eq!(ids, [0, 1, 2]);
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> usize {
        self.id
    }

    /// Returns the CPUs of this pod; never empty.
    ///
    /// ```
    /// use inflight_topology::{CpuSet, Scope, Topology};
    ///
    /// let topo = Topology::synthetic("core:4")?;
    /// assert_eq!(topo.pods(Scope::System)[0].cpus(), &CpuSet::from([0, 1, 2, 3]));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Returns the memory node of this pod: that of its highest CPU. The pod of
    /// [`Scope::System`](crate::Scope::System) belongs to no node.
    ///
    /// ```
    /// use inflight_topology::{Scope, Topology};
    ///
    /// let topo = Topology::synthetic("numa:2 core:4")?;
    /// assert_eq!(topo.pods(Scope::Cache)[1].node(), Some(1));
    /// assert_eq!(topo.pods(Scope::System)[0].node(), None);
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn node(&self) -> Option<usize> {
        self.node
    }
}

/// The pods of one scope, and the way from a CPU to its pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pods {
    pods: Vec<Pod>,
    /// By CPU id; [`NO_POD`] for ids that are no CPU of the topology. A table, because this is
    /// asked for every completion.
    pod_of: Vec<u32>,
}

const NO_POD: u32 = u32::MAX;

impl Pods {
    /// Splits `cpus` into pods: CPUs with equal keys share one. CPUs are taken in ascending order;
    /// a CPU whose key has not been met opens the next pod.
    pub(crate) fn by_key<K: Ord>(
        cpus: &CpuSet,
        key: impl Fn(usize) -> K,
        node: impl Fn(usize) -> Option<usize>,
    ) -> Self {
        let mut pods: Vec<Pod> = Vec::new();
        let mut known: BTreeMap<K, usize> = BTreeMap::new();
        let mut pod_of = vec![NO_POD; cpus.last().map_or(0, |last| last + 1)];
        for cpu in cpus {
            let id = *known.entry(key(cpu)).or_insert(pods.len());
            if id == pods.len() {
                pods.push(Pod {
                    id,
                    cpus: CpuSet::new(),
                    node: None,
                });
            }
            pods[id].cpus.insert(cpu);
            // In ascending order, so the highest CPU decides.
            pods[id].node = node(cpu);
            pod_of[cpu] = u32::try_from(id).expect("a CPU id is below 2^16");
        }
        Self { pods, pod_of }
    }

    pub(crate) fn all(&self) -> &[Pod] {
        &self.pods
    }

    pub(crate) fn of(&self, cpu: usize) -> Option<&Pod> {
        // NO_POD is beyond the end of `pods`, so it finds nothing.
        self.pods.get(*self.pod_of.get(cpu)? as usize)
    }
}
