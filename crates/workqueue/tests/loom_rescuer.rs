//! Models of *mayday*: threads are refused, rescuers called, helping, leaving. Events as in
//! `PROTOCOL.md`, part *workers*.

#![cfg(loom)]

mod model_support;

use inflight_sync::fault::Faults;
use inflight_sync::model::check;
use inflight_sync::thread;
use inflight_sync::time::Clock;
use inflight_topology::Topology;
use inflight_workqueue::{BuildError, Workqueue, WorkqueueSystem, blocking};
use model_support::{Count, Flag, ONE, ONE_OR_THREE, TWO, ZERO};
use std::time::Duration;

const FIRST_MAYDAY: Duration = Duration::from_millis(10);

fn system() -> (WorkqueueSystem, Workqueue, Faults, Clock) {
    let (faults, clock) = (Faults::new(), Clock::manual());
    let topo = Topology::synthetic("core:1").unwrap();
    let builder = WorkqueueSystem::builder().topology(topo).faults(&faults);
    let sys = builder
        .clock(clock.clone())
        .idle_timeout(Duration::MAX)
        .build()
        .unwrap();
    let wq = sys
        .workqueue("model")
        .bound()
        .mem_reclaim()
        .build()
        .unwrap();
    (sys, wq, faults, clock)
}

/// An item in a pool without any worker. The rescuer may be arriving, asleep or on its way to
/// sleep when it is called; the item must run.
#[test]
fn a_call_reaches_the_rescuer() {
    check("a_call_reaches_the_rescuer", ONE, || {
        let (sys, wq, faults, clock) = system();
        faults.refuse_spawns(true);
        let handle = wq.spawn(|| 7);
        clock.advance(FIRST_MAYDAY);
        assert_eq!(handle.wait().unwrap(), 7);
        drop(sys);
    });
}

/// A queue with a rescuer is made while the system ends: it is told of that, and not that a thread
/// was refused.
#[test]
fn the_end_against_a_new_rescuer() {
    check("the_end_against_a_new_rescuer", TWO, || {
        let topo = Topology::synthetic("core:1").unwrap();
        let sys = WorkqueueSystem::builder().topology(topo).build().unwrap();
        let draft = sys.workqueue("late").bound().mem_reclaim();
        let made = thread::spawn(move || draft.build().map(drop));
        drop(sys);
        let made = made.join().unwrap();
        assert!(
            matches!(made, Ok(()) | Err(BuildError::ShutDown)),
            "{made:?}"
        );
    });
}

/// I.20: the rescuer leaves while the next item waits in the pool and threads can be had
/// again. Somebody must run it: the rescuer, or a worker that it brings as it leaves.
#[test]
fn i20_the_rescuer_leaves() {
    check("i20_the_rescuer_leaves", ZERO, || {
        let (sys, wq, faults, clock) = system();
        let runs = Count::new();
        let ran = Flag::new();
        faults.fail_next_spawns(1);
        for last in [false, true] {
            let (runs, ran) = (runs.clone(), ran.clone());
            drop(wq.spawn(move || {
                runs.add();
                if last {
                    ran.raise();
                }
            }));
        }
        clock.advance(FIRST_MAYDAY);
        ran.wait();
        drop(sys);
        assert_eq!(runs.get(), 2);
    });
}

/// A thread is refused while the worker that was to have the item's company parks, being one too
/// many beside the one that is on its way: that one is woken again. No time passes.
#[test]
fn a_refusal_against_a_worker_that_parks() {
    check(
        "a_refusal_against_a_worker_that_parks",
        ONE_OR_THREE,
        || {
            let (faults, clock) = (Faults::new(), Clock::manual());
            let topo = Topology::synthetic("core:1").unwrap();
            let builder = WorkqueueSystem::builder().topology(topo).faults(&faults);
            let builder = builder.clock(clock).idle_timeout(Duration::MAX);
            let sys = builder.build().unwrap();
            let wq = sys.workqueue("model").bound().build().unwrap();
            let (begun, ran) = (Flag::new(), Flag::new());
            drop(wq.spawn({
                let begun = begun.clone();
                move || {
                    blocking(|| {
                        begun.raise();
                        thread::yield_now();
                    })
                }
            }));
            begun.wait();
            faults.fail_next_spawns(1);
            drop(wq.spawn({
                let ran = ran.clone();
                move || ran.raise()
            }));
            ran.wait();
            drop(sys);
        },
    );
}
