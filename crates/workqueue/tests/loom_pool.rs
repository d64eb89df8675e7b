//! Models of pools and their workers, driving a whole system. Events as in `PROTOCOL.md`.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::thread;
use inflight_sync::time::Clock;
use inflight_topology::Topology;
use inflight_workqueue::{QueueError, Work, WorkqueueSystem, blocking};
use model_support::{Count, FOUR, Flag, ONE, THREE, THREE_OR_ALL, TWO, ZERO, system};
use std::time::Duration;

/// I.1: the worker finds nothing and goes idle while the next item is queued. Every
/// item must run: the drop waits for it, and would wait for ever.
#[test]
fn i1_queue_against_going_idle() {
    check("i1_queue_against_going_idle", THREE_OR_ALL, || {
        let (sys, wq) = system(1, 8);
        let runs = Count::new();
        for _ in 0..2 {
            let runs = runs.clone();
            drop(wq.spawn(move || runs.add()));
        }
        drop(sys);
        assert_eq!(runs.get(), 2);
    });
}

/// I.2: the only running worker blocks while another item is queued. One of the two sees
/// the other under the pool's lock; else the first item waits for the second for ever.
#[test]
fn i2_block_against_queue() {
    check("i2_block_against_queue", ONE, || {
        let (sys, wq) = system(1, 8);
        let second_ran = Flag::new();
        let first = wq.spawn({
            let second_ran = second_ran.clone();
            move || second_ran.wait()
        });
        drop(wq.spawn(move || second_ran.raise()));
        first.wait().unwrap();
        drop(sys);
    });
}

/// I.33: sections nest, by calls and by parking inside. The inner end must not count: the first
/// item would seem to run while it waits, and the second would find no worker.
#[test]
fn i33_nested_sections_count_once() {
    check("i33_nested_sections_count_once", ONE, || {
        let (sys, wq) = system(1, 8);
        let second_ran = Flag::new();
        let first = wq.spawn({
            let second_ran = second_ran.clone();
            move || {
                blocking(|| {
                    blocking(|| ());
                    second_ran.wait();
                })
            }
        });
        drop(wq.spawn(move || second_ran.raise()));
        first.wait().unwrap();
        drop(sys);
    });
}

/// A worker that comes back from a block makes one too many; whoever ends first parks, and
/// what was queued meanwhile still runs.
#[test]
fn a_worker_too_many_parks_and_loses_nothing() {
    check("a_worker_too_many_parks_and_loses_nothing", TWO, || {
        let (sys, wq) = system(1, 8);
        let runs = Count::new();
        for block in [true, false, false] {
            let runs = runs.clone();
            drop(wq.spawn(move || {
                if block {
                    blocking(|| ());
                }
                runs.add();
            }));
        }
        drop(sys);
        assert_eq!(runs.get(), 3);
    });
}

/// I.7, I.8: a worker that has been idle for long is dismissed while items are queued. None of them
/// may be left to the one that leaves. (In models one idle worker is enough for a pool.)
#[test]
fn i7_i8_cull_against_wake() {
    check("i7_i8_cull_against_wake", ZERO, || {
        let clock = Clock::manual();
        let topo = Topology::synthetic("core:1").unwrap();
        let builder = WorkqueueSystem::builder()
            .topology(topo)
            .clock(clock.clone());
        let sys = builder
            .idle_timeout(Duration::from_millis(1))
            .build()
            .unwrap();
        let wq = sys.workqueue("model").bound().build().unwrap();
        let second_ran = Flag::new();
        let first = wq.spawn({
            let second_ran = second_ran.clone();
            move || second_ran.wait()
        });
        drop(wq.spawn(move || second_ran.raise()));
        first.wait().unwrap();
        // Two workers, idle or about to be.
        clock.advance(Duration::from_millis(1));
        assert_eq!(wq.spawn(|| 3).wait().unwrap(), 3);
        drop(sys);
    });
}

/// I.13: the limit rises while an item waits for a slot and another one waits for it. Nothing may
/// wait while there is room.
#[test]
fn i13_raising_the_limit_lets_items_go() {
    check("i13_raising_the_limit_lets_items_go", ONE, || {
        let (sys, wq) = system(1, 1);
        let second_ran = Flag::new();
        let first = wq.spawn({
            let second_ran = second_ran.clone();
            move || second_ran.wait()
        });
        drop(wq.spawn(move || second_ran.raise()));
        wq.set_max_active(2).unwrap();
        first.wait().unwrap();
        drop(sys);
    });
}

/// *shutdown* against *queue*: an item that was accepted has run when the drop returns, a refused
/// one never runs.
#[test]
fn shutdown_against_queue() {
    check("shutdown_against_queue", THREE, || {
        let (sys, wq) = system(1, 8);
        let runs = Count::new();
        let queuer = thread::spawn({
            let runs = runs.clone();
            move || {
                wq.queue(&Work::new(move || {
                    runs.add();
                }))
            }
        });
        drop(sys);
        let ran = runs.get();
        match queuer.join().unwrap() {
            Ok(queued) => assert_eq!(usize::from(queued.is_queued()), ran),
            Err(refusal) => {
                assert_eq!(refusal, QueueError::ShutDown);
                assert_eq!(ran, 0);
            }
        }
        assert_eq!(runs.get(), ran);
    });
}

/// A shutdown goes from queue to queue. The last item of a queue that is shut already ends
/// meanwhile, and all queues are idle: the pool must not stop, because the other queue still takes
/// an item, which would never run.
#[test]
fn shutdown_of_one_queue_before_the_other() {
    check("shutdown_of_one_queue_before_the_other", TWO, || {
        let (sys, first) = system(1, 8);
        let second = sys.workqueue("second").bound().build().unwrap();
        drop(first.spawn(|| ()));
        let runs = Count::new();
        let queuer = thread::spawn({
            let runs = runs.clone();
            move || {
                second.queue(&Work::new(move || {
                    runs.add();
                }))
            }
        });
        drop(sys);
        let ran = runs.get();
        match queuer.join().unwrap() {
            Ok(queued) => assert_eq!(usize::from(queued.is_queued()), ran),
            Err(refusal) => assert_eq!((refusal, ran), (QueueError::ShutDown, 0)),
        }
    });
}

/// The last handle goes on a worker. Its own item is the last to end, so its worker must send
/// all home; a worker left asleep is a deadlock to the model.
#[test]
fn shutdown_from_a_worker() {
    check("shutdown_from_a_worker", FOUR, || {
        let (sys, wq) = system(1, 8);
        let handle = wq.spawn(move || drop(sys));
        handle.wait().unwrap();
    });
}
