//! When an idle pod takes waiting items of a busy one: locality without idle CPUs.
//!
//! Workers stay in their pod; batches may run elsewhere. A batch is stolen at most once and runs at
//! once; the next item of the same submitter goes to its own pod again. So no state is moved back
//! and forth.
//!
//! Two decisions are pure functions of what a pool knows. `worker_pool/steal.rs` decides which pool
//! a worker without work looks at. `worker_pool/wake_sibling.rs` decides which worker to wake for a
//! new item. This file has what both need. Each rule of the one has its counterpart in the other,
//! so a worker that is woken for an item finds it.

use crate::pool_attrs::node_of;
#[cfg(feature = "unstable-sim")]
use inflight_topology::Scope;
use inflight_topology::{CpuSet, Topology};

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its memory node.
    pub node: Option<usize>,
    /// Its CPUs.
    pub cpus: usize,
    /// Its cores: fewer than its CPUs if siblings share them.
    pub cores: usize,
}

/// The load of a pool at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Items that no worker has taken.
    pub waiting: usize,
    /// Workers that run or are being woken; not blocked ones.
    pub awake: usize,
    /// The time that an item takes, in ns.
    pub service: u64,
    /// Threads, other than workers, that have recently submitted from its CPUs. They need these
    /// CPUs too.
    pub submitters: usize,
}

/// The costs and the gain of a move. The defaults are for a machine of one or two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The cost of another cache and another wakeup, in ns.
    pub transfer: u64,
    /// How many times as expensive a transfer to another node is, in tenths.
    pub far_tenths: u64,
    /// How much longer an item takes on a core whose sibling is busy, in percent of its time.
    pub sibling_percent: u64,
    /// A pool whose waiting items take longer than this, in ns, may be helped.
    pub near: u64,
    /// The same from another node.
    pub far: u64,
    /// Awake workers for each CPU, at most: the target of a pool.
    pub lanes: usize,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            transfer: 4_000,
            far_tenths: 25,
            sibling_percent: 40,
            near: 200_000,
            far: 600_000,
            lanes: 1,
        }
    }
}

/// Why an item may leave its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Its pod has only siblings of busy CPUs left, and another one has whole cores.
    Sibling,
    /// Submitters need the CPUs of its pod.
    Submitters,
    /// Many items wait in its pod.
    Backlog,
}

/// The pods of a scope.
#[derive(Clone, Debug)]
pub struct StealPolicy {
    pub(crate) pods: Vec<Pod>,
    pub(crate) costs: Costs,
}

impl Pod {
    /// These CPUs of this machine.
    pub(crate) fn new(topology: &Topology, cpus: &CpuSet) -> Self {
        let smt = inflight_topology::Scope::Smt;
        let lead = |cpu| topology.pod_of(smt, cpu)?.cpus().first();
        let cores: CpuSet = cpus.iter().filter_map(lead).collect();
        Self {
            node: node_of(topology, cpus),
            cpus: cpus.len(),
            cores: cores.len().max(1),
        }
    }
}

impl StealPolicy {
    /// The pods of a scope of this machine.
    #[cfg(feature = "unstable-sim")]
    #[must_use]
    pub fn new(topology: &Topology, scope: Scope, costs: Costs) -> Self {
        let pods = topology.pods(scope).iter();
        Self::of(
            pods.map(|pod| Pod::new(topology, pod.cpus())).collect(),
            costs,
        )
    }

    /// These pods.
    pub(crate) fn of(pods: Vec<Pod>, costs: Costs) -> Self {
        Self { pods, costs }
    }

    /// Whether its workers have all the whole cores. At least one must be awake: an item that
    /// leaves has no other guarantee to run than the worker woken elsewhere.
    pub(crate) fn is_packed(&self, pod: usize, load: &Load) -> bool {
        load.awake >= self.cores_left(pod, load).max(1)
    }

    /// Whether submitters need half of the pod's CPUs or more, and its workers have the rest.
    pub(crate) fn is_short_of_cpus(&self, pod: usize, load: &Load) -> bool {
        let taken = 2 * load.submitters >= self.pods[pod].cpus;
        taken && load.awake >= self.cpus_left(pod, load)
    }

    /// Whether all workers that it may have are awake.
    pub(crate) fn is_full(&self, pod: usize, load: &Load) -> bool {
        load.awake >= self.cap(pod)
    }

    /// How many workers of a pod may be awake.
    #[must_use]
    pub fn cap(&self, pod: usize) -> usize {
        self.pods[pod].cpus * self.costs.lanes
    }

    /// For how many workers there is a whole core each.
    pub(crate) fn cores_left(&self, pod: usize, load: &Load) -> usize {
        self.pods[pod].cores.saturating_sub(load.submitters)
    }

    /// For how many workers there is a CPU each.
    pub(crate) fn cpus_left(&self, pod: usize, load: &Load) -> usize {
        self.pods[pod].cpus.saturating_sub(load.submitters).max(1)
    }

    pub(crate) fn has_place(&self, pod: usize, load: &Load) -> bool {
        load.awake < self.cpus_left(pod, load) && load.submitters < self.pods[pod].cpus
    }

    /// The time that an item loses beside a busy sibling, in ns.
    pub(crate) fn sibling_loss(&self, pod: usize, load: &Load) -> u64 {
        let pod = &self.pods[pod];
        if pod.cores == pod.cpus {
            return 0;
        }
        load.service.saturating_mul(self.costs.sibling_percent) / 100
    }

    /// How long the pod's CPUs need for the waiting items, in ns.
    pub(crate) fn drain_ns(&self, pod: usize, load: &Load) -> u64 {
        load.service.saturating_mul(load.waiting as u64) / self.pods[pod].cpus as u64
    }

    /// Whether they are on the same node.
    #[must_use]
    pub fn is_near(&self, a: usize, b: usize) -> bool {
        self.pods[a].node == self.pods[b].node
    }

    /// The other pods, nearest first: the next ones of the node, then the rest.
    pub(crate) fn others(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        let all = self.pods.len();
        let around = move || (1..all).map(move |k| (from + k) % all);
        let near = around().filter(move |to| self.is_near(from, *to));
        near.chain(around().filter(move |to| !self.is_near(from, *to)))
    }

    /// Whether a whole core in `to` is worth a move.
    pub(crate) fn pays(&self, loss: u64, from: usize, to: usize) -> bool {
        let transfer = self.costs.transfer;
        if self.is_near(from, to) {
            return loss > transfer;
        }
        // Effects that last longer than the item's run are not measured here, so this is cautious.
        loss > 4 * transfer * self.costs.far_tenths / 10
    }

    pub(crate) fn threshold(&self, from: usize, to: usize) -> u64 {
        if self.is_near(from, to) {
            self.costs.near
        } else {
            self.costs.far
        }
    }
}
