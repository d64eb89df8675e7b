//! From attributes and the machine to pools: which workers serve whom.

use crate::attrs::{Attrs, HIGHPRI, Mode};
use inflight_topology::{CpuSet, Scope, Topology};
use std::collections::HashMap;

/// What holds for all unbound queues of a system. Under the settings' lock, the first of all.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The machine as it is now.
    pub(crate) topology: Topology,
    /// The CPUs that unbound queues may use, if somebody has said so.
    pub(crate) unbound: Option<CpuSet>,
    pub(crate) default_scope: Scope,
    /// Freezes that hold. Not any more once the system ends.
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

    /// Whether freezable queues are held.
    pub(crate) fn is_frozen(&self) -> bool {
        self.freezes > 0 && !self.ended
    }

    /// The CPUs that unbound queues use: never none. Isolated ones only if somebody has asked for
    /// them.
    pub(crate) fn unbound_cpus(&self) -> CpuSet {
        let usable = self.topology.cpus();
        let asked = self.unbound.as_ref();
        let asked = asked.map(|asked| asked.intersection(self.topology.allowed()));
        asked.and_then(non_empty).unwrap_or_else(|| usable.clone())
    }

    /// The CPUs that a queue with such attributes uses.
    pub(crate) fn effective(&self, attrs: &Attrs) -> CpuSet {
        let unbound = self.unbound_cpus();
        non_empty(unbound.intersection(attrs.get_cpumask())).unwrap_or(unbound)
    }

    pub(crate) fn scope(&self, attrs: &Attrs) -> Scope {
        attrs.get_scope().unwrap_or(self.default_scope)
    }
}

fn non_empty(set: CpuSet) -> Option<CpuSet> {
    (!set.is_empty()).then_some(set)
}

/// Which workers serve a pool. Queues whose pools are equal share the pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolAttrs {
    pub(crate) cpus: Cpus,
    pub(crate) nice: i32,
    /// For BH items: one at a time, by a poller or a thread.
    pub(crate) bh: bool,
}

/// Where the workers of a pool run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cpus {
    One(usize),
    Pod {
        cpus: CpuSet,
        /// Pinned to the group.
        strict: bool,
        /// Where they may run at all: the group if `strict`.
        allowed: CpuSet,
    },
}

impl PoolAttrs {
    /// How many workers may run at once.
    pub(crate) fn target(&self) -> usize {
        match &self.cpus {
            Cpus::One(_) => 1,
            Cpus::Pod { cpus, .. } => cpus.len(),
        }
    }

    /// For bound and BH queues.
    pub(crate) fn is_of_one_cpu(&self) -> bool {
        matches!(self.cpus, Cpus::One(_))
    }

    /// Its workers and those of other pools may help each other: its CPUs are not all that its
    /// queues may use.
    pub(crate) fn may_have_siblings(&self) -> bool {
        match &self.cpus {
            Cpus::One(_) => false,
            Cpus::Pod {
                cpus,
                strict,
                allowed,
            } => !strict && cpus != allowed,
        }
    }

    /// Another pool whose workers may take items from here, and the other way round: other CPUs
    /// for the same queues.
    pub(crate) fn is_sibling_of(&self, other: &Self) -> bool {
        let same = self.nice == other.nice && self.may_have_siblings() && other.may_have_siblings();
        match (&self.cpus, &other.cpus) {
            (
                Cpus::Pod { cpus, allowed, .. },
                Cpus::Pod {
                    cpus: theirs,
                    allowed: others,
                    ..
                },
            ) => same && allowed == others && cpus.intersection(theirs).is_empty(),
            _ => false,
        }
    }

    pub(crate) fn is_strict(&self) -> bool {
        matches!(self.cpus, Cpus::Pod { strict: true, .. })
    }

    /// The CPUs that it serves.
    pub(crate) fn cpus(&self) -> CpuSet {
        match &self.cpus {
            Cpus::One(cpu) => [*cpu].into(),
            Cpus::Pod { cpus, .. } => cpus.clone(),
        }
    }

    /// The CPUs that its workers may use.
    pub(crate) fn allowed(&self) -> CpuSet {
        match &self.cpus {
            Cpus::One(cpu) => [*cpu].into(),
            Cpus::Pod { allowed, .. } => allowed.clone(),
        }
    }

    /// What people call it, given its number.
    pub(crate) fn name(&self, id: usize) -> String {
        let high = if self.is_high() { " highpri" } else { "" };
        let bh = if self.bh { " bh" } else { "" };
        match &self.cpus {
            Cpus::One(cpu) => format!("cpu {cpu}{bh}{high}"),
            Cpus::Pod { .. } => format!("u{id}{high}"),
        }
    }

    /// Its workers have the priority of highpri ones.
    pub(crate) fn is_high(&self) -> bool {
        self.nice == HIGHPRI
    }
}

/// Where the items of a queue can go: for each CPU one of a few pools.
#[derive(Debug, Default)]
pub(crate) struct PodMap {
    pub(crate) pools: Vec<PoolAttrs>,
    /// Index into `pools` by CPU number; `None` for numbers that no CPU has.
    by_cpu: Vec<Option<u32>>,
}

impl PodMap {
    pub(crate) fn new(settings: &Settings, mode: Mode, attrs: &Attrs, high: bool) -> Self {
        let nice = if high { HIGHPRI } else { attrs.get_nice() };
        let cpus_of: &dyn Fn(usize) -> Cpus = match mode {
            Mode::Bound | Mode::Bh => &Cpus::One,
            Mode::Unbound => &pods(settings, attrs),
            Mode::Ordered => &|_| all_cpus(settings, attrs),
        };
        let topology = &settings.topology;
        // Also for those that may come later.
        let cpus = topology.cpus().union(topology.possible());
        let bh = mode == Mode::Bh;
        let mut pools = Vec::new();
        let mut known = HashMap::new();
        let mut by_cpu = vec![None; cpus.last().map_or(0, |last| last + 1)];
        for cpu in &cpus {
            let cpus = cpus_of(cpu);
            let index = *known.entry(cpus.clone()).or_insert_with(|| {
                pools.push(PoolAttrs { cpus, nice, bh });
                pools.len() - 1
            });
            by_cpu[cpu] = u32::try_from(index).ok();
        }
        Self { pools, by_cpu }
    }

    /// The pool for an item queued on `cpu`. Any number will do: one that no CPU has stands for
    /// another one's.
    pub(crate) fn index_of(&self, cpu: usize) -> usize {
        match self.by_cpu.get(cpu).copied().flatten() {
            Some(index) => index as usize,
            None => cpu % self.pools.len(),
        }
    }

    /// The number of CPUs that are looked up without a detour.
    pub(crate) fn cpus(&self) -> usize {
        self.by_cpu.len()
    }
}

/// All that may be used, for a queue with one pwq.
fn all_cpus(settings: &Settings, attrs: &Attrs) -> Cpus {
    let effective = settings.effective(attrs);
    Cpus::Pod {
        cpus: effective.clone(),
        strict: attrs.is_strict(),
        allowed: effective,
    }
}

/// For each CPU what may be used of its pod, or all that may be used if that is nothing.
fn pods(settings: &Settings, attrs: &Attrs) -> impl Fn(usize) -> Cpus {
    let effective = settings.effective(attrs);
    let (scope, strict) = (settings.scope(attrs), attrs.is_strict());
    let topology = settings.topology.clone();
    move |cpu| {
        let pod = topology.pod_of(scope, cpu);
        let cpus = pod.and_then(|pod| non_empty(pod.cpus().intersection(&effective)));
        let cpus = cpus.unwrap_or_else(|| effective.clone());
        Cpus::Pod {
            allowed: if strict { &cpus } else { &effective }.clone(),
            cpus,
            strict,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
