//! Random schedules of tenants that come, go, change their weight and fall idle while others wait.
//!
//! Whoever is below its share gets a tag as soon as one is free, whatever the others keep; no
//! tenant goes further beyond its share than its threads do; and what an idle one leaves comes
//! back.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, cpu, thread};
use inflight_tags::{AllocError, HwQueueOptions, SharePolicy, Tag, Tenant};
use shuttle_support::{
    FORMS, Form, Held, Mode, PLAIN, SECOND, Size, Slot, Threads, World, check, polled,
};

fn one() -> HwQueueOptions {
    HwQueueOptions::new(1)
}

fn weighted(mode: Mode) -> Mode {
    let share = SharePolicy::Weighted { min: 1 };
    Mode { share, ..mode }
}

fn every_form(world: &World, tenant: &Tenant<Slot>) {
    for form in FORMS {
        form.run(world, tenant, PLAIN);
    }
}

/// Threads whose work others wait for.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn wait(&self, at_least: usize) {
        while self.get() < at_least {
            thread::yield_now();
        }
    }
}

/// One tenant keeps what it has until the waiters of the other have been served, from the other's
/// share alone. Meanwhile weights and the depth change, and a third tenant comes and goes: the wake
/// batch has to follow the least share.
fn a_light_one_beside_a_heavy_one(mode: Mode) {
    let world = World::new(weighted(mode), Size::of(48).max_depth(96).hw_queues(one()));
    let mut threads = Threads::of(&world);
    let (heavy, light) = (threads.tenants[0].clone(), threads.tenants[1].clone());
    heavy.set_weight(47).unwrap();
    // Both are active before anything is kept.
    let first = Form::Try.alloc(&world, &light, PLAIN).unwrap().unwrap();
    let ask = world.ask();
    let kept: Vec<_> = heavy
        .try_alloc_batch(47)
        .into_iter()
        .map(|tag| ask.got(tag))
        .collect();
    assert_eq!(kept.len(), 47);
    let served = Count::default();
    // Of the light one: threads 2, 3, 6, 7.
    for n in 0..8 {
        let served = served.clone();
        if n % 4 < 2 {
            threads.spawn(move |world, tenant| match n {
                0 => {
                    for weight in [1, 96, 0, 47] {
                        tenant.set_weight(weight).unwrap();
                        thread::yield_now();
                    }
                }
                1 => {
                    for depth in [96, 48] {
                        world.set.resize(depth).unwrap();
                        thread::yield_now();
                    }
                }
                4 => {
                    for weight in [1, 3] {
                        let late = world.set.add_tenant("late").unwrap();
                        late.set_weight(weight).unwrap();
                        Form::Blocking.run(world, &late, PLAIN);
                        drop(late);
                    }
                }
                _ => {
                    world.set.reclaim_idle_shares();
                }
            });
        } else {
            threads.spawn(move |world, tenant| {
                for form in [Form::Blocking, Form::Task, Form::Timeout] {
                    form.run(world, tenant, PLAIN);
                }
                served.add();
            });
        }
    }
    drop(first);
    served.wait(4);
    assert!(kept.len() == 47 && world.out() >= 47);
    drop(kept);
    drop((heavy, light));
    threads.join();
}

/// The same with nothing that makes all waiters look: the heavy one has its weight before it comes.
fn a_heavy_one_comes(mode: Mode) {
    let world = World::new(weighted(mode), Size::of(48).hw_queues(one()));
    let mut threads = Threads::of(&world);
    let [heavy, light] = threads.tenants.clone();
    heavy.set_weight(47).unwrap();
    let first = Form::Try.alloc(&world, &light, PLAIN).unwrap().unwrap();
    let ask = world.ask();
    let kept = heavy
        .try_alloc_batch(47)
        .into_iter()
        .map(|tag| ask.got(tag));
    let kept: Vec<_> = kept.collect();
    let served = Count::default();
    for form in [Form::Blocking, Form::Task, Form::Owned] {
        let (served, light) = (served.clone(), light.clone());
        threads.spawn(move |world, _| {
            form.run(world, &light, PLAIN);
            served.add();
        });
    }
    drop(first);
    served.wait(3);
    drop(kept);
    drop((heavy, light));
    threads.join();
}

/// The only tag is offered to those who give up, by each way to do so, and to one who does not:
/// who has it in the end.
fn all_but_one_give_up(mode: Mode) {
    for gives_up in 0..4 {
        let world = World::new(mode, Size::of(1).hw_queues(one()));
        let mut threads = Threads::of(&world);
        let tenant = threads.tenants[0].clone();
        let held = Form::Try.alloc(&world, &tenant, PLAIN).unwrap().unwrap();
        threads.spawn(move |world, tenant| {
            let (mut split, ask) = (tenant.split(1), world.ask());
            let got = match gives_up {
                0 => polled(tenant.alloc(), 1),
                1 => polled(split.next(), 1).map(|piece| piece.map(Option::unwrap)),
                2 => polled(split.join(), 1).map(|all| all.map(|mut all| all.remove(0))),
                _ => Some(tenant.alloc_timeout(SECOND)),
            };
            match got {
                Some(Ok(tag)) => drop(ask.got(tag)),
                Some(Err(error)) => assert_eq!(error, AllocError::TimedOut),
                None => {}
            }
        });
        threads.spawn(|world, tenant| {
            Form::Blocking.run(world, tenant, PLAIN);
        });
        thread::yield_now();
        world.clock.advance(SECOND);
        drop(held);
        threads.join();
    }
}

/// Tenants come with a weight, wait for a tag, and go, under the same names again and again.
fn come_and_go(mode: Mode) {
    let world = World::new(weighted(mode), Size::of(2));
    let mut threads = Threads::of(&world);
    for n in 0..3 {
        threads.spawn(move |world, _| {
            for round in 0..2 {
                // Its last handle may just be going.
                let late = world.set.add_tenant(format!("late {n}")).unwrap();
                late.set_weight(n + round).unwrap();
                let form = [Form::Blocking, Form::Task, Form::Dropped(2)][n as usize];
                form.run(world, &late, PLAIN);
                let clone = late.clone();
                drop(late);
                let held = Form::Try.alloc(world, &clone, PLAIN).unwrap().ok();
                // The tag outlives its tenant.
                drop(clone);
                held.into_iter().for_each(|held| world.submit(held));
            }
        });
    }
    threads.spawn(every_form).spawn(every_form);
    threads.spawn(|world, tenant| {
        let mut split = tenant.split(4);
        while split.remaining() > 0 {
            let ask = world.ask();
            match split.next_blocking().unwrap() {
                Some(tag) => world.submit(ask.got(tag)),
                None => unreachable!("a piece is missing"),
            }
        }
    });
    threads.join();
}

/// Two that stay active take what they can get: neither has more than its share and a tag for each
/// other thread of its own.
fn nobody_goes_beyond_its_share(mode: Mode) {
    const DEPTH: usize = 12;
    let fair = SharePolicy::Fair { min: 1 };
    let mode = Mode {
        share: fair,
        ..mode
    };
    let world = World::new(mode, Size::of(DEPTH).hw_queues(one()));
    let tenants = ["a", "b"].map(|name| world.set.add_tenant(name).unwrap());
    let _active = tenants.each_ref().map(|tenant| tenant.try_alloc().unwrap());
    let counts: [Count; 2] = Default::default();
    let mut threads = Vec::new();
    for n in 0..4 {
        let (world, tenant, count) = (world.clone(), tenants[n % 2].clone(), counts[n % 2].clone());
        threads.push(thread::spawn(move || {
            cpu::set_current_for_thread(Some(n / 2));
            let mut held: Vec<Held<'_>> = Vec::new();
            for round in 0..10 {
                let form = [Form::Try, Form::Dropped(1)][round % 2];
                if let Some(Ok(got)) = form.alloc(&world, &tenant, PLAIN) {
                    held.push(got);
                    count.add();
                }
                // Its own of before, and a tag that the other thread took past the same look.
                assert!(count.get() < DEPTH / 2 + 2, "beyond the share");
                if round % 4 == 3 {
                    count.0.fetch_sub(held.len(), Ordering::Relaxed);
                    held.clear();
                }
            }
            count.0.fetch_sub(held.len(), Ordering::Relaxed);
        }));
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// One tenant had a tag and has none; the threads of another want all tags at once. They come as
/// time goes by, though nobody else does anything.
fn an_idle_one_is_found_by_who_waits(mode: Mode) {
    let world = World::new(mode, Size::of(4).hw_queues(one()));
    let threads = Threads::of(&world);
    let [busy, idle] = threads.tenants.clone();
    Form::Try.run(&world, &idle, PLAIN);
    let all = Count::default();
    let mut holders = Vec::new();
    for n in 0..4 {
        let (world, busy, all) = (world.clone(), busy.clone(), all.clone());
        holders.push(thread::spawn(move || {
            cpu::set_current_for_thread(Some(n % 2));
            let held = Form::Blocking.alloc(&world, &busy, PLAIN).unwrap();
            all.add();
            all.wait(4);
            world.submit(held.unwrap());
        }));
    }
    while all.get() < 4 {
        world.clock.advance(SECOND);
        thread::yield_now();
    }
    holders.into_iter().for_each(|t| t.join().unwrap());
    drop((busy, idle));
    threads.join();
}

/// The same for tasks: somebody else tells the set.
fn an_idle_one_is_told_of(mode: Mode) {
    let world = World::new(mode, Size::of(4).hw_queues(one()));
    let threads = Threads::of(&world);
    let [busy, idle] = threads.tenants.clone();
    Form::Try.run(&world, &idle, PLAIN);
    let all = Count::default();
    let mut holders = Vec::new();
    for n in 0..4 {
        let (world, busy, all) = (world.clone(), busy.clone(), all.clone());
        holders.push(thread::spawn(move || {
            let form = [Form::Task, Form::Owned][n % 2];
            let held = form.alloc(&world, &busy, PLAIN).unwrap();
            all.add();
            all.wait(4);
            world.submit(held.unwrap());
        }));
    }
    // Those that wait are active: they would be idle only if they had not begun.
    for _ in 0..2 {
        thread::yield_now();
    }
    world.set.reclaim_idle_shares();
    drop(idle);
    holders.into_iter().for_each(|t| t.join().unwrap());
    drop(busy);
    threads.join();
}

/// The other tenant leaves by its last handle, while its tags and tasks are still there.
fn the_last_handle_goes(mode: Mode) {
    let world = World::new(mode, Size::of(4).hw_queues(one()));
    let mut threads = Threads::of(&world);
    let leaves = world.set.add_tenant("leaves").unwrap();
    let ask = world.ask();
    let tags: Vec<_> = leaves
        .try_alloc_batch(1)
        .into_iter()
        .map(|tag| ask.got(tag))
        .collect();
    let (all, owned) = (Count::default(), leaves.alloc_owned());
    for _ in 0..2 {
        let all = all.clone();
        // Of tenant a: it wants three, which is more than a half.
        threads.spawn(move |world, tenant| {
            let held = Form::Blocking.alloc(world, tenant, PLAIN).unwrap();
            all.add();
            all.wait(3);
            world.submit(held.unwrap());
        });
    }
    let third = threads.tenants[0].clone();
    threads.spawn(move |world, _| {
        let held = Form::Task.alloc(world, &third, PLAIN).unwrap();
        all.add();
        all.wait(3);
        world.submit(held.unwrap());
    });
    let world_too = world.clone();
    let dropped = thread::spawn(move || {
        let mut owned = owned;
        let ask = world_too.ask();
        let got = polled(std::future::poll_fn(|cx| owned.poll_alloc(cx)), 2);
        drop(leaves);
        let held = got.map(|tag| ask.got(tag.unwrap()));
        thread::yield_now();
        drop(held);
        drop(owned);
    });
    let tags: Vec<_> = tags.into_iter().map(|held| held.into_tag()).collect();
    Tag::free_batch(tags);
    dropped.join().unwrap();
    threads.join();
}

#[test]
fn tenants_light_beside_heavy() {
    check("tenants_light_beside_heavy", a_light_one_beside_a_heavy_one);
}

#[test]
fn tenants_heavy_ones_come() {
    check("tenants_heavy_ones_come", a_heavy_one_comes);
}

#[test]
fn tenants_give_up() {
    check("tenants_give_up", all_but_one_give_up);
}

#[test]
fn tenants_come_and_go() {
    check("tenants_come_and_go", come_and_go);
}

#[test]
fn tenants_keep_to_their_shares() {
    check("tenants_keep_to_their_shares", nobody_goes_beyond_its_share);
}

#[test]
fn tenants_fall_idle() {
    check("tenants_fall_idle", an_idle_one_is_found_by_who_waits);
}

#[test]
fn tenants_are_told_of_idle_ones() {
    check("tenants_are_told_of_idle_ones", an_idle_one_is_told_of);
}

#[test]
fn tenants_lose_their_last_handle() {
    check("tenants_lose_their_last_handle", the_last_handle_goes);
}
