//! From attributes and the machine to places: which workers serve whom.

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

/// Which workers serve a pool. Queues whose places are equal share the pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) cpus: Cpus,
    /// The priority of its workers.
    pub(crate) nice: i32,
    /// For BH items: one at a time, by a poller or a thread.
    pub(crate) bh: bool,
}

/// Where the workers of a pool run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cpus {
    /// On one CPU.
    One(usize),
    /// On the CPUs of a group.
    Pod {
        cpus: CpuSet,
        /// Pinned to the group.
        strict: bool,
        /// Where they may run at all: the group if `strict`.
        allowed: CpuSet,
    },
}

impl Place {
    /// How many workers may run at once.
    pub(crate) fn target(&self) -> usize {
        match &self.cpus {
            Cpus::One(_) => 1,
            Cpus::Pod { cpus, .. } => cpus.len(),
        }
    }

    /// Its workers and those of other places may help each other: its CPUs are not all that its
    /// queues may use.
    pub(crate) fn may_have_peers(&self) -> bool {
        match &self.cpus {
            Cpus::One(_) => false,
            Cpus::Pod {
                cpus,
                strict,
                allowed,
            } => !strict && cpus != allowed,
        }
    }

    /// Another place whose workers may take items from here, and the other way round: other CPUs
    /// for the same queues.
    pub(crate) fn is_peer_of(&self, other: &Self) -> bool {
        let same = self.nice == other.nice && self.may_have_peers() && other.may_have_peers();
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

    /// Its workers have the priority of highpri ones.
    pub(crate) fn is_high(&self) -> bool {
        self.nice == HIGHPRI
    }
}

/// Where the items of a queue, or of one of its gates, can go: for each CPU one of a few places.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) places: Vec<Place>,
    /// Index into `places` by CPU number; `None` for numbers that no CPU has.
    by_cpu: Vec<Option<u32>>,
    /// A caller's own thread may stand in for a worker.
    pub(crate) lets_callers_run: bool,
}

impl Layout {
    pub(crate) fn new(settings: &Settings, mode: Mode, attrs: &Attrs, high: bool) -> Self {
        let nice = if high { HIGHPRI } else { attrs.get_nice() };
        let place_of: &dyn Fn(usize) -> Cpus = match mode {
            Mode::Bound | Mode::Bh => &Cpus::One,
            Mode::Unbound | Mode::Ordered => &pods(settings, attrs),
        };
        let topology = &settings.topology;
        // Also for those that may come later.
        let cpus = topology.cpus().union(topology.possible());
        Self {
            lets_callers_run: !mode.is_bound() && !attrs.is_strict() && nice == 0,
            ..Self::of(&cpus, place_of, nice, mode == Mode::Bh)
        }
    }

    /// A place for each gate of such a queue: for each CPU, but of an unbound queue only for those
    /// that can be used.
    pub(crate) fn by_cpu(settings: &Settings, mode: Mode) -> Self {
        if mode.is_bound() {
            return Self::new(settings, mode, &Attrs::new(), false);
        }
        Self::of(settings.topology.cpus(), &Cpus::One, 0, false)
    }

    fn of(cpus: &CpuSet, place_of: &dyn Fn(usize) -> Cpus, nice: i32, bh: bool) -> Self {
        let mut places = Vec::new();
        let mut known = HashMap::new();
        let mut by_cpu = vec![None; cpus.last().map_or(0, |last| last + 1)];
        for cpu in cpus {
            let cpus = place_of(cpu);
            let index = *known.entry(cpus.clone()).or_insert_with(|| {
                places.push(Place { cpus, nice, bh });
                places.len() - 1
            });
            by_cpu[cpu] = u32::try_from(index).ok();
        }
        Self {
            places,
            by_cpu,
            lets_callers_run: false,
        }
    }

    /// Only that place of them.
    pub(crate) fn only(&self, place: usize) -> Self {
        Self {
            places: vec![self.places[place].clone()],
            by_cpu: Vec::new(),
            lets_callers_run: self.lets_callers_run,
        }
    }

    /// The place for an item queued on `cpu`. Any number will do: one that no CPU has stands for
    /// another one's.
    pub(crate) fn place_of(&self, cpu: usize) -> usize {
        match self.by_cpu.get(cpu).copied().flatten() {
            Some(index) => index as usize,
            None => cpu % self.places.len(),
        }
    }

    /// The CPUs whose items go to that place.
    pub(crate) fn served_by(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        let cpus = self.by_cpu.iter().enumerate();
        cpus.filter(move |(_, at)| at.is_some_and(|at| at as usize == place))
            .map(|(cpu, _)| cpu)
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
