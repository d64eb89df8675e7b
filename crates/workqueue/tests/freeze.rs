//! Freezing and thawing.

mod support;

use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{
    Attrs, DelayedWork, Share, TraceStep, Work, Workqueue, WorkqueueBuilder, WorkqueueSystem,
};
use std::time::Duration;
use support::{Level, Log, four_cpus, held_work, system};

fn each_kind(sys: &WorkqueueSystem) -> [Workqueue; 3] {
    let build = |builder: WorkqueueBuilder| builder.freezable().build().unwrap();
    [
        build(sys.workqueue("bound").bound()),
        build(sys.workqueue("unbound").unbound(Attrs::new())),
        build(sys.workqueue("ordered").ordered()),
    ]
}

/// B35: what is active runs to its end, what comes waits, and goes on in its order.
#[test]
fn b35_nothing_starts_until_the_thaw() {
    let sys = system();
    for wq in each_kind(&sys) {
        let (work, release, begun) = held_work();
        assert!(wq.queue_on(0, &work).unwrap().is_queued());
        begun.wait(1);
        let frozen = sys.freeze();
        assert!(frozen.is_busy());
        let log = Log::new();
        for n in 0..5 {
            let log = log.clone();
            drop(wq.spawn_on(0, move || log.push(n)));
        }
        release.raise();
        work.flush_blocking().unwrap();
        while frozen.is_busy() {
            thread::yield_now();
        }
        assert_eq!((wq.stats().started, wq.stats().inactive), (1, 5));
        assert!(sys.dump().contains("frozen: 0 active, 5 inactive"));
        drop(frozen);
        wq.flush_blocking().unwrap();
        assert_eq!(log.entries().len(), 5);
        if wq.name() == "ordered" {
            assert_eq!(log.entries(), [0, 1, 2, 3, 4]);
        }
    }
}

/// Items that were queued before the freeze and have not begun when it returns wait for the thaw:
/// behind one that runs, and those that it has queued itself, which its worker has for itself. One
/// that a worker is about to call has begun, and is counted as started.
#[test]
fn what_has_not_begun_when_freeze_returns_does_not_begin() {
    const ITEMS: usize = 40;
    for by_item in [false, true] {
        // Workers take many at once only where somebody looks after them.
        let sys = WorkqueueSystem::builder().topology(four_cpus());
        let sys = sys.build().unwrap();
        for wq in each_kind(&sys) {
            let (open, begun, runs) = (Level::new(), Level::new(), Level::new());
            let queue_all = {
                let (wq, runs) = (wq.clone(), runs.clone());
                move || {
                    for _ in 0..ITEMS {
                        let work = support::counting(&runs);
                        assert!(wq.queue_on(0, &work).unwrap().is_queued());
                    }
                }
            };
            // As many as may run at once in the group of CPU 0, of which one queues.
            let holders: Vec<_> = (0..2)
                .map(|n| {
                    let (open, begun) = (open.clone(), begun.clone());
                    let queue_all = queue_all.clone();
                    let holds = move || {
                        if by_item && n == 0 {
                            queue_all();
                        }
                        begun.raise();
                        open.wait_silently(1);
                    };
                    wq.spawn_on(0, holds)
                })
                .collect();
            begun.wait(1);
            if !by_item {
                queue_all();
            }
            let frozen = sys.freeze();
            let started = wq.stats().started;
            open.raise();
            while frozen.is_busy() {
                thread::yield_now();
            }
            assert_eq!(wq.stats().started, started, "{}", wq.name());
            assert_eq!((begun.get() + runs.get()) as u64, started, "{}", wq.name());
            drop(frozen);
            holders
                .into_iter()
                .for_each(|holder| holder.wait().unwrap());
            wq.flush_blocking().unwrap();
            assert_eq!(runs.get(), ITEMS);
        }
    }
}

/// An ordered queue that has moved waits for what is left where it was. If that is cancelled, and
/// nothing else ends there, it goes on.
#[test]
fn cancelling_the_last_of_the_old_pool_opens_the_new_one() {
    let sys = system();
    let wq = sys.workqueue("ordered").ordered().freezable();
    let wq = wq.build().unwrap();
    let (first, ran) = (Work::new(|| ()), Level::new());
    for strict in [true, false] {
        let frozen = sys.freeze();
        assert!(wq.queue(&first).unwrap().is_queued());
        wq.set_attrs(Attrs::new().strict(strict)).unwrap();
        let before = ran.get();
        let second = support::counting(&ran);
        assert!(wq.queue(&second).unwrap().is_queued());
        assert!(first.cancel());
        drop(frozen);
        support::until(|| ran.get() == before + 1, || sys.dump());
    }
    wq.flush_blocking().unwrap();
}

#[test]
fn queues_that_are_not_freezable_go_on() {
    let sys = system();
    let wq = sys.workqueue("on").bound().build().unwrap();
    let _frozen = sys.freeze();
    assert_eq!(wq.spawn(|| 7).wait().unwrap(), 7);
}

/// B36: a held item can be taken back, and a limit that is raised lets nobody go.
#[test]
fn b36_held_items_can_be_cancelled() {
    let sys = system();
    let [wq, ..] = each_kind(&sys);
    let frozen = sys.freeze();
    let work = Work::new(|| ());
    assert!(wq.queue(&work).unwrap().is_queued());
    wq.set_max_active(7).unwrap();
    assert_eq!(work.cancel_sync_blocking(), Ok(true));
    assert_eq!((wq.stats().started, wq.stats().cancelled), (0, 1));
    drop(frozen);
    wq.flush_blocking().unwrap();
}

/// B37: also what is made while it is frozen; and the thaw comes with the last of several.
#[test]
fn b37_freezes_overlap_and_hold_new_queues() {
    let sys = system();
    let (first, second) = (sys.freeze(), sys.freeze());
    let ran = Level::new();
    let mut queues = each_kind(&sys).to_vec();
    queues[1].set_attrs(Attrs::new().strict(true)).unwrap();
    for wq in &queues {
        let ran = ran.clone();
        drop(wq.spawn(move || ran.raise()));
    }
    let delayed = DelayedWork::new(|| ());
    let later = Duration::from_nanos(1);
    assert!(
        queues[0]
            .queue_delayed(&delayed, later)
            .unwrap()
            .is_queued()
    );
    drop(first);
    assert!(queues.iter().all(|wq| wq.stats().started == 0));
    drop(second);
    delayed.flush_blocking().unwrap();
    queues.drain(..).for_each(|wq| wq.flush_blocking().unwrap());
    assert_eq!(ran.get(), 3);
}

/// A call would run on its caller's thread: it waits like the others.
#[test]
fn calls_wait_too() {
    let sys = system();
    let wq = each_kind(&sys)[1].clone();
    let frozen = sys.freeze();
    let caller = thread::spawn({
        let wq = wq.clone();
        move || wq.call_blocking(|| 7)
    });
    while wq.stats().inactive == 0 {
        thread::yield_now();
    }
    drop(frozen);
    assert_eq!(caller.join().unwrap().unwrap(), 7);
}

/// The end of the system runs what was queued, frozen or not.
#[test]
fn the_end_thaws() {
    let sys = system();
    let [wq, ..] = each_kind(&sys);
    let frozen = sys.freeze();
    let handle = wq.spawn(|| 7);
    drop(sys);
    assert_eq!(handle.wait().unwrap(), 7);
    drop(frozen);
}

/// A tracer that is told of an item let through by a thaw may ask the system whatever it likes.
#[test]
fn no_lock_is_held_while_a_thaw_is_told() {
    let (asked, system) = (Level::new(), Arc::new(Mutex::new(None::<WorkqueueSystem>)));
    let sys = WorkqueueSystem::builder()
        .sampling(false)
        .topology(four_cpus());
    let sys = sys.trace({
        let (asked, system) = (asked.clone(), Arc::downgrade(&system));
        move |event| {
            let system = system.upgrade().and_then(|slot| slot.lock().clone());
            if let (TraceStep::Activated, Some(sys)) = (event.step, system) {
                drop(sys.freeze());
                asked.raise();
            }
        }
    });
    let sys = sys.build().unwrap();
    *system.lock() = Some(sys.clone());
    let wq = sys.workqueue("w").bound().freezable().build().unwrap();
    let frozen = sys.freeze();
    let item = wq.spawn(|| ());
    let thaw = thread::spawn(move || drop(frozen));
    for _ in 0..10_000_000 {
        if asked.get() == 1 {
            thaw.join().unwrap();
            item.wait().unwrap();
            return *system.lock() = None;
        }
        thread::yield_now();
    }
    // Whoever hangs has a handle on the system.
    std::mem::forget(system);
    panic!("a tracer waits for a lock");
}

/// With a pool and a part for each of two nodes.
fn in_parts(max: usize) -> (WorkqueueSystem, Workqueue) {
    let topo = Topology::synthetic("numa:2 core:2").unwrap();
    let sys = WorkqueueSystem::builder().topology(topo).sampling(false);
    let sys = sys.build().unwrap();
    let wq = sys.workqueue("w").unbound(Attrs::new().scope(Scope::Numa));
    let wq = wq.share(Share::PerNode).max_active(max).min_active(1);
    let wq = wq.freezable().build().unwrap();
    (sys, wq)
}

/// Each node has its part before and after, and none meanwhile; a limit that is set meanwhile is
/// that of the thaw.
#[test]
fn b35_a_freezable_queue_has_parts() {
    let (sys, wq) = in_parts(2);
    let (end, begun) = (Level::new(), Level::new());
    let queue = |cpu| {
        let (end, begun) = (end.clone(), begun.clone());
        drop(wq.spawn_on(cpu, move || {
            begun.raise();
            end.wait(1);
        }));
    };
    [0, 1, 0, 1].into_iter().for_each(queue);
    begun.wait(1);
    assert_eq!((wq.stats().active, wq.stats().inactive), (1, 3));
    queue(2);
    begun.wait(2);
    let frozen = sys.freeze();
    queue(3);
    wq.set_max_active(4).unwrap();
    assert_eq!((wq.stats().active, wq.stats().inactive), (2, 4));
    assert!(wq.is_congested(2) && frozen.is_busy());
    drop(frozen);
    // Two on each node: four in all, and two that wait for the first.
    begun.wait(4);
    assert_eq!((wq.stats().active, wq.stats().inactive), (4, 2));
    end.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().completed, 6);
}

/// What came to a CPU while it was frozen goes on in its order, behind what waited before.
#[test]
fn b35_a_thaw_keeps_the_order_of_each_cpu() {
    let (sys, wq) = in_parts(1);
    let logs = [0, 1, 2, 3].map(|_| Log::new());
    let mut frozen = None;
    for n in 0..20 {
        if n == 5 {
            frozen = Some(sys.freeze());
        }
        for (cpu, log) in logs.iter().enumerate() {
            let log = log.clone();
            drop(wq.spawn_on(cpu, move || log.push(n)));
        }
    }
    drop(frozen);
    wq.flush_blocking().unwrap();
    for log in logs {
        assert_eq!(log.entries(), (0..20).collect::<Vec<_>>());
    }
}

/// An item that waits for one behind its own slot is told so, frozen or not: the thaw would not
/// help it.
#[test]
fn who_waits_behind_oneself_is_told_while_frozen() {
    for share in [Share::PerNode, Share::Lend] {
        let sys = system();
        let wq = sys.workqueue("w").unbound(Attrs::new()).share(share);
        let wq = wq.max_active(1).freezable().build().unwrap();
        let work = Work::new(|| ());
        let refused = wq.spawn_on(0, {
            let (sys, wq, work) = (sys.clone(), wq.clone(), work.clone());
            move || {
                assert!(wq.queue_on(3, &work).unwrap().is_queued());
                let _frozen = sys.freeze();
                work.flush_blocking().is_err()
            }
        });
        assert!(refused.wait().unwrap());
        wq.flush_blocking().unwrap();
        assert_eq!(wq.stats().completed, 2);
    }
}

/// What has started when a freeze returns is all that starts before the thaw, whoever queues and
/// ends items meanwhile.
#[test]
fn nothing_starts_in_a_freeze_under_load() {
    for share in [Share::PerNode, Share::Lend] {
        let topo = Topology::synthetic("numa:4 core:2").unwrap();
        let sys = WorkqueueSystem::builder().topology(topo).build().unwrap();
        let wq = sys.workqueue("w").unbound(Attrs::new().scope(Scope::Numa));
        let wq = wq.share(share).max_active(3).freezable().build().unwrap();
        let over = Level::new();
        let submitters: Vec<_> = (0..2)
            .map(|seed| {
                let (wq, over) = (wq.clone(), over.clone());
                thread::spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    while over.get() == 0 {
                        drop(wq.spawn_on(rng.usize(..8), || ()));
                        while wq.stats().inactive > 200 && over.get() == 0 {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        for _ in 0..200 {
            let frozen = sys.freeze();
            let started = wq.stats().started;
            while frozen.is_busy() {
                thread::yield_now();
            }
            (0..20).for_each(|_| thread::yield_now());
            assert_eq!(wq.stats().started, started, "{share:?}");
            assert!(!frozen.is_busy());
            drop(frozen);
            thread::yield_now();
        }
        over.raise();
        submitters.into_iter().for_each(|s| s.join().unwrap());
        wq.flush_blocking().unwrap();
        let stats = wq.stats();
        assert_eq!((stats.active, stats.inactive), (0, 0));
        assert_eq!(stats.completed, stats.queued);
    }
}
