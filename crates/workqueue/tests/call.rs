//! Functions that run on their caller's thread, and when they do not.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::{Arc, cpu, thread};
use inflight_topology::{CpuSet, Topology};
use inflight_workqueue::{
    Attrs, JoinError, QueueError, WaitError, Work, Workqueue, WorkqueueSystem, blocking,
};
use std::time::Duration;
use support::{Inside, Level, bound, builder, every_kind, one_cpu, rigged, system};

fn unbound(sys: &WorkqueueSystem, max_active: usize) -> Workqueue {
    let builder = sys.workqueue("calls").unbound(Attrs::new());
    builder.max_active(max_active).build().unwrap()
}

fn here() -> thread::ThreadId {
    thread::current_id()
}

#[test]
fn a_call_runs_here_and_counts() {
    let sys = system();
    let wq = unbound(&sys, 2);
    assert_eq!(wq.call_blocking(here).unwrap(), here());
    let Err(JoinError::Panicked(payload)) = wq.call_blocking(|| panic!("on purpose")) else {
        panic!("the panic is reported");
    };
    assert_eq!(payload.message(), Some("on purpose"));
    let stats = wq.stats();
    assert_eq!((stats.queued, stats.started, stats.completed), (2, 2, 2));
    assert_eq!((stats.panicked, stats.active), (1, 0));
    assert!(sys.dump().contains("on purpose"));
}

/// A bound queue's item runs on its CPU's worker, whoever waits for it.
#[test]
fn a_bound_queue_runs_it_on_a_worker() {
    let sys = system();
    assert_ne!(bound(&sys).call_blocking(here).unwrap(), here());
    let urgent = sys.workqueue("urgent").unbound(Attrs::new()).highpri();
    assert_ne!(urgent.build().unwrap().call_blocking(here).unwrap(), here());
    // The caller may be anywhere, and a strict queue's items may not.
    let strict = sys.workqueue("strict").unbound(Attrs::new().strict(true));
    assert_ne!(strict.build().unwrap().call_blocking(here).unwrap(), here());
    let strict = sys
        .workqueue("in order")
        .ordered_with(Attrs::new().strict(true));
    assert_ne!(strict.build().unwrap().call_blocking(here).unwrap(), here());
}

/// Waits until a call runs on its caller's thread: a worker that has just begun, or has just run an
/// item, counts as busy until it sleeps.
fn runs_here_in_the_end(wq: &Workqueue) {
    while wq.call_blocking(here).unwrap() != here() {
        thread::yield_now();
    }
}

/// The caller may run on any CPU, and the queue's items only on those of the mask.
#[test]
fn a_queue_with_a_mask_runs_it_on_a_worker() {
    let topology = Topology::synthetic("core:4").unwrap();
    let builder = WorkqueueSystem::builder().topology(topology);
    let sys = builder.build().unwrap();
    let free = sys.workqueue("free").unbound(Attrs::new());
    let free = free.build().unwrap();
    runs_here_in_the_end(&free);
    let masked = Attrs::new().cpumask(CpuSet::from([1, 2]));
    let masked = sys.workqueue("masked").unbound(masked).build().unwrap();
    assert_ne!(masked.call_blocking(here).unwrap(), here());
    sys.set_unbound_cpumask(&CpuSet::from([3])).unwrap();
    assert_ne!(free.call_blocking(here).unwrap(), here());
    sys.set_unbound_cpumask(&CpuSet::from([0, 1, 2, 3]))
        .unwrap();
    runs_here_in_the_end(&free);
    // An isolated CPU that was asked for leaves out none of the others.
    let isolated = Topology::synthetic("core:4 isolated:3").unwrap();
    let sys = WorkqueueSystem::builder().topology(isolated);
    let sys = sys.build().unwrap();
    sys.set_unbound_cpumask(&CpuSet::from([0, 1, 2, 3]))
        .unwrap();
    let free = sys.workqueue("free").unbound(Attrs::new());
    runs_here_in_the_end(&free.build().unwrap());
}

/// A worker that runs takes the next item without having been woken.
#[test]
fn where_a_worker_runs_it_is_left_to_the_workers() {
    let sys = system();
    let wq = unbound(&sys, 2);
    let (begun, open) = (Level::new(), Level::new());
    let runs = wq.spawn_on(0, {
        let (begun, open) = (begun.clone(), open.clone());
        move || {
            begun.raise();
            open.wait_silently(1);
        }
    });
    begun.wait(1);
    cpu::set_current_for_thread(Some(0));
    let called = wq.call_blocking(here);
    cpu::set_current_for_thread(None);
    open.raise();
    runs.wait().unwrap();
    assert_ne!(called.unwrap(), here());
}

/// It does not wait for a worker that cannot be had, as an item of another queue does.
#[test]
fn where_no_worker_can_be_had_it_runs_here() {
    let (sys, faults, _clock) = rigged(one_cpu());
    let [wq, other] = [1, 2].map(|limit| unbound(&sys, limit));
    let (begun, open) = (Level::new(), Level::new());
    let blocks = other.spawn({
        let (begun, open) = (begun.clone(), open.clone());
        move || {
            blocking(|| {
                begun.raise();
                open.wait_silently(1);
            })
        }
    });
    begun.wait(1);
    faults.refuse_spawns(true);
    let waits = other.spawn(|| ());
    assert_eq!(wq.call_blocking(here).unwrap(), here());
    assert!(!waits.is_finished());
    open.raise();
    blocks.wait().unwrap();
    waits.wait().unwrap();
}

/// A thread whose call has begun and runs until the level is raised.
fn called(wq: &Workqueue) -> (thread::JoinHandle<Result<(), JoinError>>, Level) {
    let (begun, open) = (Level::new(), Level::new());
    let caller = thread::spawn({
        let (wq, begun, open) = (wq.clone(), begun.clone(), open.clone());
        move || {
            wq.call_blocking(move || {
                begun.raise();
                open.wait(1);
            })
        }
    });
    begun.wait(1);
    (caller, open)
}

/// The slots are the queue's, whoever runs the items.
#[test]
fn a_call_holds_a_slot() {
    let sys = system();
    let wq = Arc::new(unbound(&sys, 1));
    let (caller, open) = called(&wq);
    let second = wq.spawn(here);
    assert_eq!((wq.stats().active, wq.stats().inactive), (1, 1));
    // Behind the second: it does not overtake, and the caller waits.
    let third = thread::spawn({
        let wq = wq.clone();
        move || wq.call_blocking(here).unwrap() == here()
    });
    while wq.stats().inactive < 2 {
        thread::yield_now();
    }
    assert!(!second.is_finished());
    open.raise();
    caller.join().unwrap().unwrap();
    assert_ne!(second.wait().unwrap(), here());
    assert!(!third.join().unwrap(), "a worker ran it");
}

/// An item that runs here is inside its queue like any other.
#[test]
fn a_call_is_inside_its_queue() {
    let sys = system();
    let wq = unbound(&sys, 1);
    let inner = wq.clone();
    wq.call_blocking(move || {
        assert_eq!(inner.flush_blocking(), Err(WaitError::WouldDeadlock));
        assert!(matches!(
            inner.drain_blocking(),
            Err(WaitError::WouldDeadlock)
        ));
        // The only slot is the caller's own.
        let handle = inner.spawn(|| ());
        assert!(matches!(handle.wait(), Err(JoinError::WouldDeadlock)));
        let again =
            inner.call_blocking(|| unreachable!("who is told so does not expect it to run"));
        assert!(matches!(again, Err(JoinError::WouldDeadlock)), "{again:?}");
    })
    .unwrap();
    wq.flush_blocking().unwrap();
    let stats = wq.stats();
    assert_eq!(
        (stats.completed, stats.cancelled, stats.panicked),
        (2, 1, 0)
    );
    assert_eq!(wq.flush_blocking(), Ok(()), "outside again");
}

#[test]
fn a_closed_queue_refuses_a_call() {
    let sys = system();
    let wq = unbound(&sys, 1);
    wq.destroy_blocking().unwrap();
    let refused = wq.call_blocking(|| ());
    assert!(
        matches!(refused, Err(JoinError::Rejected(QueueError::Destroyed))),
        "{refused:?}"
    );
    let wq = unbound(&sys, 1);
    let (begun, open) = (Level::new(), Level::new());
    let (raise, wait) = (begun.clone(), open.clone());
    let blocks = wq.spawn(move || {
        raise.raise();
        wait.wait(1);
    });
    begun.wait(1);
    let drained = thread::spawn({
        let wq = wq.clone();
        move || wq.drain_blocking()
    });
    while wq.queue(&Work::new(|| ())) != Err(QueueError::Draining) {
        thread::yield_now();
    }
    let refused = wq.call_blocking(|| ());
    assert!(
        matches!(refused, Err(JoinError::Rejected(QueueError::Draining))),
        "{refused:?}"
    );
    open.raise();
    blocks.wait().unwrap();
    drained.join().unwrap().unwrap();
    assert_eq!(wq.call_blocking(|| 3).unwrap(), 3, "open again");
    drop(sys);
    let refused = wq.call_blocking(|| ());
    assert!(
        matches!(refused, Err(JoinError::Rejected(QueueError::ShutDown))),
        "{refused:?}"
    );
}

/// It counts as a refused spawn, whatever kind the queue is of.
#[test]
fn a_refused_call_counts_once() {
    let sys = system();
    for wq in every_kind(&sys) {
        wq.destroy_blocking().unwrap();
        let refused = wq.call_blocking(|| ());
        let destroyed = matches!(refused, Err(JoinError::Rejected(QueueError::Destroyed)));
        assert!(destroyed, "{}: {refused:?}", wq.name());
        assert_eq!(wq.stats().refused, 1, "{}", wq.name());
    }
}

/// The system's end waits for what runs on callers' threads, and the last of them ends it.
#[test]
fn shutdown_waits_for_a_call() {
    let sys = system();
    let wq = unbound(&sys, 4);
    let (caller, open) = called(&wq);
    let end = thread::spawn(move || drop(sys));
    while wq.queue(&Work::new(|| ())) != Err(QueueError::ShutDown) {
        thread::yield_now();
    }
    open.raise();
    caller.join().unwrap().unwrap();
    end.join().unwrap();
    assert_eq!(wq.stats().queued, wq.stats().completed);
}

/// As on a worker: the last handle goes inside a call, whose end the system's end waits for.
#[test]
fn a_call_may_drop_its_system() {
    let sys = system();
    let wq = unbound(&sys, 4);
    wq.call_blocking(move || drop(sys)).unwrap();
    assert_eq!(wq.queue(&Work::new(|| ())), Err(QueueError::ShutDown));
    let sys = system();
    let wq = unbound(&sys, 4);
    let inner = wq.clone();
    let left = wq.call_blocking(move || {
        // Deeper, and still inside.
        let left = inner.call_blocking({
            let sys = sys.clone();
            move || sys.shutdown_timeout(Duration::from_secs(3600)).is_err()
        });
        drop(sys);
        left
    });
    assert!(left.unwrap().unwrap(), "it can't wait for itself");
}

/// Calls within calls go on here up to a depth, and then on workers.
#[test]
fn calls_nest() {
    fn down(wq: &Workqueue, n: usize) -> usize {
        if n == 0 {
            return 0;
        }
        let inner = wq.clone();
        1 + wq.call_blocking(move || down(&inner, n - 1)).unwrap()
    }
    let sys = builder().build().unwrap();
    let wq = unbound(&sys, 64);
    assert_eq!(down(&wq, 10), 10);
    // A worker counts an item a moment after its result is there.
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().completed, 10);
}

/// Many callers: never more at once than there are slots.
#[test]
fn many_callers_keep_the_limit() {
    let sys = builder().build().unwrap();
    let wq = Arc::new(unbound(&sys, 2));
    let inside = Inside::new();
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (wq, inside) = (wq.clone(), inside.clone());
            thread::spawn(move || {
                for _ in 0..200 {
                    let inside = inside.clone();
                    wq.call_blocking(move || {
                        inside.enter();
                        thread::yield_now();
                        inside.leave();
                    })
                    .unwrap();
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|c| c.join().unwrap());
    assert!(inside.most() <= 2, "{}", inside.most());
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().completed, 800);
}
