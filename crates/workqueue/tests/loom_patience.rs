//! Models of an item that waits for a worker that runs, because it is too short to wake another one
//! for (PROTOCOL.md, "Patience"): a look by the timekeeper ends all patience (L1, L4), and so does
//! the block of the last one that runs (B1). What they catch: an item that waits by patience
//! without an alarm being set, a look that brings nobody, patience with a pool in which nobody
//! runs.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::time::Clock;
use inflight_topology::Scope;
use inflight_workqueue::{Attrs, Workqueue, WorkqueueSystem, blocking};
use model_support::{Count, Flag, ZERO, timed};
use std::time::Duration;

/// After the first wait of an item the pool is looked at.
const SOON: Duration = Duration::from_micros(50);

/// A queue over a pool of two CPUs whose items are short, by what is known of them.
fn patient(clock: &Clock) -> (WorkqueueSystem, Workqueue) {
    let sys = timed("core:2", clock);
    let wq = sys
        .workqueue("model")
        .unbound(Attrs::new().scope(Scope::System));
    let wq = wq.build().unwrap();
    (sys, wq)
}

/// L1, L4: the first item waits for the second one and does not say so. Whatever the order of
/// queueing and taking, the timekeeper has an alarm once both have happened, and the look brings a
/// second worker.
#[test]
fn patience_ends_with_a_look() {
    check("patience_ends_with_a_look", ZERO, || {
        let clock = Clock::manual();
        let (sys, wq) = patient(&clock);
        let (begun, second_ran) = (Flag::new(), Count::new());
        let first = wq.spawn({
            let (begun, second_ran) = (begun.clone(), second_ran.clone());
            move || {
                begun.raise();
                second_ran.wait_silently();
            }
        });
        drop(wq.spawn(move || {
            second_ran.add();
        }));
        begun.wait();
        clock.advance(SOON);
        first.wait().unwrap();
        drop(sys);
    });
}

/// B1: the first item says that it waits for the second one. Nobody runs any more, so nobody has
/// patience, and no time needs to pass.
#[test]
fn patience_ends_with_the_last_runner() {
    check("patience_ends_with_the_last_runner", ZERO, || {
        let (sys, wq) = patient(&Clock::manual());
        let second_ran = Flag::new();
        let first = wq.spawn({
            let second_ran = second_ran.clone();
            move || blocking(|| second_ran.wait())
        });
        drop(wq.spawn(move || second_ran.raise()));
        first.wait().unwrap();
        drop(sys);
    });
}
