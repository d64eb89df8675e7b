//! CPUs that leave, and the hardware queues they leave behind.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::{cpu, thread};
use inflight_tags::{
    Admission, AllocError, AllocOptions, DrainError, HwQueueOptions, QueueKind, TagSet, Tenant,
};
use inflight_topology::Topology;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const PLAIN: AllocOptions = AllocOptions::new();

/// Hardware queue n has CPUs 2n and 2n + 1.
fn set_of(hw_queues: usize, depth: usize, shared: bool) -> (TagSet<u32>, Tenant<u32>) {
    let topology = Topology::synthetic(&format!("core:{}", 2 * hw_queues)).unwrap();
    let set = TagSet::builder().topology(&topology).depth(depth);
    let set = set.hw_queues(HwQueueOptions::new(hw_queues).shared_tags(shared));
    let set = set.build(|_, _| 0).unwrap();
    let dev = set.add_tenant("q").unwrap();
    (set, dev)
}

/// Runs `f` as if on that CPU.
fn on<R>(cpu: usize, f: impl FnOnce() -> R) -> R {
    cpu::set_current_for_thread(Some(cpu));
    let result = f();
    cpu::set_current_for_thread(None);
    result
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn c48_a_queue_turns_with_its_last_cpu() {
    let (set, _dev) = set_of(3, 4, false);
    assert_eq!(set.cpus().offline(2), []);
    assert_eq!(set.cpus().offline(2), [], "gone already");
    assert!(set.hw_queues().is_active(1));
    assert_eq!(set.cpus().offline(3), [1]);
    assert!(!set.hw_queues().is_active(1));
    let queues: Vec<usize> = (0..6).map(|cpu| set.hw_queues().of_cpu(cpu)).collect();
    assert_eq!(queues, [0, 0, 2, 2, 2, 2]);
    assert_eq!(set.cpus().online(3), [1], "one CPU is enough");
    assert_eq!(set.cpus().online(3), []);
    assert_eq!(set.hw_queues().of_cpu(2), 1);
    assert_eq!(set.cpus().offline(77), [], "a CPU the set does not know");
}

#[test]
fn c48_the_last_cpu_does_not_leave() {
    let (set, dev) = set_of(2, 4, false);
    assert_eq!(set.cpus().offline(0), []);
    assert_eq!(set.cpus().offline(1), [0]);
    assert_eq!(set.cpus().offline(2), []);
    assert_eq!(set.cpus().offline(3), []);
    assert!((0..4).all(|cpu| set.hw_queues().of_cpu(cpu) == 1));
    assert_eq!(on(3, || dev.try_alloc().unwrap().hw_queue()), 1);
}

/// Who stands in leaves too.
#[test]
fn c48_the_stand_in_leaves_and_comes_back() {
    let (set, dev) = set_of(3, 4, false);
    let at = |cpu| on(cpu, || dev.try_alloc().unwrap().hw_queue());
    set.cpus().offline(0);
    assert_eq!(set.cpus().offline(1), [0]);
    assert_eq!(at(0), 1);
    set.cpus().offline(2);
    assert_eq!(set.cpus().offline(3), [1]);
    assert_eq!((at(0), at(2), at(4)), (2, 2, 2));
    assert_eq!(set.cpus().online(2), [1]);
    assert_eq!((at(0), at(2), at(4)), (1, 1, 2));
}

#[test]
fn c17_c19_an_inactive_queue_gives_out_nothing() {
    for shared in [false, true] {
        let (set, dev) = set_of(2, 8, shared);
        set.cpus().offline(0);
        set.cpus().offline(1);
        let there = PLAIN.hw_queue(0);
        let refused = AllocError::InactiveHwQueue { hw_queue: 0 };
        assert_eq!(dev.try_alloc_with(there).unwrap_err(), refused);
        assert_eq!(dev.alloc_blocking_with(there).unwrap_err(), refused);
        assert_eq!(dev.try_alloc_batch_with(2, there).unwrap_err(), refused);
        assert_eq!(
            dev.split_with(2, there).next_blocking().unwrap_err(),
            refused
        );
        on(0, || {
            assert_eq!(dev.try_alloc().unwrap().hw_queue(), 1);
            assert!(dev.try_alloc_batch(3).iter().all(|tag| tag.hw_queue() == 1));
            let mut split = dev.split(2);
            while let Some(tag) = split.next_blocking().unwrap() {
                assert_eq!(tag.hw_queue(), 1);
            }
        });
        assert_eq!(set.hw_queues().drain_timeout(0, Duration::ZERO), Ok(()));
    }
}

#[test]
fn c48_a_drain_waits_for_held_and_in_flight() {
    for shared in [false, true] {
        let (set, dev) = set_of(2, 8, shared);
        let there = PLAIN.hw_queue(0);
        let held = dev.try_alloc_with(there).unwrap();
        let token = dev.try_alloc_with(there).unwrap().into_token();
        let _other = dev.try_alloc_with(PLAIN.hw_queue(1)).unwrap();
        set.cpus().offline(0);
        assert_eq!(set.cpus().offline(1), [0]);
        let now = Duration::ZERO;
        assert_eq!(
            set.hw_queues().drain_timeout(0, now),
            Err(DrainError::TimedOut { hw_queue: 0 })
        );
        let rings = set.hw_queues();
        let mut drain = pin!(rings.drain(0));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(drain.as_mut().poll(&mut cx).is_pending());
        drop(held);
        assert!(drain.as_mut().poll(&mut cx).is_pending());
        let drainer = thread::spawn({
            let set = set.clone();
            move || set.hw_queues().drain_blocking(0)
        });
        drop(set.redeem(token).unwrap());
        assert_eq!(drain.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
        assert_eq!(drainer.join().unwrap(), Ok(()));
        assert_eq!(set.in_use(), 1, "the other queue's tag does not matter");
    }
}

#[test]
fn c49_a_drain_ends_when_the_queue_serves_again() {
    let (set, dev) = set_of(2, 2, false);
    let _held = dev.try_alloc_with(PLAIN.hw_queue(0)).unwrap();
    set.cpus().offline(0);
    set.cpus().offline(1);
    let rings = set.hw_queues();
    let mut drain = pin!(rings.drain(0));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(drain.as_mut().poll(&mut cx).is_pending());
    let drainer = thread::spawn({
        let set = set.clone();
        move || set.hw_queues().drain_blocking(0)
    });
    set.cpus().online(0);
    set.cpus().offline(0);
    let end = Poll::Ready(Err(DrainError::Active { hw_queue: 0 }));
    assert_eq!(
        drain.as_mut().poll(&mut cx),
        end,
        "although it left once more"
    );
    set.cpus().online(1);
    assert!(matches!(
        drainer.join().unwrap(),
        Err(DrainError::Active { .. })
    ));
    assert!(dev.try_alloc_with(PLAIN.hw_queue(0)).is_ok());
}

/// Waiters in the line of a queue that leaves: each goes on elsewhere, or is told.
#[test]
fn c17_waiters_move_on() {
    for admission in [Admission::WholeIo, Admission::preempt()] {
        let topology = Topology::synthetic("core:2").unwrap();
        let set = TagSet::builder().hw_queues(2).depth(2).topology(&topology);
        let set = set.admission(admission).build(|_, _| ()).unwrap();
        let dev = set.add_tenant("q").unwrap();
        let held = dev.try_alloc_batch_with(2, PLAIN.hw_queue(0)).unwrap();
        let waiters: Vec<_> = (0..4)
            .map(|n| {
                let dev = dev.clone();
                thread::spawn(move || {
                    cpu::set_current_for_thread(Some(0));
                    let options = if n == 0 { PLAIN.hw_queue(0) } else { PLAIN };
                    dev.alloc_blocking_with(options).map(|tag| tag.hw_queue())
                })
            })
            .collect();
        wait_until(|| dev.stats().waits == 4);
        assert_eq!(set.cpus().offline(0), [0]);
        drop(held);
        let mut ends: Vec<_> = waiters.into_iter().map(|w| w.join().unwrap()).collect();
        assert!(matches!(
            ends.remove(0),
            Err(AllocError::InactiveHwQueue { .. })
        ));
        assert_eq!(ends, [Ok(1), Ok(1), Ok(1)]);
        assert_eq!(set.hw_queues().drain_blocking(0), Ok(()));
    }
}

/// C14 to C17: nobody calls the waiters of a queue that leaves out of its line, not even beside
/// free tags of the one that stands in. The tag that comes to each sends it there.
#[test]
fn c17_waiters_are_not_called_out() {
    for admission in [Admission::WholeIo, Admission::preempt()] {
        let topology = Topology::synthetic("core:2").unwrap();
        let set = TagSet::builder().hw_queues(2).depth(2).topology(&topology);
        let set = set.admission(admission).build(|_, _| ()).unwrap();
        let dev = set.add_tenant("q").unwrap();
        let mut held = dev
            .try_alloc_batch_with(2, PLAIN.hw_queue(0))
            .unwrap()
            .into_iter();
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiter = pin!(dev.alloc());
        on(0, || assert!(waiter.as_mut().poll(&mut cx).is_pending()));
        assert_eq!(set.cpus().offline(0), [0]);
        on(0, || {
            assert!(waiter.as_mut().poll(&mut cx).is_pending(), "{admission:?}");
            let newcomer = dev.try_alloc().unwrap();
            assert_eq!(newcomer.hw_queue(), 1);
        });
        drop(held.next());
        let Poll::Ready(Ok(tag)) = on(0, || waiter.as_mut().poll(&mut cx)) else {
            panic!("{admission:?}: a tag came to it");
        };
        assert_eq!(tag.hw_queue(), 1);
        drop(held);
        assert_eq!(set.hw_queues().drain_timeout(0, Duration::ZERO), Ok(()));
    }
}

#[test]
fn a_split_moves_on() {
    let topology = Topology::synthetic("core:2").unwrap();
    let set = TagSet::builder().hw_queues(2).depth(4).topology(&topology);
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let mut split = dev.split(4);
    let first = on(0, || split.next_blocking().unwrap().unwrap());
    assert_eq!(first.hw_queue(), 0);
    assert_eq!(set.cpus().offline(0), [0]);
    drop(first);
    let now = Duration::ZERO;
    let kept = set.hw_queues().drain_timeout(0, now);
    assert_eq!(
        kept,
        Err(DrainError::TimedOut { hw_queue: 0 }),
        "what it collected is held"
    );
    let second = on(0, || split.next_blocking().unwrap().unwrap());
    assert_eq!((second.hw_queue(), split.remaining()), (1, 2));
    assert_eq!(set.hw_queues().drain_timeout(0, now), Ok(()));
}

#[test]
fn c8_c48_a_queue_of_the_same_kind_stands_in() {
    let topology = Topology::synthetic("core:4").unwrap();
    let set = TagSet::builder()
        .hw_queues(HwQueueOptions::new(6).read(2))
        .depth(2);
    let set = set.topology(&topology).build(|_, _| ()).unwrap();
    let reads = |cpu| set.hw_queues().for_kind(QueueKind::Read, cpu);
    assert_eq!([0, 1, 2, 3].map(reads), [4, 4, 5, 5]);
    assert_eq!(set.cpus().offline(0), [0]);
    assert_eq!(set.cpus().offline(1), [1, 4]);
    assert_eq!([0, 1, 2, 3].map(reads), [5; 4]);
    assert_eq!(
        (set.hw_queues().of_cpu(0), set.hw_queues().of_cpu(1)),
        (2, 2)
    );
    assert_eq!(set.cpus().offline(2), [2]);
    assert_eq!(set.hw_queues().drain_blocking(4), Ok(()));
    assert_eq!(set.cpus().online(0), [0, 4]);
}

/// Another number of hardware queues: the CPUs that are gone are still gone.
#[test]
fn c46_c49_the_map_changes_while_cpus_are_gone() {
    let (set, _dev) = set_of(2, 4, false);
    set.cpus().offline(0);
    assert_eq!(set.cpus().offline(1), [0]);
    set.set_hw_queues_blocking(1).unwrap();
    assert!(set.hw_queues().is_active(0), "it has CPUs 2 and 3 too");
    assert!(!set.hw_queues().is_active(1), "there is none");
    assert!(matches!(
        set.hw_queues().drain_blocking(1),
        Err(DrainError::NoSuchHwQueue { .. })
    ));
    set.set_hw_queues_blocking(2).unwrap();
    assert!(!set.hw_queues().is_active(0));
    assert_eq!(set.cpus().online(1), [0]);
}

/// Submitters, and CPUs that come and go: no tag of a drained queue is out, and nothing is lost.
#[test]
fn c50_queues_come_and_go_under_load() {
    for shared in [false, true] {
        let (set, dev) = set_of(2, 4, shared);
        let rounds = if cfg!(miri) { 3 } else { 200 };
        let submitters: Vec<_> = (0..3)
            .map(|n| {
                let (set, dev) = (set.clone(), dev.clone());
                thread::spawn(move || {
                    for i in 0..rounds * 20 {
                        cpu::set_current_for_thread(Some((n + i) % 4));
                        let tag = dev.alloc_blocking().unwrap();
                        drop(set.redeem(tag.into_token()).unwrap());
                    }
                })
            })
            .collect();
        for round in 0..rounds {
            let (a, b) = [(0, 1), (2, 3)][round % 2];
            set.cpus().offline(a);
            let left = set.cpus().offline(b);
            assert_eq!(left, [a / 2]);
            assert_eq!(set.hw_queues().drain_blocking(a / 2), Ok(()));
            set.for_each_in_flight(|t| assert_ne!(t.hw_queue(), a / 2));
            set.cpus().online(a);
            set.cpus().online(b);
        }
        submitters.into_iter().for_each(|s| s.join().unwrap());
        assert_eq!(set.in_use(), 0);
    }
}
