//! Models of the rescuer: called, helping, leaving. Step names as in `PROTOCOL.md`.
//!
//! | weaken | fails |
//! |---|---|
//! | R1 wakes nobody | both |

#![cfg(loom)]

mod model_support;

use inflight_sync::fault::Faults;
use inflight_sync::model::check;
use inflight_sync::time::Clock;
use inflight_topology::Topology;
use inflight_workqueue::{Workqueue, WorkqueueSystem};
use model_support::{Count, Flag, ONE};
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

/// R1: an item in a pool without any worker. The rescuer may be arriving, asleep or on its way to
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

/// I.20: the rescuer leaves (R4) while the next item waits in the pool and threads can be had
/// again. Somebody must run it: the rescuer, or a worker that it brings as it leaves.
#[test]
fn i20_the_rescuer_leaves() {
    check("i20_the_rescuer_leaves", ONE, || {
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
