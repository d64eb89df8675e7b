//! A work that says itself that it is to run again.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{Attrs, Queued, TraceStep, Work, Workqueue, WorkqueueSystem, blocking};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use support::{Level, endless, one_cpu, so_often};

/// One CPU, one item at a time.
fn one_at_a_time(ordered: bool) -> (WorkqueueSystem, Workqueue) {
    let sys = one_cpu().build().unwrap();
    let draft = sys.workqueue("queue");
    let wq = if ordered {
        draft.ordered().build().unwrap()
    } else {
        draft.bound().max_active(1).build().unwrap()
    };
    (sys, wq)
}

/// Where runs may follow each other at once.
fn rows() -> (WorkqueueSystem, Workqueue) {
    one_at_a_time(false)
}

/// What comes after the first run of a work, which in that run calls `first` and queues another
/// item: `true` if that is its second run.
fn overtakes(wq: &Workqueue, first: fn()) -> bool {
    let order = Arc::new(Mutex::new(Vec::new()));
    let runs = AtomicUsize::new(0);
    let work = Work::repeating("first", {
        let (wq, order) = (wq.clone(), order.clone());
        move || {
            order.lock().push("work");
            if runs.fetch_add(1, Ordering::Relaxed) > 0 {
                return ControlFlow::Break(());
            }
            first();
            let order = order.clone();
            drop(wq.spawn_on(0, move || order.lock().push("other")));
            ControlFlow::Continue(())
        }
    });
    wq.queue_on(0, &work).unwrap();
    wq.drain_blocking().unwrap();
    let order = order.lock();
    assert_eq!(order.len(), 3);
    order[1] == "work"
}

#[test]
fn it_runs_until_it_breaks_and_each_run_counts() {
    let (_sys, wq) = rows();
    for times in [1, 2, 31, 32, 33, 34, 1_000] {
        let before = wq.stats();
        let work = so_often(times, |_| ());
        assert_eq!(wq.queue(&work), Ok(Queued::Queued));
        wq.drain_blocking().unwrap();
        let after = wq.stats();
        let counts = [
            after.queued - before.queued,
            after.started - before.started,
            after.completed - before.completed,
        ];
        assert_eq!(counts, [times as u64; 3]);
        assert!(!work.is_pending() && !work.is_running());
    }
}

/// In its first run it is queued, by itself: the next one is that, and the one it has asked for.
#[test]
fn queued_in_a_run_it_runs_once_more() {
    let (_sys, wq) = rows();
    let myself: Arc<Mutex<Option<Work>>> = Arc::default();
    let work = so_often(2, {
        let (wq, myself) = (wq.clone(), myself.clone());
        move |run| {
            if run == 1 {
                let me = myself.lock().clone().unwrap();
                assert_eq!(wq.queue(&me), Ok(Queued::Queued));
            }
        }
    });
    *myself.lock() = Some(work.clone());
    wq.queue(&work).unwrap();
    wq.drain_blocking().unwrap();
    myself.lock().take();
    assert_eq!(wq.stats().completed, 2);
}

/// Whatever else waits in a queue that runs one item at a time has its turn.
#[test]
fn others_have_their_turn() {
    let (_sys, wq) = rows();
    let runs = Level::new();
    let work = endless(&runs);
    wq.queue(&work).unwrap();
    for _ in 0..50 {
        runs.wait(runs.get() + 1);
        wq.spawn(|| ()).wait().unwrap();
    }
    work.cancel_sync_blocking().unwrap();
    let after = runs.get();
    wq.flush_blocking().unwrap();
    assert_eq!(runs.get(), after, "it was stopped");
    assert_eq!(wq.queue(&work), Ok(Queued::Queued), "and can be used again");
    work.cancel_sync_blocking().unwrap();
}

#[test]
fn a_flush_of_it_ends() {
    let (_sys, wq) = rows();
    let runs = Level::new();
    let work = endless(&runs);
    wq.queue(&work).unwrap();
    for _ in 0..50 {
        work.flush_blocking().unwrap();
        wq.flush_blocking().unwrap();
    }
    assert!(runs.get() > 0);
    work.disable_sync_blocking().unwrap();
    let after = runs.get();
    assert_eq!(wq.queue(&work), Ok(Queued::Disabled));
    wq.drain_blocking().unwrap();
    assert_eq!(runs.get(), after);
}

/// No run begins once a freeze has returned, but the one that is about to.
#[test]
fn a_freeze_holds_it() {
    let (sys, _) = rows();
    let queues = [
        sys.workqueue("one").ordered(),
        sys.workqueue("cpu").bound(),
        sys.workqueue("any").unbound(Attrs::new()),
    ];
    for wq in queues.map(|draft| draft.freezable().build().unwrap()) {
        let runs = Level::new();
        let work = endless(&runs);
        wq.queue(&work).unwrap();
        for _ in 0..50 {
            runs.wait(runs.get() + 1);
            let frozen = sys.freeze();
            let at_most = runs.get() + 1;
            while frozen.is_busy() {
                thread::yield_now();
            }
            assert!(runs.get() <= at_most, "it ran on in {}", wq.name());
        }
        work.cancel_sync_blocking().unwrap();
    }
}

#[test]
fn a_panic_ends_it() {
    let (_sys, wq) = rows();
    let runs = Arc::new(AtomicUsize::new(0));
    let work = Work::repeating("panics", {
        let runs = runs.clone();
        move || {
            if runs.fetch_add(1, Ordering::Relaxed) == 4 {
                resume_unwind(Box::new("on purpose"));
            }
            ControlFlow::Continue(())
        }
    });
    wq.queue(&work).unwrap();
    wq.drain_blocking().unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 5);
    let stats = wq.stats();
    assert_eq!((stats.completed, stats.panicked), (5, 1));
}

/// The system's end stops it, as it does a work that queues itself.
#[test]
fn the_end_of_the_system_stops_it() {
    let (sys, wq) = rows();
    let runs = Level::new();
    let work = endless(&runs);
    wq.queue(&work).unwrap();
    runs.wait(100);
    drop(sys);
    assert!(!work.is_running() && !work.is_pending());
}

/// Runs follow each other at once, where that is allowed: not past the others of an ordered queue,
/// and not after a run that has blocked.
#[test]
fn a_row_overtakes_and_not_where_it_must_not() {
    let (_sys, wq) = rows();
    // Not if the first run lost its CPU for long.
    assert!(
        (0..50_000).any(|_| overtakes(&wq, || ())),
        "there are no rows"
    );
    let blocks = || blocking(thread::yield_now);
    assert!(!(0..50).any(|_| overtakes(&wq, blocks)), "after a block");
    let (_sys, wq) = one_at_a_time(true);
    assert!(!(0..50).any(|_| overtakes(&wq, || ())), "out of order");
}

/// At no moment have more items begun than were queued, or ended than have begun.
#[test]
fn the_numbers_fit_while_it_runs() {
    let (_sys, wq) = rows();
    let runs = Level::new();
    let work = endless(&runs);
    wq.queue(&work).unwrap();
    for _ in 0..2_000 {
        let stats = wq.stats();
        let in_order = stats.completed <= stats.started && stats.started <= stats.queued;
        assert!(in_order, "{stats:?}");
    }
    work.cancel_sync_blocking().unwrap();
}

/// A recording that begins during a row has each run that begins after it.
#[test]
fn a_row_ends_when_a_recording_begins() {
    let (sys, wq) = rows();
    let (runs, ended) = (AtomicUsize::new(0), Level::new());
    let work = Work::repeating("row", {
        let (sys, ended) = (sys.clone(), ended.clone());
        move || match runs.fetch_add(1, Ordering::Relaxed) {
            9 => {
                ended.raise();
                ControlFlow::Break(())
            }
            run => {
                if run == 2 {
                    sys.record_trace(true);
                }
                ControlFlow::Continue(())
            }
        }
    });
    // Once before: the recording has its memory, and takes no time of the row.
    sys.record_trace(true);
    sys.record_trace(false);
    wq.queue_on(0, &work).unwrap();
    ended.wait(1);
    wq.drain_blocking().unwrap();
    let steps = sys.take_trace().steps;
    let starts = steps.iter().filter(|step| step.step == TraceStep::Started);
    assert_eq!(starts.count(), 7, "{steps:?}");
}
