//! The core by itself: rules as tables, and random orders of events against a simple model.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// An entry by its number. Its position is stored for a cancel, if there is one.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    number: usize,
    colour: u8,
    position: Option<&'a std::cell::Cell<u32>>,
}

impl PoolItem for Entry<'_> {
    fn colour(&self) -> u8 {
        self.colour
    }

    fn set_position(&self, position: u32) {
        if let Some(place) = self.position {
            place.set(position);
        }
    }
}

mod random;

const PLAIN: Entry<'static> = Entry {
    number: 0,
    colour: 0,
    position: None,
};

/// A pool with one pwq and an active worker.
fn pool(target: usize, limit: Limit) -> (PoolCore<Entry<'static>>, PwqIndex, WorkerId) {
    let mut core = PoolCore::new(target);
    let pwq = core.add_pwq(0, limit, false);
    let worker = active(&mut core);
    (core, pwq, worker)
}

fn active<T>(core: &mut PoolCore<T>) -> WorkerId {
    let worker = core.workers.create();
    core.workers.arrive(worker);
    worker
}

fn push(core: &mut PoolCore<Entry<'static>>, pwq: PwqIndex, entries: usize) {
    for _ in 0..entries {
        core.push(pwq, |colour| Entry { colour, ..PLAIN });
    }
}

fn takes(core: &mut PoolCore<Entry<'static>>, worker: WorkerId) -> usize {
    core.take(worker, |_, _| {})
}

/// The service time rises by halves and falls by eighths: slow items soon make batches short, and a
/// few quick ones do not make them long.
#[test]
fn service_time_rises_by_halves_and_falls_by_eighths() {
    let (mut core, ..) = pool(1, Limit::own(usize::MAX));
    let after = |core: &mut PoolCore<Entry<'static>>, ns| {
        core.note_service(ns);
        core.service_ns()
    };
    assert_eq!(core.service_ns(), 1_000);
    assert_eq!(after(&mut core, 3_001), 2_001, "rounded up");
    assert_eq!(after(&mut core, 2_001), 2_001);
    assert_eq!(after(&mut core, 1), 1_751);
    for _ in 0..200 {
        core.note_service(40_000);
    }
    assert_eq!(core.service_ns(), 40_000, "it gets there from below");
    for _ in 0..200 {
        core.note_service(0);
    }
    assert!(core.service_ns() < 8, "and nearly there from above");
    let short = core.service_ns();
    assert_eq!(after(&mut core, u64::MAX / 2), short, "once is not enough");
    assert_eq!(after(&mut core, 0), short);
    core.note_service(u64::MAX / 2);
    assert_eq!(after(&mut core, u64::MAX / 2), u64::MAX / 4 + 4);
}

/// A pwq that waited for a slot and has been removed waits no longer: the batches of others are not
/// cut for it.
#[test]
fn a_pwq_that_is_removed_waits_for_no_slot() {
    let limit = Arc::new(NrActive::new(1));
    let shared = || Limit::Shared(limit.clone());
    let (mut core, busy, _) = pool(2, shared());
    let waits = core.add_pwq(1, shared(), false);
    push(&mut core, busy, 1);
    push(&mut core, waits, 1);
    assert!(limit.has_pending());
    core.remove(waits, 0);
    core.remove_pwq(waits);
    assert!(!limit.has_pending());
}

/// A batch takes 20 us by the known service time, and has 1 to 48 entries. If others could help,
/// and the listed entries are worth a wakeup, it is half of them; not for an ordered queue, whose
/// other half no one else could run.
#[test]
fn how_long_a_batch_is() {
    for case @ (target, ordered, listed, service, entries) in [
        (1, false, 100, 0, 48),
        (1, false, 100, 416, 48),
        (1, false, 100, 1_000, 20),
        (1, false, 100, 9_000, 2),
        (1, false, 100, 30_000, 1),
        // After an item that took a day, the listed time overflows a count of ns.
        (2, false, 2_000, u64::MAX / 1_000, 1),
        (2, false, 100, 1_000, 20),
        (2, false, 30, 1_000, 15),
        (2, false, 31, 1_000, 16),
        (2, false, 20, 1_000, 10),
        // Less than 20 us: not worth a wakeup.
        (2, false, 19, 1_000, 19),
        (2, false, 2, 10_000, 1),
        (2, false, 1, 30_000, 1),
        (2, true, 20, 1_000, 20),
        (1, true, 20, 10_000, 2),
    ] {
        let limit = if ordered { 1 } else { usize::MAX };
        let (mut core, pwq, worker) = pool(target, Limit::own(limit));
        core.service_ns = service;
        push(&mut core, pwq, listed + 1);
        assert_eq!(takes(&mut core, worker), 1, "nobody looks: {case:?}");
        core.release_held(worker, None);
        core.set_batching(true);
        assert_eq!(takes(&mut core, worker), entries, "{case:?}");
    }
}

/// A pwq that waits for a shared slot gets it after each entry.
#[test]
fn a_batch_has_one_entry_of_a_limit_that_others_wait_for() {
    let shared = Arc::new(NrActive::new(1));
    let (mut core, pwq, worker) = pool(1, Limit::Shared(shared.clone()));
    core.set_batching(true);
    push(&mut core, pwq, 40);
    assert!(!shared.acquire(77), "the slot is the pwq's");
    assert_eq!(takes(&mut core, worker), 1);
}

/// What waits on the worklist has a slot by the old limit. When the limit is lowered it goes back,
/// and no batch begins until enough slots are free.
#[test]
fn a_lowered_limit_takes_the_slot_of_what_waits() {
    let shared = Arc::new(NrActive::new(2));
    for limit in [Limit::own(2), Limit::Shared(shared.clone())] {
        let (mut core, pwq, worker) = pool(2, limit);
        push(&mut core, pwq, 3);
        assert_eq!(
            takes(&mut core, worker),
            1,
            "the rest is listed, with a slot"
        );
        shared.set_max(1);
        core.set_max(pwq, 1);
        let other = active(&mut core);
        assert_eq!(takes(&mut core, other), 0);
        core.release_held(worker, None);
        for deferred in core.drain_deferred().collect::<Vec<_>>() {
            assert!(matches!(deferred, Deferred::Slot(..)));
            core.grant(pwq);
        }
        assert_eq!(takes(&mut core, other), 1, "the slot is free");
    }
}

/// A slot that comes after the limit has been lowered is passed on.
#[test]
fn a_slot_on_its_way_is_not_used_beyond_a_lowered_limit() {
    let shared = Arc::new(NrActive::new(2));
    let (mut core, pwq, worker) = pool(2, Limit::Shared(shared.clone()));
    assert!(shared.try_acquire() && shared.try_acquire(), "of others");
    push(&mut core, pwq, 1);
    let given = shared.release();
    assert_eq!(given, Some(core.pwq(pwq).id));
    shared.set_max(1);
    core.grant(pwq);
    assert_eq!(takes(&mut core, worker), 0);
    assert_eq!(shared.level(), (1, 1));
    assert_eq!(shared.release(), given, "it waits again");
    core.grant(pwq);
    assert_eq!(takes(&mut core, worker), 1);
}

/// An item X runs, and its second queueing is parked with a slot. If the limit is lowered then,
/// that slot is not used beyond it.
#[test]
fn a_parked_entry_does_not_begin_beyond_a_lowered_limit() {
    for own in [true, false] {
        let shared = Arc::new(NrActive::new(3));
        let limit = if own {
            Limit::own(3)
        } else {
            Limit::Shared(shared.clone())
        };
        let (mut core, pwq, worker) = pool(3, limit);
        push(&mut core, pwq, 3);
        assert_eq!(takes(&mut core, worker), 1, "X runs");
        let other = active(&mut core);
        let mut parked = None;
        core.take(other, |_, places| parked = places[0]);
        core.transfer_slot(other, pwq);
        let long = active(&mut core);
        assert_eq!(takes(&mut core, long), 1);
        shared.set_max(1);
        core.set_max(pwq, 1);
        core.release_held(worker, None);
        core.unpark(pwq, parked.unwrap());
        assert_eq!(core.drain_deferred().count(), 0);
        assert_eq!(takes(&mut core, other), 0, "the long one has the only slot");
    }
}

/// The worker that became idle last is woken first; the one that has been idle longest exits first.
#[test]
fn the_last_idle_is_woken_first_and_the_first_idle_leaves_first() {
    let mut core = PoolCore::<Entry<'static>>::new(4);
    let workers = [(); 4].map(|()| active(&mut core));
    for (at, worker) in (10..).zip([2, 0, 3, 1]) {
        core.workers.enter_idle(workers[worker], at);
    }
    assert_eq!(core.workers.coldest(), Some((workers[2], 10)));
    assert_eq!(core.workers.wake_or_create(), WakeAction::Wake(workers[1]));
    assert_eq!(core.workers.wake_or_create(), WakeAction::Wake(workers[3]));
    core.workers.dismiss(workers[2]);
    assert_eq!(core.workers.phase(workers[2]), WorkerPhase::Leaving);
    assert_eq!(core.workers.coldest(), Some((workers[0], 11)));
    assert_eq!(core.workers.wake_or_create(), WakeAction::Wake(workers[0]));
    assert!(matches!(
        core.workers.wake_or_create(),
        WakeAction::Create(_)
    ));
    assert_eq!(core.workers.coldest(), None);
}

/// When a worker blocks, its CPU is given to one of the last few workers that became idle there;
/// the others keep their order.
#[test]
fn a_cpu_that_is_left_is_given_to_who_went_idle_there() {
    let mut core = PoolCore::<Entry<'static>>::new(4);
    let idle_on = |core: &mut PoolCore<Entry<'static>>, workers: &[WorkerId], cpus: &[usize]| {
        for (worker, cpu) in workers.iter().zip(cpus) {
            core.workers.enter_idle(*worker, 0);
            core.workers.set_idle_on(*worker, *cpu);
        }
    };
    let blocks = active(&mut core);
    let workers: Vec<_> = (0..10).map(|_| active(&mut core)).collect();
    idle_on(&mut core, &workers, &[5, 7, 7, 7, 3, 7, 7, 7, 3, 7]);
    core.workers.block(blocks, 3);
    let wakes = |core: &mut PoolCore<_>, worker: usize| {
        let action = core.workers.wake_or_create();
        assert_eq!(action, WakeAction::Wake(workers[worker]));
    };
    wakes(&mut core, 8);
    // One wakeup for each CPU that is left.
    wakes(&mut core, 9);
    core.workers.block(blocks, 3);
    wakes(&mut core, 4);
    // No worker became idle there recently.
    core.workers.block(blocks, 3);
    wakes(&mut core, 7);
    idle_on(&mut core, &[workers[7], workers[8], workers[9]], &[7; 3]);
    core.workers.block(blocks, 5);
    wakes(&mut core, 9);
    // A worker that continues needs its CPU itself.
    idle_on(&mut core, &[workers[9], workers[4]], &[3, 7]);
    core.workers.block(blocks, 3);
    core.workers.unblock(blocks);
    wakes(&mut core, 4);
}

/// Two idle workers stay, and k more while more than 4k are busy.
#[test]
fn the_idle_rule() {
    for busy in 0..40 {
        let mut workers = Workers::new(64);
        let mut make = |idle| {
            let worker = workers.create();
            workers.arrive(worker);
            if idle {
                workers.enter_idle(worker, 0);
            }
            workers.are_too_many_idle()
        };
        for _ in 0..busy {
            make(false);
        }
        let stay = (1..).take_while(|_| !make(true)).count();
        let rule = if busy == 0 { 2 } else { 2 + (busy - 1) / 4 };
        assert_eq!(stay, rule.max(2), "{busy} busy");
    }
}

proptest! {
    /// The members and the order of the worklist, against a plain list.
    #[test]
    fn the_worklist_keeps_its_order(
        steps in proptest::collection::vec((0..5u8, 0..6 as PwqIndex), 0..200),
    ) {
        let (mut core, first, worker) = pool(1, Limit::own(usize::MAX));
        let others = (1..6).map(|id| core.add_pwq(id, Limit::own(usize::MAX), false));
        let pwqs = [first].into_iter().chain(others);
        let pwqs: Vec<_> = pwqs.collect();
        let mut plain = Vec::new();
        for (step, at) in steps {
            let pwq = pwqs[at as usize];
            let place = plain.iter().position(|listed| *listed == pwq);
            match (step, place) {
                (0 | 1, None) => {
                    push(&mut core, pwq, 1);
                    plain.push(pwq);
                }
                (2, Some(place)) => {
                    core.set_stopped(pwq, |pwq| pwq.frozen = true);
                    plain.remove(place);
                    prop_assert!(core.worklist().eq(plain.iter().copied()));
                    core.set_stopped(pwq, |pwq| pwq.frozen = false);
                    plain.push(pwq);
                }
                (3, Some(place)) => {
                    core.bring_to_front(pwq);
                    plain[..=place].rotate_right(1);
                }
                (4, _) => {
                    prop_assert_eq!(takes(&mut core, worker), plain.len().min(1));
                    core.release_held(worker, None);
                    plain.drain(..plain.len().min(1));
                }
                (_, None) => core.bring_to_front(pwq),
                _ => {}
            }
            prop_assert!(core.worklist().eq(plain.iter().copied()));
            prop_assert_eq!(core.has_waiting(), !plain.is_empty());
            prop_assert_eq!(core.listed(), plain.len());
        }
    }
}
