//! Models of one work, driving a whole system. Events as in `PROTOCOL.md`.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{
    QueueError, Queued, Work, Workqueue, WorkqueueSystem, blocking, current_work,
};
use model_support::{
    ALL, Count, FOUR, ONE, ONE_OR_THREE, Own, THREE, THREE_OR_ALL, TWO, Touched, TouchedByDrop,
    system,
};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

/// Counted when it goes.
struct CountedByDrop(Count);

impl Drop for CountedByDrop {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// I.9: an item is queued, taken and claimed while it is cancelled. It runs or it was
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

/// I.18: the last handle goes while the item runs, or before: its function's destructor comes after
/// the run and after what was done with the handle, on whichever thread.
#[test]
fn i18_a_work_goes_after_its_run() {
    check("i18_a_work_goes_after_its_run", FOUR, || {
        let (sys, wq) = system(1, 8);
        let pool = wq.manual_pool(0);
        let (ran, owned) = (Touched::new(), Touched::new());
        let work = Work::new({
            let value = [&ran, &owned].map(|touched| TouchedByDrop(touched.clone()));
            let ran = ran.clone();
            move || {
                let _value = &value;
                ran.touch();
            }
        });
        assert!(wq.queue(&work).unwrap().is_queued());
        let worker = thread::spawn(move || pool.draw(1));
        owned.touch();
        drop(work);
        worker.join().unwrap();
        assert_eq!((ran.times(), owned.times()), (2, 2));
        drop(sys);
    });
}

/// I.18 of a work that nobody queues: two handles go.
#[test]
fn i18_a_work_goes_with_its_last_handle() {
    check("i18_a_work_goes_with_its_last_handle", ALL, || {
        let owned = [(); 2].map(|()| Touched::new());
        let work = Work::new({
            let value = owned.clone().map(TouchedByDrop);
            move || _ = &value
        });
        let [here, there] = owned.clone();
        let other = thread::spawn({
            let work = work.clone();
            move || {
                there.touch();
                drop(work);
            }
        });
        here.touch();
        drop(work);
        other.join().unwrap();
        assert_eq!(owned.map(|touched| touched.times()), [2, 2]);
    });
}

/// I.18, *end* against *drop*: somebody has waited for the work and waits no more, so AWAITED is
/// there while the last handle goes. The work goes once.
#[test]
fn i18_an_old_wait_against_the_last_handle() {
    check("i18_an_old_wait_against_the_last_handle", ALL, || {
        let (sys, wq) = system(1, 8);
        let pool = wq.manual_pool(0);
        let gone = Touched::new();
        let work = Work::new({
            let value = TouchedByDrop(gone.clone());
            move || _ = &value
        });
        assert!(wq.queue(&work).unwrap().is_queued());
        {
            let mut flush = pin!(work.flush());
            let polled = flush.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        }
        let worker = thread::spawn(move || pool.draw(1));
        drop(work);
        worker.join().unwrap();
        assert_eq!(gone.times(), 1);
        drop(sys);
    });
}

/// I.18, *keep* against *drop*: the function takes a handle on its work while the last of the
/// others goes. What it has taken keeps the work.
#[test]
fn i18_a_handle_from_inside_against_the_last_handle() {
    check(
        "i18_a_handle_from_inside_against_the_last_handle",
        FOUR,
        || {
            let (sys, wq) = system(1, 8);
            let pool = wq.manual_pool(0);
            let gone = Count::new();
            let own = Arc::new(Mutex::new(None));
            let work = Work::new({
                let value = CountedByDrop(gone.clone());
                let own = own.clone();
                move || {
                    let _value = &value;
                    *own.lock() = current_work();
                }
            });
            assert!(wq.queue(&work).unwrap().is_queued());
            let worker = thread::spawn(move || pool.draw(1));
            drop(work);
            worker.join().unwrap();
            assert_eq!(gone.get(), 0, "there is a handle");
            let work = own.lock().take();
            drop(work);
            assert_eq!(gone.get(), 1);
            drop(sys);
        },
    );
}

/// I.9: who takes a queueing back sees what came before it, and before those that were refused.
#[test]
fn i26_a_cancel_sees_what_it_takes_back() {
    check("i26_a_cancel_sees_what_it_takes_back", ALL, || {
        let (sys, wq) = system(1, 8);
        wq.manual_pool(0);
        let (touched, event) = (Touched::new(), Count::new());
        let work = Work::new(|| ());
        let canceller = thread::spawn({
            let (work, event) = (work.clone(), event.clone());
            let touched = touched.clone();
            move || {
                let cancelled = work.cancel();
                let seen = event.get();
                if cancelled {
                    touched.touch();
                }
                (cancelled, seen)
            }
        });
        touched.touch();
        assert!(wq.queue(&work).unwrap().is_queued());
        event.add();
        let again = wq.queue(&work).unwrap();
        let (cancelled, seen) = canceller.join().unwrap();
        if cancelled && again == Queued::AlreadyPending {
            assert_eq!(seen, 1, "the event was lost");
        }
        work.cancel();
        drop(sys);
    });
}

/// I.9 in a freeze: a queueing that is cancelled leaves nothing that a flush would wait for until
/// the thaw.
#[test]
fn i9_queue_against_cancel_in_a_freeze() {
    check("i9_queue_against_cancel_in_a_freeze", THREE, || {
        let (sys, _) = system(1, 8);
        let wq = sys.workqueue("held").bound().freezable().build().unwrap();
        let frozen = sys.freeze();
        let work = Work::new(|| ());
        let canceller = thread::spawn({
            let work = work.clone();
            move || work.cancel()
        });
        assert!(wq.queue(&work).unwrap().is_queued());
        if canceller.join().unwrap() {
            wq.flush_blocking().unwrap();
        }
        drop(frozen);
        drop(sys);
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

/// I.9 for an item that waits for a slot, which comes meanwhile.
#[test]
fn i9_a_slot_comes_against_cancel() {
    check("i9_a_slot_comes_against_cancel", FOUR, || {
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

/// I.12: somebody waits for an item without a slot that is cancelled meanwhile. He is told, and the
/// slot that the item never had is not given back.
#[test]
fn i12_flush_of_what_waits_for_a_slot_against_its_cancel() {
    check(
        "i12_flush_of_what_waits_for_a_slot_against_its_cancel",
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

/// I.26: who is told that the item is pending already must know that the pending run
/// sees what was done before.
#[test]
fn i26_pending_run_sees_the_event() {
    check("i26_pending_run_sees_the_event", THREE, || {
        let (sys, wq) = system(1, 8);
        let pool = wq.manual_pool(0);
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
        pool.draw(1);
        notifier.join().unwrap();
        pool.draw(1);
        assert!(seen.get() > 0, "the event was lost");
        drop(sys);
    });
}

/// A queue that refuses everything: it has been destroyed.
fn refusing(sys: &WorkqueueSystem) -> Workqueue {
    let gone = sys.workqueue("gone").bound().build().unwrap();
    gone.destroy_blocking().unwrap();
    gone
}

/// I.26 beside a queueing that is refused: that one is never seen as pending, so who is told that
/// the item is pending has a run that sees what was done before.
#[test]
fn i26_a_refusal_takes_no_event() {
    check("i26_a_refusal_takes_no_event", TWO, || {
        let (sys, wq) = system(1, 8);
        let gone = refusing(&sys);
        let (event, seen) = (Count::new(), Count::new());
        let work = Work::new({
            let (event, seen) = (event.clone(), seen.clone());
            move || {
                if event.get() == 1 {
                    seen.add();
                }
            }
        });
        let other = thread::spawn({
            let work = work.clone();
            move || gone.queue(&work)
        });
        event.add();
        let queued = wq.queue(&work).unwrap();
        // It may find the item pending, and tells so.
        let refused = other.join().unwrap();
        assert!(matches!(
            refused,
            Err(QueueError::Destroyed) | Ok(Queued::AlreadyPending)
        ));
        drop(sys);
        assert_eq!(seen.get(), 1, "the event was lost: {queued:?}");
    });
}

/// I.9, I.38: a queueing that is refused leaves nothing that a cancel could take back.
#[test]
fn i9_cancel_against_a_refusal() {
    check("i9_cancel_against_a_refusal", FOUR, || {
        let (sys, _) = system(1, 8);
        let gone = refusing(&sys);
        let work = Work::new(|| ());
        let other = thread::spawn({
            let (gone, work) = (gone.clone(), work.clone());
            move || gone.queue(&work)
        });
        assert!(!work.cancel());
        assert_eq!(other.join().unwrap(), Err(QueueError::Destroyed));
        drop(sys);
        let stats = gone.stats();
        assert_eq!((stats.queued, stats.cancelled), (0, 0));
    });
}

/// I.10: a work queues itself while `cancel_sync` is at work. Afterwards it neither
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

/// A flush finds RUNNING of one run and, after that, the number of the next one: what the first one
/// did is seen.
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

/// *end* against a flusher's look: it is woken, and only after the run.
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
