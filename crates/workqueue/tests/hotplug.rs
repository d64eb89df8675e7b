//! CPUs that leave, return and come for the first time, by `refresh`, while items are queued, wait
//! for their time, are held or run, and while threads are refused: each item that was accepted runs
//! once or is cancelled once.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::fault::Faults;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, cpu, thread};
use inflight_topology::{CpuSet, Scope, Topology};
use inflight_workqueue::{
    Attrs, AttrsError, BH_PATIENCE, BhPoller, DelayedWork, Frozen, Modified, PollerError,
    QueueError, Queued, Share, Work, Workqueue, WorkqueueSystem,
};
use proptest::prelude::*;
use std::time::Duration;
use support::{LOOKS, Level, Log, Rigged, bound, rigged};

fn machine(text: &str) -> Topology {
    Topology::synthetic(text).unwrap()
}

fn on(topology: &Topology) -> WorkqueueSystem {
    let builder = WorkqueueSystem::builder().topology(topology);
    builder.sampling(false).build().unwrap()
}

/// B33: its queue was made while it was away.
#[test]
fn b33_a_cpu_that_comes_later_has_a_pwq_and_workers_of_its_own() {
    let sys = on(&machine("core:4 offline:3"));
    let wq = sys.workqueue("irq").bound().max_active(1).build().unwrap();
    let done = sys.workqueue("done").bh().build().unwrap();
    assert!(!sys.dump().contains("pool cpu 3"));
    wq.spawn_on(3, || ()).wait().unwrap(); // Not there yet: anywhere.
    sys.refresh(&machine("core:4")).unwrap();
    let (begun, open) = (Level::new(), Level::new());
    let held: Vec<_> = (0..4)
        .map(|at| {
            let (begun, open) = (begun.clone(), open.clone());
            wq.spawn_on(at, move || {
                begun.raise();
                open.wait(1);
                cpu::current()
            })
        })
        .collect();
    begun.wait(4); // The limit is that of each CPU.
    let second = wq.spawn_on(3, || ());
    assert!(wq.is_congested(3));
    assert_eq!((wq.stats().active, wq.stats().inactive), (4, 1));
    open.raise();
    second.wait().unwrap();
    for (at, item) in held.into_iter().enumerate() {
        assert_eq!(item.wait().unwrap(), at);
    }
    assert_eq!(done.spawn_on(3, cpu::current).wait().unwrap(), 3);
    assert!(sys.dump().contains("pool cpu 3 bh:"));
}

#[test]
fn a_poller_of_a_cpu_that_comes_later() {
    let clock = Clock::manual();
    let builder = WorkqueueSystem::builder().topology(machine("core:4 offline:3"));
    let sys = builder.clock(clock).build().unwrap();
    let done = sys.workqueue("done").bh().build().unwrap();
    let mut poller = sys.bh_poller(3, || ()).unwrap();
    let before = done.spawn_on(3, cpu::current);
    sys.refresh(&machine("core:4")).unwrap();
    let after = done.spawn_on(3, cpu::current);
    assert_eq!(poller.poll(10).ran, 2);
    assert_eq!((before.wait().unwrap(), after.wait().unwrap()), (3, 3));
    sys.refresh(&machine("core:4 offline:3")).unwrap();
    let gone = done.spawn_on(3, thread::current_id);
    assert_eq!(poller.poll(10).ran, 1);
    assert_eq!(gone.wait().unwrap(), thread::current_id());
}

/// Items that are queued, held back, delayed and frozen when their CPU goes are as they were, and
/// in their order, also after it has come back.
#[test]
fn what_waits_for_a_cpu_survives_it() {
    let clock = Clock::manual();
    let builder = WorkqueueSystem::builder().topology(machine("core:2"));
    let sys = builder.clock(clock.clone()).build().unwrap();
    let wq = sys.workqueue("irq").bound().max_active(1).build().unwrap();
    let cold = sys.workqueue("cold").bound().freezable().build().unwrap();
    let frozen = sys.freeze();
    let log = Log::new();
    let note = |text: &'static str| {
        let log = log.clone();
        move || log.push(text)
    };
    let (begun, open) = (Level::new(), Level::new());
    let running = wq.spawn_on(1, {
        let (begun, open, log) = (begun.clone(), open.clone(), log.clone());
        move || {
            begun.raise();
            open.wait(1);
            log.push("running");
        }
    });
    begun.wait(1);
    let waiting = wq.spawn_on(1, note("inactive"));
    let delayed = DelayedWork::new(note("delayed"));
    let later = Duration::from_millis(5);
    assert_eq!(wq.queue_delayed_on(1, &delayed, later), Ok(Queued::Queued));
    let held = cold.spawn_on(1, note("frozen"));
    sys.refresh(&machine("core:2 offline:1")).unwrap();
    assert_eq!((wq.stats().active, wq.stats().inactive), (1, 1));
    assert!(delayed.is_pending() && !held.is_finished());
    open.raise();
    running.wait().unwrap();
    waiting.wait().unwrap();
    clock.advance(later);
    while delayed.is_pending() || delayed.is_running() {
        thread::yield_now();
    }
    sys.refresh(&machine("core:2")).unwrap();
    drop(frozen);
    held.wait().unwrap();
    assert_eq!(log.entries(), ["running", "inactive", "delayed", "frozen"]);
}

/// A node has its part of the limit also in a pool with a CPU that was away before.
#[test]
fn a_cpu_that_comes_belongs_to_its_node() {
    let sys = on(&machine("numa:2 core:2 offline:3"));
    let numa = Attrs::new().scope(Scope::Numa);
    let wq = sys.workqueue("nodes").unbound(numa).share(Share::PerNode);
    let wq = wq.max_active(4).min_active(1).build().unwrap();
    sys.refresh(&machine("numa:2 core:2")).unwrap();
    let open = Level::new();
    let items: Vec<_> = (0..4)
        .map(|_| {
            let open = open.clone();
            wq.spawn_on(2, move || open.wait(1))
        })
        .collect();
    let stats = wq.stats();
    open.raise();
    items.into_iter().for_each(|item| item.wait().unwrap());
    assert_eq!((stats.active, stats.inactive), (2, 2));
}

/// A change that needs a thread which cannot be had changes nothing, and can be repeated.
#[test]
fn a_cpu_leaves_while_threads_are_refused() {
    let faults = Faults::new();
    let builder = WorkqueueSystem::builder().topology(machine("cache:2 core:2"));
    let sys = builder.faults(&faults).sampling(false).build().unwrap();
    let scope = Attrs::new().scope(Scope::Cache).strict(true);
    let wq = sys.workqueue("crypt").unbound(scope).build().unwrap();
    let irq = bound(&sys);
    for cpu in 0..4 {
        wq.spawn_on(cpu, || ()).wait().unwrap();
        irq.spawn_on(cpu, || ()).wait().unwrap();
    }
    // While something is in flight, what is queued next is to run.
    let (begun, open) = (Level::new(), Level::new());
    let busy = wq.spawn_on(3, {
        let (begun, open) = (begun.clone(), open.clone());
        move || {
            begun.raise();
            open.wait(1);
        }
    });
    begun.wait(1);
    faults.refuse_spawns(true);
    let gone = machine("cache:2 core:2 offline:3");
    let refused = sys.refresh(&gone);
    open.raise();
    busy.wait().unwrap();
    assert!(matches!(refused, Err(AttrsError::NoWorker(_))));
    for cpu in 0..4 {
        wq.spawn_on(cpu, || ()).wait().unwrap();
        irq.spawn_on(cpu, || ()).wait().unwrap();
    }
    faults.refuse_spawns(false);
    sys.refresh(&gone).unwrap();
    wq.spawn_on(3, || ()).wait().unwrap();
}

/// What happens next. Numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A work is queued on a CPU, at once or later.
    Queue(usize, usize),
    Delay(usize, usize, u64),
    Modify(usize, usize, u64),
    Cancel(usize),
    /// These CPUs are away from now on, but the first.
    Away(u16),
    /// So many threads are refused, or all until further notice, or none.
    Refuse(usize),
    Freeze,
    Thaw,
    /// Somebody polls the BH items of a CPU, so many, or polls no more.
    Poll(usize, usize),
    Leave(usize),
    Limit(usize, usize),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let n = any::<usize>;
    prop_oneof![
        8 => (n(), n()).prop_map(|(work, cpu)| Event::Queue(work, cpu)),
        3 => (n(), n(), 1..20u64).prop_map(|(work, cpu, ms)| Event::Delay(work, cpu, ms)),
        1 => (n(), n(), 0..20u64).prop_map(|(work, cpu, ms)| Event::Modify(work, cpu, ms)),
        2 => n().prop_map(Event::Cancel),
        4 => any::<u16>().prop_map(Event::Away),
        2 => (0..6usize).prop_map(Event::Refuse),
        1 => Just(Event::Freeze),
        1 => Just(Event::Thaw),
        3 => (n(), 0..5usize).prop_map(|(cpu, budget)| Event::Poll(cpu, budget)),
        1 => n().prop_map(Event::Leave),
        1 => (n(), 1..5usize).prop_map(|(queue, limit)| Event::Limit(queue, limit)),
        4 => (1..20u64).prop_map(Event::Pass),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    nodes: usize,
    caches: usize,
    cores: usize,
    /// Away when the queues are made.
    away: u16,
}

impl Shape {
    fn cpus(self) -> usize {
        self.nodes * self.caches * self.cores
    }

    fn machine(self, away: u16) -> Topology {
        let gone = |cpu: &usize| away & (1 << (cpu % 16)) != 0;
        let gone: CpuSet = (1..self.cpus()).filter(gone).collect();
        let (nodes, caches, cores) = (self.nodes, self.caches, self.cores);
        let text = format!("numa:{nodes} cache:{caches} core:{cores}");
        if gone.is_empty() {
            return machine(&text);
        }
        machine(&format!("{text} offline:{gone}"))
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    (1..3usize, 1..3usize, 1..5usize, any::<u16>()).prop_map(|(nodes, caches, cores, away)| Shape {
        nodes,
        caches,
        cores,
        away,
    })
}

/// One work, plain or delayed, for ever of one queue.
struct Item {
    queue: usize,
    work: DelayedWork,
    plain: Work,
    accepted: [usize; 2],
    cancelled: [usize; 2],
    ran: [Arc<AtomicUsize>; 2],
    overlaps: Arc<AtomicBool>,
}

/// Relaxed, here and below: looked at when all has ended.
fn running(
    ran: &Arc<AtomicUsize>,
    overlaps: &Arc<AtomicBool>,
) -> impl Fn() + Send + Sync + 'static {
    let (ran, overlaps, inside) = (ran.clone(), overlaps.clone(), AtomicBool::new(false));
    move || {
        overlaps.fetch_or(inside.swap(true, Ordering::Relaxed), Ordering::Relaxed);
        thread::yield_now();
        inside.store(false, Ordering::Relaxed);
        ran.fetch_add(1, Ordering::Relaxed);
    }
}

impl Item {
    fn new(queue: usize) -> Self {
        let ran = [Arc::default(), Arc::default()];
        let overlaps = Arc::default();
        Self {
            queue,
            work: DelayedWork::new(running(&ran[0], &overlaps)),
            plain: Work::new(running(&ran[1], &overlaps)),
            accepted: [0; 2],
            cancelled: [0; 2],
            ran,
            overlaps,
        }
    }
}

struct World {
    shape: Shape,
    clock: Clock,
    faults: Faults,
    pollers: Vec<Option<BhPoller>>,
    frozen: Vec<Frozen>,
    items: Vec<Item>,
    queues: Vec<Workqueue>,
    sys: Rigged,
}

impl World {
    fn new(shape: Shape) -> Self {
        let builder = WorkqueueSystem::builder().topology(shape.machine(shape.away));
        let (sys, faults, clock) = rigged(builder);
        let make = |name: &str| sys.workqueue(name);
        let strict = Attrs::new().scope(Scope::Cache).strict(true);
        let numa = Attrs::new().scope(Scope::Numa);
        let queues = [
            make("bound").bound().max_active(2),
            make("cold").bound().freezable(),
            make("done").bh(),
            make("urgent").bh().highpri(),
            make("cache").unbound(strict).max_active(3),
            make("nodes").unbound(numa).share(Share::PerNode),
            make("frost").unbound(Attrs::new()).freezable(),
            make("log").ordered(),
            make("safe").bound().mem_reclaim(),
        ];
        let queues: Vec<_> = queues.into_iter().map(|q| q.build().unwrap()).collect();
        Self {
            items: (0..queues.len() * 4)
                .map(|n| Item::new(n % queues.len()))
                .collect(),
            pollers: (0..shape.cpus()).map(|_| None).collect(),
            frozen: Vec::new(),
            shape,
            clock,
            faults,
            queues,
            sys,
        }
    }

    fn step(&mut self, event: Event) {
        let count = self.items.len();
        let cpus = self.shape.cpus();
        match event {
            Event::Queue(n, cpu) => {
                let item = &mut self.items[n % count];
                let queued = self.queues[item.queue].queue_on(cpu % cpus, &item.plain);
                item.accepted[1] += usize::from(accepted(queued));
            }
            Event::Delay(n, cpu, ms) => {
                let item = &mut self.items[n % count];
                let delay = Duration::from_millis(ms);
                let wq = &self.queues[item.queue];
                let queued = wq.queue_delayed_on(cpu % cpus, &item.work, delay);
                item.accepted[0] += usize::from(accepted(queued));
            }
            Event::Modify(n, cpu, ms) => {
                let item = &mut self.items[n % count];
                let delay = Duration::from_millis(ms);
                let was_pending = item.work.is_pending();
                let wq = &self.queues[item.queue];
                match wq.mod_delayed_on(cpu % cpus, &item.work, delay) {
                    Ok(Modified::Queued) => item.accepted[0] += 1,
                    Ok(Modified::Moved) => assert!(was_pending),
                    Ok(other) => panic!("{other:?}"),
                    // Refused at the last moment: it is queued nowhere then.
                    Err(error) => {
                        check(&error);
                        item.cancelled[0] += usize::from(was_pending && !item.work.is_pending());
                    }
                }
            }
            Event::Cancel(n) => {
                let item = &mut self.items[n % count];
                item.cancelled[0] += usize::from(item.work.cancel());
                item.cancelled[1] += usize::from(item.plain.cancel());
            }
            Event::Away(away) => {
                let changed = self.sys.refresh(&self.shape.machine(away));
                assert!(matches!(changed, Ok(()) | Err(AttrsError::NoWorker(_))));
            }
            Event::Refuse(0..=1) => self.faults.refuse_spawns(false),
            Event::Refuse(2) => self.faults.refuse_spawns(true),
            Event::Refuse(n) => self.faults.fail_next_spawns(n),
            Event::Freeze => self.frozen.push(self.sys.freeze()),
            Event::Thaw => drop(self.frozen.pop()),
            Event::Poll(cpu, budget) => self.poll(cpu % cpus, budget),
            Event::Leave(cpu) => self.pollers[cpu % cpus] = None,
            Event::Limit(n, limit) => {
                // Of BH and ordered queues it is an error.
                let _ = self.queues[n % self.queues.len()].set_max_active(limit);
            }
            Event::Pass(ms) => self.clock.advance(Duration::from_millis(ms)),
        }
    }

    fn poll(&mut self, cpu: usize, budget: usize) {
        if self.pollers[cpu].is_none() {
            self.pollers[cpu] = match self.sys.bh_poller(cpu, || ()) {
                Ok(poller) => Some(poller),
                Err(PollerError::NoTimer(_)) => None,
                Err(other) => panic!("{other}"),
            };
        }
        if let Some(poller) = &mut self.pollers[cpu] {
            let _ = poller.poll(budget);
        }
    }

    fn is_idle(&self) -> bool {
        let pending = |item: &Item| item.work.is_pending() || item.plain.is_pending();
        let left = |wq: &Workqueue| {
            let stats = wq.stats();
            stats.queued > stats.completed + stats.cancelled
        };
        !self.items.iter().any(pending) && !self.queues.iter().any(left)
    }

    /// Threads can be had, nothing is frozen, time goes on: then all comes to its end.
    fn finish(mut self) {
        self.faults.refuse_spawns(false);
        self.frozen.clear();
        let mut looks = 0;
        while !self.is_idle() {
            self.clock.advance(BH_PATIENCE * 100);
            thread::yield_now();
            looks += 1;
            // It takes longer than others, and a failure is made smaller by many of them.
            if looks == LOOKS / 10 {
                let dump = self.sys.dump();
                std::mem::forget(self); // Its end would wait for what hangs.
                panic!("hangs: {dump}");
            }
        }
        for item in &self.items {
            let name = self.queues[item.queue].name();
            assert!(!item.overlaps.load(Ordering::Relaxed), "{name}");
            for sort in 0..2 {
                let ran = item.ran[sort].load(Ordering::Relaxed);
                let ended = ran + item.cancelled[sort];
                assert_eq!(item.accepted[sort], ended, "{name}, {sort}, ran {ran}");
            }
        }
        for wq in &self.queues {
            let stats = wq.stats();
            assert_eq!((stats.active, stats.inactive, stats.refused), (0, 0, 0));
            assert_eq!(stats.queued, stats.completed + stats.cancelled);
        }
    }
}

/// Only a thread can be missing.
fn check(error: &QueueError) {
    let thread = matches!(error, QueueError::NoWorker(_) | QueueError::NoTimer(_));
    assert!(thread, "{error}");
}

fn accepted(queued: Result<Queued, QueueError>) -> bool {
    match queued {
        Ok(queued) => queued.is_queued(),
        Err(error) => {
            check(&error);
            false
        }
    }
}

proptest! {
    #[test]
    fn each_item_runs_once_whatever_cpus_come_and_go(
        shape in shape(),
        events in proptest::collection::vec(event(), 0..160),
    ) {
        let mut world = World::new(shape);
        for event in events {
            world.step(event);
        }
        world.finish();
    }
}
