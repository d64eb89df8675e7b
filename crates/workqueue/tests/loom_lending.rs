//! Models of an item that another pod's worker takes (`PROTOCOL-lending.md`): Y5 against home's own
//! worker and against cancel, a queue that moves to other pools while an item is lent, a pool that
//! goes idle while it is sent for. What they catch: an item that runs twice, twice at once or
//! never, a cancelled one that runs, a pool that never goes, a worker that sleeps while its pool is
//! asked for help.
//!
//! | weaken | fails |
//! |---|---|
//! | Y5 lends what runs at home | `never_twice_at_once` |
//! | Y2 wakes nobody | `who_sleeps_is_sent_for` |
//! | a pool tells its peers nothing | that, `who_goes_idle_is_sent_for` |
//! | nobody learns that there is something to take | both |
//!
//! Not seen to fail, at these bounds: Y6 that does not name the item (the core's own test has
//! that), a look (L1) that does not ask Y2, a pool that goes while somebody runs there, Y3 that
//! makes no pools. `PROTOCOL-lending.md` argues for them; nothing here proves that they are needed.

#![cfg(loom)]

mod model_support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{Attrs, JoinHandle, Work, Workqueue, WorkqueueSystem};
use model_support::{Count, Flag};
use std::time::Duration;

/// Four threads and alarms: one preemption takes minutes.
const ZERO: Bound = Bound {
    quick: Some(0),
    deep: Some(1),
};

/// Longer than there is between two looks at a pool.
const LOOK: Duration = Duration::from_millis(2);

/// CPUs of the two pods.
const HOME: usize = 0;
const THIEF: usize = 1;

fn attrs() -> Attrs {
    Attrs::new().scope(Scope::Cache)
}

/// Two pods of one CPU; an item of the first has taken a second, as far as the clock says.
fn taught(clock: &Clock) -> (WorkqueueSystem, Workqueue) {
    let topology = Topology::synthetic("cache:2 core:1").unwrap();
    let builder = WorkqueueSystem::builder().topology(topology);
    let builder = builder.idle_timeout(Duration::MAX).sampling(true);
    let sys = builder.clock(clock.clone()).build().unwrap();
    let wq = sys.workqueue("model").unbound(attrs()).build().unwrap();
    let clock = clock.clone();
    let long = wq.spawn_on(HOME, move || clock.advance(Duration::from_secs(1)));
    long.wait().unwrap();
    (sys, wq)
}

/// Home's worker runs this until `count` is not 0, and does not say that it waits.
fn occupy(wq: &Workqueue, count: &Count) -> JoinHandle<()> {
    let count = count.clone();
    wq.spawn_on(HOME, move || {
        while count.get() == 0 {
            thread::yield_now();
        }
    })
}

fn counting(count: &Count) -> impl Fn() + Clone + Send + Sync + 'static {
    let count = count.clone();
    move || {
        count.add();
    }
}

/// Y5 against N1: home's worker comes to the item while the other pod, which gets its pool at this
/// moment (Y3), looks round. One of them runs it.
#[test]
fn a_taken_item_runs_once() {
    check("a_taken_item_runs_once", ZERO, || {
        let (sys, wq) = taught(&Clock::manual());
        let runs = Count::new();
        let items = [(); 2].map(|()| wq.spawn_on(HOME, counting(&runs)));
        items.into_iter().for_each(|item| item.wait().unwrap());
        assert_eq!(wq.stats().started, 3);
        drop(sys);
        assert_eq!(runs.get(), 2);
    });
}

/// Y5 against X2: the item is taken back or runs, not both and not neither.
#[test]
fn a_cancelled_item_is_not_taken() {
    check("a_cancelled_item_is_not_taken", ZERO, || {
        let (sys, wq) = taught(&Clock::manual());
        let runs = Count::new();
        let first = wq.spawn_on(HOME, || ());
        let work = Work::new(counting(&runs));
        wq.queue_on(HOME, &work).unwrap();
        let cancelled = work.cancel_sync().unwrap();
        assert_eq!(runs.get() + usize::from(cancelled), 1);
        first.wait().unwrap();
        drop(sys);
        assert_eq!(runs.get() + usize::from(cancelled), 1);
    });
}

/// Y2 and Y4 against N3: home's only worker waits for the item and does not say so. The other
/// pod's worker is about to sleep, having looked round. Whatever it and Y2 have read of each other,
/// a look at home (L1) sends for it.
#[test]
fn who_goes_idle_is_sent_for() {
    check("who_goes_idle_is_sent_for", ZERO, || {
        let clock = Clock::manual();
        let (sys, wq) = taught(&clock);
        let ran = Count::new();
        drop(wq.spawn_on(THIEF, || ()));
        let hog = occupy(&wq, &ran);
        let item = wq.spawn_on(HOME, counting(&ran));
        // Time goes on at the latest when the other worker sleeps.
        while ran.get() == 0 && sys.idle_count() == 0 {
            thread::yield_now();
        }
        clock.advance(LOOK);
        hog.wait().unwrap();
        item.wait().unwrap();
        assert_eq!(wq.stats().taken, 1, "nobody else could");
        drop(sys);
        assert_eq!(ran.get(), 1);
    });
}

/// Y2: the other pod's only worker sleeps. It is woken for the item, and no time needs to pass.
#[test]
fn who_sleeps_is_sent_for() {
    check("who_sleeps_is_sent_for", ZERO, || {
        let (sys, wq) = taught(&Clock::manual());
        let ran = Count::new();
        wq.spawn_on(THIEF, || ()).wait().unwrap();
        while sys.idle_count() < 2 {
            thread::yield_now();
        }
        let hog = occupy(&wq, &ran);
        let item = wq.spawn_on(HOME, counting(&ran));
        hog.wait().unwrap();
        item.wait().unwrap();
        assert_eq!(wq.stats().taken, 1, "nobody else could");
        drop(sys);
    });
}

/// G1-G3 against Y5: the queue moves to one CPU while an item of the old pools is waiting, on its
/// way to the other pod, or running there. It runs once, and both old pools go.
#[test]
fn a_pool_goes_while_an_item_is_lent() {
    check("a_pool_goes_while_an_item_is_lent", ZERO, || {
        let (sys, wq) = taught(&Clock::manual());
        let runs = Count::new();
        let items = [(); 2].map(|()| wq.spawn_on(HOME, counting(&runs)));
        wq.set_attrs(attrs().cpumask([HOME].into())).unwrap();
        items.into_iter().for_each(|item| item.wait().unwrap());
        while sys.pool_count() > 1 {
            thread::yield_now();
        }
        drop(wq);
        drop(sys);
        assert_eq!(runs.get(), 2);
    });
}

/// A work that is queued again while it runs waits for its run to end, wherever it is taken.
#[test]
fn never_twice_at_once() {
    check("never_twice_at_once", ZERO, || {
        let (sys, wq) = taught(&Clock::manual());
        let (inside, runs) = (Arc::new(AtomicUsize::new(0)), Count::new());
        let begun = Flag::new();
        let work = Work::new({
            let (runs, begun) = (runs.clone(), begun.clone());
            move || {
                assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "twice at once");
                begun.raise();
                thread::yield_now();
                inside.fetch_sub(1, Ordering::Relaxed);
                runs.add();
            }
        });
        wq.queue_on(HOME, &work).unwrap();
        begun.wait();
        let again = wq.queue_on(HOME, &work).unwrap().is_queued();
        work.flush().unwrap();
        drop(sys);
        assert_eq!(runs.get(), 1 + usize::from(again));
    });
}
