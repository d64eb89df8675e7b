//! Operations on one queue that changes under its items, run against a naive oracle.
//!
//! One interpreter for the property test and for the fuzz target, which includes this file by path.
//! Items end when an operation says so, and after each operation all that may run have begun; so
//! each step has one possible outcome, up to the choice among front ends.

use crate::support::{Level, until};
use inflight_sync::{Arc, Mutex};
use inflight_topology::{CpuSet, Scope, Topology};
use inflight_workqueue::{Attrs, Frozen, Share, Work, Workqueue, WorkqueueSystem};
use std::collections::BTreeMap;

/// What is made.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) struct Setup {
    pub(crate) nodes: u8,
    pub(crate) cores: u8,
    pub(crate) kind: Kind,
    pub(crate) max: u8,
    pub(crate) min: u8,
    /// Items go to their pwqs at once.
    pub(crate) traced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Kind {
    Bound,
    Ordered,
    PerNode,
    Lend,
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Op {
    /// An item, on this CPU.
    Queue(u8),
    /// One of the active items ends.
    End(u8),
    /// One of those that wait is taken back.
    Cancel(u8),
    Max(u8),
    /// A scope, whether strict, and a mask.
    Attrs(u8, bool, u16),
    Unbound(u16),
    Freeze,
    Thaw,
}

/// What is counted together: the items of a CPU, of a node, or all.
type Group = usize;

/// Of a queue whose items may be of several nodes at once.
const NO_NODE: Group = usize::MAX;

/// An item that has not ended.
struct Item {
    work: Work,
    end: Level,
    group: Group,
    way: Way,
}

/// Items of the same way in start in the order in which they were queued. An unbound queue may have
/// other pools after each change of where its items run; what is queued then overtakes what waits
/// in those before, by turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    group: Group,
    cpu: usize,
    change: usize,
}

/// What a group has, as the oracle reckons.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    active: usize,
    waiting: usize,
}

struct World {
    setup: Setup,
    topology: Topology,
    sys: WorkqueueSystem,
    wq: Workqueue,
    attrs: (Scope, CpuSet),
    unbound: CpuSet,
    max: usize,
    frozen: Vec<Frozen>,
    counts: BTreeMap<Group, Count>,
    items: BTreeMap<usize, Item>,
    queued: usize,
    ended: usize,
    cancelled: usize,
    /// Numbers of items, as they begin.
    begun: Arc<Mutex<Vec<usize>>>,
    /// By way: the last item that has begun.
    last: BTreeMap<Way, usize>,
    /// Changes of where items run.
    changes: usize,
    seen: usize,
}

/// Runs the operations, and says no word if all is as it should be.
pub(crate) fn changes_as_the_oracle_says(setup: Setup, ops: &[Op]) {
    let mut world = World::new(setup);
    for op in ops {
        world.step(*op);
        world.settle();
    }
    world.finish();
}

impl World {
    fn new(mut setup: Setup) -> Self {
        let (nodes, cores) = (setup.nodes % 4 + 1, setup.cores % 3 + 1);
        let machine = format!("numa:{nodes} core:{cores}");
        let topology = Topology::synthetic(&machine).unwrap();
        let builder = WorkqueueSystem::builder().sampling(false);
        let builder = builder.topology(topology.clone());
        let builder = if setup.traced {
            builder.trace(|_| ())
        } else {
            builder
        };
        let sys = builder.build().unwrap();
        let (max, numa) = (usize::from(setup.max % 6 + 1), Scope::Numa);
        setup.min = setup.min.clamp(1, max as u8);
        let draft = sys.workqueue("jobs");
        let builder = match setup.kind {
            Kind::Bound => draft.bound().max_active(max),
            Kind::Ordered => draft.ordered_with(Attrs::new().scope(numa)),
            Kind::Lend => draft.unbound(Attrs::new().scope(numa)).max_active(max),
            Kind::PerNode => draft
                .unbound(Attrs::new().scope(numa))
                .max_active(max)
                .min_active(usize::from(setup.min))
                .share(Share::PerNode),
        };
        Self {
            wq: builder.freezable().build().unwrap(),
            attrs: (numa, CpuSet::new()),
            unbound: topology.cpus().clone(),
            max: if setup.kind == Kind::Ordered { 1 } else { max },
            frozen: Vec::new(),
            counts: BTreeMap::new(),
            items: BTreeMap::new(),
            queued: 0,
            ended: 0,
            cancelled: 0,
            begun: Arc::default(),
            last: BTreeMap::new(),
            changes: 0,
            seen: 0,
            setup,
            topology,
            sys,
        }
    }

    fn effective(&self) -> CpuSet {
        let both = self.unbound.intersection(&self.attrs.1);
        if both.is_empty() {
            self.unbound.clone()
        } else {
            both
        }
    }

    /// The group of an item that is queued now, and the way it goes.
    fn group_of(&self, cpu: usize) -> (Group, Way) {
        let (group, cpu, change) = match self.setup.kind {
            Kind::Bound => (cpu, cpu, 0),
            Kind::Ordered => (NO_NODE, 0, 0),
            Kind::Lend => (NO_NODE, cpu, self.changes),
            Kind::PerNode => (self.node_of(cpu), cpu, self.changes),
        };
        (group, Way { group, cpu, change })
    }

    /// Where the item of an unbound queue goes now.
    fn node_of(&self, cpu: usize) -> Group {
        if self.topology.nodes().len() == 1 {
            return NO_NODE;
        }
        let effective = self.effective();
        let pod = self.topology.pod_of(self.attrs.0, cpu).unwrap().cpus();
        let here = pod.intersection(&effective);
        let cpus = if here.is_empty() { &effective } else { &here };
        let mut nodes: Vec<_> = cpus.iter().map(|cpu| self.topology.node_of(cpu)).collect();
        nodes.dedup();
        match nodes[..] {
            [Some(node)] => node,
            _ => NO_NODE,
        }
    }

    /// How many of a group may be active.
    fn part(&self, group: Group) -> usize {
        if !self.frozen.is_empty() {
            return 0;
        }
        if group == NO_NODE || self.setup.kind == Kind::Bound {
            return self.max;
        }
        let effective = self.effective();
        let here = |cpu: &usize| self.topology.node_of(*cpu) == Some(group);
        let cpus = effective.iter().filter(here).count();
        let exact = self.max as f64 * cpus as f64 / effective.len() as f64;
        let min = usize::from(self.setup.min).max(1);
        (exact.ceil() as usize).max(min).min(self.max)
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Queue(cpu) => self.queue(usize::from(cpu)),
            Op::End(n) => self.end(usize::from(n)),
            Op::Cancel(n) => self.cancel(usize::from(n)),
            Op::Max(n) if self.setup.kind != Kind::Ordered => {
                self.max = usize::from(n % 6 + 1);
                self.setup.min = self.setup.min.min(self.max as u8);
                self.wq.set_max_active(self.max).unwrap();
            }
            Op::Max(_) => assert!(self.wq.set_max_active(2).is_err()),
            Op::Attrs(scope, strict, mask) => {
                let scope = Scope::ALL[usize::from(scope) % Scope::ALL.len()];
                let cpus = self.cpus(mask);
                let attrs = Attrs::new().scope(scope).strict(strict);
                let done = self.wq.set_attrs(attrs.cpumask(cpus.clone()));
                assert_eq!(done.is_ok(), self.setup.kind != Kind::Bound);
                self.attrs = (scope, cpus);
                self.changes += 1;
            }
            Op::Unbound(mask) => {
                let cpus = self.cpus(mask);
                if !cpus.is_empty() {
                    self.sys.set_unbound_cpumask(&cpus).unwrap();
                    self.unbound = cpus;
                    self.changes += 1;
                }
            }
            Op::Freeze if self.frozen.len() < 2 => self.frozen.push(self.sys.freeze()),
            Op::Freeze => {}
            Op::Thaw => drop(self.frozen.pop()),
        }
        for group in self.counts.keys().copied().collect::<Vec<_>>() {
            let part = self.part(group);
            let count = self.counts.get_mut(&group).unwrap();
            let more = part.saturating_sub(count.active).min(count.waiting);
            count.active += more;
            count.waiting -= more;
        }
    }

    fn cpus(&self, mask: u16) -> CpuSet {
        let cpus = self.topology.cpus().iter();
        cpus.filter(|cpu| mask >> cpu & 1 == 1).collect()
    }

    fn queue(&mut self, cpu: usize) {
        let cpu = cpu % self.topology.cpus().len();
        let (number, (group, way)) = (self.queued, self.group_of(cpu));
        self.queued += 1;
        let end = Level::new();
        let work = Work::new({
            let (end, begun) = (end.clone(), self.begun.clone());
            move || {
                begun.lock().push(number);
                end.wait(1);
            }
        });
        assert!(self.wq.queue_on(cpu, &work).unwrap().is_queued());
        self.counts.entry(group).or_default().waiting += 1;
        let item = Item {
            work,
            end,
            group,
            way,
        };
        self.items.insert(number, item);
    }

    fn end(&mut self, n: usize) {
        let begun = self.begun.lock().clone();
        let mut active = begun.iter().filter(|n| self.items.contains_key(n));
        let active: Vec<_> = active.by_ref().copied().collect();
        if let Some(at) = n.checked_rem(active.len()) {
            let item = self.items.remove(&active[at]).unwrap();
            self.ended += 1;
            self.counts.get_mut(&item.group).unwrap().active -= 1;
            item.end.raise();
        }
    }

    fn cancel(&mut self, n: usize) {
        let begun = self.begun.lock().clone();
        let waiting = self.items.keys().filter(|n| !begun.contains(n));
        let waiting: Vec<_> = waiting.copied().collect();
        if let Some(at) = n.checked_rem(waiting.len()) {
            let item = self.items.remove(&waiting[at]).unwrap();
            assert!(item.work.cancel(), "nobody else takes it");
            self.cancelled += 1;
            self.counts.get_mut(&item.group).unwrap().waiting -= 1;
        }
    }

    /// As many as the oracle says have begun, and no more; each in its turn.
    fn settle(&mut self) {
        let sum = |of: fn(&Count) -> usize| self.counts.values().map(of).sum::<usize>();
        let (active, waiting) = (sum(|c| c.active), sum(|c| c.waiting));
        let expected = (self.ended + active, self.ended, active, waiting);
        let seen = || {
            let (begun, stats) = (self.begun.lock().len(), self.wq.stats());
            let ended = stats.completed as usize;
            (begun, ended, stats.active, stats.inactive)
        };
        let or = || format!("{:?}, not {expected:?}: {:?}", seen(), self.counts);
        until(|| seen() == expected, or);
        let begun = self.begun.lock().clone();
        // P3, P4: nobody waits who came before one of the same way that has begun.
        for number in &begun[self.seen..] {
            let way = self.items[number].way;
            let last = self.last.entry(way).or_default();
            *last = (*number).max(*last);
        }
        self.seen = begun.len();
        let waiting = self.items.iter().filter(|(n, _)| !begun.contains(n));
        for (number, item) in waiting {
            let last = self.last.get(&item.way);
            assert!(last <= Some(number), "{number} still waits");
        }
        let mut by_group = BTreeMap::new();
        for number in begun.iter().filter(|n| self.items.contains_key(n)) {
            *by_group.entry(self.items[number].group).or_default() += 1;
        }
        for (group, count) in &self.counts {
            let active = by_group.get(group).copied().unwrap_or(0);
            assert_eq!(active, count.active, "group {group}");
        }
    }

    /// P6: all of it ends.
    fn finish(mut self) {
        self.frozen.clear();
        self.items.values().for_each(|item| item.end.raise());
        self.wq.flush_blocking().unwrap();
        let stats = self.wq.stats();
        assert_eq!((stats.active, stats.inactive), (0, 0));
        assert_eq!(stats.completed as usize, self.queued - self.cancelled);
        assert_eq!(stats.cancelled as usize, self.cancelled);
        assert_eq!(self.begun.lock().len(), self.queued - self.cancelled);
    }
}

/// Whatever fails, nobody is left behind who would hold up the end of the system.
impl Drop for World {
    fn drop(&mut self) {
        self.frozen.clear();
        self.items.values().for_each(|item| item.end.raise());
    }
}
