//! Queueings that are refused, beside queueings that are accepted and beside cancels: a refusal is
//! as if it had never been. Who is told that a work is pending has a run that sees what was done
//! before.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use inflight_sync::{Arc, thread};
use inflight_topology::Topology;
use inflight_workqueue::{
    Attrs, DelayedWork, QueueError, Queued, Work, Workqueue, WorkqueueSystem,
};
use std::time::Duration;

/// Enough to hit the moment between two steps of the other thread, with a run in each round.
const ROUNDS: u64 = 5_000;
/// The same without a run.
const SHORT_ROUNDS: u64 = 10 * ROUNDS;
const HOUR: Duration = Duration::from_secs(3600);

fn system() -> (WorkqueueSystem, Workqueue, Workqueue) {
    let topology = Topology::synthetic("core:2").unwrap();
    let sys = WorkqueueSystem::builder().topology(topology).build();
    let sys = sys.unwrap();
    let queue = |name: &str| sys.workqueue(name).unbound(Attrs::new()).build().unwrap();
    let (one, other) = (queue("one"), queue("other"));
    (sys, one, other)
}

/// Raised when it goes, also by a panic.
struct RaisedByDrop<'a>(&'a AtomicBool);

impl Drop for RaisedByDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls each of `fs` again and again, on a thread of its own, while `during` runs.
fn beside<R>(fs: Vec<Box<dyn Fn() + Send>>, during: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stops = RaisedByDrop(&stop);
        for f in fs {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    f();
                }
            });
        }
        during()
    })
}

/// Counts events, and those that a run has seen.
#[derive(Clone, Default)]
struct Events {
    told: Arc<AtomicU64>,
    seen: Arc<AtomicU64>,
}

impl Events {
    fn work(&self) -> Work {
        let Self { told, seen } = self.clone();
        Work::new(move || {
            seen.fetch_max(told.load(Ordering::Relaxed), Ordering::Relaxed);
        })
    }

    /// Tells of an event, and returns whether it was lost. `Draining` is no loss.
    fn is_lost(&self, wq: &Workqueue, work: &Work) -> bool {
        let event = self.told.fetch_add(1, Ordering::Relaxed) + 1;
        match wq.queue(work) {
            Ok(Queued::Queued | Queued::AlreadyPending) => {}
            Err(QueueError::Draining) => return false,
            other => panic!("{other:?}"),
        }
        work.flush_blocking().unwrap();
        self.seen.load(Ordering::Relaxed) < event
    }
}

/// I.26: a work that a destroyed queue refuses all the time loses no event that an open queue was
/// told of.
#[test]
fn a_refusal_takes_no_event() {
    let (_sys, open, gone) = system();
    gone.destroy_blocking().unwrap();
    let events = Events::default();
    let work = events.work();
    let refused = {
        let work = work.clone();
        move || _ = gone.queue(&work)
    };
    let lost = beside(vec![Box::new(refused)], || {
        (0..ROUNDS).filter(|_| events.is_lost(&open, &work)).count()
    });
    assert_eq!(lost, 0);
}

/// I.26: the same with one queue that is drained again and again.
#[test]
fn a_refusal_in_a_drain_takes_no_event() {
    let (_sys, wq, _) = system();
    let mine = Events::default();
    let work = mine.work();
    let also = {
        let (wq, work) = (wq.clone(), work.clone());
        move || _ = wq.queue(&work)
    };
    let drains = {
        let wq = wq.clone();
        move || {
            let drain = wq.drain();
            thread::yield_now();
            drop(drain);
            thread::yield_now();
        }
    };
    let lost = beside(vec![Box::new(also), Box::new(drains)], || {
        (0..ROUNDS).filter(|_| mine.is_lost(&wq, &work)).count()
    });
    assert_eq!(lost, 0);
}

/// A delayed work, which a destroyed queue refuses all the time without a delay: who is told that
/// it is pending finds it pending, or run.
#[test]
fn a_refusal_is_not_taken_for_a_delay() {
    let (_sys, open, gone) = system();
    gone.destroy_blocking().unwrap();
    let work = DelayedWork::new(|| ());
    let refused = {
        let work = work.clone();
        move || _ = gone.queue_delayed(&work, Duration::ZERO)
    };
    beside(vec![Box::new(refused)], || {
        for _ in 0..SHORT_ROUNDS {
            assert_eq!(open.queue_delayed(&work, HOUR), Ok(Queued::Queued));
            assert!(work.cancel(), "it is pending");
        }
    });
}

/// I.9, I.38: a queueing that is refused leaves nothing that a cancel could take back, and is not
/// counted.
#[test]
fn a_refusal_leaves_nothing_to_cancel() {
    let (_sys, open, gone) = system();
    gone.destroy_blocking().unwrap();
    let (work, delayed) = (Work::new(|| ()), DelayedWork::new(|| ()));
    let refused = {
        let (gone, work, delayed) = (gone.clone(), work.clone(), delayed.clone());
        move || {
            assert_eq!(gone.queue(&work), Err(QueueError::Destroyed));
            let queued = gone.queue_delayed(&delayed, Duration::ZERO);
            assert_eq!(queued, Err(QueueError::Destroyed));
        }
    };
    let taken = beside(vec![Box::new(refused)], || {
        let takes = |_: &u64| work.cancel() || delayed.cancel();
        (0..SHORT_ROUNDS).filter(takes).count()
    });
    assert_eq!(taken, 0);
    let stats = [&open, &gone].map(Workqueue::stats);
    assert_eq!(
        stats.each_ref().map(|s| (s.queued, s.cancelled)),
        [(0, 0); 2]
    );
}
