//! Models of the join handle, driving a whole system. Events as in `PROTOCOL.md`.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::{block_on, thread};
use inflight_workqueue::JoinError;
use model_support::{FOUR, Touched, TouchedByDrop, system};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

/// *complete* against the wait: the waiting thread is woken and gets the value.
#[test]
fn completion_against_wait() {
    check("completion_against_wait", FOUR, || {
        let (sys, wq) = system(1, 8);
        let pool = wq.manual_pool(0);
        let handle = wq.spawn(|| 7);
        let worker = thread::spawn(move || pool.draw(1));
        assert_eq!(handle.wait().unwrap(), 7);
        worker.join().unwrap();
        drop(sys);
    });
}

/// The same as a task.
#[test]
fn completion_against_poll() {
    check("completion_against_poll", FOUR, || {
        let (sys, wq) = system(1, 8);
        let pool = wq.manual_pool(0);
        let handle = wq.spawn(|| 7);
        let worker = thread::spawn(move || pool.draw(1));
        assert_eq!(block_on(handle).unwrap(), 7);
        worker.join().unwrap();
        drop(sys);
    });
}

/// *complete* against a dropped handle: the value goes exactly once. The run, the handle's owner
/// and the value's destructor touch the same: the last to come sees what the others did. The worker
/// runs the function or has run it when the handle goes.
#[test]
fn i18_a_value_goes_after_its_run() {
    check("i18_a_value_goes_after_its_run", FOUR, || {
        let (sys, wq) = system(1, 8);
        let pool = wq.manual_pool(0);
        let (ran, owned) = (Touched::new(), Touched::new());
        let value = [&ran, &owned].map(|touched| TouchedByDrop(touched.clone()));
        let handle = wq.spawn({
            let ran = ran.clone();
            move || {
                ran.touch();
                value
            }
        });
        let worker = thread::spawn(move || pool.draw(1));
        owned.touch();
        drop(handle);
        worker.join().unwrap();
        assert_eq!((ran.times(), owned.times()), (2, 2));
        drop(sys);
    });
}

/// The same of a handle that has been waited with: the worker tells its waiter, and may be last.
#[test]
fn i18_a_value_goes_after_it_was_awaited() {
    check("i18_a_value_goes_after_it_was_awaited", FOUR, || {
        let (sys, wq) = system(1, 8);
        let pool = wq.manual_pool(0);
        let (ran, owned) = (Touched::new(), Touched::new());
        let value = [&ran, &owned].map(|touched| TouchedByDrop(touched.clone()));
        let mut handle = wq.spawn({
            let ran = ran.clone();
            move || {
                ran.touch();
                value
            }
        });
        let polled = Pin::new(&mut handle).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        let worker = thread::spawn(move || pool.draw(1));
        owned.touch();
        drop(handle);
        worker.join().unwrap();
        assert_eq!((ran.times(), owned.times()), (2, 2));
        drop(sys);
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
