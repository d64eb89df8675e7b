//! Models of flushing and draining a workqueue, driving a whole system. Step names as in
//! `PROTOCOL.md`.
//!
//! | weaken | fails |
//! |---|---|
//! | the end of an item tells nobody (E3) | `flush_against_completion`, `i29_…`, `i35_…` |
//! | neither a closed colour nor an empty gate is news (E3) | `flush_against_completion`, `i29_…`, `i35_…` |
//! | a cancelled item is not counted down (X2) | `i35_flush_against_cancel` |
//! | nothing is promoted (E2) | `flush_against_completion` |
//! | idle is judged gate by gate (D2) | `i29_drain_against_a_chain` |

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_workqueue::Work;
use model_support::{Count, FOUR, ONE, TWO, system};

/// F1, F2 against E1-E3: the flusher is woken, and only when the item has ended.
#[test]
fn flush_against_completion() {
    check("flush_against_completion", FOUR, || {
        let (sys, wq) = system(1, 1);
        let ended = Count::new();
        for _ in 0..2 {
            let ended = ended.clone();
            drop(wq.spawn(move || ended.add()));
        }
        wq.flush_blocking().unwrap();
        assert_eq!(ended.get(), 2);
        drop(sys);
    });
}

/// I.35: a flush waits for an item that is cancelled meanwhile, and is told: the item is counted
/// down with the colour it was queued under, which the flush has closed or not.
#[test]
fn i35_flush_against_cancel() {
    check("i35_flush_against_cancel", TWO, || {
        let (sys, wq) = system(1, 8);
        let work = Work::new(|| ());
        assert!(wq.queue(&work).unwrap().is_queued());
        let canceller = inflight_sync::thread::spawn(move || work.cancel());
        wq.flush_blocking().unwrap();
        canceller.join().unwrap();
        drop(sys);
    });
}

/// I.23: the gates are closed one by one (F1) while their items end (E1): the flush returns, and
/// not before both have.
#[test]
fn i23_flush_over_two_gates() {
    check("i23_flush_over_two_gates", ONE, || {
        let (sys, wq) = system(2, 8);
        let ended = Count::new();
        for cpu in 0..2 {
            let ended = ended.clone();
            drop(wq.spawn_on(cpu, move || ended.add()));
        }
        wq.flush_blocking().unwrap();
        assert_eq!(ended.get(), 2);
        drop(sys);
    });
}

/// I.18: a queue is destroyed while its last item ends (E1 to E3), and its handle goes: nothing of
/// it is used afterwards, and nobody waits for ever.
#[test]
fn i18_destroy_against_the_last_end() {
    check("i18_destroy_against_the_last_end", TWO, || {
        let (sys, wq) = system(1, 1);
        let ended = Count::new();
        drop(wq.spawn({
            let ended = ended.clone();
            move || ended.add()
        }));
        wq.destroy_blocking().unwrap();
        assert_eq!(ended.get(), 1);
        assert!(wq.spawn(|| ()).wait().is_err(), "it takes nothing more");
        drop(wq);
        drop(sys);
    });
}

/// I.29: an item on one CPU queues another one on the next CPU and ends. A drain must not look at
/// the second gate before and at the first gate after that.
#[test]
fn i29_drain_against_a_chain() {
    check("i29_drain_against_a_chain", TWO, || {
        let (sys, wq) = system(2, 8);
        let ended = Count::new();
        let second = Work::new({
            let ended = ended.clone();
            move || {
                ended.add();
            }
        });
        let first = Work::new({
            let (wq, ended) = (wq.clone(), ended.clone());
            move || {
                let queued = wq.queue_on(0, &second).map(|q| q.is_queued());
                ended.add();
                assert_eq!(queued, Ok(true));
            }
        });
        assert!(wq.queue_on(1, &first).unwrap().is_queued());
        wq.drain_blocking().unwrap();
        assert_eq!(ended.get(), 2);
        drop(sys);
        assert_eq!(wq.stats().panicked, 0);
    });
}
