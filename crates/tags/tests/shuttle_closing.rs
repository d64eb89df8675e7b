//! Random schedules of sets that are closed, and of their last handles, while everybody waits for
//! something: tags, thaws, pieces, late requests, drains.
//!
//! Every wait ends, what is out comes back, and each payload is dropped once.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, block_on, thread};
use inflight_tags::{
    AllocError, AllocOptions, DrainError, ExpireError, Expired, HwQueueOptions, Tag, TagSet,
    Tenant, TenantError,
};
use shuttle_support::{
    FORMS, Form, Held, Mode, PLAIN, RESERVED, SECOND, Size, Slot, Threads, World, builder, check,
    polled,
};
use std::future::poll_fn;

/// Submits what it gets until the set is closed for it.
fn until_closed(world: &World, tenant: &Tenant<Slot>, options: AllocOptions, forms: &[Form]) {
    for form in forms.iter().cycle() {
        thread::yield_now();
        match form.alloc(world, tenant, options) {
            None => {}
            Some(Err(AllocError::Closed)) => break,
            Some(result) => drop(world.submit_if(result)),
        }
    }
    assert!(world.set.is_closed());
    assert_eq!(tenant.try_alloc().unwrap_err(), AllocError::Closed);
    assert!(tenant.try_alloc_batch(2).is_empty());
}

fn every_form(world: &World, tenant: &Tenant<Slot>) {
    until_closed(world, tenant, PLAIN, &FORMS);
}

fn reserved(world: &World, tenant: &Tenant<Slot>) {
    until_closed(world, tenant, RESERVED, &[Form::Task, Form::Blocking]);
}

fn named(world: &World, tenant: &Tenant<Slot>) {
    let forms = [Form::Owned, Form::Timeout, Form::Blocking];
    until_closed(world, tenant, PLAIN.hw_queue(1), &forms);
}

fn splits(world: &World, tenant: &Tenant<Slot>) {
    for turn in 0.. {
        thread::yield_now();
        let mut split = tenant.split(3);
        let result = loop {
            let ask = world.ask();
            let piece = match turn % 3 {
                0 => split.next_blocking(),
                1 => block_on(split.next()),
                _ => split.next_timeout(SECOND),
            };
            match piece {
                Ok(Some(tag)) => world.submit(ask.got(tag)),
                Ok(None) => break Ok(()),
                Err(AllocError::TimedOut) => {}
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = result {
            assert_eq!(error, AllocError::Closed);
            assert_eq!(split.try_next().unwrap_err(), AllocError::Closed);
            return;
        }
    }
}

fn joins(world: &World, tenant: &Tenant<Slot>) {
    for turn in 0.. {
        thread::yield_now();
        let mut split = tenant.split(2);
        let ask = world.ask();
        let all = if turn % 2 == 0 {
            split.join_blocking()
        } else {
            block_on(split.join())
        };
        match all {
            Ok(tags) => {
                let held: Vec<_> = tags.into_iter().map(|tag| ask.got(tag)).collect();
                drop(held);
            }
            Err(error) => {
                assert_eq!((error, split.remaining()), (AllocError::Closed, 2));
                return;
            }
        }
    }
}

fn close(world: &World, _: &Tenant<Slot>) {
    world.set.close();
    assert!(world.set.is_closed());
    let refused = world.set.add_tenant("late").unwrap_err();
    assert_eq!(refused, TenantError::Closed);
    drop(world.frozen(world.set.freeze_blocking()));
}

/// Closed twice at once, while tags, pieces and whole requests are waited for in every form.
fn while_all_wait(mode: Mode) {
    let world = World::new(mode, Size::of(2).reserved(1));
    let mut threads = Threads::of(&world);
    threads.spawn(every_form).spawn(named).spawn(splits);
    threads.spawn(close).spawn(reserved).spawn(close);
    // Two that take one by one would keep what the other needs.
    threads.spawn(joins);
    threads.join_closed();
}

/// Who waits for a thaw is told, although the freeze lasts until all have been.
fn behind_a_freeze(mode: Mode) {
    let world = World::new(mode, Size::of(1).reserved(1));
    let mut threads = Threads::of(&world);
    let waits = Arc::new(Mutex::new(4));
    for wait in [every_form, reserved, splits, named] {
        let waits = waits.clone();
        threads.spawn(move |world, tenant| {
            wait(world, tenant);
            *waits.lock() -= 1;
        });
    }
    threads.spawn(move |world, tenant| {
        let quiesced = world.quiesced(world.set.quiesce());
        let frozen = world.frozen(world.set.freeze_blocking());
        thread::yield_now();
        close(world, tenant);
        while *waits.lock() > 0 {
            thread::yield_now();
        }
        frozen.check();
        drop(frozen);
        drop(quiesced);
    });
    threads.join_closed();
}

/// Requests that are in flight when the set is closed come back; so do those that are held, and
/// what waits for them ends: freezes, drains, changes of the number of hardware queues.
fn with_tags_out(mode: Mode) {
    let world = World::new(mode, Size::of(2).reserved(1));
    let mut threads = Threads::of(&world);
    let ring = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..2 {
        let ring = ring.clone();
        threads.spawn(move |world, tenant| {
            let mut forms = [Form::Blocking, Form::Task].iter().cycle();
            let held: Vec<Held<'_>> = std::iter::from_fn(|| {
                let form = forms.next().unwrap();
                form.alloc(world, tenant, PLAIN).unwrap().ok()
            })
            .take(1)
            .collect();
            thread::yield_now();
            let tokens = held.into_iter().map(Held::into_token);
            let tokens: Vec<_> = tokens.collect();
            ring.lock().push(tokens);
        });
    }
    threads.spawn(move |world, _| {
        for _ in 0..2 {
            let tokens = loop {
                if let Some(tokens) = { ring.lock().pop() } {
                    break tokens;
                }
                thread::yield_now();
            };
            tokens
                .into_iter()
                .for_each(|token| drop(world.redeem(token)));
        }
    });
    threads.spawn(close);
    threads.spawn(|world, _| {
        world.set.cpus().offline(1);
        let drained = [
            world.set.hw_queues().drain_blocking(1),
            block_on(world.set.hw_queues().drain(1)),
        ];
        for error in drained.into_iter().filter_map(Result::err) {
            // It is gone, or goes meanwhile.
            assert!(matches!(
                error,
                DrainError::NoSuchHwQueue { .. } | DrainError::Active { .. }
            ));
        }
        world.set.cpus().online(1);
    });
    threads.spawn(|world, _| {
        let _changed = polled(world.set.set_hw_queues(1), 1);
        drop(world.frozen(block_on(world.set.freeze())));
        drop(polled(world.set.freeze(), 1));
    });
    threads.join_closed();
}

/// Whoever waits for late requests of a set that is closed gets those that are late, and then none.
fn late_requests(mode: Mode) {
    let world = World::new(mode, Size::of(2));
    let mut threads = Threads::of(&world);
    // Requests that were handled, and waits that have ended.
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let mut wait = |f: fn(&World, &dyn Fn(Expired<Slot>))| {
        let counts = counts.clone();
        threads.spawn(move |world, _| {
            f(world, &|late| {
                drop(late.redeem().expect("it is for whoever was given it"));
                counts.0.fetch_add(1, Ordering::Relaxed);
            });
            assert!(world.set.is_closed());
            counts.1.fetch_add(1, Ordering::Relaxed);
        });
    };
    wait(|world, handle| std::iter::from_fn(|| world.set.expired_blocking()).for_each(handle));
    wait(|world, handle| {
        polled(world.set.expired(), 1)
            .flatten()
            .into_iter()
            .for_each(handle);
        while let Some(late) = block_on(world.set.expired()) {
            handle(late);
        }
    });
    wait(|world, handle| {
        let mut late = world.set.expired_owned();
        while let Some(late) = block_on(poll_fn(|cx| late.poll_expired(cx))) {
            handle(late);
        }
    });
    wait(|world, handle| {
        loop {
            match world.set.expired_timeout(SECOND) {
                Ok(Some(late)) => handle(late),
                Ok(None) => break,
                Err(error) => assert_eq!(error, ExpireError::TimedOut),
            }
        }
    });
    threads.spawn(|world, tenant| {
        for _ in 0..2 {
            let _token = tenant.alloc_blocking().map(Tag::into_token);
        }
        world.set.close();
    });
    let ended = counts.clone();
    threads.spawn(move |world, _| {
        while ended.1.load(Ordering::Relaxed) < 4 {
            world.clock.advance(SECOND / 10);
            thread::yield_now();
        }
    });
    threads.join_closed();
    assert_eq!(counts.0.load(Ordering::Relaxed), 2);
}

/// A payload, counted when it goes.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The last handles go in any order: a set, a tenant, futures that own one, tags and guards that
/// outlive them. What is in flight then stays, everything else is dropped once.
fn last_handles(mode: Mode) {
    let gone = Arc::new(AtomicUsize::new(0));
    let size = Size::of(4).reserved(1).hw_queues(HwQueueOptions::new(1));
    let set: TagSet<Counted> = {
        let gone = gone.clone();
        let set = builder(mode, size, &Clock::manual());
        set.build(move |_, _| Counted(gone.clone())).unwrap()
    };
    let slots = set.capacity();
    let tenant = set.add_tenant("a").unwrap();
    let kept = tenant.try_alloc().unwrap();
    let in_flight = tenant.try_alloc().unwrap();
    let mut waiting = tenant.alloc_owned_with(RESERVED);
    let frees = tenant.alloc_blocking_with(RESERVED).unwrap();
    let mut split = tenant.split(9);
    let piece = split.try_next().unwrap();
    let batch = tenant.try_alloc_batch(9);
    let mut threads = Vec::new();
    let mut spawn = |f: Box<dyn FnOnce() + Send>| threads.push(thread::spawn(f));
    spawn(Box::new(move || {
        // It is freed, and goes to the future, if that still is.
        drop(frees);
        Tag::free_batch(batch);
    }));
    spawn(Box::new(move || {
        drop(polled(poll_fn(|cx| waiting.poll_alloc(cx)), 2));
        drop(waiting);
    }));
    spawn(Box::new(move || {
        drop(polled(split.next(), 1));
        drop(split);
        drop(piece);
    }));
    spawn(Box::new(move || {
        let freeze = set.freeze();
        let drain = set.quiesce();
        let _drained = polled(drain.drain(), 1);
        drop(set);
        drop(polled(freeze, 1));
        drop(drain);
    }));
    spawn(Box::new(move || {
        drop(tenant);
        let token = in_flight.into_token();
        assert!(token > 0);
    }));
    drop(kept);
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(gone.load(Ordering::Relaxed), slots - 1);
}

#[test]
fn sets_close_while_all_wait() {
    check("sets_close_while_all_wait", while_all_wait);
}

#[test]
fn sets_close_behind_a_freeze() {
    check("sets_close_behind_a_freeze", behind_a_freeze);
}

#[test]
fn sets_close_with_tags_out() {
    check("sets_close_with_tags_out", with_tags_out);
}

#[test]
fn sets_close_with_late_requests() {
    check("sets_close_with_late_requests", late_requests);
}

#[test]
fn last_handles_go() {
    check("last_handles_go", last_handles);
}
