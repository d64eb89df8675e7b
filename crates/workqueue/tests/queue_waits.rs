//! Waiting for a queue: flush, drain and destroy, and the waits that could never end.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{Attrs, JoinError, QueueError, WaitError, Work, current_work};
use support::{Level, bound, system};

#[test]
fn flush_waits_for_running_pending_and_inactive() {
    let sys = system();
    let wq = sys.workqueue("f").bound().max_active(2).build().unwrap();
    let (release, ended) = (Level::new(), Level::new());
    for n in 0..8 {
        let (release, ended) = (release.clone(), ended.clone());
        let work = Work::new(move || {
            release.wait(1);
            ended.raise();
        });
        assert!(wq.queue_on(n % 2, &work).unwrap().is_queued());
    }
    let flusher = thread::spawn({
        let (wq, ended) = (wq.clone(), ended.clone());
        move || {
            wq.flush_blocking().unwrap();
            ended.get()
        }
    });
    release.raise();
    assert_eq!(flusher.join().unwrap(), 8);
}

/// An item that was queued before the flush keeps the queue full of later ones.
#[test]
fn flush_is_not_held_by_later_items() {
    let sys = system();
    let wq = bound(&sys);
    let stop = Level::new();
    fn again(wq: &inflight_workqueue::Workqueue, stop: &Level) {
        let (next, stop) = (wq.clone(), stop.clone());
        drop(wq.spawn(move || {
            if stop.get() == 0 {
                again(&next, &stop);
            }
        }));
    }
    again(&wq, &stop);
    for _ in 0..10 {
        wq.flush_blocking().unwrap();
    }
    stop.raise();
    wq.drain_blocking().unwrap();
    assert_eq!(wq.stats().active, 0);
}

/// An item has ended when what it leaves behind is gone: its function, and a result nobody wants.
#[test]
fn flush_waits_until_the_items_values_are_dropped() {
    struct Slow(Level);
    impl Drop for Slow {
        fn drop(&mut self) {
            (0..20).for_each(|_| thread::yield_now());
            self.0.raise();
        }
    }
    let sys = system();
    let wq = bound(&sys);
    for _ in 0..100 {
        let dropped = Level::new();
        let (result, held) = (Slow(dropped.clone()), Slow(dropped.clone()));
        drop(wq.spawn(move || result));
        let work = Work::new(move || {
            let _ = &held;
        });
        assert!(wq.queue(&work).unwrap().is_queued());
        drop(work);
        wq.flush_blocking().unwrap();
        // The handle above may have been the last one on the work; then this thread dropped it.
        assert_eq!(dropped.get(), 2);
    }
}

/// The seventeenth flusher over one old item, with items queued in between.
#[test]
fn i22_many_flushers_at_once() {
    let sys = system();
    let wq = bound(&sys);
    let release = Level::new();
    let held = Work::new({
        let release = release.clone();
        move || release.wait(1)
    });
    assert!(wq.queue_on(0, &held).unwrap().is_queued());
    let flushers: Vec<_> = (0..17)
        .map(|_| {
            drop(wq.spawn(|| ()));
            let (wq, release) = (wq.clone(), release.clone());
            thread::spawn(move || {
                wq.flush_blocking().unwrap();
                assert_eq!(release.get(), 1, "not before the old item has ended");
            })
        })
        .collect();
    release.raise();
    flushers.into_iter().for_each(|f| f.join().unwrap());
}

#[test]
fn drain_lets_the_queue_finish_its_chains() {
    let sys = system();
    let wq = bound(&sys);
    let (release, last) = (Level::new(), Level::new());
    let chain = {
        let (wq, release, last) = (wq.clone(), release.clone(), last.clone());
        Work::new(move || {
            release.wait(1);
            let (inner, last) = (wq.clone(), last.clone());
            // From CPU to CPU, so that a look at one pwq after the other would miss it.
            let two = Work::new(move || {
                let last = last.clone();
                let three = Work::new(move || last.raise());
                assert!(inner.queue_on(0, &three).unwrap().is_queued());
            });
            assert!(wq.queue_on(1, &two).unwrap().is_queued());
        })
    };
    assert!(wq.queue_on(0, &chain).unwrap().is_queued());
    let drainer = thread::spawn({
        let (wq, last) = (wq.clone(), last.clone());
        move || {
            wq.drain_blocking().unwrap();
            last.get()
        }
    });
    let outsider = Work::new(|| ());
    while wq.queue_on(2, &outsider) != Err(QueueError::Draining) {}
    release.raise();
    assert_eq!(drainer.join().unwrap(), 1, "the chain had ended");
    assert_eq!(wq.stats().panicked, 0);
    assert!(
        wq.queue_on(2, &outsider).unwrap().is_queued(),
        "it takes items again"
    );
    outsider.flush_blocking().unwrap();
}

#[test]
fn destroy_drains_first() {
    let sys = system();
    let wq = sys.workqueue("d").bound().max_active(1).build().unwrap();
    let ended = Level::new();
    for _ in 0..10 {
        let ended = ended.clone();
        drop(wq.spawn(move || ended.raise()));
    }
    wq.destroy_blocking().unwrap();
    assert_eq!(ended.get(), 10);
}

#[test]
fn waiting_for_the_own_queue_is_an_error() {
    let sys = system();
    let (wq, other) = (bound(&sys), sys.workqueue("other").bound().build().unwrap());
    let own = wq.clone();
    let seen = wq.spawn(move || {
        // Another queue's end does not depend on the caller's.
        drop(other.spawn(|| ()));
        other.flush_blocking().unwrap();
        (
            own.flush_blocking(),
            own.drain_blocking(),
            own.destroy_blocking(),
        )
    });
    assert_eq!(
        seen.wait().unwrap(),
        (
            Err(WaitError::WouldDeadlock),
            Err(WaitError::WouldDeadlock),
            Err(WaitError::WouldDeadlock)
        )
    );
    assert!(
        wq.spawn(|| ()).wait().is_ok(),
        "the refused destroy has changed nothing"
    );
}

/// The run in the other queue begins only after the work has returned from this one.
#[test]
fn waiting_for_a_queue_in_which_the_own_work_waits_is_an_error() {
    let sys = system();
    let one = bound(&sys);
    let ordered = sys.workqueue("ordered").ordered().build().unwrap();
    for other in [bound(&sys), ordered] {
        let (own, answers) = (other.clone(), Arc::new(Mutex::new(Vec::new())));
        let seen = answers.clone();
        let work = Work::new(move || {
            if own.stats().queued > 0 {
                return; // The second run.
            }
            let me = current_work().unwrap();
            assert!(own.queue(&me).unwrap().is_queued());
            let waits = [
                own.flush_blocking(),
                own.drain_blocking(),
                own.destroy_blocking(),
            ];
            seen.lock().extend(waits);
            assert!(me.cancel());
            own.flush_blocking().unwrap();
            assert!(own.queue(&me).unwrap().is_queued());
        });
        one.queue(&work).unwrap();
        one.flush_blocking().unwrap();
        other.flush_blocking().unwrap();
        assert_eq!(*answers.lock(), [Err(WaitError::WouldDeadlock); 3]);
        assert_eq!(other.stats().completed, 1);
    }
}

/// With one slot, what an item queues behind itself cannot begin before it returns.
#[test]
fn waiting_for_what_waits_for_the_own_slot_is_an_error() {
    let sys = system();
    let one = || sys.workqueue("one");
    let kinds = [one().bound(), one().unbound(Attrs::new())];
    for wq in kinds.map(|b| b.max_active(1).build().unwrap()) {
        let (own, later) = (wq.clone(), Work::new(|| ()));
        let work = later.clone();
        let seen = wq.spawn(move || {
            assert!(own.queue(&work).unwrap().is_queued());
            let flushed = work.flush_blocking();
            let spawned = own.spawn(|| ()).wait();
            let cancelled = work.cancel_sync_blocking();
            (
                flushed,
                matches!(spawned, Err(JoinError::WouldDeadlock)),
                cancelled,
            )
        });
        let expected = (Err(WaitError::WouldDeadlock), true, Ok(true));
        assert_eq!(seen.wait().unwrap(), expected);
        // Elsewhere, or with room, it is a wait like any other.
        let other = sys
            .workqueue("other")
            .bound()
            .max_active(1)
            .build()
            .unwrap();
        let two = sys
            .workqueue("two")
            .unbound(Attrs::new())
            .max_active(2)
            .build()
            .unwrap();
        let inner = (other, two.clone());
        let seen = two.spawn(move || (inner.0.spawn(|| 1).wait(), inner.1.spawn(|| 2).wait()));
        assert!(matches!(seen.wait().unwrap(), (Ok(1), Ok(2))));
        wq.flush_blocking().unwrap();
        assert_eq!(wq.stats().completed, 2);
    }
}
