//! Models of the join handle, driving a whole system. Events as in `PROTOCOL.md`.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::{Arc, block_on, thread};
use inflight_workqueue::JoinError;
use model_support::{FOUR, system};

/// *complete* against the wait: the waiting thread is woken and gets the value.
#[test]
fn completion_against_wait() {
    check("completion_against_wait", FOUR, || {
        let (sys, wq) = system(1, 8);
        assert_eq!(wq.spawn(|| 7).wait().unwrap(), 7);
        drop(sys);
    });
}

/// The same as a task.
#[test]
fn completion_against_poll() {
    check("completion_against_poll", FOUR, || {
        let (sys, wq) = system(1, 8);
        assert_eq!(block_on(wq.spawn(|| 7)).unwrap(), 7);
        drop(sys);
    });
}

/// *complete* against a dropped handle: the value goes exactly once, and nothing is left behind.
#[test]
fn completion_against_drop() {
    check("completion_against_drop", FOUR, || {
        let (sys, wq) = system(1, 8);
        let value = Arc::new(());
        let handle = wq.spawn({
            let value = value.clone();
            move || value
        });
        let dropper = thread::spawn(move || drop(handle));
        dropper.join().unwrap();
        drop(sys);
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

/// `try_cancel` against *claim*: it says true if and only if the function does not run.
#[test]
fn completion_against_cancel() {
    check("completion_against_cancel", FOUR, || {
        let (sys, wq) = system(1, 8);
        let handle = wq.spawn(|| 7);
        let cancelled = handle.try_cancel();
        match handle.wait() {
            Ok(value) => assert!(value == 7 && !cancelled),
            Err(JoinError::Cancelled) => assert!(cancelled),
            Err(other) => panic!("{other}"),
        }
        drop(sys);
    });
}
