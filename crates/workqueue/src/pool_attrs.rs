//! What distinguishes pools, and the settings of all unbound queues.

use crate::attrs::{Attrs, HIGHPRI};
use inflight_topology::{CpuSet, Scope, Topology};

/// The settings of all unbound queues. Their lock is the first in the lock order.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) topology: Topology,
    /// The CPUs that unbound queues may use, if they have been set.
    pub(crate) unbound: Option<CpuSet>,
    pub(crate) default_scope: Scope,
    /// Active freezes. They have no effect once the system ends.
    pub(crate) freezes: usize,
    pub(crate) ended: bool,
}

impl Settings {
    pub(crate) fn new(topology: Topology, default_scope: Scope) -> Self {
        Self {
            topology,
            unbound: None,
            default_scope,
            freezes: 0,
            ended: false,
        }
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.freezes > 0 && !self.ended
    }

    /// The CPUs that unbound queues use; never empty. Isolated ones only if they were asked for.
    pub(crate) fn unbound_cpus(&self) -> CpuSet {
        let usable = self.topology.cpus();
        let asked = self.unbound.as_ref();
        let asked = asked.map(|asked| asked.intersection(self.topology.allowed()));
        asked.and_then(non_empty).unwrap_or_else(|| usable.clone())
    }

    pub(crate) fn effective(&self, attrs: &Attrs) -> CpuSet {
        let unbound = self.unbound_cpus();
        non_empty(unbound.intersection(attrs.get_cpumask())).unwrap_or(unbound)
    }

    pub(crate) fn scope(&self, attrs: &Attrs) -> Scope {
        attrs.get_scope().unwrap_or(self.default_scope)
    }
}

pub(crate) fn non_empty(set: CpuSet) -> Option<CpuSet> {
    (!set.is_empty()).then_some(set)
}

/// The attributes of a pool. Queues whose attributes give equal ones share the pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolAttrs {
    /// The CPU, for bound and BH queues.
    pub(crate) cpu: Option<usize>,
    /// The CPUs that it serves.
    pub(crate) cpus: CpuSet,
    /// The CPUs that its workers may use.
    pub(crate) allowed: CpuSet,
    /// For unbound queues: whether its workers are pinned to the group.
    pub(crate) strict: bool,
    pub(crate) nice: i32,
    /// For BH items: one at a time, by a poller or a thread.
    pub(crate) bh: bool,
}

impl PoolAttrs {
    /// For bound queues, or BH ones.
    pub(crate) fn of_cpu(cpu: usize, nice: i32, bh: bool) -> Self {
        Self {
            cpu: Some(cpu),
            cpus: [cpu].into(),
            allowed: [cpu].into(),
            strict: false,
            nice,
            bh,
        }
    }

    /// How many workers may run at once.
    pub(crate) fn target(&self) -> usize {
        self.cpus.len()
    }

    /// Whether other pools may help it: its CPUs are not all that its queues may use.
    pub(crate) fn may_have_siblings(&self) -> bool {
        self.cpu.is_none() && !self.strict && self.cpus != self.allowed
    }

    /// Whether they may take each other's items: the same queues on different CPUs.
    pub(crate) fn is_sibling_of(&self, other: &Self) -> bool {
        let both = self.may_have_siblings() && other.may_have_siblings();
        let same = self.nice == other.nice && self.allowed == other.allowed;
        both && same && self.cpus.is_disjoint(&other.cpus)
    }

    pub(crate) fn name(&self, id: usize) -> String {
        let high = if self.is_high() { " highpri" } else { "" };
        let bh = if self.bh { " bh" } else { "" };
        match self.cpu {
            Some(cpu) => format!("cpu {cpu}{bh}{high}"),
            None => format!("u{id}{high}"),
        }
    }

    pub(crate) fn is_high(&self) -> bool {
        self.nice == HIGHPRI
    }
}
