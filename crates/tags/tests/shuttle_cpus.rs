//! Random schedules of CPUs that leave and come back, of hardware queues that are drained, of other
//! machines and other numbers of hardware queues, among submitters of every form and kind.
//!
//! Once a hardware queue is drained none of its tags is out, and none is given out until it serves
//! again; whoever waited at it goes on elsewhere, or is told.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::{Arc, Mutex, block_on, thread};
use inflight_tags::{
    AllocError, AllocOptions, DrainError, HwQueueOptions, ResizeError, Tenant, Topology,
};
use shuttle_support::{
    FORMS, Form, Mode, PLAIN, RESERVED, SECOND, Size, Slot, Threads, World, check, polled,
};

const NAMED: AllocOptions = PLAIN.hw_queue(1);

fn every_form(world: &World, tenant: &Tenant<Slot>) {
    for form in FORMS {
        form.run(world, tenant, PLAIN);
    }
}

/// Of one hardware queue, which may be gone or inactive.
fn at(world: &World, tenant: &Tenant<Slot>, options: AllocOptions) {
    for form in FORMS {
        let Some(result) = form.alloc(world, tenant, options) else {
            continue;
        };
        world.submit_if(result);
    }
}

fn splits(world: &World, tenant: &Tenant<Slot>) {
    let mut split = tenant.split(5);
    let mut turn = 0;
    while split.remaining() > 0 {
        turn += 1;
        let ask = world.ask();
        let piece = match turn % 3 {
            0 => split.next_blocking(),
            1 => polled(split.next(), 2).unwrap_or(Ok(None)),
            _ => block_on(split.next()),
        };
        if let Some(tag) = piece.unwrap() {
            world.submit(ask.got(tag));
        }
    }
}

/// Whether the hardware queue has been drained. With its form of waiting.
fn drain(world: &World, hw_queue: usize, form: usize) -> Result<bool, DrainError> {
    let hw_queues = world.set.hw_queues();
    let drained = match form {
        0 => hw_queues.drain_blocking(hw_queue),
        1 => block_on(hw_queues.drain(hw_queue)),
        2 => hw_queues.drain_timeout(hw_queue, SECOND),
        3 => match polled(hw_queues.drain(hw_queue), 2) {
            Some(drained) => drained,
            None => return Ok(false),
        },
        _ => hw_queues.try_drain(hw_queue),
    };
    match drained {
        Ok(()) => Ok(true),
        Err(DrainError::InUse { .. } | DrainError::TimedOut { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// CPU by CPU leaves with its hardware queue and comes back. Nobody else changes anything.
fn one_after_the_other_leaves(world: &World, cpus: usize) {
    for form in [0, 3, 1, 4, 2] {
        let cpu = form % cpus;
        let inactive = world.set.cpus().offline(cpu);
        for &hw_queue in &inactive {
            assert!(!world.set.hw_queues().is_active(hw_queue));
            if drain(world, hw_queue, form).unwrap() {
                world.close_hw_queue(hw_queue, true);
                thread::yield_now();
                // Unless somebody is just being refused.
                let _again = drain(world, hw_queue, 4).unwrap();
                world.close_hw_queue(hw_queue, false);
            }
        }
        assert_eq!(world.set.cpus().online(cpu), inactive);
    }
}

/// Waiters with and without a name for their hardware queue, while each of the two leaves.
fn hw_queues_leave(mode: Mode) {
    let world = World::new(mode, Size::of(2).reserved(1));
    let mut threads = Threads::of(&world);
    threads.spawn(|world, _| one_after_the_other_leaves(world, 2));
    threads.spawn(every_form).spawn(splits);
    threads.spawn(|world, tenant| at(world, tenant, NAMED));
    threads.spawn(|world, tenant| at(world, tenant, NAMED.reserved()));
    threads.spawn(|world, tenant| at(world, tenant, PLAIN.mapped_hw_queue(0)));
    threads.spawn(|world, tenant| at(world, tenant, RESERVED));
    threads.join_ticking(2, SECOND);
}

/// With freezes and another depth at the same time.
fn hw_queues_leave_among_changes(mode: Mode) {
    let world = World::new(mode, Size::of(2).max_depth(3));
    let mut threads = Threads::of(&world);
    threads.spawn(|world, _| one_after_the_other_leaves(world, 2));
    threads.spawn(every_form).spawn(splits);
    threads.spawn(|world, tenant| at(world, tenant, NAMED));
    threads.spawn(|world, _| {
        drop(world.frozen(world.set.freeze_blocking()));
        let mut quiesced = world.quiesced(world.set.quiesce());
        quiesced.guard().drain_blocking();
        quiesced.drained();
    });
    threads.spawn(|world, _| {
        for depth in [1, 3, 2] {
            world.set.resize(depth).unwrap();
        }
    });
    threads.join_ticking(2, SECOND);
}

/// A tag of the hardware queue is held while it leaves and comes back: a drain in between ends when
/// it serves again.
fn a_drain_ends_when_the_queue_serves(mode: Mode) {
    let world = World::new(mode, Size::of(2));
    let mut threads = Threads::of(&world);
    let tenant = threads.tenants[0].clone();
    let held = Form::Try.alloc(&world, &tenant, NAMED).unwrap().unwrap();
    assert_eq!(world.set.cpus().offline(1), [1]);
    for form in [0, 1] {
        threads.spawn(move |world, _| {
            let error = drain(world, 1, form).unwrap_err();
            assert_eq!(error, DrainError::Active { hw_queue: 1 });
        });
    }
    threads.spawn(|world, tenant| at(world, tenant, PLAIN));
    threads.spawn(|world, _| {
        thread::yield_now();
        assert_eq!(world.set.cpus().online(1), [1]);
    });
    threads.join_all();
    drop(held);
    world.assert_whole();
}

/// A drain waits for no tag of another hardware queue, whichever had the slot before: those keep
/// theirs until it has ended.
fn a_drain_waits_for_its_own(mode: Mode) {
    let world = World::new(mode, Size::of(2));
    let mut threads = Threads::of(&world);
    for _ in 0..2 {
        // All slots have been of hardware queue 1.
        let tenant = &threads.tenants[0];
        let tags = tenant.try_alloc_batch_with(2, NAMED).unwrap();
        assert_eq!(tags.len(), 2);
    }
    let drained = Arc::new(Mutex::new(false));
    for form in [Form::Blocking, Form::Task] {
        let drained = drained.clone();
        threads.spawn(move |world, tenant| {
            let held = form.alloc(world, tenant, PLAIN.hw_queue(0)).unwrap();
            while !*drained.lock() {
                thread::yield_now();
            }
            drop(held.unwrap());
        });
    }
    threads.spawn(move |world, _| {
        assert_eq!(world.set.cpus().offline(1), [1]);
        assert_eq!(drain(world, 1, 0), Ok(true));
        assert_eq!(drain(world, 1, 1), Ok(true));
        *drained.lock() = true;
        world.set.cpus().online(1);
    });
    threads.join();
}

/// Hardware queues of each kind, two of each, some of which leave.
fn kinds_leave(mode: Mode) {
    let kinds = HwQueueOptions::new(6).read(2).poll(2).max(6);
    let world = World::new(mode, Size::of(1).hw_queues(kinds));
    let mut threads = Threads::of(&world);
    threads.spawn(|world, _| one_after_the_other_leaves(world, 2));
    for options in [PLAIN.read(), PLAIN.polled()] {
        threads.spawn(move |world, tenant| {
            for form in FORMS {
                form.run(world, tenant, options);
            }
        });
    }
    for hw_queue in [3, 4] {
        threads.spawn(move |world, tenant| at(world, tenant, PLAIN.hw_queue(hw_queue)));
    }
    threads.spawn(every_form).spawn(splits);
    threads.join_ticking(2, SECOND);
}

/// The machine loses CPUs and gets others, and CPUs leave by themselves too.
fn other_machines(mode: Mode) {
    let world = World::new(mode, Size::of(2));
    let mut threads = Threads::of(&world);
    threads.spawn(|world, _| {
        for machine in ["core:1", "core:4", "core:2"] {
            world
                .set
                .cpus()
                .refresh(&Topology::synthetic(machine).unwrap());
            thread::yield_now();
        }
    });
    threads.spawn(|world, _| {
        for form in 0..3 {
            for hw_queue in world.set.cpus().offline(1) {
                match drain(world, hw_queue, form) {
                    Ok(_) | Err(DrainError::Active { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            world.set.cpus().online(1);
        }
    });
    threads.spawn(every_form).spawn(splits);
    threads.spawn(|world, tenant| at(world, tenant, NAMED));
    threads.spawn(|world, tenant| at(world, tenant, PLAIN.mapped_hw_queue(1)));
    threads.join_ticking(2, SECOND);
}

/// The number of hardware queues is changed in each form, by two at once, while requests are in
/// flight: their tokens are good, since it waits for them.
fn other_numbers(mode: Mode) {
    let size = Size::of(1)
        .max_depth(2)
        .hw_queues(HwQueueOptions::new(2).max(3));
    let world = World::new(mode, size);
    let mut threads = Threads::of(&world);
    threads.spawn(|world, _| {
        for (n, form) in [(3, 0), (1, 1), (2, 2), (3, 3), (1, 4)] {
            let changed = match form {
                0 => world.set.set_hw_queues_blocking(n),
                1 => block_on(world.set.set_hw_queues(n)),
                2 => world.set.set_hw_queues_timeout(n, SECOND),
                3 => polled(world.set.set_hw_queues(n), 2).unwrap_or(Ok(())),
                _ => world.set.try_set_hw_queues(n),
            };
            match changed {
                Ok(()) | Err(ResizeError::InUse | ResizeError::TimedOut) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    threads.spawn(|world, _| {
        world.set.set_hw_queues_blocking(2).unwrap();
        world.set.resize(2).unwrap();
        drop(world.frozen(world.set.freeze_blocking()));
        world.set.set_hw_queues_blocking(3).unwrap();
    });
    threads.spawn(every_form).spawn(splits);
    for hw_queue in [1, 2] {
        threads.spawn(move |world, tenant| at(world, tenant, PLAIN.hw_queue(hw_queue)));
    }
    threads.join_ticking(2, SECOND);
}

/// Requests of a hardware queue that goes: its tokens are stale, not another's.
fn tokens_of_gone_queues(mode: Mode) {
    let world = World::new(mode, Size::of(1).hw_queues(HwQueueOptions::new(2).max(2)));
    let mut threads = Threads::of(&world);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let made = seen.clone();
    threads.spawn(move |world, tenant| {
        for hw_queue in [1, 0, 1] {
            let options = PLAIN.hw_queue(hw_queue);
            match Form::Blocking.alloc(world, tenant, options).unwrap() {
                Ok(held) => {
                    let request = held.into_token();
                    drop(world.redeem(request));
                    made.lock().push(request.0);
                }
                Err(error) => {
                    let hw_queue = 1;
                    assert_eq!(error, AllocError::NoSuchHwQueue { hw_queue });
                }
            }
        }
    });
    threads.spawn(|world, _| {
        for n in [1, 2] {
            world.set.set_hw_queues_blocking(n).unwrap();
        }
    });
    threads.spawn(move |world, _| {
        for _ in 0..4 {
            for token in seen.lock().iter() {
                assert!(world.set.redeem(*token).is_err(), "it has been redeemed");
            }
            thread::yield_now();
        }
    });
    threads.spawn(every_form);
    threads.join();
}

#[test]
fn cpus_leave() {
    check("cpus_leave", hw_queues_leave);
}

#[test]
fn cpus_leave_among_changes() {
    check("cpus_leave_among_changes", hw_queues_leave_among_changes);
}

#[test]
fn cpus_come_back_during_a_drain() {
    let name = "cpus_come_back_during_a_drain";
    check(name, a_drain_ends_when_the_queue_serves);
}

#[test]
fn cpus_leave_and_others_keep_their_tags() {
    let name = "cpus_leave_and_others_keep_their_tags";
    check(name, a_drain_waits_for_its_own);
}

#[test]
fn cpus_leave_kinds_of_queues() {
    check("cpus_leave_kinds_of_queues", kinds_leave);
}

#[test]
fn cpus_of_other_machines() {
    check("cpus_of_other_machines", other_machines);
}

#[test]
fn hw_queues_change_in_number() {
    check("hw_queues_change_in_number", other_numbers);
}

#[test]
fn hw_queues_go_with_their_tokens() {
    check("hw_queues_go_with_their_tokens", tokens_of_gone_queues);
}
