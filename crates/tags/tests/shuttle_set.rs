//! Random schedules of whole sets, under every admission: four to nine threads that allocate one by
//! one, in batches and for splits, wait as threads and as tasks, run out of time, drop futures,
//! submit, complete, expire, resize, freeze, quiesce, and take CPUs away; for several tenants.
//!
//! A lost wakeup, a freeze that never ends and two splits that wait for each other show as a
//! deadlock, a tag with two owners in its slot, a lost tag as a short count at the end.
#![cfg(shuttle)]

use inflight_sbitmap::Engine;
use inflight_sync::model::{check_pct, check_random};
use inflight_sync::percpu::pushes;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, block_on, cpu, thread};
use inflight_tags::{
    Admission, AllocError, AllocOptions, DrainError, HwQueueOptions, NoPreempt, RedeemError,
    SharePolicy, Tag, TagSet, Tenant,
};
use inflight_topology::Topology;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

const RUNS: usize = 40;
const SECOND: Duration = Duration::from_secs(1);
/// How tags are given out, where free ones are kept, whether hardware queues share them, and how
/// tenants do.
#[derive(Clone, Copy, Debug)]
struct Mode(Admission, Engine, bool, SharePolicy);

fn modes() -> [Mode; 6] {
    let whole_io = Admission::WholeIo;
    let no_preempt = Admission::NoPreempt(NoPreempt::default().threshold(1));
    let elastic = Admission::elastic_overcommit(1);
    let (alone, fair) = (SharePolicy::None, SharePolicy::Fair { min: 1 });
    let weighted = SharePolicy::Weighted { min: 1 };
    [
        Mode(whole_io, Engine::Local, false, alone),
        Mode(whole_io, Engine::Shared, true, fair),
        Mode(whole_io, Engine::Local, true, weighted),
        Mode(Admission::preempt(), Engine::Shared, false, fair),
        Mode(no_preempt, Engine::Shared, true, weighted),
        Mode(elastic, Engine::Shared, false, alone),
    ]
}

/// Both ways to choose schedules, for each mode.
fn check(name: &str, model: fn(Mode)) {
    for mode in modes() {
        let name = format!("{name}/{mode:?}");
        let before = pushes();
        check_random(&name, RUNS, move || model(mode));
        check_pct(&name, RUNS, 4, move || model(mode));
        let stacks = mode.1 == Engine::Local;
        assert_eq!(pushes() > before, stacks, "whether tags went into stacks");
    }
}

/// With fewer tags the local engine opens no stack.
const FEWEST: usize = 4;

/// What is in a slot: who uses it, 0 for nobody.
#[derive(Debug, Default)]
struct Owned(usize);

/// A set of two CPUs with a hardware queue each, and the tokens on their way.
struct World {
    set: TagSet<Owned>,
    clock: Clock,
    ring: Mutex<Vec<u64>>,
    shared_tags: bool,
    /// Tags of each hardware queue beyond what the model asks for.
    more: usize,
}

impl World {
    fn new(depth: usize, max_depth: usize, mode: Mode) -> Arc<Self> {
        let Mode(admission, engine, shared_tags, share) = mode;
        let clock = Clock::manual();
        let topology = Topology::synthetic("core:2").unwrap();
        let more = match engine {
            Engine::Local => FEWEST.saturating_sub(depth),
            _ => 0,
        };
        let set = TagSet::builder()
            .topology(&topology)
            .hw_queues(HwQueueOptions::new(2).shared_tags(shared_tags))
            .depth(depth + more)
            .max_depth(max_depth + more)
            .admission(admission)
            .engine(engine)
            .share(share)
            .timeout(SECOND)
            .clock(clock.clone());
        Arc::new(Self {
            set: set.build(|_, _| Owned::default()).unwrap(),
            clock,
            ring: Mutex::new(Vec::new()),
            shared_tags,
            more,
        })
    }

    /// Takes the token of somebody's request, which may time out first, and ends it.
    fn complete(&self, token: u64) {
        match self.set.redeem(token) {
            Ok(tag) => use_and_free(tag),
            // Stale: timed out, and handled already.
            Err(error) => assert!(matches!(
                error,
                RedeemError::TimedOut { .. } | RedeemError::Stale { .. }
            )),
        }
        let again = self.set.redeem(token).unwrap_err();
        assert!(matches!(
            again,
            RedeemError::TimedOut { .. } | RedeemError::Stale { .. }
        ));
    }

    /// Submits, and completes whatever has been submitted: nobody's request stays behind.
    fn submit(&self, mut tag: Tag<Owned>) {
        use_it(&mut tag);
        let token = tag.into_token();
        self.ring.lock().push(token);
        self.complete_all();
    }

    fn complete_all(&self) {
        while let Some(token) = { self.ring.lock().pop() } {
            self.complete(token);
        }
    }

    /// Ends the requests whose time is up.
    fn expire(&self) {
        let mut late = Vec::new();
        self.set.expire(|token| late.push(token));
        for token in late {
            use_and_free(self.set.redeem_timed_out(token).unwrap());
        }
    }

    /// As a submitter who gets a tag, runs out of time, or had named a hardware queue that is gone.
    fn submit_if(&self, result: Result<Tag<Owned>, AllocError>) {
        match result {
            Ok(tag) => self.submit(tag),
            Err(
                AllocError::TimedOut
                | AllocError::Exhausted
                | AllocError::Frozen
                | AllocError::Quiesced
                | AllocError::InactiveHwQueue { .. }
                | AllocError::NoSuchHwQueue { .. },
            ) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Nothing is out, nobody waits, and one tenant alone can have every tag there is.
    fn assert_whole(self: Arc<Self>) {
        assert_eq!((self.set.in_use(), self.set.in_flight()), (0, 0));
        assert!(!self.set.is_frozen() && !self.set.is_quiesced());
        let stats = self.set.stats();
        assert_eq!(stats.allocs, stats.frees);
        let last = self.set.add_tenant("last").unwrap();
        let mut all = Vec::new();
        for hw_queue in 0..self.set.hw_queues().len() {
            let options = AllocOptions::new().hw_queue(hw_queue);
            all.extend(std::iter::from_fn(|| last.try_alloc_with(options).ok()));
        }
        let tables = if self.shared_tags {
            1
        } else {
            self.set.hw_queues().len()
        };
        assert_eq!(all.len(), self.set.depth() * tables, "a tag was lost");
    }
}

/// Finds out whether anybody else uses the slot.
fn use_it(tag: &mut Tag<Owned>) {
    let me = tag.unique() as usize + 1;
    assert_eq!(tag.0, 0, "two owners");
    tag.0 = me;
    thread::yield_now();
    assert_eq!(tag.0, me, "two owners");
    tag.0 = 0;
}

fn use_and_free(mut tag: Tag<Owned>) {
    use_it(&mut tag);
}

/// Polls and gives up, as a `select!` whose other branch was faster.
fn cancelled<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut last = false;
    block_on(poll_fn(move |cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if last => Poll::Ready(None),
        Poll::Pending => {
            last = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }))
}

/// Threads of one model, on CPUs 0, 1, 0, …, each with a tenant.
struct Threads {
    world: Arc<World>,
    tenants: [Tenant<Owned>; 2],
    running: Vec<thread::JoinHandle<()>>,
}

impl Threads {
    fn of(world: &Arc<World>) -> Self {
        Self {
            world: world.clone(),
            tenants: ["a", "b"].map(|name| world.set.add_tenant(name).unwrap()),
            running: vec![],
        }
    }

    fn spawn(&mut self, f: impl FnOnce(&World, &Tenant<Owned>) + Send + 'static) -> &mut Self {
        let n = self.running.len();
        let (world, tenant) = (self.world.clone(), self.tenants[n / 2 % 2].clone());
        self.running.push(thread::spawn(move || {
            cpu::set_current_for_thread(Some(n % 2));
            f(&world, &tenant);
        }));
        self
    }

    /// And whoever makes the tags few.
    fn join(&mut self) {
        for _ in 0..2 * usize::from(self.world.more > 0) {
            self.spawn(hog);
        }
        self.running.drain(..).for_each(|t| t.join().unwrap());
    }
}

// What threads do.

fn blocking(world: &World, tenant: &Tenant<Owned>) {
    for _ in 0..2 {
        world.submit(tenant.alloc_blocking().unwrap());
    }
}

/// Takes the tags beyond what the model asks for, and gives them back one by one.
fn hog(world: &World, tenant: &Tenant<Owned>) {
    for _ in 0..2 {
        let tags = std::iter::from_fn(|| tenant.try_alloc().ok()).take(world.more);
        let tags: Vec<_> = tags.collect();
        thread::yield_now();
        tags.into_iter().for_each(use_and_free);
    }
}

fn task(world: &World, tenant: &Tenant<Owned>) {
    world.submit(block_on(tenant.alloc()).unwrap());
}

fn dropped_task(world: &World, tenant: &Tenant<Owned>) {
    if let Some(tag) = cancelled(tenant.alloc()) {
        world.submit(tag.unwrap());
    }
}

fn with_timeout(world: &World, tenant: &Tenant<Owned>) {
    world.submit_if(tenant.alloc_timeout(SECOND));
}

/// To one hardware queue.
fn bound(world: &World, tenant: &Tenant<Owned>) {
    world.submit_if(tenant.alloc_blocking_with(AllocOptions::new().hw_queue(1)));
}

fn batch(world: &World, tenant: &Tenant<Owned>) {
    let mut tags = tenant.try_alloc_batch(2);
    tags.iter_mut().for_each(use_it);
    Tag::free_batch(tags);
    world.submit_if(tenant.try_alloc());
}

fn split(world: &World, tenant: &Tenant<Owned>) {
    let mut split = tenant.split(3);
    while let Some(tag) = split.next_blocking().unwrap() {
        world.submit(tag);
    }
    assert_eq!(split.remaining(), 0);
}

fn split_task(world: &World, tenant: &Tenant<Owned>) {
    block_on(async {
        let mut split = tenant.split(2);
        while let Some(tag) = split.next().await.unwrap() {
            world.submit(tag);
        }
    });
}

/// Gives up half way, once with its future only and then for good.
fn dropped_split(world: &World, tenant: &Tenant<Owned>) {
    let mut split = tenant.split(3);
    for _ in 0..2 {
        match cancelled(split.next()) {
            Some(Ok(Some(tag))) => world.submit(tag),
            Some(Ok(None)) => unreachable!("there are three pieces"),
            Some(Err(error)) => panic!("{error:?}"),
            None => {}
        }
    }
}

fn split_with_timeout(world: &World, tenant: &Tenant<Owned>) {
    let mut split = tenant.split(2);
    while let Ok(Some(tag)) = split.next_timeout(SECOND) {
        world.submit(tag);
    }
}

fn resize(world: &World, tenant: &Tenant<Owned>) {
    // Refused where weights count for nothing.
    let _weighted = tenant.set_weight(3);
    for depth in [3, 1, 2] {
        world.set.resize(depth + world.more).unwrap();
    }
}

fn freeze(world: &World, _: &Tenant<Owned>) {
    let frozen = world.set.freeze_blocking();
    assert_eq!(world.set.in_use(), 0, "frozen");
    thread::yield_now();
    assert_eq!(world.set.in_use(), 0, "frozen");
    drop(frozen);
    drop(cancelled(world.set.freeze()));
}

fn quiesce(world: &World, _: &Tenant<Owned>) {
    let quiesced = world.set.quiesce();
    quiesced.drain_blocking();
    assert_eq!(world.set.in_use(), 0, "quiesced and drained");
    drop(quiesced);
}

/// CPU 1 leaves with its hardware queue, which is drained, and comes back.
fn leave(world: &World, _: &Tenant<Owned>) {
    // None, if the set has one hardware queue at the time.
    for hw_queue in world.set.cpus().offline(1) {
        assert_eq!(hw_queue, 1);
        match world.set.hw_queues().drain_blocking(hw_queue) {
            Ok(()) => {}
            // The number of hardware queues was changed meanwhile.
            Err(error) => assert!(matches!(
                error,
                DrainError::Active { .. } | DrainError::NoSuchHwQueue { .. }
            )),
        }
    }
    world.set.cpus().online(1);
}

fn hw_queues(world: &World, _: &Tenant<Owned>) {
    world.set.set_hw_queues_blocking(1).unwrap();
    world.set.set_hw_queues_blocking(2).unwrap();
}

/// A tenant comes, uses a tag and goes.
fn tenant(world: &World, _: &Tenant<Owned>) {
    let tenant = world.set.add_tenant("late").unwrap();
    world.submit(tenant.alloc_blocking().unwrap());
}

/// Requests time out, and somebody looks at all that is in flight meanwhile.
fn expire(world: &World, _: &Tenant<Owned>) {
    world.clock.advance(SECOND);
    world.expire();
    world.set.for_each_in_flight(|request| {
        assert!(request.token() != 0 && request.hw_queue() < 2);
    });
    world.clock.advance(SECOND);
    world.expire();
}

/// H6, H9, D25. Waiters of every kind for few tags, of two tenants.
#[test]
fn h6_h9_waiters_of_all_kinds() {
    check("h6_h9_waiters_of_all_kinds", |mode| {
        let world = World::new(1, 1, mode);
        let mut threads = Threads::of(&world);
        threads.spawn(blocking).spawn(task).spawn(dropped_task);
        threads.spawn(with_timeout).spawn(batch).spawn(tenant);
        world.clock.advance(SECOND);
        threads.join();
        drop(threads);
        world.assert_whole();
    });
}

/// H9. Sets in which an even share makes wake batches above 1 and a light tenant's does not.
#[test]
fn h9_weights_and_larger_wake_batches() {
    check(
        "h9_weights_and_larger_wake_batches",
        |Mode(admission, engine, shared, _)| {
            let share = SharePolicy::Weighted { min: 1 };
            let world = World::new(48, 96, Mode(admission, engine, shared, share));
            let mut threads = Threads::of(&world);
            threads.tenants[0].set_weight(47).unwrap();
            let held = threads
                .tenants
                .each_ref()
                .map(|tenant| tenant.try_alloc_batch(48));
            threads
                .spawn(batch)
                .spawn(blocking)
                .spawn(blocking)
                .spawn(task);
            threads.spawn(|world, tenant| {
                tenant.set_weight(1).unwrap();
                world.set.resize(96).unwrap();
                tenant.set_weight(47).unwrap();
                world.set.resize(48).unwrap();
            });
            threads.spawn(split).spawn(dropped_task).spawn(blocking);
            held.into_iter().for_each(Tag::free_batch);
            threads.join();
            drop(threads);
            world.assert_whole();
        },
    );
}

/// D24 to D26. Large requests among small ones: none is lost, and no two wait for each other.
#[test]
fn d25_splits_among_small_ones() {
    check("d25_splits_among_small_ones", |mode| {
        let world = World::new(2, 2, mode);
        let mut threads = Threads::of(&world);
        threads.spawn(split).spawn(split_task).spawn(dropped_split);
        threads
            .spawn(split_with_timeout)
            .spawn(blocking)
            .spawn(batch);
        world.clock.advance(SECOND);
        threads.join();
        drop(threads);
        world.assert_whole();
    });
}

/// H23. Completions meet the timeouts of the same requests, twice.
#[test]
fn h23_completions_and_timeouts() {
    check("h23_completions_and_timeouts", |mode| {
        let world = World::new(2, 2, mode);
        let mut threads = Threads::of(&world);
        threads.spawn(blocking).spawn(expire).spawn(blocking);
        threads.spawn(expire).spawn(task);
        threads.join();
        drop(threads);
        world.assert_whole();
    });
}

/// H24. Two freezers and a quiescer among splits, batches and waiters who give up.
#[test]
fn h24_freezes_under_load() {
    check("h24_freezes_under_load", |mode| {
        let world = World::new(2, 2, mode);
        let mut threads = Threads::of(&world);
        threads.spawn(freeze).spawn(quiesce).spawn(split);
        threads
            .spawn(dropped_split)
            .spawn(batch)
            .spawn(dropped_task);
        threads.spawn(blocking);
        threads.join();
        drop(threads);
        world.assert_whole();
    });
}

/// H20 to H22. The depth changes, and a hardware queue leaves and comes back, under waiters who
/// named it and waiters who did not.
#[test]
fn h20_h22_sizes_and_cpus_change() {
    check("h20_h22_sizes_and_cpus_change", |mode| {
        let world = World::new(2, 3, mode);
        let mut threads = Threads::of(&world);
        threads.spawn(resize).spawn(leave).spawn(bound);
        threads.spawn(blocking).spawn(split).spawn(task);
        threads.join();
        drop(threads);
        world.assert_whole();
    });
}

/// H25. The number of hardware queues changes while one of them leaves, and under a freeze.
#[test]
fn h25_hw_queues_change() {
    check("h25_hw_queues_change", |mode| {
        let world = World::new(2, 2, mode);
        let mut threads = Threads::of(&world);
        threads.spawn(hw_queues).spawn(leave).spawn(bound);
        threads.spawn(blocking).spawn(freeze).spawn(dropped_task);
        threads.join();
        drop(threads);
        world.assert_whole();
    });
}

/// Everything at once, on eight threads beside the one that moves the clock.
#[test]
fn h6_h20_h24_eight_threads_do_everything_at_once() {
    let name = "h6_h20_h24_eight_threads_do_everything_at_once";
    check(name, |mode| {
        let world = World::new(2, 3, mode);
        let mut threads = Threads::of(&world);
        threads.spawn(split).spawn(blocking).spawn(batch);
        threads.spawn(with_timeout).spawn(dropped_split);
        threads.spawn(|world, tenant| {
            resize(world, tenant);
            leave(world, tenant);
        });
        threads.spawn(|world, tenant| {
            freeze(world, tenant);
            quiesce(world, tenant);
        });
        threads.spawn(expire);
        world.clock.advance(SECOND);
        dropped_task(&world, &threads.tenants[1]);
        threads.join();
        drop(threads);
        world.assert_whole();
    });
}
