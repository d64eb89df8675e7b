//! Random schedules of freezes and quiesces, nested in each other and dropped at each stage, among
//! submitters of every form.
//!
//! While a freeze's guard lives nothing is out, and nobody begins; nobody who asks after a quiesce
//! gets a tag before its end; and when the last guard has gone, all who wait go on.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, block_on, thread};
use inflight_tags::{AllocError, FreezeError, HwQueueOptions, Tag, Tenant};
use shuttle_support::{
    FORMS, Form, Mode, PLAIN, RESERVED, SECOND, Size, Slot, Threads, World, builder, check, polled,
};

fn every_form(world: &World, tenant: &Tenant<Slot>) {
    for form in FORMS {
        form.run(world, tenant, PLAIN);
    }
}

/// Two by two, freed together.
fn batches(world: &World, tenant: &Tenant<Slot>) {
    for _ in 0..2 {
        let ask = world.ask();
        let held: Vec<_> = tenant
            .try_alloc_batch(2)
            .into_iter()
            .map(|tag| ask.got(tag))
            .collect();
        held.iter().for_each(|held| held.use_it());
        Tag::free_batch(held.into_iter().map(|held| held.into_tag()));
        let ask = world.ask();
        match tenant.try_alloc_batch_with(2, RESERVED) {
            Ok(tags) => drop(tags.into_iter().map(|tag| ask.got(tag)).collect::<Vec<_>>()),
            Err(error) => assert!(
                matches!(
                    error,
                    AllocError::Exhausted | AllocError::Frozen | AllocError::Quiesced
                ),
                "{error:?}"
            ),
        }
    }
}

fn reserved(world: &World, tenant: &Tenant<Slot>) {
    for form in [Form::Blocking, Form::Dropped(1), Form::Task] {
        form.run(world, tenant, RESERVED);
    }
}

/// One freeze in the other, and the outer one ends first.
fn nested_freezes(world: &World, _: &Tenant<Slot>) {
    let outer = world.frozen(world.set.freeze_blocking());
    let inner = world.frozen(world.set.freeze_blocking());
    thread::yield_now();
    outer.check();
    drop(outer);
    assert!(world.set.is_frozen());
    thread::yield_now();
    inner.check();
    drop(inner);
    match polled(world.set.freeze(), 2) {
        Some(guard) => drop(world.frozen(guard)),
        None => thread::yield_now(),
    }
}

fn timed_freezes(world: &World, _: &Tenant<Slot>) {
    match world.set.freeze_timeout(SECOND) {
        Ok(guard) => drop(world.frozen(guard)),
        Err(error) => assert_eq!(error, FreezeError::TimedOut),
    }
    match world.set.try_freeze() {
        Ok(guard) => drop(world.frozen(guard)),
        Err(error) => assert_eq!(error, FreezeError::InUse),
    }
    drop(world.frozen(block_on(world.set.freeze())));
}

/// A freeze in a quiesce, and the other way round.
fn quiesces(world: &World, tenant: &Tenant<Slot>) {
    let mut quiesced = world.quiesced(world.set.quiesce());
    let refused = tenant.try_alloc().unwrap_err();
    assert!(
        matches!(refused, AllocError::Quiesced | AllocError::Frozen),
        "{refused:?}"
    );
    let _drained = polled(quiesced.guard().drain(), 1);
    let frozen = world.frozen(world.set.freeze_blocking());
    quiesced.drained();
    drop(frozen);
    quiesced.check();
    drop(quiesced);

    let frozen = world.frozen(block_on(world.set.freeze()));
    let mut quiesced = world.quiesced(world.set.quiesce());
    block_on(quiesced.guard().drain());
    quiesced.drained();
    drop(frozen);
    thread::yield_now();
    block_on(quiesced.guard().drain());
    drop(quiesced);
}

fn timed_quiesces(world: &World, _: &Tenant<Slot>) {
    for _ in 0..2 {
        let mut quiesced = world.quiesced(world.set.quiesce());
        match quiesced.guard().drain_timeout(SECOND) {
            Ok(()) => quiesced.drained(),
            Err(error) => assert_eq!(error, FreezeError::TimedOut),
        }
        thread::yield_now();
    }
}

/// Keeps a part of what it has collected over a freeze, which waits for it.
fn splits(world: &World, tenant: &Tenant<Slot>) {
    let mut split = tenant.split(3);
    while split.remaining() > 0 {
        let ask = world.ask();
        match split.next_blocking().unwrap() {
            Some(tag) => world.submit(ask.got(tag)),
            None => unreachable!("a piece is missing"),
        }
    }
}

/// Every form of asking among nested freezes and quiesces.
fn stops_nest(mode: Mode) {
    let world = World::new(mode, Size::of(2).reserved(1));
    let mut threads = Threads::of(&world);
    threads
        .spawn(every_form)
        .spawn(nested_freezes)
        .spawn(quiesces);
    threads.spawn(batches).spawn(reserved).spawn(splits);
    threads.join();
}

/// The same, while time runs out.
fn stops_run_out_of_time(mode: Mode) {
    let world = World::new(mode, Size::of(1).reserved(1));
    let mut threads = Threads::of(&world);
    threads
        .spawn(every_form)
        .spawn(timed_freezes)
        .spawn(timed_quiesces);
    threads.spawn(splits).spawn(reserved).spawn(every_form);
    threads.join_ticking(3, SECOND);
}

/// Under a freeze the depth and the number of hardware queues change; who waited finds the new
/// ones.
fn changes_under_a_freeze(mode: Mode) {
    let size = Size::of(2).max_depth(4).reserved(1);
    let world = World::new(mode, size.hw_queues(HwQueueOptions::new(2).max(3)));
    let mut threads = Threads::of(&world);
    threads.spawn(|world, _| {
        for (depth, hw_queues) in [(5, 3), (2, 1), (3, 2)] {
            let frozen = world.frozen(world.set.freeze_blocking());
            world.set.resize(depth).unwrap();
            world.set.set_hw_queues_blocking(hw_queues).unwrap();
            frozen.check();
            drop(frozen);
            assert_eq!(world.set.depth(), depth);
        }
    });
    threads.spawn(|world, tenant| {
        for hw_queue in [0, 2, 1] {
            for form in [Form::Blocking, Form::Task] {
                let result = form.alloc(world, tenant, PLAIN.hw_queue(hw_queue)).unwrap();
                world.submit_if(result);
            }
        }
    });
    threads
        .spawn(every_form)
        .spawn(splits)
        .spawn(nested_freezes)
        .spawn(batches);
    threads.join();
}

/// A thaw wakes who waits in the bitmap, and who waits for the thaw: no request that completes
/// later does it for them.
fn a_thaw_is_enough(mode: Mode) {
    let one = HwQueueOptions::new(1);
    let world = World::new(mode, Size::of(3).hw_queues(one));
    let mut threads = Threads::of(&world);
    for _ in 0..2 {
        threads.spawn(|world, tenant| {
            let mine = Form::Blocking.alloc(world, tenant, PLAIN).unwrap().unwrap();
            world.submit(mine);
        });
    }
    threads.spawn(|world, tenant| {
        let quiesced = world.quiesced(world.set.quiesce());
        thread::yield_now();
        drop(quiesced);
        drop(Form::Task.alloc(world, tenant, PLAIN).unwrap().unwrap());
    });
    threads.spawn(|world, _| {
        let quiesced = world.quiesced(world.set.quiesce());
        drop(polled(world.set.freeze(), 1));
        thread::yield_now();
        drop(quiesced);
    });
    threads.spawn(|world, tenant| {
        let mut split = tenant.split(2);
        for polls in [1, 2] {
            let ask = world.ask();
            match polled(split.next(), polls) {
                Some(Ok(Some(tag))) => world.submit(ask.got(tag)),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    });
    threads.join();
}

/// The last tag is given to somebody who has gone: it comes back, and the freeze is told.
fn a_wait_ends_under_a_freeze(mode: Mode) {
    let world = World::new(mode, Size::of(1).hw_queues(HwQueueOptions::new(1)));
    let mut threads = Threads::of(&world);
    let tenant = threads.tenants[0].clone();
    let held = Form::Try.alloc(&world, &tenant, PLAIN).unwrap().unwrap();
    threads.spawn(|world, tenant| {
        Form::Dropped(1).run(world, tenant, PLAIN);
    });
    threads.spawn(|world, _| drop(world.frozen(world.set.freeze_blocking())));
    threads.spawn(|world, tenant| {
        let (mut split, ask) = (tenant.split(2), world.ask());
        if let Some(tag) = polled(split.next(), 1) {
            world.submit(ask.got(tag.unwrap().unwrap()));
        }
    });
    thread::yield_now();
    drop(held);
    threads.join();
}

/// Submitters collect what they have got, and free it before they wait, in the set's hook: no
/// freeze waits for them while they wait for its end.
fn collected_requests(mode: Mode) {
    type Collected = Arc<Mutex<Vec<Tag<()>>>>;
    fn free_all(collected: &Collected) {
        let tags = std::mem::take(&mut *collected.lock());
        Tag::free_batch(tags);
    }
    let collected = Collected::default();
    let set = builder(mode, Size::of(2).reserved(1), &Clock::manual());
    let set = set.before_wait({
        let collected = collected.clone();
        move |_| free_all(&collected)
    });
    let set = set.build(|_, _| ()).unwrap();
    let mut threads = Vec::new();
    for n in 0..3 {
        let (collected, tenant) = (collected.clone(), set.add_tenant(n.to_string()).unwrap());
        threads.push(thread::spawn(move || {
            let options = if n == 2 { RESERVED } else { PLAIN };
            for form in 0..4 {
                let tag = match form {
                    0 => tenant.alloc_blocking_with(options).ok(),
                    1 => block_on(tenant.alloc_with(options)).ok(),
                    2 => polled(tenant.alloc_with(options), 2).transpose().unwrap(),
                    _ => block_on(tenant.split_with(2, options).next()).unwrap(),
                };
                collected.lock().extend(tag);
                thread::yield_now();
            }
            free_all(&collected);
        }));
    }
    let frozen = set.clone();
    threads.push(thread::spawn(move || {
        for _ in 0..2 {
            drop(frozen.freeze_blocking());
            frozen.quiesce().drain_blocking();
        }
    }));
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(set.in_use(), 0);
}

#[test]
fn stops_and_dropped_waits() {
    check("stops_and_dropped_waits", a_wait_ends_under_a_freeze);
}

#[test]
fn stops_and_collected_requests() {
    check("stops_and_collected_requests", collected_requests);
}

#[test]
fn stops_nest_in_each_other() {
    check("stops_nest_in_each_other", stops_nest);
}

#[test]
fn stops_end_by_time() {
    check("stops_end_by_time", stops_run_out_of_time);
}

#[test]
fn sizes_change_under_freezes() {
    check("sizes_change_under_freezes", changes_under_a_freeze);
}

#[test]
fn thaws_wake_all() {
    check("thaws_wake_all", a_thaw_is_enough);
}
