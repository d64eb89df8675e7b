//! Models of functions that run on their caller's thread. Events as in `PROTOCOL.md`.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::thread;
use inflight_topology::Topology;
use inflight_workqueue::{JoinError, QueueError, Workqueue, WorkqueueSystem};
use model_support::{Count, FOUR, THREE, THREE_OR_ALL};
use std::time::Duration;

/// A system with one CPU, and an ordered queue, which lets its callers run its items.
fn system() -> (WorkqueueSystem, Workqueue) {
    let topo = Topology::synthetic("core:1").unwrap();
    let builder = WorkqueueSystem::builder().topology(topo);
    let sys = builder.idle_timeout(Duration::MAX).build().unwrap();
    let wq = sys.workqueue("model").ordered();
    let wq = wq.build().unwrap();
    (sys, wq)
}

/// A call against a call, and *queue*: whoever runs them, never two items of an ordered queue at
/// once, and what one has done the next one sees (the counts order nothing by themselves).
#[test]
fn i13_callers_keep_the_limit() {
    check("i13_callers_keep_the_limit", THREE, || {
        let (sys, wq) = system();
        let runs = Count::new();
        let item = |runs: &Count| {
            let runs = runs.clone();
            move || {
                let before = runs.get();
                assert_eq!(runs.add(), before, "two run at once");
            }
        };
        let other = thread::spawn({
            let (wq, item) = (wq.clone(), item(&runs));
            move || wq.call_blocking(item).unwrap()
        });
        wq.call_blocking(item(&runs)).unwrap();
        other.join().unwrap();
        assert_eq!(runs.get(), 2);
        drop(sys);
    });
}

/// *flush* against a call and its end: a call that has begun is waited for, and its end wakes the
/// flush.
#[test]
fn i22_flush_against_call() {
    check("i22_flush_against_call", FOUR, || {
        let (sys, wq) = system();
        let (begun, ended) = (Count::new(), Count::new());
        let caller = thread::spawn({
            let (wq, begun, ended) = (wq.clone(), begun.clone(), ended.clone());
            move || {
                wq.call_blocking(move || {
                    begun.add();
                    thread::yield_now();
                    ended.add();
                })
            }
        });
        let had_begun = begun.get();
        wq.flush_blocking().unwrap();
        assert!(ended.get() >= had_begun, "the flush has not waited");
        caller.join().unwrap().unwrap();
        drop(sys);
    });
}

/// *shutdown* against a call, which may be the last to end: a call that was let in has ended when
/// the drop returns, one that was refused never runs, and the drop returns.
#[test]
fn shutdown_against_call() {
    check("shutdown_against_call", FOUR, || {
        let (sys, wq) = system();
        let runs = Count::new();
        let caller = thread::spawn({
            let runs = runs.clone();
            move || wq.call_blocking(move || runs.add())
        });
        drop(sys);
        let ran = runs.get();
        match caller.join().unwrap() {
            Ok(_) => assert_eq!(ran, 1),
            Err(JoinError::Rejected(refusal)) => {
                assert_eq!((refusal, ran), (QueueError::ShutDown, 0));
            }
            Err(other) => panic!("{other}"),
        }
        assert_eq!(runs.get(), ran);
    });
}

/// The last handle on the system goes inside the call, while another item is queued: the drop does
/// not wait for its own call, and all end.
#[test]
fn shutdown_from_a_call() {
    check("shutdown_from_a_call", THREE_OR_ALL, || {
        let (sys, wq) = system();
        let other = wq.spawn(|| ());
        wq.call_blocking(move || drop(sys)).unwrap();
        other.wait().unwrap();
    });
}
