//! Models of a work that says itself that it is to run again, and does so at once where it may.
//!
//! What it reads of its word between two runs is a hint; it only ends a row of runs early, so no
//! model fails without it. What a user sees of that fails in `queued_in_a_run_it_runs_once_more`
//! (PENDING) and in `disabled_it_stops_and_enabled_it_waits_to_be_queued` (DISABLED); without
//! AWAITED or CANCELLING he waits for the rest of a row, some 20 us.

#![cfg(loom)]

mod model_support;

use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::time::Clock;
use inflight_workqueue::{Work, Workqueue, WorkqueueSystem};
use model_support::{Count, ONE, timed};
use std::ops::ControlFlow;

const BOUND: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

/// One worker, whose items may repeat at once: the time they take can be known.
fn rows() -> (WorkqueueSystem, Workqueue) {
    let sys = timed("core:1", &Clock::manual());
    let wq = sys.workqueue("model").bound().build().unwrap();
    (sys, wq)
}

/// A work that counts its runs, so many.
fn repeating(begun: &Count, inside: &Count, times: usize) -> Work {
    let (begun, inside) = (begun.clone(), inside.clone());
    Work::repeating("repeating", move || {
        inside.add();
        let before = begun.add();
        inside.sub();
        if before + 1 < times {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
}

/// `cancel_sync` against a row of runs and the queueing after it: afterwards it neither runs nor is
/// pending.
#[test]
fn cancel_sync_stops_a_repeating_work() {
    check("cancel_sync_stops_a_repeating_work", BOUND, || {
        let (sys, wq) = rows();
        let (begun, inside) = (Count::new(), Count::new());
        let work = repeating(&begun, &inside, 4);
        assert!(wq.queue(&work).unwrap().is_queued());
        work.cancel_sync_blocking().unwrap();
        let runs = begun.get();
        assert_eq!(inside.get(), 0, "it runs");
        drop(sys);
        assert_eq!(begun.get(), runs, "it was to run again");
    });
}

/// A flush against a row of runs: the run that the flush found is over, and what it did is seen.
#[test]
fn a_flush_sees_what_a_repeating_run_did() {
    check("a_flush_sees_what_a_repeating_run_did", ONE, || {
        let (sys, wq) = rows();
        let (begun, inside) = (Count::new(), Count::new());
        let work = repeating(&begun, &inside, 2);
        assert!(wq.queue(&work).unwrap().is_queued());
        let _ = work.flush_blocking().unwrap();
        assert!(begun.get() > 0, "the run that has ended is not seen");
        drop(sys);
        assert_eq!(begun.get(), 2);
    });
}

/// A flush against a row of runs: a flush ends although the work does not, before somebody stops
/// it.
#[test]
fn a_flush_waits_for_one_run() {
    check("a_flush_waits_for_one_run", ONE, || {
        let (sys, wq) = rows();
        let (begun, inside) = (Count::new(), Count::new());
        let stop = Count::new();
        let work = Work::repeating("endless", {
            let (begun, inside, stop) = (begun.clone(), inside.clone(), stop.clone());
            move || {
                inside.add();
                begun.add();
                inside.sub();
                // A model ends: of an endless one it would see no more than this.
                if stop.get() > 0 || begun.get() > 4 {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            }
        });
        assert!(wq.queue(&work).unwrap().is_queued());
        let _ = work.flush_blocking().unwrap();
        stop.add();
        drop(sys);
        assert_eq!(inside.get(), 0);
        let stats = wq.stats();
        assert_eq!(
            (stats.queued, stats.started),
            (stats.completed, stats.completed)
        );
        assert_eq!(stats.completed, begun.get() as u64);
    });
}

/// *queue* against a row of runs: who queues it while it runs gets a run of his own.
#[test]
fn queued_while_it_repeats() {
    check("queued_while_it_repeats", BOUND, || {
        let (sys, wq) = rows();
        let (begun, inside) = (Count::new(), Count::new());
        let work = repeating(&begun, &inside, 2);
        assert!(wq.queue(&work).unwrap().is_queued());
        let second = wq.queue(&work).unwrap().is_queued();
        wq.flush_blocking().unwrap();
        drop(sys);
        // The second run may be both: the one that the first has asked for, and this one.
        assert!((2..=3).contains(&begun.get()), "{second}: {}", begun.get());
        let stats = wq.stats();
        assert_eq!(stats.queued, begun.get() as u64);
        assert_eq!((stats.completed, stats.active), (stats.queued, 0));
    });
}

/// A row of runs against a freeze: after a run that has seen that the freeze has returned there is
/// no other before the thaw.
#[test]
fn a_freeze_holds_a_repeating_work() {
    check("a_freeze_holds_a_repeating_work", ONE, || {
        let (sys, _) = rows();
        let wq = sys.workqueue("held").bound().freezable().build().unwrap();
        // Ordering: Release and Acquire, so that a run knows what its news says.
        let told = Arc::new([0, 0].map(AtomicUsize::new));
        let (begun, held, breaches) = (Count::new(), Count::new(), Count::new());
        let work = Work::repeating("repeating", {
            let (told, begun) = (told.clone(), begun.clone());
            let (held, breaches) = (held.clone(), breaches.clone());
            move || {
                let [freeze, thaw] = [0, 1].map(|i| told[i].load(Ordering::Acquire));
                if held.get() > 0 && thaw == 0 {
                    breaches.add();
                }
                if freeze > 0 {
                    held.add();
                }
                if begun.add() == 2 {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            }
        });
        assert!(wq.queue(&work).unwrap().is_queued());
        let frozen = sys.freeze();
        told[0].store(1, Ordering::Release);
        told[1].store(1, Ordering::Release);
        drop(frozen);
        wq.drain_blocking().unwrap();
        drop(sys);
        assert_eq!((begun.get(), breaches.get()), (3, 0));
    });
}
