//! Models of batches: *take*, *start*, *recall*, *put back*, *settle*. Events as in
//! `PROTOCOL.md`, parts *take and recall* and *colour and settle*.
//!
//! They drive a system whose pool has no worker: the threads of a model draw. The batch by itself
//! is in `loom_batch_recall.rs`, *append* in `loom_append.rs`.

#![cfg(loom)]

mod model_support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::check;
use inflight_sync::{Arc, block_on, thread};
use inflight_workqueue::{Work, WorkqueueSystem, blocking};
use model_support::{Count, FIVE, FOUR, Pool, Started, THREE, Touched, draw_all};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

/// *recall* of a batch while it runs; another thread draws what comes back. Each entry runs once.
#[test]
fn a_recall_of_a_running_batch() {
    check("a_recall_of_a_running_batch", FIVE, || {
        let pool = Pool::new(8);
        (0..3).for_each(|number| pool.item(number));
        let owner = pool.beside(|pool| _ = pool.pool.draw(3));
        pool.pool.recall();
        pool.pool.draw(3);
        owner.join().unwrap();
        pool.assert_ran(&[0, 1, 2]);
    });
}

/// The same with one slot: the running entry keeps it, and the order is kept.
#[test]
fn i27_a_recall_keeps_the_order() {
    check("i27_a_recall_keeps_the_order", FIVE, || {
        let pool = Pool::new(1);
        (0..3).for_each(|number| pool.item(number));
        let owner = pool.beside(|pool| _ = pool.pool.draw(3));
        pool.pool.recall();
        pool.pool.draw(3);
        owner.join().unwrap();
        pool.assert_ran(&[0, 1, 2]);
        assert_eq!(pool.log.get(), [0, 1, 2], "one after another");
    });
}

/// *flush* against a batch with what is appended: it ends, and not before what was queued before
/// it.
#[test]
fn i35_flush_against_append_and_settle() {
    check("i35_flush_against_append_and_settle", FOUR, || {
        let pool = Pool::new(8);
        pool.appender(0, 2);
        pool.item(1);
        let flusher = pool.beside(|pool| {
            pool.wq.flush_blocking().unwrap();
            let log = pool.log.get();
            assert!(log.contains(&0) && log.contains(&1), "too early: {log:?}");
        });
        pool.pool.draw(3);
        draw_all(&[&pool.pool]);
        flusher.join().unwrap();
        pool.assert_ran(&[0, 1, 2]);
    });
}

/// *settle* by a recall, while the batch goes on and a flush begins. It waits for what it may know
/// to have been queued, appended or not.
#[test]
fn i35_flush_against_recall() {
    check("i35_flush_against_recall", THREE, || {
        let pool = Pool::new(8);
        // Ordering: Release and Acquire: who sees it comes after the append.
        let appended = Arc::new(AtomicUsize::new(0));
        let (this, told) = (pool.clone(), appended.clone());
        drop(pool.wq.spawn(move || {
            this.log.add(0);
            this.item(1);
            told.store(1, Ordering::Release);
        }));
        let owner = pool.beside(|pool| _ = pool.pool.draw(3));
        let flusher = pool.beside(move |pool| {
            let knows = appended.load(Ordering::Acquire);
            pool.wq.flush_blocking().unwrap();
            let log = pool.log.get();
            assert!(log.len() > knows, "too early: {log:?}");
        });
        pool.pool.recall();
        owner.join().unwrap();
        draw_all(&[&pool.pool]);
        flusher.join().unwrap();
        pool.assert_ran(&[0, 1]);
    });
}

/// A flush does not wait for what was queued later, although a batch has both: a *recall* settles
/// what has ended.
#[test]
fn i35_flush_of_the_beginning_of_a_batch() {
    check("i35_flush_of_the_beginning_of_a_batch", FOUR, || {
        let pool = Pool::new(8);
        let (begun, flushed) = (Count::new(), Count::new());
        pool.item(0);
        let mut flush = pool.wq.flush();
        let polled = Pin::new(&mut flush).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        drop(pool.wq.spawn({
            let (begun, flushed) = (begun.clone(), flushed.clone());
            move || {
                begun.add();
                flushed.wait_silently();
            }
        }));
        let owner = pool.beside(|pool| assert_eq!(pool.pool.draw(3), 2));
        begun.wait_silently();
        pool.pool.recall();
        block_on(flush).unwrap();
        flushed.add();
        owner.join().unwrap();
    });
}

/// *freeze* against a batch that runs and appends: once it has returned nothing begins.
#[test]
fn i13_freeze_of_a_running_batch() {
    check("i13_freeze_of_a_running_batch", FIVE, || {
        let pool = Pool::new(1);
        pool.appender(0, 2);
        pool.item(1);
        let owner = pool.beside(|pool| _ = pool.pool.draw(3));
        let frozen = pool.sys.freeze();
        // Once it is not busy it stays so.
        let busy = frozen.is_busy();
        // Before the log, whose lock would order the two.
        let ended = (!busy).then(|| pool.touched.times());
        let begun = pool.log.get().len();
        pool.pool.draw(3);
        let now = pool.log.get().len();
        // An item that had begun may not have written its number yet.
        assert!(now - begun <= usize::from(busy), "it begins in a freeze");
        if let Some(ended) = ended {
            assert_eq!(ended, begun, "who sees that it has ended sees what it did");
        }
        drop(frozen);
        owner.join().unwrap();
        pool.assert_ran(&[0, 1, 2]);
    });
}

/// What is counted as started when *freeze* returns is what has begun: no more runs before the
/// thaw.
#[test]
fn i13_freeze_tells_what_has_begun() {
    check("i13_freeze_tells_what_has_begun", FIVE, || {
        let pool = Pool::new(1);
        pool.appender(0, 2);
        pool.item(1);
        let owner = pool.beside(|pool| _ = pool.pool.draw(3));
        let frozen = pool.sys.freeze();
        let started = pool.wq.stats().started;
        pool.pool.draw(3);
        owner.join().unwrap();
        assert!(!frozen.is_busy());
        assert_eq!(pool.log.get().len() as u64, started);
        assert_eq!(pool.wq.stats().started, started);
        drop(frozen);
        pool.assert_ran(&[0, 1, 2]);
    });
}

/// Freezes its system when it goes.
struct Freezes(WorkqueueSystem, Count);

impl Drop for Freezes {
    fn drop(&mut self) {
        drop(self.0.freeze());
        self.1.add();
    }
}

/// A *freeze* takes an entry back that was cancelled and whose work nobody has: no lock is held
/// when the function goes.
#[test]
fn i13_a_freeze_drops_a_cancelled_work() {
    check("i13_a_freeze_drops_a_cancelled_work", FIVE, || {
        let (pool, gone) = (Pool::new(8), Count::new());
        let freezes = Freezes(pool.sys.clone(), gone.clone());
        let work = Work::new(move || _ = &freezes);
        let started = Started::default();
        drop(pool.wq.spawn({
            let (this, work, started) = (pool.clone(), work.clone(), started.clone());
            move || {
                started.start(move || {
                    assert!(work.cancel() || this.wq.stats().completed > 0);
                    drop(work);
                    drop(this.sys.freeze());
                });
            }
        }));
        assert!(pool.wq.queue(&work).unwrap().is_queued());
        drop(work);
        pool.pool.draw(3);
        started.join();
        draw_all(&[&pool.pool]);
        assert_eq!(gone.get(), 1, "once");
        assert_eq!(pool.wq.stats().panicked, 0);
    });
}

/// The limit is lowered while two batches run, one inside an item of the other: as soon as it has
/// been, none starts anything beside the other.
#[test]
fn i13_the_limit_is_lowered_in_a_batch() {
    check("i13_the_limit_is_lowered_in_a_batch", FOUR, || {
        let pool = Pool::new(2);
        let (inside, overlaps) = (Count::new(), Count::new());
        // Ordering: Release and Acquire: an item that sees it begins after the change.
        let lowered = Arc::new(AtomicUsize::new(0));
        let started = Started::default();
        for number in 0..6 {
            let (inside, overlaps) = (inside.clone(), overlaps.clone());
            let (this, lowered, started) = (pool.clone(), lowered.clone(), started.clone());
            drop(pool.wq.spawn(move || {
                let late = lowered.load(Ordering::Acquire) > 0;
                if inside.add() > 0 && late {
                    overlaps.add();
                }
                match number {
                    0 => _ = this.pool.draw(3),
                    3 => started.start(move || {
                        this.wq.set_max_active(1).unwrap();
                        lowered.store(1, Ordering::Release);
                    }),
                    _ => {}
                }
                inside.sub();
            }));
        }
        assert_eq!(pool.pool.draw(3), 3);
        started.join();
        draw_all(&[&pool.pool]);
        // It may have been started before, and its function entered after the change.
        assert!(overlaps.get() <= 1, "one beside another");
        let stats = pool.wq.stats();
        assert_eq!((stats.completed, stats.active, stats.inactive), (6, 0, 0));
    });
}

/// *cancel* of an entry that a batch has: it runs or was cancelled, and its memory goes once.
#[test]
fn i9_cancel_against_a_batch() {
    check("i9_cancel_against_a_batch", FIVE, || {
        let pool = Pool::new(8);
        let runs = Touched::new();
        let work = Work::new({
            let runs = runs.clone();
            move || runs.touch()
        });
        pool.item(0);
        assert!(pool.wq.queue(&work).unwrap().is_queued());
        let owner = pool.beside(|pool| _ = pool.pool.draw(3));
        let cancelled = work.cancel();
        drop(work);
        pool.pool.recall();
        owner.join().unwrap();
        draw_all(&[&pool.pool]);
        assert_eq!(runs.times() + usize::from(cancelled), 1);
        let stats = pool.wq.stats();
        assert_eq!(stats.completed + stats.cancelled, 2);
        assert_eq!((stats.active, stats.inactive, stats.panicked), (0, 0, 0));
    });
}

/// *cancel* of a closure that a batch has: its handle resolves, as it says.
#[test]
fn i9_cancel_of_a_closure_against_a_batch() {
    check("i9_cancel_of_a_closure_against_a_batch", FIVE, || {
        let pool = Pool::new(8);
        pool.item(0);
        let value = Arc::new(());
        let handle = pool.wq.spawn({
            let value = value.clone();
            move || value
        });
        let owner = pool.beside(|pool| _ = pool.pool.draw(3));
        let cancelled = handle.try_cancel();
        owner.join().unwrap();
        draw_all(&[&pool.pool]);
        assert_eq!(handle.wait().is_ok(), !cancelled);
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

/// *block*: an item that says that it sleeps gives back what is behind it, appended entries too;
/// another thread runs that meanwhile.
#[test]
fn i2_a_block_gives_the_rest_back() {
    check("i2_a_block_gives_the_rest_back", FOUR, || {
        let pool = Pool::new(8);
        let ran = Count::new();
        let this = pool.clone();
        drop(pool.wq.spawn({
            let ran = ran.clone();
            move || {
                this.item(2);
                blocking(|| ran.wait_silently());
                this.log.add(0);
            }
        }));
        drop(pool.wq.spawn({
            let (ran, log) = (ran.clone(), pool.log.clone());
            move || {
                log.add(1);
                ran.add();
            }
        }));
        let owner = pool.beside(|pool| _ = pool.pool.draw(2));
        while ran.get() == 0 {
            pool.pool.draw(1);
            thread::yield_now();
        }
        owner.join().unwrap();
        pool.assert_ran(&[0, 1, 2]);
    });
}

/// The end of the system comes while a batch runs and appends: what was accepted runs, and what was
/// refused does not.
#[test]
fn shutdown_against_a_batch() {
    check("shutdown_against_a_batch", FOUR, || {
        let pool = Pool::new(8);
        let (accepted, runs) = (Count::new(), Count::new());
        let work = Work::new({
            let runs = runs.clone();
            move || {
                runs.add();
            }
        });
        let this = pool.clone();
        drop(pool.wq.spawn({
            let accepted = accepted.clone();
            move || {
                if this.wq.queue(&work).is_ok() {
                    accepted.add();
                }
            }
        }));
        let owner = pool.beside(|pool| {
            pool.pool.draw(2);
            draw_all(&[&pool.pool]);
        });
        pool.sys.shutdown_blocking().unwrap();
        assert_eq!(runs.get(), accepted.get(), "all that was accepted has run");
        owner.join().unwrap();
        assert_eq!(runs.get(), accepted.get());
    });
}
