//! What `check` and `check_fails` promise: nothing that goes wrong in a model passes for right.
#![cfg(loom)]

use inflight::model::{check_fails, check_within};
use inflight::prelude::*;
use inflight::sync::atomic::{AtomicBool, Ordering};
use inflight::sync::cell::UnsafeCell;
use inflight::sync::thread;
use inflight::sync::time::Clock;
use std::sync::Arc;

/// Each function as a work of a queue of its own.
fn as_works(functions: Vec<Box<dyn Fn() + Send + Sync>>) {
    let clock = Clock::manual(); // no sampling: fewer steps
    let system = WorkqueueSystem::builder().clock(clock).build().unwrap();
    let works: Vec<_> = functions.into_iter().map(Work::new).collect();
    for work in &works {
        let queue = system.workqueue("works").unbound(Attrs::new());
        queue.build().unwrap().queue(work).unwrap();
    }
    for work in &works {
        work.flush_blocking().unwrap();
    }
    system.shutdown_blocking().unwrap();
}

/// The worker catches the panic, and whoever waits for the work is told nothing.
#[test]
fn an_assertion_in_a_work_is_found() {
    let printed = check_fails(|| as_works(vec![Box::new(|| assert_eq!(1, 2, "my promise"))]));
    let end = printed.split("an item of a queue panicked").nth(1);
    let end = end.unwrap_or_else(|| panic!("the model says why it fails: {printed}"));
    assert!(end.contains("my promise"), "{printed}");
}

struct Unguarded(UnsafeCell<u32>);

// SAFETY: not so, on purpose: loom is to notice.
unsafe impl Sync for Unguarded {}

/// loom tells of a race by a panic of whoever comes second, here always the work.
#[test]
fn a_race_that_a_work_sees_is_found() {
    let printed = check_fails(|| {
        let cell = Arc::new((Unguarded(UnsafeCell::new(0)), AtomicBool::new(false)));
        let first = thread::spawn({
            let cell = cell.clone();
            move || {
                // SAFETY: as above.
                cell.0.0.with_mut(|value| unsafe { *value = 1 });
                cell.1.store(true, Ordering::Relaxed); // must be Release
            }
        });
        let work = move || {
            if cell.1.load(Ordering::Relaxed) {
                // SAFETY: as above.
                cell.0.0.with(|value| assert_eq!(unsafe { *value }, 1));
            }
        };
        as_works(vec![Box::new(work)]);
        first.join().unwrap();
    });
    let end = printed.split("an item of a queue panicked").nth(1);
    let end = end.unwrap_or_else(|| panic!("the model says why it fails: {printed}"));
    assert!(end.contains("Causality violation"), "{printed}");
}

/// A bug that is not found must not pass for one that is.
#[test]
#[should_panic(expected = "did not fail")]
fn a_bug_that_is_not_there_is_not_found() {
    check_fails(|| as_works(vec![]));
}

/// What one model has left is not held against the next one on the same thread.
#[test]
fn the_next_model_starts_afresh() {
    let fails = std::panic::catch_unwind(|| {
        check_within(0, || as_works(vec![Box::new(|| panic!("on purpose"))]));
    });
    assert!(fails.is_err());
    check_within(0, || as_works(vec![Box::new(|| ())]));
}
