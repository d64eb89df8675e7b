//! The front ends of an unbound queue: a gate for each CPU, and one limit over all of them.
//!
//! The gate of a front end counts what passes; what is active and what waits is the limit's.

use super::{Promoted, Shared};
use crate::attrs::Attrs;
use crate::layout::{Cpus, Layout, Place, Settings};
use crate::limits::{FrontEnd, Full, Share, Slots, Waits};
use crate::pool::{Deeds, Entry};
use crate::trace::{self, TraceStep};
use inflight_sync::Arc;
use inflight_topology::Topology;

/// How many items of a queue may be active at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) max_active: usize,
    pub(crate) share: Share,
    /// What each node is sure of, if that was said.
    pub(crate) min_active: Option<usize>,
}

/// One for each CPU.
#[derive(Debug)]
pub(super) struct Fronts {
    pub(super) slots: Slots<Entry>,
    /// The memory nodes there were when the queue was made, by their numbers.
    nodes: Vec<usize>,
}

/// What has become of a newcomer.
pub(super) enum Entered {
    /// It goes to its pool.
    Active(Entry),
    /// It waits in its gate.
    Inactive,
    /// It is to go on with [`Fronts::admit_slowly`].
    Full(Entry, Full),
}

/// Items that have become active after waiting, and what is left to do for them outside all locks.
#[derive(Default)]
#[must_use]
pub(super) struct Started {
    pub(super) deeds: Deeds,
    /// If somebody wants to know: names, because a handle might outlive the item's end.
    traced: Vec<String>,
}

impl Waits for Entry {
    fn waits_at(&self, ticket: u64) {
        self.work.set_gate(self.gate);
        self.work.set_ticket(Some(ticket));
    }
}

impl Fronts {
    pub(super) fn new(settings: &Settings, attrs: &Attrs, limit: Limit, frozen: bool) -> Self {
        let nodes = settings.topology.nodes().to_vec();
        let cpus = by_node(&nodes, settings, attrs);
        let slots = Slots::new(limit.share, limit.max_active, &cpus);
        let nobody = &mut |_, _| unreachable!("nothing waits yet");
        if let Some(min_active) = limit.min_active {
            slots.set_min_active(min_active, nobody);
        }
        slots.set_frozen(frozen, nobody);
        Self { slots, nodes }
    }

    /// By gate, which are the places of `by_cpu`: the front end that leads where `layout` does.
    pub(super) fn leading(
        &self,
        topology: &Topology,
        layout: &Layout,
        by_cpu: &Layout,
    ) -> Vec<FrontEnd> {
        let node = |place: &Place| {
            let node = node_of(topology, &place.cpus)?;
            self.nodes.iter().position(|known| *known == node)
        };
        let nodes: Vec<_> = layout.places.iter().map(node).collect();
        let gates = 0..by_cpu.places.len();
        let place = |gate| layout.place_of(super::cpu_of(by_cpu, gate));
        gates
            .map(|gate| self.slots.front(gate, nodes[place(gate)]))
            .collect()
    }

    /// How many CPUs of each node the queue may use with such attributes and settings.
    pub(super) fn cpus_by_node(&self, settings: &Settings, attrs: &Attrs) -> Vec<usize> {
        by_node(&self.nodes, settings, attrs)
    }

    /// It may use so many CPUs of each node from now on.
    pub(super) fn set_cpus(&self, cpus: &[usize]) -> Started {
        let mut started = Started::default();
        let each = &mut |_, entry| started.push(entry);
        self.slots.set_cpus(cpus, each);
        started
    }

    /// A, J, B.
    pub(super) fn admit_slowly(&self, entry: Entry, why: Full, started: &mut Started) {
        let started = &mut |_, entry| started.push(entry);
        self.slots.admit_slowly(entry.gate, entry, why, started);
    }

    /// J, B for those of a gate that come behind others.
    pub(super) fn join_all(
        &self,
        front: FrontEnd,
        entries: impl Iterator<Item = Entry>,
        started: &mut Started,
    ) {
        let started = &mut |_, entry| started.push(entry);
        self.slots.join_all(front, entries, started);
    }

    /// R to R6: so many active items of the front end have ended, and others have their slots.
    pub(super) fn leave(&self, front: FrontEnd, items: usize) -> Started {
        let mut started = Started::default();
        let each = &mut |_, entry| started.push(entry);
        self.slots.leave_many(front, items, each);
        started
    }

    /// Of so many newcomers at each front end: how many would be active, and how many would wait.
    pub(super) fn room_for(
        &self,
        newcomers: impl Iterator<Item = (FrontEnd, usize)>,
    ) -> (usize, usize) {
        let places = self.places_for(newcomers);
        places.fold((0, 0), |(active, inactive), (_, here, waiting)| {
            (active + here, inactive + waiting)
        })
    }

    /// The same by front end.
    pub(super) fn places_for(
        &self,
        newcomers: impl Iterator<Item = (FrontEnd, usize)>,
    ) -> impl Iterator<Item = (FrontEnd, usize, usize)> {
        let mut given = vec![0; self.slots.sets()];
        newcomers
            .filter(|(_, n)| *n > 0)
            .map(move |(front, newcomers)| {
                let given = &mut given[self.slots.set_of(front)];
                let room = self.slots.room(front).saturating_sub(*given).min(newcomers);
                *given += room;
                (front, room, newcomers - room)
            })
    }
}

impl Started {
    /// An item is active now: it goes to its pool.
    pub(super) fn push(&mut self, entry: Entry) {
        let (pool, entry) = entry.into_active();
        if trace::is_on(pool.env()) {
            self.traced.push(entry.work.name().to_owned());
        }
        self.deeds.push(pool.push(entry));
    }

    /// No lock is held.
    pub(super) fn settle(self, queue: &Shared) {
        self.deeds.perform();
        queue.trace_all(&self.traced, TraceStep::Activated);
    }

    /// They are on their way; no lock but that of the settings is held.
    pub(super) fn perform(self, queue: &Arc<Shared>) -> Promoted {
        self.deeds.perform();
        Promoted {
            queue: queue.clone(),
            items: self.traced,
        }
    }
}

/// C7: by node, the CPUs that a queue with such attributes uses.
fn by_node(nodes: &[usize], settings: &Settings, attrs: &Attrs) -> Vec<usize> {
    let effective = settings.effective(attrs);
    let cpus = |node: &usize| {
        let here = |cpu: &usize| settings.topology.node_of(*cpu) == Some(*node);
        effective.iter().filter(here).count()
    };
    nodes.iter().map(cpus).collect()
}

/// The node of these CPUs, if they are of one.
fn node_of(topology: &Topology, cpus: &Cpus) -> Option<usize> {
    match cpus {
        Cpus::One(cpu) => topology.node_of(*cpu),
        Cpus::Pod { cpus, .. } => {
            let first = topology.node_of(cpus.first()?);
            let same = cpus.iter().all(|cpu| topology.node_of(cpu) == first);
            first.filter(|_| same)
        }
    }
}
