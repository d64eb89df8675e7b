//! Models of one work, driving a whole system. Step names as in `PROTOCOL.md`.
//!
//! | weaken | fails |
//! |---|---|
//! | claim without asking whether it is pending (C1) | `i9_…` (both), `i10_…` |
//! | cancel leaves PENDING set (X2) | `i9_queue_against_cancel` |
//! | a cancelled inactive item gives a slot back (X2) | `i9_promotion_against_cancel` |
//! | C4 tells nobody who has asked by AWAITED, or AWAITED is not set (X3) | `flush_of_a_work_against_its_end`, `i10_…` |
//! | a slot is given back to the queue that the way back leads to (X2) | `i9_cancel_against_two_queues` |
//! | S1: Relaxed, or a load | `i26_pending_run_sees_the_event` |
//! | C2: Relaxed, or after the run | `i26_pending_run_sees_the_event` |
//! | `cancel_sync` does not forbid queueing (X1) | `i10_cancel_sync_against_requeue` |
//! | `cancel_sync` does not wait (X3) | `i10_cancel_sync_against_requeue` |
//! | the pool that runs the item is not asked for (Q1) | `i24_never_twice_at_once` |
//! | the core does not look who runs the item (N1) | `i24_never_twice_at_once` |
//! | the number of the run that begins: stored or loaded Relaxed (C2, X3) | `flush_of_a_work_against_its_next_run` |
//! | the end of a run tells nobody (C4) | `flush_of_a_work_against_its_end`, `i10_…` |

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::thread;
use inflight_workqueue::{Queued, Work, blocking};
use model_support::{Count, FOUR, ONE, ONE_OR_THREE, Own, THREE_OR_ALL, TWO, system};

/// I.9: an item is queued (S2, Q4) and taken (N1, C1) while it is cancelled (X2). It runs or it was
/// cancelled, never both, never neither.
#[test]
fn i9_queue_against_cancel() {
    check("i9_queue_against_cancel", TWO, || {
        let (sys, wq) = system(1, 8);
        let runs = Count::new();
        let work = Work::new({
            let runs = runs.clone();
            move || {
                runs.add();
            }
        });
        let canceller = thread::spawn({
            let work = work.clone();
            move || work.cancel()
        });
        assert!(wq.queue(&work).unwrap().is_queued());
        let cancelled = canceller.join().unwrap();
        if cancelled {
            assert!(wq.queue(&work).unwrap().is_queued(), "it is idle again");
        }
        drop(sys);
        assert_eq!(runs.get(), 1);
        assert_eq!(wq.stats().cancelled, u64::from(cancelled));
    });
}

/// I.9 over two queues with one pool, which take the work at the same time: the way back may lead
/// to the one that has not got it. Its slot is given back where it was taken, once.
#[test]
fn i9_cancel_against_two_queues() {
    check("i9_cancel_against_two_queues", ONE_OR_THREE, || {
        let (sys, first) = system(1, 8);
        let second = sys.workqueue("second").bound().build().unwrap();
        let runs = Count::new();
        let work = Work::new({
            let runs = runs.clone();
            move || {
                runs.add();
            }
        });
        let other = thread::spawn({
            let (second, work) = (second.clone(), work.clone());
            move || second.queue(&work).unwrap().is_queued()
        });
        let queued = first.queue(&work).unwrap().is_queued();
        let cancelled = work.cancel();
        let accepted = usize::from(queued) + usize::from(other.join().unwrap());
        drop(sys);
        assert_eq!(runs.get() + usize::from(cancelled), accepted);
        for wq in [first, second] {
            assert_eq!((wq.stats().active, wq.stats().inactive), (0, 0));
        }
    });
}

/// I.9 for an inactive item, which becomes active (E2) meanwhile.
#[test]
fn i9_promotion_against_cancel() {
    check("i9_promotion_against_cancel", FOUR, || {
        let (sys, wq) = system(1, 1);
        let runs = Count::new();
        drop(wq.spawn(|| ()));
        let work = Work::new({
            let runs = runs.clone();
            move || {
                runs.add();
            }
        });
        assert!(wq.queue(&work).unwrap().is_queued());
        let cancelled = work.cancel();
        drop(sys);
        assert_eq!(runs.get() + usize::from(cancelled), 1);
        let stats = wq.stats();
        assert_eq!(
            (stats.active, stats.inactive),
            (0, 0),
            "no slot is lost or given twice"
        );
    });
}

/// I.12: somebody waits for an inactive item that is cancelled meanwhile. He is told, and the slot
/// that the item never had is not given back.
#[test]
fn i12_flush_of_an_inactive_item_against_its_cancel() {
    check(
        "i12_flush_of_an_inactive_item_against_its_cancel",
        ONE,
        || {
            let (sys, wq) = system(1, 1);
            drop(wq.spawn(|| ()));
            let work = Work::new(|| ());
            assert!(wq.queue(&work).unwrap().is_queued());
            let canceller = thread::spawn({
                let work = work.clone();
                move || work.cancel()
            });
            let _ = work.flush_blocking().unwrap();
            canceller.join().unwrap();
            drop(sys);
            let stats = wq.stats();
            assert_eq!((stats.active, stats.inactive), (0, 0));
        },
    );
}

/// I.26: who is told that the item is pending already (S1) must know that the pending run (after
/// C2) sees what was done before.
#[test]
fn i26_pending_run_sees_the_event() {
    check("i26_pending_run_sees_the_event", TWO, || {
        let (sys, wq) = system(1, 8);
        let (event, seen) = (Count::new(), Count::new());
        let work = Work::new({
            let (event, seen) = (event.clone(), seen.clone());
            move || {
                if event.get() == 1 {
                    seen.add();
                }
            }
        });
        let notifier = thread::spawn({
            let (wq, work) = (wq.clone(), work.clone());
            move || {
                event.add();
                let _ = wq.queue(&work).unwrap();
            }
        });
        let _ = wq.queue(&work).unwrap();
        notifier.join().unwrap();
        drop(sys);
        assert!(seen.get() > 0, "the event was lost");
    });
}

/// I.10: a work queues itself (S1-S3) while `cancel_sync` (X1-X4) is at work. Afterwards it neither
/// runs nor is pending.
#[test]
fn i10_cancel_sync_against_requeue() {
    check("i10_cancel_sync_against_requeue", THREE_OR_ALL, || {
        let (sys, wq) = system(1, 8);
        let (begun, inside) = (Count::new(), Count::new());
        let own = Own::new({
            let (wq, begun, inside) = (wq.clone(), begun.clone(), inside.clone());
            move |me| {
                inside.add();
                if begun.add() == 0 {
                    let _ = wq.queue(me).unwrap();
                }
                inside.sub();
            }
        });
        assert!(wq.queue(&own.work).unwrap().is_queued());
        own.work.cancel_sync_blocking().unwrap();
        let runs = begun.get();
        assert_eq!(inside.get(), 0, "it runs");
        drop(sys);
        assert_eq!(begun.get(), runs, "it was pending");
        own.forget();
    });
}

/// I.24, I.25: queued through another CPU while it runs, it goes to the pool that runs it and never
/// runs twice at once.
#[test]
fn i24_never_twice_at_once() {
    check("i24_never_twice_at_once", TWO, || {
        let (sys, wq) = system(2, 8);
        let (runs, inside) = (Count::new(), Count::new());
        let work = Work::new({
            let (runs, inside) = (runs.clone(), inside.clone());
            move || {
                // Not an assertion: the worker would catch it.
                if inside.add() == 0 {
                    runs.add();
                }
                blocking(thread::yield_now); // the pool may start another worker
                inside.sub();
            }
        });
        assert!(wq.queue_on(0, &work).unwrap().is_queued());
        let again = wq.queue_on(1, &work).unwrap();
        drop(sys);
        let expected = if again == Queued::AlreadyPending {
            1
        } else {
            2
        };
        assert_eq!(runs.get(), expected);
    });
}

/// X3 finds RUNNING of one run and, after that, the number of the next one: what the first one did
/// is seen.
#[test]
fn flush_of_a_work_against_its_next_run() {
    check("flush_of_a_work_against_its_next_run", TWO, || {
        let (sys, wq) = system(1, 8);
        let runs = Count::new();
        let own = Own::new({
            let (wq, runs) = (wq.clone(), runs.clone());
            move |me| {
                if runs.add() == 0 {
                    let _ = wq.queue(me).unwrap();
                }
            }
        });
        assert!(wq.queue(&own.work).unwrap().is_queued());
        let _ = own.work.flush_blocking().unwrap();
        assert!(runs.get() > 0, "the run that has ended is not seen");
        drop(sys);
        own.forget();
    });
}

/// C4 against a flusher's look (X3): it is woken, and only after the run.
#[test]
fn flush_of_a_work_against_its_end() {
    check("flush_of_a_work_against_its_end", FOUR, || {
        let (sys, wq) = system(1, 8);
        let ended = Count::new();
        let work = Work::new({
            let ended = ended.clone();
            move || {
                ended.add();
            }
        });
        assert!(wq.queue(&work).unwrap().is_queued());
        if !work.is_pending() && !work.is_running() {
            assert_eq!(
                ended.get(),
                1,
                "who sees that it has ended sees what it did"
            );
        }
        let _ = work.flush_blocking().unwrap();
        assert_eq!(ended.get(), 1);
        drop(sys);
    });
}
