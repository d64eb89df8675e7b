//! Random schedules of split requests that are asked for in every form, given up half way and
//! dropped, among small ones, freezes and changes of the depth.
//!
//! Nobody waits for ever for a request that has been given up, none keeps what another needs, and
//! what had been collected comes back.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::{Mutex, block_on, thread};
use inflight_tags::{AllocError, HwQueueOptions, SharePolicy, Split, Tag, Tenant};
use shuttle_support::{
    FORMS, Form, Mode, PLAIN, SECOND, Size, Slot, Threads, World, check, check_whole_io, polled,
};
use std::future::poll_fn;
use std::task::Poll;

/// How the next piece is asked for, by turns.
fn next<'a>(
    world: &'a World,
    split: &mut Split<Slot>,
    turn: usize,
) -> Option<shuttle_support::Held<'a>> {
    let ask = world.ask();
    let result = match turn % 5 {
        0 => split.next_blocking(),
        1 => polled(split.next(), 1).unwrap_or(Ok(None)),
        2 => match polled(poll_fn(|cx| split.poll_next(cx)), 2) {
            Some(piece) => piece.transpose(),
            None => Ok(None),
        },
        3 => split.try_next(),
        _ => split.next_timeout(SECOND),
    };
    match result {
        Ok(tag) => tag.map(|tag| ask.got(tag)),
        Err(
            AllocError::Exhausted
            | AllocError::Frozen
            | AllocError::Quiesced
            | AllocError::TimedOut,
        ) => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// In every form, from `first` on, to the end.
fn all_pieces(world: &World, tenant: &Tenant<Slot>, n: usize, first: usize) {
    let mut split = tenant.split(n);
    for turn in first.. {
        if split.remaining() == 0 {
            break;
        }
        if let Some(held) = next(world, &mut split, turn) {
            world.submit(held);
        }
    }
    assert!(matches!(split.try_next(), Ok(None)));
}

/// The same, so many turns, and then it is dropped.
fn some_pieces(world: &World, tenant: &Tenant<Slot>, n: usize, first: usize, turns: usize) {
    let mut split = tenant.split(n);
    for turn in first..first + turns {
        if let Some(held) = next(world, &mut split, turn) {
            world.submit(held);
        }
    }
}

fn every_form(world: &World, tenant: &Tenant<Slot>) {
    for form in FORMS {
        form.run(world, tenant, PLAIN);
    }
}

fn freeze(world: &World, _: &Tenant<Slot>) {
    let frozen = world.frozen(world.set.freeze_blocking());
    thread::yield_now();
    drop(frozen);
    drop(polled(world.set.freeze(), 1));
}

/// Requests of one part and of several, some given up after each number of turns.
fn given_up_half_way(mode: Mode) {
    let one = HwQueueOptions::new(1);
    let world = World::new(mode, Size::of(8).hw_queues(one));
    let mut threads = Threads::of(&world);
    threads.spawn(|world, tenant| all_pieces(world, tenant, 9, 0));
    threads.spawn(|world, tenant| {
        (0..4).for_each(|turns| some_pieces(world, tenant, 3 + turns, turns, turns));
    });
    threads.spawn(|world, tenant| all_pieces(world, tenant, 2, 2));
    threads.spawn(|world, tenant| {
        (0..4).for_each(|turns| some_pieces(world, tenant, 6 - turns, 5 - turns, turns));
    });
    threads.spawn(every_form);
    threads.spawn(freeze);
    threads.join_ticking(2, SECOND);
}

/// Fewer tags than any of them has pieces, on two hardware queues, and the depth changes.
fn more_pieces_than_tags(mode: Mode) {
    let world = World::new(mode, Size::of(2).max_depth(5));
    let mut threads = Threads::of(&world);
    threads.spawn(|world, tenant| all_pieces(world, tenant, 5, 1));
    threads.spawn(|world, tenant| all_pieces(world, tenant, 4, 2));
    threads.spawn(|world, tenant| some_pieces(world, tenant, 6, 0, 3));
    threads.spawn(|world, tenant| all_pieces(world, tenant, 6, 3));
    threads.spawn(every_form);
    threads.spawn(|world, _| {
        for depth in [1, 5, 2, 4, 1] {
            world.set.resize(depth).unwrap();
        }
    });
    threads.join_ticking(1, SECOND);
}

fn without_shares(mode: Mode) -> Mode {
    let share = SharePolicy::None;
    Mode { share, ..mode }
}

/// Uses all of them at once, and frees them one by one or together.
fn use_all(world: &World, tenant: &Tenant<Slot>, n: usize, form: usize) -> bool {
    let mut split = tenant.split(n);
    let ask = world.ask();
    let result = match form {
        0 => split.join_blocking(),
        1 => block_on(split.join()),
        2 => split.join_timeout(SECOND),
        3 => polled(split.join(), 2).unwrap_or(Err(AllocError::Exhausted)),
        _ => split.try_join(),
    };
    let tags = match result {
        Ok(tags) => tags,
        Err(
            AllocError::TimedOut
            | AllocError::Exhausted
            | AllocError::Frozen
            | AllocError::Quiesced
            | AllocError::TooMany { .. },
        ) => {
            assert_eq!(split.remaining(), n, "it has taken none");
            return false;
        }
        Err(error) => panic!("{error:?}"),
    };
    assert_eq!((tags.len(), split.remaining()), (n, 0));
    let held: Vec<_> = tags.into_iter().map(|tag| ask.got(tag)).collect();
    held.iter().for_each(|held| held.use_it());
    if form % 2 == 0 {
        drop(held);
    } else {
        Tag::free_batch(held.into_iter().map(|held| held.into_tag()));
    }
    true
}

/// Several requests that need all their tags at once, some of which give up, with a freeze.
fn all_at_once(mode: Mode) {
    let one = HwQueueOptions::new(1);
    let world = World::new(without_shares(mode), Size::of(4).hw_queues(one));
    let mut threads = Threads::of(&world);
    threads.spawn(|world, tenant| assert!(use_all(world, tenant, 3, 0)));
    threads.spawn(|world, tenant| assert!(use_all(world, tenant, 4, 1)));
    threads.spawn(|world, tenant| {
        for form in [3, 2, 4] {
            use_all(world, tenant, 2, form);
        }
    });
    threads.spawn(|world, tenant| {
        all_pieces(world, tenant, 3, 0);
        Form::Task.run(world, tenant, PLAIN);
    });
    threads.spawn(freeze);
    threads.spawn(every_form);
    threads.join_ticking(1, SECOND);
}

/// The depth falls below what is asked for at once, and rises again: who waits is told, or gets
/// all.
fn all_at_once_of_a_changing_depth(mode: Mode) {
    let one = HwQueueOptions::new(1);
    let world = World::new(
        without_shares(mode),
        Size::of(3).max_depth(5).hw_queues(one),
    );
    let mut threads = Threads::of(&world);
    for n in [3, 2, 3] {
        threads.spawn(move |world, tenant| {
            use_all(world, tenant, n, 0);
            use_all(world, tenant, n, 1);
        });
    }
    threads.spawn(|world, tenant| all_pieces(world, tenant, 4, 0));
    threads.spawn(|world, _| {
        for depth in [2, 5, 1, 4] {
            world.set.resize(depth).unwrap();
        }
    });
    threads.join();
}

/// The same while some give up half way and the set is frozen: what they had comes back, and who
/// stays gets all or is told.
fn all_at_once_amid_changes(mode: Mode) {
    let one = HwQueueOptions::new(1);
    let world = World::new(
        without_shares(mode),
        Size::of(4).max_depth(6).hw_queues(one),
    );
    let mut threads = Threads::of(&world);
    for (n, form) in [(3, 0), (4, 1)] {
        threads.spawn(move |world, tenant| {
            use_all(world, tenant, n, form);
            use_all(world, tenant, 5 - n, 3);
        });
    }
    threads.spawn(|world, tenant| {
        for (n, form) in [(2, 3), (4, 2), (2, 2), (3, 4)] {
            use_all(world, tenant, n, form);
        }
    });
    threads.spawn(|world, tenant| some_pieces(world, tenant, 5, 0, 3));
    threads.spawn(freeze);
    threads.spawn(|world, _| {
        for depth in [2, 6, 3] {
            world.set.resize(depth).unwrap();
        }
    });
    threads.join_ticking(1, SECOND);
}

/// The same for one alone, among small ones; it may end with too few.
fn one_at_once_of_a_shrinking_depth(mode: Mode) {
    let one = HwQueueOptions::new(1);
    let world = World::new(
        without_shares(mode),
        Size::of(3).max_depth(5).hw_queues(one),
    );
    let mut threads = Threads::of(&world);
    threads.spawn(|world, tenant| {
        for (n, form) in [(3, 0), (3, 1), (2, 0), (4, 1), (3, 2)] {
            use_all(world, tenant, n, form);
        }
    });
    threads
        .spawn(every_form)
        .spawn(every_form)
        .spawn(every_form);
    threads.spawn(|world, _| {
        for depth in [2, 5, 1, 4, 2] {
            world.set.resize(depth).unwrap();
        }
    });
    threads.join_ticking(1, SECOND);
}

/// More than the tenant's share at once: they come when the other tenant has gone.
fn more_than_the_share_at_once(mode: Mode) {
    let one = HwQueueOptions::new(1);
    let world = World::new(mode, Size::of(4).hw_queues(one));
    let (left, stays) = (
        world.set.add_tenant("left").unwrap(),
        world.set.add_tenant("stays").unwrap(),
    );
    let other = {
        let world = world.clone();
        thread::spawn(move || {
            Form::Blocking.run(&world, &left, PLAIN);
            all_pieces(&world, &left, 2, 0);
            drop(left);
        })
    };
    let all = {
        let world = world.clone();
        thread::spawn(move || {
            assert!(use_all(&world, &stays, 4, 0));
            assert!(use_all(&world, &stays, 3, 1));
        })
    };
    other.join().unwrap();
    all.join().unwrap();
    world.assert_whole();
}

/// One request is passed from thread to thread: each asks in its own form.
fn passed_from_hand_to_hand(mode: Mode) {
    let world = World::new(mode, Size::of(2));
    let mut threads = Threads::of(&world);
    let split = inflight_sync::Arc::new(Mutex::new((threads.tenants[0].split(7), 0)));
    for _ in 0..2 {
        let split = split.clone();
        threads.spawn(move |world, _| {
            for _ in 0..8 {
                let held = {
                    let (split, turn) = &mut *split.lock();
                    *turn += 1;
                    next(world, split, *turn)
                };
                if let Some(held) = held {
                    world.submit(held);
                }
            }
        });
    }
    threads
        .spawn(|world, tenant| all_pieces(world, tenant, 3, 4))
        .spawn(freeze);
    threads.spawn(every_form);
    drop(split);
    threads.join_ticking(1, SECOND);
}

/// A request keeps a part that is ready and does not ask for it: small ones get what else is free,
/// and a split that comes after it goes on once it is dropped.
fn a_part_that_nobody_fetches(mode: Mode) {
    let one = HwQueueOptions::new(1);
    let world = World::new(without_shares(mode), Size::of(8).hw_queues(one));
    let mut threads = Threads::of(&world);
    let tenant = threads.tenants[0].clone();
    // Two of the eight tags, which are a part, stay with it until the small ones have been served.
    let mut kept = tenant.split(8);
    let ask = world.ask();
    let first = ask.got(kept.next_blocking().unwrap().unwrap());
    let _waits = block_on(poll_fn(|cx| {
        Poll::Ready(kept.poll_next(cx).map(|tag| tag.map(|_| ())))
    }));
    drop(first);
    let small = |world: &World, tenant: &Tenant<Slot>| {
        for form in [Form::Blocking, Form::Task, Form::Timeout] {
            form.run(world, tenant, PLAIN);
        }
    };
    let ended = inflight_sync::Arc::new(Mutex::new(0));
    for _ in 0..2 {
        let ended = ended.clone();
        threads.spawn(move |world, tenant| {
            small(world, tenant);
            *ended.lock() += 1;
        });
    }
    threads.spawn(move |_, _| {
        while *ended.lock() < 2 {
            thread::yield_now();
        }
        drop(kept);
    });
    threads.spawn(|world, tenant| all_pieces(world, tenant, 3, 0));
    threads.join();
}

#[test]
fn splits_are_given_up() {
    check("splits_are_given_up", given_up_half_way);
}

#[test]
fn splits_of_more_pieces_than_tags() {
    check("splits_of_more_pieces_than_tags", more_pieces_than_tags);
}

#[test]
fn splits_join() {
    check_whole_io("splits_join", all_at_once);
}

#[test]
fn splits_join_while_the_depth_changes() {
    let name = "splits_join_while_the_depth_changes";
    check_whole_io(name, all_at_once_of_a_changing_depth);
}

#[test]
fn splits_join_amid_changes() {
    check_whole_io("splits_join_amid_changes", all_at_once_amid_changes);
}

#[test]
fn a_split_joins_while_the_depth_shrinks() {
    let name = "a_split_joins_while_the_depth_shrinks";
    check(name, one_at_once_of_a_shrinking_depth);
}

#[test]
fn splits_join_beyond_their_share() {
    check_whole_io(
        "splits_join_beyond_their_share",
        more_than_the_share_at_once,
    );
}

#[test]
fn splits_change_hands() {
    check("splits_change_hands", passed_from_hand_to_hand);
}

#[test]
fn splits_that_are_kept() {
    check_whole_io("splits_that_are_kept", a_part_that_nobody_fetches);
}
