//! Unbound queues under everything at once, seeded: threads queue, cancel, flush and drain while
//! attributes, limits, masks and the machine change, freezes come and go, threads are refused, and
//! queues are dropped. `INFLIGHT_STRESS_SEED` names one seed.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::fault::Faults;
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::{CpuSet, Scope, Topology};
use inflight_workqueue::{
    Attrs, AttrsError, QueueError, Share, Work, Workqueue, WorkqueueBuilder, WorkqueueSystem,
    blocking,
};
use support::watch;

const SUBMITTERS: usize = 3;
const ROUNDS: usize = 3;
const STEPS: usize = 300;

/// What the items of one queue did.
struct Account {
    /// At once, by node, and all.
    inside: Vec<AtomicUsize>,
    /// How many may be.
    bounds: Vec<AtomicUsize>,
    ran: AtomicUsize,
    accepted: AtomicUsize,
    cancelled: AtomicUsize,
    /// By submitter: the number of its item that ran last.
    last: Mutex<[usize; SUBMITTERS]>,
    breaches: Mutex<Vec<String>>,
}

impl Account {
    fn new(nodes: usize) -> Arc<Self> {
        let counts = || (0..=nodes).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self {
            inside: counts(),
            bounds: counts(),
            ran: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            cancelled: AtomicUsize::new(0),
            last: Mutex::new([0; SUBMITTERS]),
            breaches: Mutex::new(Vec::new()),
        })
    }

    fn breach(&self, what: String) {
        self.breaches.lock().push(what);
    }

    /// Relaxed, here and below: a slot is handed over by the queue, which orders what its holders
    /// do, and the rest is looked at when all have ended.
    fn run(&self, node: usize, f: impl FnOnce()) {
        let all = self.inside.len() - 1;
        for at in [node, all] {
            let now = self.inside[at].fetch_add(1, Ordering::Relaxed) + 1;
            let most = self.bounds[at].load(Ordering::Relaxed);
            if now > most {
                self.breach(format!("{now} active of {most}, node {at} of {all}"));
            }
        }
        f();
        for at in [node, all] {
            self.inside[at].fetch_sub(1, Ordering::Relaxed);
        }
        self.ran.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Sort {
    Lend,
    PerNode,
    Ordered,
    Freezable,
    FreezableOrdered,
}

use Sort::{Freezable, FreezableOrdered, Lend, Ordered, PerNode};

struct Queue {
    wq: Workqueue,
    sort: Sort,
    account: Arc<Account>,
    /// Queued over and over by everybody.
    works: Vec<Work>,
}

/// The machine, and all who use it.
struct World {
    sys: WorkqueueSystem,
    nodes: usize,
    cores: usize,
    /// The CPUs that queues use stay the same, and with them the parts of the nodes.
    steady: bool,
    /// Threads are refused now and then.
    faults: Faults,
    queues: Vec<Queue>,
    /// Moves with each step of anybody.
    news: Arc<AtomicUsize>,
    left: AtomicUsize,
}

fn machine(nodes: usize, cores: usize, offline: &[usize]) -> Topology {
    let offline: CpuSet = offline.iter().copied().collect();
    let mut text = format!("numa:{nodes} core:{cores}");
    if !offline.is_empty() {
        text += &format!(" offline:{offline}");
    }
    Topology::synthetic(&text).unwrap()
}

/// On any of so many CPUs, or on all.
fn some_attrs(rng: &mut fastrand::Rng, cpus: Option<usize>) -> Attrs {
    let scope = Scope::ALL[rng.usize(..Scope::ALL.len())];
    let attrs = Attrs::new().scope(scope).strict(rng.bool());
    let attrs = if rng.u8(..4) == 0 {
        attrs.default_scope()
    } else {
        attrs
    };
    let attrs = if rng.u8(..8) == 0 {
        attrs.nice(1)
    } else {
        attrs
    };
    match cpus {
        Some(cpus) if rng.bool() => attrs.cpumask((0..cpus).filter(|_| rng.bool()).collect()),
        _ => attrs,
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (nodes, cores) = (rng.usize(1..=8), rng.usize(1..=3));
        let faults = Faults::new();
        let builder = WorkqueueSystem::builder()
            .sampling(rng.bool())
            .faults(&faults);
        let sys = builder
            .topology(machine(nodes, cores, &[]))
            .build()
            .unwrap();
        let news = Arc::new(AtomicUsize::new(0));
        let queue = |sort| {
            let numa = Attrs::new().scope(Scope::Numa);
            let make = |name: &str| sys.workqueue(name);
            let share = |b: WorkqueueBuilder, share| b.share(share);
            let builder = match sort {
                Lend => share(make("lend").unbound(numa), Share::Lend),
                PerNode => share(make("nodes").unbound(numa), Share::PerNode),
                Ordered => make("ordered").ordered_with(numa),
                Freezable => make("freezable").unbound(numa).freezable(),
                FreezableOrdered => make("both").ordered().freezable(),
            };
            let account = Account::new(nodes);
            let works = (0..6).map(|n| shared_work(&account, &news, n % nodes));
            Queue {
                wq: builder.build().unwrap(),
                sort,
                works: works.collect(),
                account,
            }
        };
        let queues = [Lend, PerNode, Ordered, Freezable, FreezableOrdered].map(queue);
        Self {
            nodes,
            cores,
            steady: rng.bool(),
            faults,
            queues: queues.into(),
            news,
            left: AtomicUsize::new(0),
            sys,
        }
    }

    fn cpus(&self) -> usize {
        self.nodes * self.cores
    }

    fn maskable(&self) -> Option<usize> {
        (!self.steady).then(|| self.cpus())
    }

    fn step(&self) {
        self.news.fetch_add(1, Ordering::Relaxed);
    }

    /// No item is queued: until the next call no queue's limit is above what is drawn here.
    fn set_bounds(&self, rng: &mut fastrand::Rng) -> Vec<usize> {
        let each = self.queues.iter().map(|queue| {
            let all = self.nodes;
            let ordered = matches!(queue.sort, Ordered | FreezableOrdered);
            let most = match rng.u8(..4) {
                _ if ordered => 1,
                0 => rng.usize(1..=40),
                _ => rng.usize(1..=4),
            };
            queue.wq.set_max_active(most).unwrap();
            // C7: all nodes have as many CPUs.
            let part = match self.steady {
                true => most.div_ceil(self.nodes).clamp(most.min(8), most),
                // All CPUs may be of one node now, and of another one the next time.
                false => most,
            };
            // C9: beside the parts there is that of pools which span nodes. An item of a CPU that
            // the queue may not use is counted where it goes.
            let (part, sum) = match queue.sort {
                PerNode if self.steady => (part + most, part * self.nodes + most),
                PerNode => (part * self.nodes + most, part * self.nodes + most),
                _ => (most, most),
            };
            let bounds = &queue.account.bounds;
            bounds
                .iter()
                .for_each(|bound| bound.store(part, Ordering::Relaxed));
            bounds[all].store(sum, Ordering::Relaxed);
            most
        });
        each.collect()
    }

    /// An item of its own, with a number for its order.
    fn queue_one(&self, rng: &mut fastrand::Rng, queue: &Queue, me: usize, number: usize) {
        let cpu = rng.usize(..self.cpus());
        let node = cpu / self.cores;
        let (account, news) = (queue.account.clone(), self.news.clone());
        let (wq, chain) = (queue.wq.clone(), rng.u8(..8) == 0);
        let ordered = matches!(queue.sort, Ordered | FreezableOrdered);
        let work = Work::new(move || {
            let mine = account.clone();
            account.run(node, || {
                if ordered {
                    let before = std::mem::replace(&mut mine.last.lock()[me], number);
                    if before >= number {
                        mine.breach(format!("{number} of {me} ran after {before}"));
                    }
                }
                match number % 7 {
                    0..=2 => blocking(|| (0..5).for_each(|_| thread::yield_now())),
                    3 => thread::yield_now(),
                    _ => {}
                }
                if chain {
                    let child = Work::new({
                        let (mine, news) = (mine.clone(), news.clone());
                        move || {
                            mine.run(node, || ());
                            news.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                    // Taken even by a queue that is drained.
                    let accepted = wq.queue_on(cpu, &child).is_ok_and(|q| q.is_queued());
                    mine.accepted
                        .fetch_add(usize::from(accepted), Ordering::Relaxed);
                }
            });
            news.fetch_add(1, Ordering::Relaxed);
        });
        self.accept(queue, queue.wq.queue_on(cpu, &work).map(|q| q.is_queued()));
        if rng.u8(..6) == 0 && work.cancel() {
            queue.account.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn accept(&self, queue: &Queue, result: Result<bool, QueueError>) {
        match result {
            Ok(accepted) => {
                let accepted = usize::from(accepted);
                queue
                    .account
                    .accepted
                    .fetch_add(accepted, Ordering::Relaxed);
            }
            Err(QueueError::Draining | QueueError::NoWorker(_)) => {}
            Err(other) => queue.account.breach(format!("refused: {other}")),
        }
    }

    fn submit(&self, mut rng: fastrand::Rng, me: usize, round: usize) {
        for step in 1..=STEPS {
            self.step();
            let queue = &self.queues[rng.usize(..self.queues.len())];
            // A shared work stands for the CPUs of one node.
            let at = rng.usize(..queue.works.len());
            let work = &queue.works[at];
            let cpu = at % self.nodes * self.cores + rng.usize(..self.cores);
            match rng.u8(..32) {
                0..=19 => self.queue_one(&mut rng, queue, me, round * STEPS + step),
                20..=24 => {
                    self.accept(queue, queue.wq.queue_on(cpu, work).map(|q| q.is_queued()));
                }
                25 | 26 => {
                    let taken = if rng.bool() {
                        work.cancel()
                    } else {
                        work.cancel_sync_blocking().unwrap()
                    };
                    queue
                        .account
                        .cancelled
                        .fetch_add(usize::from(taken), Ordering::Relaxed);
                }
                27 => drop(work.flush_blocking().unwrap()),
                28 => match rng.u8(..4) {
                    0 => queue.wq.drain_blocking().unwrap(),
                    _ => queue.wq.flush_blocking().unwrap(),
                },
                29 => {
                    let attrs = some_attrs(&mut rng, self.maskable());
                    self.check_change(queue.wq.set_attrs(attrs));
                }
                30 => self.short_lived(&mut rng),
                _ => {
                    let stats = queue.wq.stats();
                    let _ = (stats, queue.wq.is_congested(cpu), self.sys.dump());
                }
            }
        }
        self.left.fetch_sub(1, Ordering::Relaxed);
    }

    /// A queue that is dropped with what it has taken.
    fn short_lived(&self, rng: &mut fastrand::Rng) {
        let builder = self
            .sys
            .workqueue("short")
            .unbound(some_attrs(rng, self.maskable()));
        let wq = builder.max_active(rng.usize(1..4)).build().unwrap();
        for cpu in 0..self.cpus().min(3) {
            let news = self.news.clone();
            drop(wq.spawn_on(cpu, move || news.fetch_add(1, Ordering::Relaxed)));
        }
        if rng.bool() {
            self.check_change(wq.set_attrs(some_attrs(rng, self.maskable())));
        }
    }

    /// Changes everything that can be changed, until nobody submits.
    fn change(&self, mut rng: fastrand::Rng, most: &[usize]) {
        let mut frozen = Vec::new();
        while self.left.load(Ordering::Relaxed) > 0 {
            let cpus = self.cpus();
            match rng.u8(..9) {
                0..=2 => {
                    let at = rng.usize(..self.queues.len());
                    let limit = rng.usize(1..=most[at]);
                    self.queues[at].wq.set_max_active(limit).unwrap();
                }
                3 if !self.steady => {
                    let gone: Vec<_> = (1..cpus).filter(|_| rng.u8(..4) == 0).collect();
                    let now = machine(self.nodes, self.cores, &gone);
                    self.check_change(self.sys.refresh(&now));
                }
                4 if !self.steady => {
                    let mask: CpuSet = (0..cpus).filter(|_| rng.bool()).collect();
                    match self.sys.set_unbound_cpumask(&mask) {
                        Err(AttrsError::NoCpu { .. }) => {} // All of them are away.
                        changed => self.check_change(changed),
                    }
                }
                5 => {
                    let scope = Scope::ALL[rng.usize(..6)];
                    self.check_change(self.sys.set_default_scope(scope));
                }
                6 => frozen.push(self.sys.freeze()),
                7 => self.faults.refuse_spawns(rng.u8(..3) == 0),
                _ => frozen.clear(),
            }
            if frozen.len() > 2 {
                frozen.clear();
            }
            thread::yield_now();
        }
        self.faults.refuse_spawns(false);
    }

    /// All or nothing; only a thread can be missing.
    fn check_change(&self, changed: Result<(), AttrsError>) {
        assert!(
            matches!(changed, Ok(()) | Err(AttrsError::NoWorker(_))),
            "{changed:?}"
        );
    }

    /// Nothing is left, and all is accounted for.
    fn check(&self, seed: u64) {
        for Queue { wq, account, .. } in &self.queues {
            // What items have queued themselves a flush does not wait for.
            wq.drain_blocking().unwrap();
            let name = wq.name();
            assert_eq!(*account.breaches.lock(), [""; 0], "{name}, seed {seed}");
            let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
            let ended = count(&account.ran) + count(&account.cancelled);
            assert_eq!(count(&account.accepted), ended, "{name}, seed {seed}");
            let stats = wq.stats();
            assert_eq!(
                (stats.active, stats.inactive),
                (0, 0),
                "{name}, seed {seed}"
            );
            assert_eq!(stats.queued, stats.completed + stats.cancelled);
        }
    }
}

/// Runs on one node's behalf, never twice at once.
fn shared_work(account: &Arc<Account>, news: &Arc<AtomicUsize>, node: usize) -> Work {
    let (account, news, inside) = (account.clone(), news.clone(), AtomicBool::new(false));
    Work::new(move || {
        account.run(node, || {
            if inside.swap(true, Ordering::Relaxed) {
                account.breach("ran twice at once".into());
            }
            thread::yield_now();
            inside.store(false, Ordering::Relaxed);
        });
        news.fetch_add(1, Ordering::Relaxed);
    })
}

fn hammer(seed: u64) {
    let world = Arc::new(World::new(seed));
    let mut rng = fastrand::Rng::with_seed(!seed);
    for round in 0..ROUNDS {
        let most = world.set_bounds(&mut rng);
        world.left.store(SUBMITTERS, Ordering::Relaxed);
        let mut threads: Vec<_> = (0..SUBMITTERS)
            .map(|me| {
                let (world, rng) = (world.clone(), rng.fork());
                thread::spawn(move || world.submit(rng, me, round))
            })
            .collect();
        let (other, fork) = (world.clone(), rng.fork());
        threads.push(thread::spawn(move || other.change(fork, &most)));
        let there_is = || format!("seed {seed}: {}", world.sys.dump());
        watch(&world.news, threads, there_is);
        let other = world.clone();
        let checks = thread::spawn(move || other.check(seed));
        watch(&world.news, vec![checks], there_is);
    }
}

#[test]
fn all_is_run_once_within_its_limit() {
    let given = std::env::var("INFLIGHT_STRESS_SEED").ok();
    let seeds = match given.map(|seed| seed.parse().expect("a number")) {
        Some(seed) => seed..seed + 1,
        None => 0..12,
    };
    seeds.for_each(hammer);
}
