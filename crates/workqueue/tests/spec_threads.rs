//! How many threads a queue asks for, and what it does without.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::fault::Faults;
use inflight_sync::thread;
use inflight_topology::Scope;
use inflight_workqueue::{
    Attrs, DelayedWork, JoinError, QueueError, Queued, Work, Workqueue, WorkqueueSystem, blocking,
};
use std::time::Duration;
use support::{Level, bound, builder, counting, every_kind, held_work, rigged};

fn unbound(sys: &WorkqueueSystem, max_active: usize) -> Workqueue {
    sys.workqueue("unbound")
        .unbound(Attrs::new().scope(Scope::Cache))
        .max_active(max_active)
        .build()
        .unwrap()
}

/// Nothing tells that such a queue takes no items but the answer: it costs no thread.
#[test]
fn what_a_destroyed_queue_refuses_starts_no_thread() {
    let (sys, faults, _) = rigged(builder());
    for wq in [
        bound(&sys),
        unbound(&sys, 2),
        sys.workqueue("bh").bh().build().unwrap(),
    ] {
        wq.destroy_blocking().unwrap();
        let before = faults.spawn_attempts();
        assert_eq!(wq.queue(&Work::new(|| ())), Err(QueueError::Destroyed));
        assert!(matches!(
            wq.spawn(|| ()).wait(),
            Err(JoinError::Rejected(QueueError::Destroyed))
        ));
        assert!(wq.call_blocking(|| ()).is_err());
        let delayed = DelayedWork::new(|| ());
        assert_eq!(
            wq.queue_delayed(&delayed, Duration::ZERO),
            Err(QueueError::Destroyed)
        );
        assert!(matches!(
            wq.spawn_future(async {}).wait(),
            Err(JoinError::Rejected(QueueError::Destroyed))
        ));
        assert_eq!(faults.spawn_attempts(), before, "{:?}", wq.kind());
    }
}

/// E7: with no thread to be had, items of such queues run, and waits for them end.
#[test]
fn rescued_queues_flush_cancel_move_and_end() {
    for _ in 0..5 {
        let faults = Faults::new();
        let sys = builder().faults(&faults).build().unwrap();
        let queues = [
            sys.workqueue("rb").bound().mem_reclaim().build().unwrap(),
            sys.workqueue("ro").ordered().mem_reclaim().build().unwrap(),
            sys.workqueue("ru")
                .unbound(Attrs::new().scope(Scope::Cpu))
                .mem_reclaim()
                .max_active(2)
                .freezable()
                .build()
                .unwrap(),
        ];
        faults.refuse_spawns(true);
        let runs = Level::new();
        let mut wanted = 0;
        for wq in &queues {
            let works: Vec<_> = (0..12).map(|_| counting(&runs)).collect();
            for (i, work) in works.iter().enumerate() {
                assert!(wq.queue_on(i % 4, work).unwrap().is_queued());
            }
            let taken = works[5].cancel();
            wanted += 12 - usize::from(taken);
            wq.flush_blocking().unwrap();
            assert_eq!(runs.get(), wanted);
            let _ = wq.set_attrs(Attrs::new().scope(Scope::System));
            wq.queue(&works[0]).unwrap();
            assert_eq!(works[0].flush_blocking().map(|_| ()), Ok(()));
            wanted += 1;
            assert_eq!(runs.get(), wanted);
            let panics = wq.spawn(|| panic!("rescued"));
            assert!(matches!(panics.wait(), Err(JoinError::Panicked(_))));
            wq.drain_blocking().unwrap();
        }
        let last: Vec<_> = (0..8).map(|_| counting(&runs)).collect();
        for (i, work) in last.iter().enumerate() {
            queues[i % 3].queue_on(i % 4, work).unwrap();
        }
        sys.shutdown_blocking().unwrap();
        assert_eq!(runs.get(), wanted + 8);
    }
}

/// A pool that was left keeps its workers while its items wait for slots: each would be made anew.
#[test]
fn what_is_left_in_an_old_pool_costs_no_thread_for_each_item() {
    let (sys, faults, _clock) = rigged(builder());
    let wq = unbound(&sys, 1);
    let (work, release, begun) = held_work();
    wq.queue_on(0, &work).unwrap();
    begun.wait(1);
    let runs = Level::new();
    for scope in [Scope::Cache, Scope::System, Scope::Numa] {
        wq.set_attrs(Attrs::new().scope(scope).nice(1)).unwrap();
        for cpu in 0..400 {
            wq.queue_on(cpu % 4, &counting(&runs)).unwrap();
        }
        wq.set_attrs(Attrs::new().scope(scope)).unwrap();
    }
    release.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(runs.get(), 1200);
    let made = faults.spawn_attempts();
    assert!(made < 40, "{made} threads");
}

/// Though threads are refused now and then, each item that was accepted runs.
#[test]
fn accepted_items_run_though_threads_are_refused_now_and_then() {
    for round in 0..6_u64 {
        let faults = Faults::new();
        let builder = builder().sampling(round % 2 == 0).faults(&faults);
        let sys = builder.build().unwrap();
        let queues = every_kind(&sys);
        let (accepted, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (ran, busy) = (Level::new(), AtomicUsize::new(3));
        let queues_some = |seed: u64| {
            let mut rng = fastrand::Rng::with_seed(seed + 3 * round);
            for _ in 0..400 {
                let wq = &queues[rng.usize(..queues.len())];
                let (runs, sleeps) = (ran.clone(), wq.name() != "bh" && rng.u8(..4) == 0);
                let work = Work::new(move || {
                    if sleeps {
                        blocking(thread::yield_now);
                    }
                    runs.raise();
                });
                match wq.queue_on(rng.usize(..4), &work) {
                    Ok(queued) => assert_eq!(queued, Queued::Queued),
                    Err(QueueError::NoWorker(_)) => continue,
                    Err(other) => panic!("{other}"),
                }
                accepted.fetch_add(1, Ordering::Relaxed);
                let scopes = [Scope::Cpu, Scope::Cache, Scope::System];
                let was_pending = match rng.usize(..12) {
                    0 => work.cancel(),
                    1 => work.cancel_sync_blocking().unwrap(),
                    2 => work.flush_blocking().is_err(),
                    3 => {
                        let _ = wq.set_attrs(Attrs::new().scope(scopes[rng.usize(..3)]));
                        false
                    }
                    4 => {
                        let _ = wq.set_max_active(1 + rng.usize(..4));
                        false
                    }
                    _ => false,
                };
                cancelled.fetch_add(usize::from(was_pending), Ordering::Relaxed);
            }
            busy.fetch_sub(1, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            (0..3).for_each(|seed| {
                drop(scope.spawn({
                    let queues_some = &queues_some;
                    move || queues_some(seed)
                }))
            });
            let mut on = false;
            while busy.load(Ordering::Relaxed) > 0 {
                on = !on;
                faults.refuse_spawns(on);
                (0..200).for_each(|_| thread::yield_now());
            }
        });
        faults.refuse_spawns(false);
        queues.iter().for_each(|wq| wq.flush_blocking().unwrap());
        let ended = ran.get() + cancelled.load(Ordering::Relaxed);
        assert_eq!(ended, accepted.load(Ordering::Relaxed));
    }
}
