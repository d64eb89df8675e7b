//! Random schedules of whole sets, under every admission: four to nine threads that allocate one by
//! one, in batches and for splits, wait as threads and as tasks, run out of time, drop futures,
//! submit, complete, expire, resize, freeze, quiesce, and take CPUs away; for several tenants.
//!
//! A lost wakeup, a freeze that never ends and two splits that wait for each other show as a
//! deadlock, a tag with two owners in its slot, a lost tag as a short count at the end.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sbitmap::Engine;
use inflight_sync::model::{check_pct, check_random};
use inflight_sync::percpu::pushes;
use inflight_sync::{Arc, block_on, thread};
use inflight_tags::{Admission, DrainError, NoPreempt, SharePolicy, Tag, Tenant};
use shuttle_support::{Form, Held, Mode, PLAIN, SECOND, Size, Slot, Threads, World, polled};

const RUNS: usize = 40;
fn modes() -> [Mode; 6] {
    let whole_io = Admission::WholeIo;
    let no_preempt = Admission::NoPreempt(NoPreempt::default().threshold(1));
    let elastic = Admission::elastic_overcommit(1);
    let (alone, fair) = (SharePolicy::None, SharePolicy::Fair { min: 1 });
    let weighted = SharePolicy::Weighted { min: 1 };
    let of = |admission, engine, shared, share| Mode {
        admission,
        engine,
        shared,
        share,
    };
    [
        of(whole_io, Engine::Local, false, alone),
        of(whole_io, Engine::Shared, true, fair),
        of(whole_io, Engine::Local, true, weighted),
        of(Admission::preempt(), Engine::Shared, false, fair),
        of(no_preempt, Engine::Shared, true, weighted),
        of(elastic, Engine::Shared, false, alone),
    ]
}

/// Both ways to choose schedules, for each mode.
fn check(name: &str, model: fn(Mode)) {
    for mode in modes() {
        let name = format!("{name}/{mode:?}");
        let before = pushes();
        check_random(&name, RUNS, move || model(mode));
        check_pct(&name, RUNS, 4, move || model(mode));
        let stacks = mode.engine == Engine::Local;
        assert_eq!(pushes() > before, stacks, "whether tags went into stacks");
    }
}

/// With fewer tags the local engine opens no stack.
const FEWEST: usize = 4;

/// Tags of each hardware queue beyond what the model asks for.
fn more(depth: usize, mode: Mode) -> usize {
    match mode.engine {
        Engine::Local => FEWEST.saturating_sub(depth),
        _ => 0,
    }
}

/// A set in use by threads, in the end also by such as make its tags few.
struct Model {
    threads: Threads,
    world: Arc<World>,
    more: usize,
}

impl Model {
    fn new(depth: usize, max_depth: usize, mode: Mode) -> Self {
        let more = more(depth, mode);
        let world = World::new(mode, Size::of(depth + more).max_depth(max_depth + more));
        Self {
            threads: Threads::of(&world),
            world,
            more,
        }
    }

    fn spawn(&mut self, f: impl FnOnce(&World, &Tenant<Slot>) + Send + 'static) -> &mut Self {
        self.threads.spawn(f);
        self
    }

    fn join(mut self) {
        let more = self.more;
        for _ in 0..2 * usize::from(more > 0) {
            self.spawn(move |world, tenant| hog(world, tenant, more));
        }
        self.threads.join();
    }
}

// What threads do.

fn blocking(world: &World, tenant: &Tenant<Slot>) {
    for _ in 0..2 {
        Form::Blocking.run(world, tenant, PLAIN);
    }
}

fn get_batch<'a>(world: &'a World, tenant: &Tenant<Slot>, n: usize) -> Vec<Held<'a>> {
    let ask = world.ask();
    let tags = tenant.try_alloc_batch(n).into_iter();
    tags.map(|tag| ask.got(tag)).collect()
}

fn free_batch(batch: Vec<Held<'_>>) {
    Tag::free_batch(batch.into_iter().map(Held::into_tag));
}

/// Takes the tags beyond what the model asks for, and gives them back one by one.
fn hog(world: &World, tenant: &Tenant<Slot>, more: usize) {
    for _ in 0..2 {
        let tags = std::iter::from_fn(|| world.ask().result(tenant.try_alloc()).ok());
        let tags: Vec<_> = tags.take(more).collect();
        thread::yield_now();
        tags.iter().for_each(Held::use_it);
    }
}

fn task(world: &World, tenant: &Tenant<Slot>) {
    Form::Task.run(world, tenant, PLAIN);
}

fn dropped_task(world: &World, tenant: &Tenant<Slot>) {
    Form::Dropped(2).run(world, tenant, PLAIN);
}

fn with_timeout(world: &World, tenant: &Tenant<Slot>) {
    Form::Timeout.run(world, tenant, PLAIN);
}

/// To one hardware queue, which may be gone.
fn bound(world: &World, tenant: &Tenant<Slot>) {
    let options = PLAIN.hw_queue(1);
    let ask = world.ask();
    world.submit_if(ask.result(tenant.alloc_blocking_with(options)));
}

fn batch(world: &World, tenant: &Tenant<Slot>) {
    let batch = get_batch(world, tenant, 2);
    batch.iter().for_each(Held::use_it);
    free_batch(batch);
    Form::Try.run(world, tenant, PLAIN);
}

fn split(world: &World, tenant: &Tenant<Slot>) {
    let mut split = tenant.split(3);
    loop {
        let ask = world.ask();
        match split.next_blocking().unwrap() {
            Some(tag) => world.submit(ask.got(tag)),
            None => break,
        }
    }
    assert_eq!(split.remaining(), 0);
}

fn split_task(world: &World, tenant: &Tenant<Slot>) {
    block_on(async {
        let mut split = tenant.split(2);
        loop {
            let ask = world.ask();
            match split.next().await.unwrap() {
                Some(tag) => world.submit(ask.got(tag)),
                None => break,
            }
        }
    });
}

/// Gives up half way, once with its future only and then for good.
fn dropped_split(world: &World, tenant: &Tenant<Slot>) {
    let mut split = tenant.split(3);
    for _ in 0..2 {
        let ask = world.ask();
        match polled(split.next(), 2) {
            Some(Ok(Some(tag))) => world.submit(ask.got(tag)),
            Some(Ok(None)) => unreachable!("there are three pieces"),
            Some(Err(error)) => panic!("{error:?}"),
            None => {}
        }
    }
}

fn split_with_timeout(world: &World, tenant: &Tenant<Slot>) {
    let mut split = tenant.split(2);
    loop {
        let ask = world.ask();
        let Ok(Some(tag)) = split.next_timeout(SECOND) else {
            break;
        };
        world.submit(ask.got(tag));
    }
}

/// Depths beside the tags that are more.
fn resize(world: &World, tenant: &Tenant<Slot>, more: usize) {
    // Refused where weights count for nothing.
    let _weighted = tenant.set_weight(3);
    for depth in [3, 1, 2] {
        world.set.resize(depth + more).unwrap();
    }
}

fn freeze(world: &World, _: &Tenant<Slot>) {
    let frozen = world.frozen(world.set.freeze_blocking());
    thread::yield_now();
    frozen.check();
    drop(frozen);
    drop(polled(world.set.freeze(), 2));
}

fn quiesce(world: &World, _: &Tenant<Slot>) {
    let mut quiesced = world.quiesced(world.set.quiesce());
    quiesced.guard().drain_blocking();
    quiesced.drained();
}

/// CPU 1 leaves with its hardware queue, which is drained, and comes back.
fn leave(world: &World, _: &Tenant<Slot>) {
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

fn hw_queues(world: &World, _: &Tenant<Slot>) {
    world.set.set_hw_queues_blocking(1).unwrap();
    world.set.set_hw_queues_blocking(2).unwrap();
}

/// A tenant comes, uses a tag and goes.
fn tenant(world: &World, _: &Tenant<Slot>) {
    let tenant = world.set.add_tenant("late").unwrap();
    Form::Blocking.run(world, &tenant, PLAIN);
}

/// Requests time out, and somebody looks at all that is in flight meanwhile.
fn expire(world: &World, _: &Tenant<Slot>) {
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
        let mut model = Model::new(1, 1, mode);
        model.spawn(blocking).spawn(task).spawn(dropped_task);
        model.spawn(with_timeout).spawn(batch).spawn(tenant);
        model.world.clock.advance(SECOND);
        model.join();
    });
}

/// H9. Sets in which an even share makes wake batches above 1 and a light tenant's does not.
#[test]
fn h9_weights_and_larger_wake_batches() {
    check("h9_weights_and_larger_wake_batches", |mode| {
        let share = SharePolicy::Weighted { min: 1 };
        let mut model = Model::new(48, 96, Mode { share, ..mode });
        let (world, tenants) = (model.world.clone(), &model.threads.tenants);
        tenants[0].set_weight(47).unwrap();
        let held = tenants
            .each_ref()
            .map(|tenant| get_batch(&world, tenant, 48));
        model
            .spawn(batch)
            .spawn(blocking)
            .spawn(blocking)
            .spawn(task);
        model.spawn(|world, tenant| {
            tenant.set_weight(1).unwrap();
            world.set.resize(96).unwrap();
            tenant.set_weight(47).unwrap();
            world.set.resize(48).unwrap();
        });
        model.spawn(split).spawn(dropped_task).spawn(blocking);
        held.into_iter().for_each(free_batch);
        model.join();
    });
}

/// D24 to D26. Large requests among small ones: none is lost, and no two wait for each other.
#[test]
fn d25_splits_among_small_ones() {
    check("d25_splits_among_small_ones", |mode| {
        let mut model = Model::new(2, 2, mode);
        model.spawn(split).spawn(split_task).spawn(dropped_split);
        model.spawn(split_with_timeout).spawn(blocking).spawn(batch);
        model.world.clock.advance(SECOND);
        model.join();
    });
}

/// H23. Completions meet the timeouts of the same requests, twice.
#[test]
fn h23_completions_and_timeouts() {
    check("h23_completions_and_timeouts", |mode| {
        let mut model = Model::new(2, 2, mode);
        model.spawn(blocking).spawn(expire).spawn(blocking);
        model.spawn(expire).spawn(task);
        model.join();
    });
}

/// H24. Two freezers and a quiescer among splits, batches and waiters who give up.
#[test]
fn h24_freezes_under_load() {
    check("h24_freezes_under_load", |mode| {
        let mut model = Model::new(2, 2, mode);
        model.spawn(freeze).spawn(quiesce).spawn(split);
        model.spawn(dropped_split).spawn(batch).spawn(dropped_task);
        model.spawn(blocking);
        model.join();
    });
}

/// H20 to H22. The depth changes, and a hardware queue leaves and comes back, under waiters who
/// named it and waiters who did not.
#[test]
fn h20_h22_sizes_and_cpus_change() {
    check("h20_h22_sizes_and_cpus_change", |mode| {
        let mut model = Model::new(2, 3, mode);
        let more = model.more;
        model.spawn(move |world, tenant| resize(world, tenant, more));
        model.spawn(leave).spawn(bound);
        model.spawn(blocking).spawn(split).spawn(task);
        model.join();
    });
}

/// H25. The number of hardware queues changes while one of them leaves, and under a freeze.
#[test]
fn h25_hw_queues_change() {
    check("h25_hw_queues_change", |mode| {
        let mut model = Model::new(2, 2, mode);
        model.spawn(hw_queues).spawn(leave).spawn(bound);
        model.spawn(blocking).spawn(freeze).spawn(dropped_task);
        model.join();
    });
}

/// Everything at once, on eight threads beside the one that moves the clock.
#[test]
fn h6_h20_h24_eight_threads_do_everything_at_once() {
    let name = "h6_h20_h24_eight_threads_do_everything_at_once";
    check(name, |mode| {
        let mut model = Model::new(2, 3, mode);
        model.spawn(split).spawn(blocking).spawn(batch);
        model.spawn(with_timeout).spawn(dropped_split);
        let more = model.more;
        model.spawn(move |world, tenant| {
            resize(world, tenant, more);
            leave(world, tenant);
        });
        model.spawn(|world, tenant| {
            freeze(world, tenant);
            quiesce(world, tenant);
        });
        model.spawn(expire);
        model.world.clock.advance(SECOND);
        dropped_task(&model.world, &model.threads.tenants[1]);
        model.join();
    });
}
