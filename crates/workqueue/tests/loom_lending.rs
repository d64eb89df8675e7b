//! Models of an item that another pod's worker takes (`PROTOCOL-lending.md`): Y5 against home's own
//! worker and against cancel, a queue that moves to other pools while an item is lent, a pool that
//! goes idle while it is sent for. What they catch: an item that runs twice, twice at once or
//! never, a cancelled one that runs, a pool that never goes, a worker that sleeps while its pool is
//! asked for help.
//!
//! | weaken | fails |
//! |---|---|
//! | Y5 lends what runs at home | `never_twice_at_once` |
//! | Y5 takes no mail | `who_sleeps_is_sent_for`, `who_goes_idle_is_sent_for` |
//! | Y6 names no item | `an_item_that_was_taken_is_known_to_run` |
//! | Y2 wakes nobody | `who_sleeps_is_sent_for` |
//! | Y3 makes no pools | `who_is_not_there_is_made` |
//! | a pool tells its peers nothing | `who_sleeps_is_sent_for`, `who_goes_idle_is_sent_for` |
//! | nobody learns that there is something to take | both |
//! | a pool goes while somebody runs there (G2) | `a_pool_stays_while_it_runs_what_was_lent` |
//!
//! A look (L1) that does not ask Y2 fails no model: a manual clock has a lock, which tells whoever
//! reads it all that came before, so a pool's word is hardly ever old there. A test of the shipped
//! pools has that, `a_look_asks_again_for_who_was_said_to_be_awake`. Whether somebody looks (Y4)
//! who is one too many, or has something at home, is the core's alone, and so are its tests.

#![cfg(loom)]

mod model_support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::check;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, thread};
use inflight_topology::Scope;
use inflight_workqueue::{Attrs, JoinHandle, Work, Workqueue, WorkqueueSystem};
use model_support::{Count, Flag, ZERO, held, timed};
use std::time::Duration;

/// Longer than there is between two looks at a pool.
const LOOK: Duration = Duration::from_millis(2);

/// CPUs of the two pods.
const HOME: usize = 0;
const THIEF: usize = 1;

fn attrs() -> Attrs {
    Attrs::new().scope(Scope::Cache)
}

/// Two pods of one CPU; two items of the first have taken a second, as far as the clock says.
fn taught(clock: &Clock) -> (WorkqueueSystem, Workqueue) {
    let sys = timed("cache:2 core:1", clock);
    let wq = sys.workqueue("model").unbound(attrs()).build().unwrap();
    for _ in 0..2 {
        let clock = clock.clone();
        let long = wq.spawn_on(HOME, move || clock.advance(Duration::from_secs(1)));
        long.wait().unwrap();
    }
    (sys, wq)
}

/// Home's worker runs this until `count` is not 0, and does not say that it waits.
fn occupy(wq: &Workqueue, count: &Count) -> JoinHandle<()> {
    let count = count.clone();
    wq.spawn_on(HOME, move || count.wait_silently())
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
        assert_eq!(wq.stats().started, 4);
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
        let cancelled = work.cancel_sync_blocking().unwrap();
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
        assert_eq!(wq.stats().stolen, 1, "nobody else could");
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
        assert_eq!(wq.stats().stolen, 1, "nobody else could");
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
        work.flush_blocking().unwrap();
        drop(sys);
        assert_eq!(runs.get(), 1 + usize::from(again));
    });
}

/// Y6: a work runs in the other pod, where it says that it waits, and is queued again. Whoever is
/// brought in its worker's place leaves it.
#[test]
fn an_item_that_was_taken_is_known_to_run() {
    check("an_item_that_was_taken_is_known_to_run", ZERO, || {
        let (sys, wq) = taught(&Clock::manual());
        let (begun, go, over) = (Flag::new(), Flag::new(), Count::new());
        let (hog, runs, waits) = (occupy(&wq, &over), Count::new(), go.clone());
        let work = held(&begun, &runs, move || waits.wait());
        wq.queue_on(HOME, &work).unwrap();
        begun.wait();
        assert!(wq.queue_on(HOME, &work).unwrap().is_queued());
        go.raise();
        work.flush_blocking().unwrap();
        over.add();
        hog.wait().unwrap();
        drop(sys);
        assert_eq!(runs.get(), 2);
    });
}

/// G2 against Y6: the queue has left the pool in which its item runs, as something lent, and
/// queues it again. The pool stays for it, because it is found running there.
#[test]
fn a_pool_stays_while_it_runs_what_was_lent() {
    check("a_pool_stays_while_it_runs_what_was_lent", ZERO, || {
        let (sys, wq) = taught(&Clock::manual());
        let (begun, go, over) = (Flag::new(), Count::new(), Count::new());
        let (hog, runs, waits) = (occupy(&wq, &over), Count::new(), go.clone());
        let work = held(&begun, &runs, move || waits.wait_silently());
        wq.queue_on(HOME, &work).unwrap();
        begun.wait();
        wq.set_attrs(attrs().cpumask([HOME].into())).unwrap();
        assert!(wq.queue(&work).unwrap().is_queued());
        thread::yield_now();
        go.add();
        over.add();
        work.flush_blocking().unwrap();
        hog.wait().unwrap();
        while sys.pool_count() > 1 {
            thread::yield_now();
        }
        drop(sys);
        assert_eq!(runs.get(), 2);
    });
}

/// Y3: the other pod has no pool. It gets one, whose worker looks round, and no time needs to pass.
#[test]
fn who_is_not_there_is_made() {
    check("who_is_not_there_is_made", ZERO, || {
        let (sys, wq) = taught(&Clock::manual());
        let ran = Count::new();
        let hog = occupy(&wq, &ran);
        let item = wq.spawn_on(HOME, counting(&ran));
        hog.wait().unwrap();
        item.wait().unwrap();
        assert_eq!(wq.stats().stolen, 1, "nobody else could");
        drop(sys);
    });
}
