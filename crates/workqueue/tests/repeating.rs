//! A work that says itself that it is to run again.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_topology::Topology;
use inflight_workqueue::{Queued, Work, Workqueue, WorkqueueSystem};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use support::Level;

/// One CPU, where runs may follow each other at once.
fn ordered() -> (WorkqueueSystem, Workqueue) {
    let sys = WorkqueueSystem::builder();
    let sys = sys.topology(Topology::synthetic("core:1").unwrap());
    let sys = sys.build().unwrap();
    let wq = sys.workqueue("ordered").ordered().build().unwrap();
    (sys, wq)
}

/// Runs until it is stopped, and counts.
fn endless(runs: &Level) -> Work {
    let runs = runs.clone();
    Work::repeating("endless", move || {
        runs.raise();
        ControlFlow::Continue(())
    })
}

#[test]
fn it_runs_until_it_breaks_and_each_run_counts() {
    let (_sys, wq) = ordered();
    for times in [1, 2, 31, 32, 33, 34, 1_000] {
        let before = wq.stats();
        let left = AtomicUsize::new(times);
        let work = Work::repeating("some", move || match left.fetch_sub(1, Ordering::Relaxed) {
            1 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        assert_eq!(wq.queue(&work), Ok(Queued::Queued));
        wq.drain().unwrap();
        let after = wq.stats();
        let counts = [
            after.queued - before.queued,
            after.started - before.started,
            after.completed - before.completed,
        ];
        assert_eq!(counts, [times as u64; 3]);
        assert!(!work.is_pending() && !work.is_running());
    }
}

/// Whatever else waits in the same ordered queue has its turn.
#[test]
fn others_have_their_turn() {
    let (_sys, wq) = ordered();
    let runs = Level::new();
    let work = endless(&runs);
    wq.queue(&work).unwrap();
    for _ in 0..50 {
        runs.wait(runs.get() + 1);
        wq.spawn(|| ()).wait().unwrap();
    }
    work.cancel_sync().unwrap();
    let after = runs.get();
    wq.flush().unwrap();
    assert_eq!(runs.get(), after, "it was stopped");
    assert_eq!(wq.queue(&work), Ok(Queued::Queued), "and can be used again");
    work.cancel_sync().unwrap();
}

#[test]
fn a_flush_of_it_ends() {
    let (_sys, wq) = ordered();
    let runs = Level::new();
    let work = endless(&runs);
    wq.queue(&work).unwrap();
    for _ in 0..50 {
        work.flush().unwrap();
        wq.flush().unwrap();
    }
    assert!(runs.get() > 0);
    work.disable_sync().unwrap();
    let after = runs.get();
    assert_eq!(wq.queue(&work), Ok(Queued::Disabled));
    wq.drain().unwrap();
    assert_eq!(runs.get(), after);
}

#[test]
fn a_panic_ends_it() {
    let (_sys, wq) = ordered();
    let runs = Arc::new(AtomicUsize::new(0));
    let work = Work::repeating("panics", {
        let runs = runs.clone();
        move || {
            if runs.fetch_add(1, Ordering::Relaxed) == 4 {
                resume_unwind(Box::new("on purpose"));
            }
            ControlFlow::Continue(())
        }
    });
    wq.queue(&work).unwrap();
    wq.drain().unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 5);
    let stats = wq.stats();
    assert_eq!((stats.completed, stats.panicked), (5, 1));
}

/// The system's end stops it, as it does a work that queues itself.
#[test]
fn the_end_of_the_system_stops_it() {
    let (sys, wq) = ordered();
    let runs = Level::new();
    let work = endless(&runs);
    wq.queue(&work).unwrap();
    runs.wait(100);
    drop(sys);
    let after = runs.get();
    assert!(!work.is_running() && !work.is_pending());
    assert_eq!(runs.get(), after);
}
