//! Random schedules of completions that run where they are seen or on the CPU that submitted, while
//! policies change, done lists close and open, machines change, and the set freezes.
//!
//! Each request has its callback once, whoever runs it, and its tag comes back.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, cpu, thread};
use inflight_tags::steering::{DoneListHandle, Runner, Steered};
use inflight_tags::{
    CompletionSink, Completions, HwQueueOptions, RedeemError, Steering, Tag, TagSet, Tenant,
    Topology,
};
use inflight_topology::CpuSet;
use shuttle_support::{Mode, PLAIN, SECOND, Size, builder, check};
use std::collections::VecDeque;

/// What is in a slot: the number of the request, what its completion has filled in, and how many
/// more its callback submits.
#[derive(Default)]
struct Request {
    number: usize,
    result: usize,
    more: usize,
}

/// Workers that run done lists; one may refuse, or seem to be awake.
#[derive(Clone, Default)]
struct Workers(Arc<WorkersState>);

#[derive(Default)]
struct WorkersState {
    woken: Mutex<VecDeque<DoneListHandle>>,
    refuse: AtomicBool,
    awake: AtomicBool,
    end: AtomicBool,
}

struct Shard(Workers, DoneListHandle);

impl CompletionSink for Workers {
    fn runner(&self, _: &CpuSet, list: DoneListHandle) -> Option<Box<dyn Runner>> {
        Some(Box::new(Shard(self.clone(), list)))
    }
}

impl Runner for Shard {
    fn wake(&self, _: usize) -> bool {
        let Workers(state) = &self.0;
        let takes = !state.refuse.load(Ordering::Relaxed);
        if takes {
            state.woken.lock().push_back(self.1.clone());
        }
        takes
    }

    fn is_awake(&self) -> bool {
        self.0.0.awake.load(Ordering::Relaxed)
    }
}

impl Workers {
    /// Until the end, and then what is left.
    fn run(&self) {
        loop {
            let last = self.0.end.load(Ordering::Relaxed);
            while let Some(list) = { self.0.woken.lock().pop_front() } {
                list.run();
            }
            if last {
                return;
            }
            thread::yield_now();
        }
    }
}

/// What all threads share.
struct World {
    set: TagSet<Request>,
    clock: Clock,
    completions: Mutex<Option<Completions<Request>>>,
    workers: Workers,
    /// Submitted and not yet seen.
    ring: Mutex<Vec<u64>>,
    /// Numbers given, and those of whom the callback has run.
    next: AtomicUsize,
    ran: Mutex<Vec<usize>>,
}

impl World {
    fn new(mode: Mode, nested: usize) -> Arc<Self> {
        let clock = Clock::manual();
        let size = Size::of(3).hw_queues(HwQueueOptions::new(2));
        let world = Arc::new(Self {
            set: builder(mode, size, &clock)
                .build(|_, _| Request::default())
                .unwrap(),
            clock,
            completions: Mutex::new(None),
            workers: Workers::default(),
            ring: Mutex::default(),
            next: AtomicUsize::new(0),
            ran: Mutex::default(),
        });
        let (weak, tenant) = (
            Arc::downgrade(&world),
            world.set.add_tenant("inner").unwrap(),
        );
        let machine = Topology::synthetic("cache:2 core:1").unwrap();
        let completions = world.set.completions(&machine).sink(world.workers.clone());
        let completions = completions.build(move |tag: Tag<Request>| {
            let world = weak.upgrade().expect("its threads hold it");
            assert_eq!(tag.result, tag.number + 1, "filled in once");
            world.ran.lock().push(tag.number);
            thread::yield_now();
            let more = tag.more.min(nested);
            drop(tag);
            if more > 0 {
                if let Ok(tag) = tenant.try_alloc() {
                    let token = world.submit(tag, more - 1);
                    world.complete(token);
                }
            }
        });
        *world.completions.lock() = Some(completions);
        world
    }

    fn submit(&self, mut tag: Tag<Request>, more: usize) -> u64 {
        *tag = Request {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            result: 0,
            more,
        };
        tag.into_token()
    }

    fn completions(&self) -> Completions<Request> {
        self.completions.lock().clone().expect("until the end")
    }

    fn complete(&self, token: u64) {
        let filled = self.completions().complete(token, |request| {
            request.result += request.number + 1;
        });
        if let Err(error) = filled {
            assert!(matches!(
                error,
                RedeemError::TimedOut { .. } | RedeemError::Stale { .. }
            ));
        }
    }

    /// As one who runs what is its own.
    fn steer(&self, token: u64) {
        let steered = self.completions().steer(token, |request| {
            request.result += request.number + 1;
        });
        match steered {
            Ok(Steered::Here(tag, _)) => {
                self.ran.lock().push(tag.number);
                drop(tag);
            }
            Ok(Steered::Sent { .. }) => {}
            Err(error) => assert!(matches!(
                error,
                RedeemError::TimedOut { .. } | RedeemError::Stale { .. }
            )),
        }
    }

    fn run(self: &Arc<Self>, others: &[fn(&Self, &Tenant<Request>)]) {
        let tenants = ["a", "b"].map(|name| self.set.add_tenant(name).unwrap());
        let (submitting, mut threads) = (Arc::new(AtomicUsize::new(3)), Vec::new());
        let mut spawn = |n: usize, f: Box<dyn FnOnce(&Self) + Send>| {
            let world = self.clone();
            threads.push(thread::spawn(move || {
                cpu::set_current_for_thread(Some(n % 2));
                f(&world);
            }));
        };
        for n in 0..3 {
            let (tenant, submitting) = (tenants[n % 2].clone(), submitting.clone());
            let submit = move |world: &Self| {
                for more in [0, 2] {
                    let tag = tenant.alloc_blocking().unwrap();
                    let token = world.submit(tag, more);
                    world.ring.lock().push(token);
                }
                submitting.fetch_sub(1, Ordering::Relaxed);
            };
            spawn(n, Box::new(submit));
        }
        for n in 0..2 {
            let submitting = submitting.clone();
            let reap = move |world: &Self| {
                loop {
                    let last = submitting.load(Ordering::Relaxed) == 0;
                    while let Some(token) = { world.ring.lock().pop() } {
                        if n == 0 {
                            world.complete(token);
                        } else {
                            world.steer(token);
                        }
                    }
                    if last {
                        return;
                    }
                    thread::yield_now();
                }
            };
            spawn(n + 1, Box::new(reap));
        }
        for (n, other) in others.iter().enumerate() {
            let (tenant, other) = (tenants[n % 2].clone(), *other);
            spawn(n, Box::new(move |world| other(world, &tenant)));
        }
        let workers = self.workers.clone();
        let worker = thread::spawn(move || workers.run());
        threads.into_iter().for_each(|t| t.join().unwrap());
        self.workers.0.end.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        drop(tenants);
    }

    /// Each has had its callback, and nothing is out.
    fn assert_done(&self) {
        let mut ran = std::mem::take(&mut *self.ran.lock());
        ran.sort_unstable();
        let all: Vec<usize> = (0..self.next.load(Ordering::Relaxed)).collect();
        assert_eq!(ran, all, "a callback for each");
        assert_eq!(self.set.in_use(), 0);
    }
}

fn policies(world: &World, tenant: &Tenant<Request>) {
    for policy in [
        Steering::Force,
        Steering::SameCpu,
        Steering::Inline,
        Steering::SameCache,
    ] {
        world.set.set_steering(policy);
        thread::yield_now();
        tenant.set_steering(policy);
        thread::yield_now();
        world.set.set_steering(Steering::SameCpu);
        tenant.follow_set_steering();
    }
}

fn force(world: &World, _: &Tenant<Request>) {
    world.set.set_steering(Steering::Force);
}

fn lists(world: &World, _: &Tenant<Request>) {
    for cpu in [1, 0, 1] {
        let completions = world.completions();
        completions.close_cpu(cpu);
        thread::yield_now();
        completions.open_cpu(cpu);
    }
}

fn machines(world: &World, _: &Tenant<Request>) {
    for machine in ["core:1", "cache:4 core:1", "cache:2 core:1"] {
        let machine = Topology::synthetic(machine).unwrap();
        world.set.cpus().refresh(&machine);
        thread::yield_now();
    }
}

fn moody_workers(world: &World, _: &Tenant<Request>) {
    let state = &world.workers.0;
    for n in 0..6 {
        state.refuse.store(n % 3 == 1, Ordering::Relaxed);
        state.awake.store(n % 2 == 0, Ordering::Relaxed);
        thread::yield_now();
    }
}

fn freezes(world: &World, _: &Tenant<Request>) {
    for _ in 0..2 {
        let frozen = world.set.freeze_blocking();
        assert_eq!(world.set.in_use(), 0);
        drop(frozen);
    }
}

fn timeouts(world: &World, _: &Tenant<Request>) {
    for _ in 0..3 {
        world.clock.advance(SECOND);
        for late in world.set.iter_expired() {
            let mut tag = late.redeem().unwrap();
            tag.result = tag.number + 1;
            world.completions().complete_tag(tag);
        }
        thread::yield_now();
    }
}

fn polled(world: &World, tenant: &Tenant<Request>) {
    for form in [true, false] {
        let mut tag = tenant.alloc_blocking_with(PLAIN).unwrap();
        tag.number = world.next.fetch_add(1, Ordering::Relaxed);
        (tag.result, tag.more) = (0, 0);
        if form {
            let token = tag.into_polled_token();
            world.complete(token);
        } else {
            tag.submit_here();
            tag.result = tag.number + 1;
            world.completions().complete_tag(tag);
        }
    }
}

fn closes(world: &World, _: &Tenant<Request>) {
    for _ in 0..2 {
        thread::yield_now();
        world.completions().close();
    }
}

/// Everything that decides where a completion runs changes.
fn policies_change(mode: Mode) {
    let world = World::new(mode, 2);
    world.run(&[policies, lists, moody_workers, polled]);
    world.assert_done();
    let stats = world.completions().stats();
    // What a reaper runs itself counts too.
    assert_eq!(
        stats.completed() as usize,
        world.next.load(Ordering::Relaxed)
    );
    assert_eq!(stats.panicked, 0);
    *world.completions.lock() = None;
}

/// All go through done lists, of CPUs that come and go; nested ones too.
fn machines_change(mode: Mode) {
    let world = World::new(mode, 2);
    world.run(&[force, machines, lists, freezes]);
    world.assert_done();
    *world.completions.lock() = None;
}

/// Late ones among them, and the lists are closed for good under way.
fn late_ones(mode: Mode) {
    let world = World::new(mode, 1);
    world.run(&[force, timeouts, closes, moody_workers]);
    *world.completions.lock() = None;
    world.assert_done();
}

#[test]
fn completions_by_changing_policies() {
    check("completions_by_changing_policies", policies_change);
}

#[test]
fn completions_on_changing_machines() {
    check("completions_on_changing_machines", machines_change);
}

#[test]
fn completions_of_late_ones() {
    check("completions_of_late_ones", late_ones);
}
