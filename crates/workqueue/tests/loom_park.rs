//! Models of an item whose entry is drawn while the item runs elsewhere: *park*, *end*, *put back*,
//! *cancel*. Events as in `PROTOCOL.md`, part *item*. No workers: the threads of a model draw.
//!
//! X is the item. It runs in pool A, of CPU 0, on the model's first thread, which is inside X's
//! function when the others start.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::{Bound, check};
use inflight_sync::thread;
use inflight_topology::Topology;
use inflight_workqueue::unstable::ManualPool;
use inflight_workqueue::{Work, Workqueue, WorkqueueSystem};
use model_support::{Count, FOUR, Log, Own, Started, THREE, TWO, Touched, draw_all};
use std::time::Duration;

/// Two pools. `here` is the queue in whose pwq X runs, `there` is another one.
struct Pools {
    sys: WorkqueueSystem,
    here: Workqueue,
    there: Workqueue,
    a: ManualPool,
    b: ManualPool,
}

fn pools(max_active: usize) -> Pools {
    let topo = Topology::synthetic("core:2").unwrap();
    let builder = WorkqueueSystem::builder().topology(topo);
    let sys = builder.idle_timeout(Duration::MAX).build().unwrap();
    let here = sys.workqueue("here").bound().build().unwrap();
    let there = sys.workqueue("there").bound().freezable();
    let there = there.max_active(max_active).build().unwrap();
    let (a, b) = (here.manual_pool(0), here.manual_pool(1));
    there.manual_pool(0);
    there.manual_pool(1);
    Pools {
        sys,
        here,
        there,
        a,
        b,
    }
}

/// What the model asks about X in the end.
struct X {
    runs: Count,
    log: Log,
    touched: Touched,
}

/// X runs in A; while it does, `during` is called with it. Then everything is drawn, and all that
/// was queued has run once or was cancelled once, one at a time.
fn while_x_runs(
    name: &str,
    bound: Bound,
    max_active: usize,
    during: fn(&Pools, &Work, &Started, &X),
    then: fn(&Pools, &X),
) {
    check(name, bound, move || {
        let pools = inflight_sync::Arc::new(pools(max_active));
        let started = Started::default();
        let x = inflight_sync::Arc::new(X {
            runs: Count::new(),
            log: Log::default(),
            touched: Touched::new(),
        });
        let own = Own::new({
            let (pools, started, x) = (pools.clone(), started.clone(), x.clone());
            move |work| {
                x.touched.touch();
                x.log.add(0);
                if x.runs.add() == 0 {
                    during(&pools, work, &started, &x);
                }
                x.touched.touch();
            }
        });
        assert!(pools.here.queue_on(0, &own.work).unwrap().is_queued());
        assert_eq!(pools.a.draw(1), 1);
        started.join();
        draw_all(&[&pools.a, &pools.b]);
        then(&pools, &x);
        assert!(!own.work.is_pending() && !own.work.is_running());
        let [here, there] = [&pools.here, &pools.there].map(Workqueue::stats);
        assert_eq!((here.panicked, there.panicked), (0, 0));
        assert_eq!(
            here.queued + there.queued,
            here.completed + there.completed + here.cancelled + there.cancelled
        );
        assert_eq!((there.active, there.inactive), (0, 0));
        assert_eq!(x.touched.times(), 2 * x.runs.get());
        own.forget();
        let runs = x.runs.get();
        drop(pools);
        assert_eq!(x.runs.get(), runs);
    });
}

/// A thread that draws from a pool, so many times.
fn draws(started: &Started, pool: &ManualPool, most: usize, times: usize) {
    let pool = pool.clone();
    started.start(move || {
        for _ in 0..times {
            pool.draw(most);
        }
    });
}

fn queue_there(pools: &Pools, cpu: usize, work: &Work) {
    assert!(pools.there.queue_on(cpu, work).unwrap().is_queued());
}

/// Another item, behind X.
fn y(pools: &Pools, x: &X, number: u32) {
    let log = x.log.clone();
    drop(pools.there.spawn_on(1, move || log.add(number)));
}

/// I.24: two draw the entry, by turns, while the run ends: *park* against *end*, *put back* against
/// *take*.
#[test]
fn i24_park_against_end() {
    while_x_runs(
        "i24_park_against_end",
        FOUR,
        8,
        |pools, work, started, _| {
            queue_there(pools, 1, work);
            draws(started, &pools.b, 1, 1);
            draws(started, &pools.b, 1, 1);
        },
        |_, x| assert_eq!(x.runs.get(), 2),
    );
}

/// I.24 within one pool: another worker of it draws the entry.
#[test]
fn i24_park_in_the_pool_that_runs_it() {
    while_x_runs(
        "i24_park_in_the_pool_that_runs_it",
        FOUR,
        8,
        |pools, work, started, _| {
            queue_there(pools, 0, work);
            draws(started, &pools.a, 1, 2);
        },
        |_, x| assert_eq!(x.runs.get(), 2),
    );
}

/// X is parked, cancelled, queued once more and parked again while its run ends: whoever clears
/// PARKED owns that slot and that colour, and nobody takes the second for the first.
fn parks_twice(name: &str, cpu: fn() -> usize) {
    let during = match cpu() {
        0 => during_twice::<0>,
        _ => during_twice::<1>,
    };
    while_x_runs(name, THREE, 1, during, |_, _| ());
}

fn during_twice<const CPU: usize>(pools: &Pools, work: &Work, started: &Started, _: &X) {
    queue_there(pools, 1, work);
    pools.b.draw(1);
    draws(started, if CPU == 0 { &pools.a } else { &pools.b }, 1, 2);
    let (there, work) = (pools.there.clone(), work.clone());
    started.start(move || {
        work.cancel();
        let _ = there.queue_on(CPU, &work).unwrap();
    });
}

#[test]
fn i9_parked_twice_in_two_pools() {
    parks_twice("i9_parked_twice_in_two_pools", || 0);
}

#[test]
fn i9_parked_twice_in_one_pool() {
    parks_twice("i9_parked_twice_in_one_pool", || 1);
}

/// A limit of one: nothing overtakes X, which is parked at the head, whoever draws what.
#[test]
fn i27_nothing_overtakes_what_is_parked() {
    while_x_runs(
        "i27_nothing_overtakes_what_is_parked",
        THREE,
        1,
        |pools, work, started, x| {
            queue_there(pools, 1, work);
            y(pools, x, 1);
            y(pools, x, 2);
            draws(started, &pools.b, 3, 1);
            draws(started, &pools.b, 1, 1);
        },
        |_, x| assert_eq!(x.log.get(), [0, 0, 1, 2]),
    );
}

/// A limit of two: what is parked keeps a slot, and its batch goes on only with another.
#[test]
fn i15_a_parked_entry_keeps_its_slot() {
    while_x_runs(
        "i15_a_parked_entry_keeps_its_slot",
        THREE,
        2,
        |pools, work, started, x| {
            queue_there(pools, 1, work);
            y(pools, x, 1);
            y(pools, x, 2);
            draws(started, &pools.b, 3, 1);
            draws(started, &pools.b, 1, 1);
        },
        |_, x| assert_eq!(x.log.get().len(), 4),
    );
}

/// X is parked at the head and cancelled: what is behind it runs although X's run goes on, with the
/// slot that the cancel gives back.
#[test]
fn i12_cancel_of_what_is_parked() {
    while_x_runs(
        "i12_cancel_of_what_is_parked",
        FOUR,
        1,
        |pools, work, started, x| {
            queue_there(pools, 1, work);
            y(pools, x, 1);
            draws(started, &pools.b, 2, 1);
            assert!(work.cancel(), "its run goes on, so it is pending");
            started.join();
            draw_all(&[&pools.b]);
            assert_eq!(x.log.get(), [0, 1]);
        },
        |_, x| assert_eq!(x.runs.get(), 1),
    );
}

/// *cancel* of a parked entry against *end*: one of them clears PARKED, and that one settles.
#[test]
fn i9_cancel_against_put_back() {
    while_x_runs(
        "i9_cancel_against_put_back",
        FOUR,
        1,
        |pools, work, started, x| {
            queue_there(pools, 1, work);
            y(pools, x, 1);
            pools.b.draw(2);
            let work = work.clone();
            started.start(move || _ = work.cancel());
            draws(started, &pools.b, 1, 1);
        },
        |pools, x| {
            let cancelled = pools.there.stats().cancelled == 1;
            let expected: &[u32] = if cancelled { &[0, 1] } else { &[0, 0, 1] };
            assert_eq!(x.log.get(), expected);
        },
    );
}

/// I.10: after `cancel_sync` it neither runs nor will, and what its run did is seen.
#[test]
fn i10_cancel_sync_against_park() {
    while_x_runs(
        "i10_cancel_sync_against_park",
        TWO,
        8,
        |pools, work, started, x| {
            queue_there(pools, 1, work);
            draws(started, &pools.b, 1, 1);
            let (work, log, touched) = (work.clone(), x.log.clone(), x.touched.clone());
            started.start(move || {
                let cancelled = work.cancel_sync_blocking().unwrap();
                let runs = 2 - usize::from(cancelled);
                assert_eq!(log.get().len(), runs, "it has ended, and there is no other");
                assert_eq!(touched.times(), 2 * runs);
            });
        },
        |pools, x| assert_eq!(x.runs.get(), 2 - pools.there.stats().cancelled as usize),
    );
}

/// A flush of the queue waits for what is parked in an item that another queue runs.
#[test]
fn i35_flush_finds_what_is_parked() {
    while_x_runs(
        "i35_flush_finds_what_is_parked",
        TWO,
        1,
        |pools, work, started, x| {
            queue_there(pools, 1, work);
            draws(started, &pools.b, 1, 1);
            let (there, runs, b) = (pools.there.clone(), x.runs.clone(), pools.b.clone());
            started.start(move || {
                let flusher = thread::spawn({
                    let there = there.clone();
                    move || {
                        there.flush_blocking().unwrap();
                        assert_eq!(runs.get(), 2, "too early");
                    }
                });
                while there.stats().completed == 0 {
                    b.draw(1);
                    thread::yield_now();
                }
                flusher.join().unwrap();
            });
        },
        |_, x| assert_eq!(x.runs.get(), 2),
    );
}

/// It does not wait for what is parked and cancelled, although the item's run goes on.
#[test]
fn i35_flush_against_cancel_of_what_is_parked() {
    while_x_runs(
        "i35_flush_against_cancel_of_what_is_parked",
        THREE,
        1,
        |pools, work, started, _| {
            queue_there(pools, 1, work);
            draws(started, &pools.b, 1, 1);
            let work = work.clone();
            started.start(move || assert!(work.cancel()));
            let there = pools.there.clone();
            started.start(move || there.flush_blocking().unwrap());
            started.join();
        },
        |_, x| assert_eq!(x.runs.get(), 1),
    );
}

/// *freeze* against *put back*: what is put back does not begin before the thaw.
#[test]
fn i13_freeze_against_put_back() {
    while_x_runs(
        "i13_freeze_against_put_back",
        THREE,
        8,
        |pools, work, started, x| {
            queue_there(pools, 1, work);
            pools.b.draw(1);
            let (sys, b, log) = (pools.sys.clone(), pools.b.clone(), x.log.clone());
            started.start(move || {
                let frozen = sys.freeze();
                let before = log.get().len();
                b.draw(1);
                assert_eq!(log.get().len(), before, "it begins in a freeze");
                drop(frozen);
            });
        },
        |_, x| assert_eq!(x.runs.get(), 2),
    );
}

/// *cancel* against *put back* in a freeze: what was cancelled does not wait in the FIFO for the
/// thaw, nor does a flush.
#[test]
fn i35_cancel_against_put_back_in_a_freeze() {
    while_x_runs(
        "i35_cancel_against_put_back_in_a_freeze",
        FOUR,
        1,
        |pools, work, started, _| {
            queue_there(pools, 1, work);
            pools.b.draw(1); // parked
            let (sys, there, work) = (pools.sys.clone(), pools.there.clone(), work.clone());
            let frozen = sys.freeze();
            started.start(move || {
                let flusher = thread::spawn(move || there.flush_blocking().unwrap());
                assert!(work.cancel(), "it cannot begin");
                flusher.join().unwrap();
                drop(frozen);
            });
        },
        |_, x| assert_eq!(x.runs.get(), 1),
    );
}

/// I.26: X is pending in A. Accepted or refused, a run begins after the queueing and sees what came
/// before it.
#[test]
fn i26_refused_or_queued_elsewhere() {
    check("i26_refused_or_queued_elsewhere", FOUR, || {
        let pools = pools(8);
        let (event, seen) = (Count::new(), Count::new());
        let work = Work::new({
            let (event, seen) = (event.clone(), seen.clone());
            move || {
                if event.get() == 1 {
                    seen.add();
                }
            }
        });
        assert!(pools.here.queue_on(0, &work).unwrap().is_queued());
        let a = pools.a.clone();
        let other = thread::spawn(move || a.draw(1));
        event.add();
        let _ = pools.there.queue_on(1, &work).unwrap();
        pools.b.draw(1);
        other.join().unwrap();
        draw_all(&[&pools.a, &pools.b]);
        assert!(seen.get() > 0, "the event was lost");
    });
}

/// X is queued in A, cancelled, and queued in B. Both pools draw.
#[test]
fn i9_cancel_then_queue_elsewhere() {
    check("i9_cancel_then_queue_elsewhere", FOUR, || {
        let pools = pools(8);
        let touched = Touched::new();
        let work = Work::new({
            let touched = touched.clone();
            move || touched.touch()
        });
        assert!(pools.here.queue_on(0, &work).unwrap().is_queued());
        let draws = [&pools.a, &pools.b].map(|pool| {
            let pool = pool.clone();
            thread::spawn(move || pool.draw(1))
        });
        let cancelled = work.cancel();
        let queued = pools.there.queue_on(1, &work).unwrap().is_queued();
        draws.into_iter().for_each(|t| _ = t.join().unwrap());
        draw_all(&[&pools.a, &pools.b]);
        let accepted = 1 + usize::from(queued);
        assert_eq!(touched.times() + usize::from(cancelled), accepted);
        let [here, there] = [&pools.here, &pools.there].map(Workqueue::stats);
        assert_eq!(here.panicked + there.panicked, 0, "twice at once");
        assert_eq!(
            here.completed + here.cancelled,
            1,
            "each runs where it was queued"
        );
        assert_eq!(there.completed, u64::from(queued));
    });
}

/// A cancel takes X out of a queue while another thread queues it on the next one: it takes the
/// entry that it has seen, not what stands where the item says it stands now.
#[test]
fn i9_cancel_against_queue_elsewhere() {
    check("i9_cancel_against_queue_elsewhere", FOUR, || {
        let pools = pools(8);
        let runs = Count::new();
        let work = Work::new({
            let runs = runs.clone();
            move || {
                runs.add();
            }
        });
        // At another position there than here.
        drop(pools.there.spawn_on(1, || ()));
        assert!(pools.here.queue_on(0, &work).unwrap().is_queued());
        let canceller = thread::spawn({
            let work = work.clone();
            move || work.cancel()
        });
        let again = pools.there.queue_on(1, &work).unwrap().is_queued();
        let cancelled = canceller.join().unwrap();
        draw_all(&[&pools.a, &pools.b]);
        assert_eq!(
            runs.get() + usize::from(cancelled),
            1 + usize::from(again),
            "each queueing runs or is cancelled"
        );
    });
}

/// A run that begins after a cancel, which has found nothing, sees what came before the cancel.
#[test]
fn i26_a_cancel_of_nothing_is_seen() {
    check("i26_a_cancel_of_nothing_is_seen", FOUR, || {
        let pools = pools(8);
        let (stop, runs, blind) = (Count::new(), Count::new(), Count::new());
        let work = Work::new({
            let (stop, runs, blind) = (stop.clone(), runs.clone(), blind.clone());
            move || {
                runs.add();
                if stop.get() == 0 {
                    blind.add();
                }
            }
        });
        let other = thread::spawn({
            let (here, a, work) = (pools.here.clone(), pools.a.clone(), work.clone());
            move || {
                if here.queue_on(0, &work).unwrap().is_queued() {
                    a.draw(1);
                }
            }
        });
        stop.add();
        work.cancel_sync_blocking().unwrap();
        let blind_before = blind.get();
        other.join().unwrap();
        draw_all(&[&pools.a]);
        assert_eq!(blind.get(), blind_before, "it has missed the flag");
    });
}
