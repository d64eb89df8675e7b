//! Models of flushing and draining a workqueue, driving a whole system. Events as in
//! `PROTOCOL.md`.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::thread;
use inflight_workqueue::Work;
use model_support::{Count, FOUR, ONE, TWO, system};

/// *flush* against *settle*: the flusher is woken, and only when the item has ended.
#[test]
fn flush_against_completion() {
    check("flush_against_completion", FOUR, || {
        let (sys, wq) = system(1, 1);
        let pool = wq.manual_pool(0);
        let ended = Count::new();
        for _ in 0..2 {
            let ended = ended.clone();
            drop(wq.spawn(move || ended.add()));
        }
        let worker = thread::spawn(move || (0..2).for_each(|_| _ = pool.draw(1)));
        wq.flush_blocking().unwrap();
        assert_eq!(ended.get(), 2);
        worker.join().unwrap();
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
        let canceller = thread::spawn(move || work.cancel());
        wq.flush_blocking().unwrap();
        canceller.join().unwrap();
        drop(sys);
    });
}

/// I.23: the colours of the pwqs are closed one by one while their items end: the flush returns,
/// and not before both have.
#[test]
fn i23_flush_over_two_pwqs() {
    check("i23_flush_over_two_pwqs", ONE, || {
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

/// I.18: a queue is destroyed while its last item ends, and its handle goes: nothing of
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
/// the second pwq before and at the first one after that.
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
