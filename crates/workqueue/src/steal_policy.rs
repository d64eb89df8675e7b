//! When an idle pod takes the waiting items of a busy one: locality that wastes no CPU.
//!
//! Workers stay in their pod; batches may run elsewhere. A batch is taken at most once and run at
//! once; the next item of the same submitter goes to its own pod again. So no state is moved back
//! and forth.
//!
//! Two decisions, as pure functions of what a pool knows anyway: where a worker looks that finds
//! nothing in its own pool, in `worker_pool/steal.rs`, and whom to wake for a new item, in
//! `worker_pool/wake_sibling.rs`. Here is what they ask. Each rule of the one has its partner in
//! the other, so whoever is woken for an item finds it.

use crate::pool_attrs::node_of;
#[cfg(feature = "unstable-sim")]
use inflight_topology::Scope;
use inflight_topology::{CpuSet, Topology};

/// What a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its memory node.
    pub node: Option<usize>,
    /// Its CPUs.
    pub cpus: usize,
    /// Its cores: fewer than CPUs if siblings share them.
    pub cores: usize,
}

/// What is known of a pool at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Items that nobody has taken.
    pub waiting: usize,
    /// Workers that run or are on their way; blocked ones do not count.
    pub awake: usize,
    /// What an item takes, in ns.
    pub service: u64,
    /// What a worker takes from being woken to running, in ns.
    pub delay: u64,
    /// Threads, other than workers, that have submitted from its CPUs lately. They need them too.
    pub submitters: usize,
}

/// What moving costs and what it saves. The defaults are for a machine of one or two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Another cache and another wake, in ns.
    pub transfer: u64,
    /// How many times as dear a transfer to another node is, in tenths.
    pub far_tenths: u64,
    /// How much longer an item takes on a core whose sibling is busy, in percent of its time.
    pub sibling_percent: u64,
    /// A pool whose waiting items take longer than this, in ns, may be helped.
    pub near: u64,
    /// The same from another node.
    pub far: u64,
    /// Workers awake for each CPU, at most: the target of a pool.
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
    /// Its pod has only siblings of busy CPUs left, another one has whole cores.
    Sibling,
    /// Submitters need the CPUs of its pod.
    Submitters,
    /// Much waits in its pod.
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

    /// Its workers have all the whole cores. An item that leaves is run elsewhere instead of here:
    /// one must be awake, or the item would have no other promise than who is woken there.
    pub(crate) fn is_packed(&self, pod: usize, load: &Load) -> bool {
        load.awake >= self.cores_left(pod, load).max(1)
    }

    /// Half of the pod's CPUs or more are needed by those who submit there, and its workers have
    /// the rest.
    pub(crate) fn is_short_of_cpus(&self, pod: usize, load: &Load) -> bool {
        let taken = 2 * load.submitters >= self.pods[pod].cpus;
        taken && load.awake >= self.cpus_left(pod, load)
    }

    /// All workers that it may have are awake.
    pub(crate) fn is_full(&self, pod: usize, load: &Load) -> bool {
        load.awake >= self.cap(pod)
    }

    /// How many workers of a pod may be awake.
    #[must_use]
    pub fn cap(&self, pod: usize) -> usize {
        self.pods[pod].cpus * self.costs.lanes
    }

    /// Workers for which there is a whole core each.
    pub(crate) fn cores_left(&self, pod: usize, load: &Load) -> usize {
        self.pods[pod].cores.saturating_sub(load.submitters)
    }

    /// Workers for which there is a CPU each.
    pub(crate) fn cpus_left(&self, pod: usize, load: &Load) -> usize {
        self.pods[pod].cpus.saturating_sub(load.submitters).max(1)
    }

    pub(crate) fn has_place(&self, pod: usize, load: &Load) -> bool {
        load.awake < self.cpus_left(pod, load) && load.submitters < self.pods[pod].cpus
    }

    /// What is lost, in ns, when an item runs beside a busy sibling.
    pub(crate) fn sibling_loss(&self, pod: usize, load: &Load) -> u64 {
        let pod = &self.pods[pod];
        if pod.cores == pod.cpus {
            return 0;
        }
        load.service.saturating_mul(self.costs.sibling_percent) / 100
    }

    /// How long the pod's CPUs need for what waits, in ns.
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
        // What is remote for longer than the item itself runs is not seen here: be careful.
        loss > 4 * transfer * self.costs.far_tenths / 10
    }

    pub(crate) fn threshold(&self, from: usize, to: usize) -> u64 {
        if self.is_near(from, to) {
            self.costs.near
        } else {
            self.costs.far
        }
    }

    /// Its workers start soon enough after a wake to be of use.
    pub(crate) fn is_prompt(&self, load: &Load) -> bool {
        load.delay <= self.costs.near.max(load.service)
    }
}
