//! When an idle pod takes waiting items of a busy one: locality without idle CPUs.
//!
//! Workers stay in their pod; batches may run elsewhere, once. The next item of the same submitter
//! goes to its own pod again, so no state is moved back and forth.
//!
//! Two decisions are pure functions of what a pool knows: which worker to wake for a new item, and
//! which pool a worker without work looks at. Both ask whether an item of one pool runs better in
//! the other, so a worker that is woken for an item finds it.

#[cfg(feature = "unstable-sim")]
use inflight_topology::Scope;
use inflight_topology::{CpuSet, Topology};
use std::cmp::Reverse;

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The memory node that has all of its CPUs.
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
    /// Threads other than workers that submit from its CPUs, and need them too.
    pub submitters: usize,
}

/// The costs and the gain of a move. The defaults are for a machine of one or two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// The cost of another cache and another wakeup, in ns.
    pub transfer: u64,
    /// What a move to another node has to gain, in ns. Effects that last longer than the item's run
    /// are not measured, so this is cautious.
    pub far_transfer: u64,
    /// How much longer an item takes on a core whose sibling is busy, in percent of its time.
    pub sibling_percent: u64,
    /// A pool whose waiting items take longer than this, in ns, may be helped.
    pub near: u64,
    /// The same from another node.
    pub far: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            transfer: 4_000,
            far_transfer: 40_000,
            sibling_percent: 40,
            near: 200_000,
            far: 600_000,
        }
    }
}

/// The worker to wake for a new item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeTarget {
    /// A worker of its own pod.
    Own,
    /// A worker of that pod, which will steal it.
    Other(usize),
    /// None: the running workers will take it.
    Nobody,
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
        let node = cpus.first().and_then(|cpu| topology.node_of(cpu));
        let is_one = cpus.iter().all(|cpu| topology.node_of(cpu) == node);
        Self {
            node: node.filter(|_| is_one),
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
        let pods = pods.map(|pod| Pod::new(topology, pod.cpus())).collect();
        Self { pods, costs }
    }

    /// *wake*: an item has been queued in pool `own`.
    #[must_use]
    pub fn wake_for(&self, own: usize, loads: &[Load]) -> WakeTarget {
        let mine = &loads[own];
        let mut others = self.others(own).filter(|to| loads[*to].waiting == 0);
        match others.find(|to| self.runs_better((own, mine), (*to, &loads[*to]))) {
            Some(to) => WakeTarget::Other(to),
            None if self.is_full(own, mine) => WakeTarget::Nobody,
            None => WakeTarget::Own,
        }
    }

    /// *steal*: a worker of `thief`, counted as awake, has found nothing in its own pool. Returns
    /// the pool that it should take a batch from, if any: the one with the most waiting items, of
    /// the same node if there is any.
    #[must_use]
    pub fn victim(&self, thief: usize, loads: &[Load]) -> Option<usize> {
        let without_me = Load {
            awake: loads[thief].awake.saturating_sub(1),
            ..loads[thief]
        };
        let longest = |near: bool| {
            let others = self.others(thief).filter(|from| {
                let theirs = &loads[*from];
                self.is_near(thief, *from) == near
                    && theirs.waiting > 0
                    && self.runs_better((*from, theirs), (thief, &without_me))
            });
            others.min_by_key(|from| Reverse(loads[*from].waiting))
        };
        longest(true).or_else(|| longest(false))
    }

    /// Whether an item that waits in pod `from` runs better by one more awake worker of `to`.
    fn runs_better(&self, (from, here): (usize, &Load), (to, there): (usize, &Load)) -> bool {
        let transfer = self.by_node(from, to, self.costs.transfer, self.costs.far_transfer);
        let whole_core = self.is_packed(from, here)
            && there.awake < self.cores_left(to, there)
            && self.sibling_loss(from, here) > transfer;
        let has_place =
            || there.awake < self.cpus_left(to, there) && there.submitters < self.cpus(to);
        let cpu = self.is_short_of_cpus(from, here) && has_place();
        let drain_ns = here.service.saturating_mul(here.waiting as u64) / self.cpus(from) as u64;
        let backlog = self.is_full(from, here)
            && !self.is_full(to, there)
            && drain_ns >= self.by_node(from, to, self.costs.near, self.costs.far);
        whole_core || cpu || backlog
    }

    /// The number of waiting entries from which a pool wants help, while the rest of its load stays
    /// the same. With fewer, it wakes its own workers, or a move does not pay.
    #[must_use]
    pub fn needs_help_from(&self, own: usize, mine: &Load) -> usize {
        if self.seeks_place(own, mine) {
            return 1;
        }
        if !self.is_full(own, mine) || mine.service == 0 {
            return usize::MAX;
        }
        let nearest = self.costs.near.min(self.costs.far);
        let from = nearest.saturating_mul(self.pods[own].cpus as u64);
        usize::try_from(from.div_ceil(mine.service).max(1)).unwrap_or(usize::MAX)
    }

    /// Whether an item would run better elsewhere than in its own pod, if there is a place.
    #[must_use]
    pub fn seeks_place(&self, own: usize, mine: &Load) -> bool {
        let sibling =
            self.is_packed(own, mine) && self.sibling_loss(own, mine) > self.costs.transfer;
        sibling || self.is_short_of_cpus(own, mine)
    }

    /// Whether its workers have all the whole cores. At least one must be awake: an item that
    /// leaves has no other guarantee to run than the worker woken elsewhere.
    fn is_packed(&self, pod: usize, load: &Load) -> bool {
        load.awake >= self.cores_left(pod, load).max(1)
    }

    /// Whether submitters need half of the pod's CPUs or more, and its workers have the rest.
    fn is_short_of_cpus(&self, pod: usize, load: &Load) -> bool {
        let taken = 2 * load.submitters >= self.pods[pod].cpus;
        taken && load.awake >= self.cpus_left(pod, load)
    }

    /// Whether a worker is awake for each of its CPUs.
    fn is_full(&self, pod: usize, load: &Load) -> bool {
        load.awake >= self.cpus(pod)
    }

    /// The number of CPUs of a pod.
    #[must_use]
    pub fn cpus(&self, pod: usize) -> usize {
        self.pods[pod].cpus
    }

    /// For how many workers there is a whole core each.
    fn cores_left(&self, pod: usize, load: &Load) -> usize {
        self.pods[pod].cores.saturating_sub(load.submitters)
    }

    /// For how many workers there is a CPU each.
    fn cpus_left(&self, pod: usize, load: &Load) -> usize {
        self.pods[pod].cpus.saturating_sub(load.submitters).max(1)
    }

    /// The time that an item loses beside a busy sibling, in ns.
    fn sibling_loss(&self, pod: usize, load: &Load) -> u64 {
        let pod = &self.pods[pod];
        if pod.cores == pod.cpus {
            return 0;
        }
        load.service.saturating_mul(self.costs.sibling_percent) / 100
    }

    /// Whether they are on the same node.
    #[must_use]
    pub fn is_near(&self, a: usize, b: usize) -> bool {
        self.pods[a].node == self.pods[b].node
    }

    /// The other pods, nearest first: the next ones of the node, then the rest.
    fn others(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        let all = self.pods.len();
        let around = move || (1..all).map(move |k| (from + k) % all);
        let near = around().filter(move |to| self.is_near(from, *to));
        near.chain(around().filter(move |to| !self.is_near(from, *to)))
    }

    /// `near` if both pods are of one node, else `far`.
    fn by_node(&self, a: usize, b: usize, near: u64, far: u64) -> u64 {
        if self.is_near(a, b) { near } else { far }
    }
}
