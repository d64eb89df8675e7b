//! Join handles: results, panics, cancellation, timed waits, waits on workers.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{Attrs, JoinError, WorkqueueSystem};
use std::time::Duration;
use support::{Level, bound, four_cpus, system};

/// Waits inside items count as blocking, so a chain of waits on one CPU ends.
#[test]
fn waiting_for_a_handle_on_a_worker_lets_others_run() {
    let sys = system();
    let wq = bound(&sys);
    fn depth(wq: &inflight_workqueue::Workqueue, n: u32) -> u32 {
        if n == 0 {
            return 0;
        }
        let inner = wq.clone();
        1 + wq.spawn(move || depth(&inner, n - 1)).wait().unwrap()
    }
    assert_eq!(depth(&wq, 6), 6);
}

#[test]
fn handles_give_results_panics_and_cancellations() {
    let sys = system();
    let wq = bound(&sys);
    assert_eq!(inflight_sync::block_on(wq.spawn(|| 5)).unwrap(), 5);
    let Err(JoinError::Panicked(payload)) = wq.spawn(|| panic!("on purpose")).wait() else {
        panic!("the panic is reported");
    };
    assert_eq!(payload.message(), Some("on purpose"));
    let one = sys
        .workqueue("one")
        .unbound(Attrs::new())
        .max_active(1)
        .build()
        .unwrap();
    let gate = Level::new();
    let first = one.spawn({
        let gate = gate.clone();
        move || gate.wait(1)
    });
    let second = one.spawn(|| ());
    assert!(second.try_cancel());
    assert!(second.is_finished() && !second.try_cancel());
    assert!(matches!(second.wait(), Err(JoinError::Cancelled)));
    gate.raise();
    first.wait().unwrap();
}

/// The closure of a cancelled function goes at once, with what it holds.
#[test]
fn cancelling_drops_the_function() {
    let sys = system();
    let one = sys
        .workqueue("one")
        .unbound(Attrs::new())
        .max_active(1)
        .build()
        .unwrap();
    let gate = Level::new();
    let first = one.spawn({
        let gate = gate.clone();
        move || gate.wait(1)
    });
    let held = Arc::new(());
    let second = one.spawn({
        let held = held.clone();
        move || drop(held)
    });
    assert!(second.try_cancel());
    assert_eq!(Arc::strong_count(&held), 1);
    gate.raise();
    first.wait().unwrap();
}

#[test]
fn a_timed_wait_gives_the_handle_back() {
    let clock = Clock::manual();
    let topo = four_cpus();
    let sys = WorkqueueSystem::builder()
        .topology(topo)
        .clock(clock.clone())
        .build()
        .unwrap();
    let wq = bound(&sys);
    let gate = Level::new();
    let handle = wq.spawn({
        let gate = gate.clone();
        move || gate.wait(1)
    });
    let handle = handle.wait_timeout(Duration::ZERO).unwrap_err();
    let waiter = thread::spawn(move || handle.wait_timeout(Duration::from_secs(1)));
    while clock.sleepers() == 0 {
        thread::yield_now();
    }
    clock.advance(Duration::from_secs(1));
    let handle = waiter.join().unwrap().unwrap_err();
    gate.raise();
    handle.wait_timeout(Duration::MAX).unwrap().unwrap();
}

#[test]
fn a_function_that_waits_for_itself_is_told() {
    let sys = system();
    let wq = bound(&sys);
    let slot: Arc<Mutex<Option<inflight_workqueue::JoinHandle<bool>>>> = Arc::default();
    let (ready, done) = (Level::new(), Level::new());
    let handle = wq.spawn({
        let (slot, ready, done) = (slot.clone(), ready.clone(), done.clone());
        move || {
            ready.wait(1);
            let own = slot.lock().take().expect("the test has put it there");
            assert!(matches!(own.wait(), Err(JoinError::WouldDeadlock)));
            done.raise();
            true
        }
    });
    *slot.lock() = Some(handle);
    ready.raise();
    done.wait(1);
}
