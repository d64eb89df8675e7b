//! Random operations of one thread, with every policy, size and kind of set. A task is polled only
//! when it was woken, so a wakeup that is lost leaves somebody asleep when all tags are back; a
//! slot knows its owner; and at the end every tag there is can be had, and every payload is
//! dropped.
//!
//! A failure names its seed: set [`FIRST_SEED`] to it and [`SEEDS`] to 1 to see it alone.

#![cfg(not(any(loom, shuttle)))]

mod plan;

mod task;

use fastrand::Rng;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, cpu, thread};
use inflight_tags::{AllocError, AllocOptions, FrozenGuard, Split, Tag, Tenant};
use plan::{Payload, Plan, Set, WEIGHTS};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use task::{Home, Kind, Lent, Next, Outcome, Task};

const FIRST_SEED: u64 = 0;

const SEEDS: u64 = if cfg!(miri) { 5 } else { 4000 };

/// Some mistakes need a set in which nobody has waited before, so most runs are short.
const MOST_STEPS: [usize; 4] = [20, 40, 80, 400];

const MOST_TASKS: usize = 30;

const MOST_SPLITS: usize = 6;

const MOST_DEVICES: usize = 6;

/// At the end of a run; a few hundred are needed.
const MOST_POLLS: usize = 20_000;

const CPUS: usize = 6;

#[test]
fn whatever_one_thread_does_nobody_is_left_asleep() {
    for seed in FIRST_SEED..FIRST_SEED + SEEDS {
        let named = NamedOnPanic(seed);
        let mut world = World::new(seed);
        let most = MOST_STEPS[world.rng.usize(0..MOST_STEPS.len())];
        for _ in 0..world.rng.usize(5..most) {
            world.step();
        }
        world.wind_down();
        world.assert_whole();
        drop(named);
    }
    cpu::set_current_for_thread(None);
}

struct NamedOnPanic(u64);

impl Drop for NamedOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

/// A split, and whether it named a hardware queue.
struct Parked {
    home: Home,
    bound: bool,
}

struct World {
    rng: Rng,
    plan: Plan,
    clock: Clock,
    made: Arc<AtomicUsize>,
    drops: Arc<AtomicUsize>,
    set: Set,
    devices: Vec<Tenant<Payload>>,
    tasks: Vec<Task>,
    splits: BTreeMap<u64, Parked>,
    /// With their owners, as are the tokens.
    held: Vec<(u64, Tag<Payload>)>,
    tokens: Vec<(u64, u64)>,
    /// Redeemed tokens.
    spent: Vec<u64>,
    guards: Vec<FrozenGuard>,
    /// The last number given to an owner or a split.
    last: u64,
}

type Operation = fn(&mut World);

/// How often, out of their sum.
const OPERATIONS: [(u32, Operation); 19] = [
    (18, World::start_alloc),
    (10, World::start_split),
    (6, World::go_on_with_a_split),
    (17, World::poll_one),
    (10, World::poll_some),
    (5, World::give_back),
    (5, World::submit),
    (8, World::redeem),
    (3, World::redeem_in_vain),
    (3, World::cancel),
    (2, World::start_freeze),
    (3, World::thaw),
    (2, World::resize),
    (1, World::change_hw_queues),
    (2, World::add_device),
    (1, World::remove_device),
    (1, World::change_weight),
    (1, World::advance_clock),
    (2, World::alloc_now),
];

/// The operations, each of which does nothing where it has nothing to do it to.
impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let plan = Plan::new(&mut rng);
        let clock = Clock::manual();
        let (made, drops) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let set = plan.build(&clock, &made, &drops);
        Self {
            devices: vec![set.add_tenant("first").unwrap()],
            rng,
            plan,
            clock,
            made,
            drops,
            set,
            tasks: Vec::new(),
            splits: BTreeMap::new(),
            held: Vec::new(),
            tokens: Vec::new(),
            spent: Vec::new(),
            guards: Vec::new(),
            last: 0,
        }
    }

    fn step(&mut self) {
        if self.rng.u8(0..3) == 0 {
            cpu::set_current_for_thread(Some(self.rng.usize(0..CPUS)));
        }
        let sum = OPERATIONS.iter().map(|(weight, _)| weight).sum();
        let mut at = self.rng.u32(0..sum);
        for (weight, operation) in OPERATIONS {
            if at < weight {
                operation(self);
                break;
            }
            at -= weight;
        }
        assert_eq!(self.set.in_flight(), self.tokens.len());
        assert_eq!(self.set.in_use(), self.tokens.len() + self.held.len());
    }

    fn start_alloc(&mut self) {
        if self.tasks.len() == MOST_TASKS {
            return;
        }
        let (mut options, bound) = self.options(3);
        if self.plan.reserved > 0 && self.rng.u8(0..4) == 0 {
            options = options.reserved();
        }
        let device = self.device();
        let future = async move { Outcome::Tag(device.alloc_with(options).await) };
        self.tasks.push(Task::new(Kind::Alloc, bound, future));
    }

    fn start_split(&mut self) {
        if self.splits.len() == MOST_SPLITS {
            return;
        }
        let (options, bound) = self.options(4);
        let n = self.rng.usize(0..self.plan.max_depth * 2 + 2);
        let home = Rc::new(RefCell::new(Some(self.device().split_with(n, options))));
        let id = self.number();
        self.splits.insert(id, Parked { home, bound });
        self.start_next(id);
    }

    /// Asks a split in which nobody waits for its next tag, or drops it.
    fn go_on_with_a_split(&mut self) {
        let idle = self.idle_splits();
        let Some(&id) = pick(&mut self.rng, &idle) else {
            return;
        };
        let home = self.splits[&id].home.clone();
        let with = |f: fn(&mut Split<Payload>) -> Next| f(home.borrow_mut().as_mut().unwrap());
        match self.rng.u8(0..4) {
            0 => self.end_next_now(id, with(Split::try_next)),
            1 => self.end_next_now(id, with(|split| split.next_timeout(Duration::ZERO))),
            2 if self.plan.cancels => drop(self.splits.remove(&id)),
            _ => self.start_next(id),
        }
    }

    fn poll_one(&mut self) {
        if !self.tasks.is_empty() {
            let i = self.rng.usize(0..self.tasks.len());
            self.poll(i);
        }
    }

    fn poll_some(&mut self) {
        // From the back, as one that ends has the last one take its place.
        for i in (0..self.tasks.len()).rev() {
            if self.rng.bool() {
                self.poll(i);
            }
        }
    }

    fn give_back(&mut self) {
        if let Some((_, tag)) = take(&mut self.rng, &mut self.held) {
            free(tag);
        }
    }

    fn submit(&mut self) {
        if let Some((owner, tag)) = take(&mut self.rng, &mut self.held) {
            self.tokens.push((owner, tag.into_token()));
        }
    }

    fn redeem(&mut self) {
        let Some((owner, token)) = take(&mut self.rng, &mut self.tokens) else {
            return;
        };
        let tag = self.set.redeem(token).unwrap();
        assert_eq!(tag.owner, owner);
        self.spent.push(token);
        if self.rng.bool() {
            free(tag);
        } else {
            self.held.push((owner, tag));
        }
    }

    /// A spent token, and one that is not or no longer a token.
    fn redeem_in_vain(&mut self) {
        let Some(&token) = pick(&mut self.rng, &self.spent) else {
            return;
        };
        self.set.redeem(token).unwrap_err();
        let damaged = token ^ (1 << self.rng.u32(0..64));
        if self.tokens.iter().all(|(_, token)| *token != damaged) {
            self.set.redeem(damaged).unwrap_err();
        }
    }

    fn cancel(&mut self) {
        if !self.plan.cancels {
            return;
        }
        let Some(task) = take(&mut self.rng, &mut self.tasks) else {
            return;
        };
        let kind = task.kind;
        drop(task);
        if let (Kind::Split(id), true) = (kind, self.rng.bool()) {
            self.splits.remove(&id);
        }
    }

    fn start_freeze(&mut self) {
        if self.plan.freezes {
            let set = self.set.clone();
            let future = async move { Outcome::Frozen(set.freeze().await) };
            self.tasks.push(Task::new(Kind::Freeze, false, future));
        }
    }

    fn thaw(&mut self) {
        drop(take(&mut self.rng, &mut self.guards));
    }

    fn resize(&mut self) {
        if self.plan.resizes {
            let depth = self.rng.usize(self.plan.reserved + 1..=self.plan.max_depth);
            self.set.resize(depth).unwrap();
        }
    }

    fn change_hw_queues(&mut self) {
        if !self.plan.resizes {
            return;
        }
        if let Ok(guard) = self.set.try_freeze() {
            self.assert_nothing_is_out();
            let n = self.rng.usize(1..=self.plan.max_hw_queues);
            self.set.set_hw_queues_blocking(n).unwrap();
            drop(guard);
        }
    }

    fn add_device(&mut self) {
        if self.devices.len() < MOST_DEVICES {
            let name = format!("later {}", self.number());
            self.devices.push(self.set.add_tenant(name).unwrap());
        }
    }

    /// Tasks, splits and tags of the device live on.
    fn remove_device(&mut self) {
        if self.devices.len() > 1 {
            drop(take(&mut self.rng, &mut self.devices));
        }
    }

    fn change_weight(&mut self) {
        let weight = WEIGHTS[self.rng.usize(0..WEIGHTS.len())];
        // Refused where the set does not share by weights.
        let _refused = self.device().set_weight(weight);
    }

    fn advance_clock(&mut self) {
        let by = Duration::from_millis(self.rng.u64(0..4000));
        self.clock.advance(by);
    }

    fn alloc_now(&mut self) {
        let device = self.device();
        match self.rng.u8(0..4) {
            0 => match device.try_alloc() {
                Ok(tag) => self.own(tag),
                Err(AllocError::Exhausted | AllocError::Frozen) => {}
                Err(error) => panic!("{error:?}"),
            },
            1 => {
                let n = self.rng.usize(0..self.plan.max_depth + 2);
                for tag in device.try_alloc_batch(n) {
                    self.own(tag);
                }
            }
            _ => match device.alloc_timeout(Duration::ZERO) {
                Ok(tag) => self.own(tag),
                Err(error) => assert_eq!(error, AllocError::TimedOut),
            },
        }
    }
}

/// What the operations are made of.
impl World {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn device(&mut self) -> Tenant<Payload> {
        self.devices[self.rng.usize(0..self.devices.len())].clone()
    }

    /// One time in `n` these name a hardware queue, there or not.
    fn options(&mut self, n: u8) -> (AllocOptions, bool) {
        let bound = self.rng.u8(0..n) == 0;
        let mut options = AllocOptions::new();
        if bound {
            options = options.hw_queue(self.rng.usize(0..self.plan.max_hw_queues));
        }
        (options, bound)
    }

    fn own(&mut self, mut tag: Tag<Payload>) {
        assert_eq!(tag.owner, 0, "two owners of one tag");
        assert!(self.guards.is_empty(), "a tag of a frozen set");
        tag.owner = self.number();
        self.held.push((tag.owner, tag));
    }

    fn assert_nothing_is_out(&self) {
        let out = (self.held.len(), self.tokens.len());
        assert_eq!(out, (0, 0), "frozen with tags or tokens out");
    }

    fn idle_splits(&self) -> Vec<u64> {
        let idle = |parked: &Parked| parked.home.borrow().is_some();
        let splits = self.splits.iter();
        splits.filter(|(_, p)| idle(p)).map(|(id, _)| *id).collect()
    }

    fn start_next(&mut self, id: u64) {
        let Parked { home, bound } = &self.splits[&id];
        let lent = Lent::from(home);
        let future = async move { Outcome::Next(lent.next().await) };
        self.tasks.push(Task::new(Kind::Split(id), *bound, future));
    }

    /// A split that did not wait may also have to come again.
    fn end_next_now(&mut self, id: u64, next: Next) {
        match next {
            Err(AllocError::Exhausted | AllocError::Frozen | AllocError::TimedOut) => {}
            Err(AllocError::NoSuchHwQueue { .. }) => assert!(self.splits[&id].bound),
            next => self.end_next(id, next),
        }
    }

    fn end_next(&mut self, id: u64, next: Next) {
        match next {
            Ok(Some(tag)) => self.own(tag),
            Ok(None) => drop(self.splits.remove(&id)),
            Err(error) => {
                assert!(matches!(error, AllocError::NoSuchHwQueue { .. }));
                let split = self.splits.remove(&id).unwrap();
                assert!(split.bound, "all hardware queues are gone");
            }
        }
    }

    /// Polls a task if it was woken; one that ends leaves its place to the last.
    fn poll(&mut self, i: usize) {
        let Poll::Ready(outcome) = self.tasks[i].poll_if_woken() else {
            return;
        };
        let Task { kind, bound, .. } = self.tasks.swap_remove(i);
        match (outcome, kind) {
            (Outcome::Tag(Ok(tag)), _) => self.own(tag),
            (Outcome::Tag(Err(error)), _) => {
                assert!(bound && matches!(error, AllocError::NoSuchHwQueue { .. }));
            }
            (Outcome::Next(next), Kind::Split(id)) => self.end_next(id, next),
            (Outcome::Frozen(guard), _) => {
                self.assert_nothing_is_out();
                self.guards.push(guard);
            }
            (Outcome::Next(_), _) => unreachable!("only splits have a next"),
        }
    }
}

/// The end of a run.
impl World {
    /// Runs what is woken, then gives back one thing, until nothing is left. Who sleeps when
    /// everything has been given back was forgotten.
    fn wind_down(&mut self) {
        let mut polls = 0;
        loop {
            while let Some(i) = self.tasks.iter().position(Task::is_woken) {
                polls += 1;
                assert!(polls < MOST_POLLS, "tasks wake each other for ever");
                self.poll(i);
            }
            let idle = self.idle_splits();
            if !idle.is_empty() {
                idle.into_iter().for_each(|id| self.start_next(id));
            } else if let Some((_, tag)) = self.held.pop() {
                free(tag);
            } else if let Some((owner, token)) = self.tokens.pop() {
                let tag = self.set.redeem(token).unwrap();
                assert_eq!(tag.owner, owner);
                free(tag);
            } else if let Some(guard) = self.guards.pop() {
                drop(guard);
            } else {
                break;
            }
        }
        let asleep: Vec<_> = self.tasks.iter().map(|task| task.kind).collect();
        assert_eq!(asleep, [], "a wakeup was lost: {:?}", self.plan);
    }

    /// One tenant alone can have every tag there is, and every payload that was made is dropped.
    fn assert_whole(self) {
        assert_eq!(self.set.in_use(), 0);
        assert!(!self.set.is_frozen());
        let device = self.set.add_tenant("last").unwrap();
        drop((self.devices, self.splits));
        cpu::set_current_for_thread(None);
        for hw_queue in 0..self.set.hw_queues().len() {
            let all =
                |options| std::iter::from_fn(|| device.try_alloc_with(options).ok()).collect();
            let options = AllocOptions::new().hw_queue(hw_queue);
            let normal: Vec<_> = all(options);
            let depth = self.set.depth() - self.plan.reserved;
            assert_eq!(normal.len(), depth, "hardware queue {hw_queue}");
            let reserved: Vec<_> = all(options.reserved());
            assert_eq!(reserved.len(), self.plan.reserved);
        }
        let stats = self.set.stats();
        assert_eq!(stats.allocs, stats.frees);
        drop((device, self.set));
        let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        assert_eq!(count(&self.drops), count(&self.made), "payloads");
    }
}

fn free(mut tag: Tag<Payload>) {
    tag.owner = 0;
    drop(tag);
}

fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> Option<&'a T> {
    (!from.is_empty()).then(|| &from[rng.usize(0..from.len())])
}

fn take<T>(rng: &mut Rng, from: &mut Vec<T>) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(rng.usize(0..from.len())))
}
