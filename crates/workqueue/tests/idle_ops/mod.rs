//! Bursts on queues of each kind of a random machine, and who is there when all is quiet again.
//!
//! Threads count themselves: each one that has run an item says so, and again when it ends. They
//! know their pool by their name, so this is for Linux.

use crate::support::{Level, until};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{Attrs, Workqueue, WorkqueueSystem};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// On this queue and CPU, so many items that run at once.
    Burst(u8, u8, u8),
    /// So many seconds pass.
    Pass(u16),
    /// Of this queue: a scope, whether strict, and a mask.
    Attrs(u8, u8, bool, u16),
    Unbound(u16),
}

/// What stays of a pool that has had so many.
const STAY: usize = 2;

const NAMES: [&str; 5] = ["bound", "urgent", "unbound", "ordered", "idle"];

/// A pool, as its threads and the dump name it: a CPU or a number, and whether it is urgent.
type Name = (String, bool);

/// Of a pool: how many threads have run items at once, and how many of all that have are alive.
#[derive(Clone, Copy, Debug, Default)]
struct Threads {
    most: usize,
    alive: usize,
}

type Census = Arc<Mutex<BTreeMap<Name, Threads>>>;

/// A thread that is alive.
struct Alive(Census, Name);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.lock().get_mut(&self.1).unwrap().alive -= 1;
    }
}

inflight_sync::thread_local! {
    static ME: RefCell<Option<Alive>> = const { RefCell::new(None) };
}

/// What an item does first. Returns the pool's name.
fn report(census: &Census) -> Name {
    let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
    let name = comm.trim_end().strip_prefix("inflight/").unwrap();
    let (pool, number) = name.split_once(':').unwrap();
    let name = (pool.to_owned(), number.ends_with('H'));
    ME.with(|me| {
        me.borrow_mut().get_or_insert_with(|| {
            census.lock().entry(name.clone()).or_default().alive += 1;
            Alive(census.clone(), name.clone())
        });
    });
    name
}

struct World {
    topology: Topology,
    clock: Clock,
    census: Census,
    queues: Vec<Workqueue>,
    sys: WorkqueueSystem,
}

/// When load has stopped two threads of each pool stay, and the rescuer.
pub(crate) fn two_stay_of_each_pool(machine: &str, ops: &[Op]) {
    let mut world = World::new(machine);
    for op in ops {
        world.step(*op);
    }
    world.becomes_quiet();
}

impl World {
    fn new(machine: &str) -> Self {
        let topology = Topology::synthetic(machine).unwrap();
        let clock = Clock::manual();
        let builder = WorkqueueSystem::builder().topology(topology.clone());
        let builder = builder.clock(clock.clone()).sampling(false);
        let sys = builder.build().unwrap();
        let queues = NAMES.map(|name| {
            let draft = sys.workqueue(name);
            let queue = match name {
                "bound" => draft.bound().build(),
                "urgent" => draft.bound().highpri().build(),
                "unbound" => draft.unbound(Attrs::new()).build(),
                "ordered" => draft.ordered().build(),
                _ => draft
                    .unbound(Attrs::new().strict(true))
                    .mem_reclaim()
                    .build(),
            };
            queue.unwrap()
        });
        Self {
            topology,
            clock,
            census: Census::default(),
            queues: queues.into(),
            sys,
        }
    }

    fn step(&mut self, op: Op) {
        let queue = |n: u8| &self.queues[usize::from(n) % self.queues.len()];
        let cpus = self.topology.cpus();
        let mask = |mask: u16| {
            cpus.iter()
                .filter(move |cpu| mask >> (cpu % 16) & 1 == 1)
                .collect()
        };
        match op {
            Op::Burst(n, cpu, items) => self.burst(queue(n), usize::from(cpu), items),
            Op::Pass(seconds) => self.clock.advance(Duration::from_secs(seconds.into())),
            Op::Attrs(n, scope, strict, cpus) => {
                let scope = Scope::ALL[usize::from(scope) % Scope::ALL.len()];
                let attrs = Attrs::new().scope(scope).strict(strict).cpumask(mask(cpus));
                assert_eq!(
                    queue(n).set_attrs(attrs).is_ok(),
                    usize::from(n) % NAMES.len() > 1
                );
            }
            // An empty mask is refused.
            Op::Unbound(cpus) => drop(self.sys.set_unbound_cpumask(&mask(cpus))),
        }
        if matches!(op, Op::Attrs(..) | Op::Unbound(_)) {
            // A pool that nobody used for a while has let its workers go, and is used again.
            let mut census = self.census.lock();
            let unbound = census
                .iter_mut()
                .filter(|((name, _), _)| name.starts_with('u'));
            unbound.for_each(|(_, threads)| threads.most = 0);
        }
    }

    fn burst(&self, queue: &Workqueue, cpu: usize, items: u8) {
        let items = match queue.name() {
            "ordered" => 1,
            _ => usize::from(items % 7) + 1,
        };
        let cpu = cpu % self.topology.cpus().len();
        let (begun, open) = (Level::new(), Level::new());
        let handles: Vec<_> = (0..items)
            .map(|_| {
                let (begun, open) = (begun.clone(), open.clone());
                let census = self.census.clone();
                let item = move || {
                    let pool = report(&census);
                    begun.raise();
                    open.wait(1);
                    pool
                };
                queue.spawn_on(cpu, item)
            })
            .collect();
        begun.wait(items);
        open.raise();
        for handle in handles {
            let pool = handle.wait().unwrap();
            let mut census = self.census.lock();
            let threads = census.get_mut(&pool).unwrap();
            threads.most = threads.most.max(items);
        }
    }

    /// The pools that are there: how many workers they have, and how many of those are idle.
    fn pools(&self) -> BTreeMap<Name, (usize, usize)> {
        let dump = self.sys.dump();
        let lines = dump.lines().filter_map(|line| line.strip_prefix("pool "));
        let pools = lines.map(|line| {
            let (name, counts) = line.split_once(": ").unwrap();
            let pool = name.strip_prefix("cpu ").unwrap_or(name);
            let pool = pool.split(' ').next().unwrap().to_owned();
            let before = |word: &str| {
                let text = counts.split_once(word).unwrap().0;
                text.rsplit([' ', '(']).next().unwrap().parse().unwrap()
            };
            let (workers, idle) = (before(" workers ("), before(" idle)"));
            ((pool, name.ends_with(" highpri")), (workers, idle))
        });
        pools.collect()
    }

    fn becomes_quiet(&self) {
        let quiet = |pools: &BTreeMap<_, (usize, usize)>, census: &BTreeMap<_, Threads>| {
            let settled = |(workers, idle): &(usize, usize)| workers == idle && *workers <= STAY;
            // Of a pool that is gone nobody is left.
            let stay = |name| pools.get(name).map_or(0, |_: &(usize, usize)| STAY);
            let gone = |(name, threads): (_, &Threads)| threads.alive <= stay(name);
            pools.values().all(settled) && census.iter().all(gone)
        };
        let is_quiet = || {
            let is_quiet = quiet(&self.pools(), &self.census.lock());
            if !is_quiet || self.clock.sleepers() > 0 {
                self.clock.advance(Duration::from_secs(300));
                return false;
            }
            true
        };
        let there_are = || format!("{:?}, and of them {:?}", self.pools(), self.census.lock());
        until(is_quiet, there_are);
        // And so it stays, however long it lasts; a thread that was asked for may come only now.
        self.clock.advance(Duration::from_secs(3_000));
        until(is_quiet, there_are);
        let (pools, census) = (self.pools(), self.census.lock().clone());
        for (name, (workers, _)) in &pools {
            let most = census.get(name).map_or(0, |threads| threads.most);
            assert!(*workers >= most.min(STAY), "{name:?}: {workers} of {most}");
        }
        // A thread that has just begun names itself.
        until(|| rescuers() == 1, || format!("{} rescuers", rescuers()));
    }
}

/// How many threads of this process are rescuers of the queue that has one.
fn rescuers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name == "inflight/R-idle\n").count()
}
