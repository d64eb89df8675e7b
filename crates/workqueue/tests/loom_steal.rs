//! Models of *steal*: a batch that another pool's worker takes. What they catch: an item that runs
//! twice, twice at once or never, a cancelled one that runs, a pool that never goes, a worker that
//! sleeps while its pool is asked for help. Events as in `PROTOCOL.md`, part *steal*.
//!
//! In the first ones the pools have no workers: the threads of a model draw and steal.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, thread};
use inflight_topology::Scope;
use inflight_workqueue::unstable::ManualPool;
use inflight_workqueue::{Attrs, JoinHandle, Work, Workqueue, WorkqueueSystem, blocking};
use model_support::{Count, FIVE, FOUR, Log, Own, TWO, Touched, ZERO, draw_all, timed};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

/// CPUs of the two pods.
const HOME: usize = 0;
const THIEF: usize = 1;

fn attrs() -> Attrs {
    Attrs::new().scope(Scope::Cache)
}

/// Two pods of one CPU; items of the first take a second, as far as it knows.
fn taught() -> (WorkqueueSystem, Workqueue) {
    let sys = timed("cache:2 core:1", &Clock::manual());
    let wq = sys.workqueue("model").unbound(attrs()).freezable();
    let wq = wq.build().unwrap();
    wq.set_service(HOME, 1_000_000_000);
    (sys, wq)
}

/// The same, without workers.
struct Pools {
    sys: WorkqueueSystem,
    wq: Workqueue,
    home: ManualPool,
    thief: ManualPool,
    log: Log,
}

impl Pools {
    fn new() -> Arc<Self> {
        let (sys, wq) = taught();
        Arc::new(Self {
            home: wq.manual_pool(HOME),
            thief: wq.manual_pool(THIEF),
            sys,
            wq,
            log: Log::default(),
        })
    }

    fn item(&self, number: u32) {
        let log = self.log.clone();
        drop(self.wq.spawn_on(HOME, move || log.add(number)));
    }

    fn beside(self: &Arc<Self>, f: impl FnOnce(&Self) + Send + 'static) -> thread::JoinHandle<()> {
        let this = self.clone();
        thread::spawn(move || f(&this))
    }

    /// All has run, so many items.
    fn assert_ran(&self, items: usize) {
        draw_all(&[&self.home, &self.thief]);
        let mut log = self.log.get();
        log.sort_unstable();
        assert_eq!(log, (0..items as u32).collect::<Vec<_>>());
        let stats = self.wq.stats();
        assert_eq!((stats.active, stats.inactive, stats.panicked), (0, 0, 0));
    }
}

/// *steal* against *take*: each item runs once; and the thief does find something.
#[test]
fn a_stolen_item_runs_once() {
    check("a_stolen_item_runs_once", FIVE, || {
        let pools = Pools::new();
        (0..2).for_each(|number| pools.item(number));
        let thief = pools.beside(|pools| assert!(pools.thief.steal()));
        pools.home.draw(1);
        thief.join().unwrap();
        assert_eq!(pools.wq.stats().stolen, 1);
        pools.assert_ran(2);
    });
}

/// *recall* by home of what a thief has taken and not begun, and what its item queues.
#[test]
fn a_stolen_batch_is_recalled() {
    check("a_stolen_batch_is_recalled", FIVE, || {
        let pools = Pools::new();
        let this = pools.clone();
        drop(pools.wq.spawn_on(HOME, move || {
            this.item(0);
        }));
        pools.item(1);
        let thief = pools.beside(|pools| _ = pools.thief.steal());
        pools.home.recall();
        pools.home.draw(1);
        thief.join().unwrap();
        pools.assert_ran(2);
    });
}

/// *steal* against *cancel*: the item is taken back or runs, not both and not neither.
#[test]
fn i9_a_cancelled_item_is_not_stolen() {
    check("i9_a_cancelled_item_is_not_stolen", FIVE, || {
        let pools = Pools::new();
        let runs = Touched::new();
        let work = Work::new({
            let runs = runs.clone();
            move || runs.touch()
        });
        assert!(pools.wq.queue_on(HOME, &work).unwrap().is_queued());
        let thief = pools.beside(|pools| _ = pools.thief.steal());
        let cancelled = work.cancel();
        thief.join().unwrap();
        pools.assert_ran(0);
        assert_eq!(runs.times() + usize::from(cancelled), 1);
    });
}

/// *steal* against *flush*: the flush ends when the item does, wherever that runs.
#[test]
fn i35_flush_against_steal() {
    check("i35_flush_against_steal", FOUR, || {
        let pools = Pools::new();
        (0..2).for_each(|number| pools.item(number));
        let thief = pools.beside(|pools| _ = pools.thief.steal());
        let mut flush = pin!(pools.wq.flush());
        let mut over = false;
        let mut poll = || {
            let mut cx = Context::from_waker(Waker::noop());
            over = over || flush.as_mut().poll(&mut cx).is_ready();
            assert!(!over || pools.log.get().len() == 2, "too early");
            over
        };
        poll();
        draw_all(&[&pools.home]);
        poll();
        thief.join().unwrap();
        draw_all(&[&pools.home]);
        assert!(poll(), "it waits for nothing");
        pools.assert_ran(2);
    });
}

/// *freeze* against *steal*: once it has returned, nothing begins at the thief's.
#[test]
fn i13_freeze_against_steal() {
    check("i13_freeze_against_steal", FOUR, || {
        let pools = Pools::new();
        (0..2).for_each(|number| pools.item(number));
        let thief = pools.beside(|pools| {
            pools.thief.steal();
            pools.thief.steal();
        });
        let frozen = pools.sys.freeze();
        let busy = frozen.is_busy();
        let begun = pools.log.get().len();
        pools.thief.steal();
        let now = pools.log.get().len();
        assert!(now - begun <= usize::from(busy), "it begins in a freeze");
        drop(frozen);
        thief.join().unwrap();
        pools.assert_ran(2);
    });
}

/// *park* and *put back* of an item that is queued again while a thief runs it.
#[test]
fn i24_stolen_it_never_runs_twice_at_once() {
    check("i24_stolen_it_never_runs_twice_at_once", FOUR, || {
        let pools = Pools::new();
        let touched = Touched::new();
        let own = Own::new({
            let (wq, touched) = (pools.wq.clone(), touched.clone());
            move |work| {
                touched.touch();
                if touched.times() == 1 {
                    assert!(wq.queue_on(HOME, work).unwrap().is_queued());
                }
            }
        });
        assert!(pools.wq.queue_on(HOME, &own.work).unwrap().is_queued());
        let thief = pools.beside(|pools| _ = pools.thief.steal());
        pools.home.draw(1);
        pools.home.draw(1);
        thief.join().unwrap();
        pools.assert_ran(0);
        assert_eq!(touched.times(), 2);
        own.forget();
    });
}

/// The system ends while a thief is on its way, or runs what it has taken: all that was accepted
/// has run when the shutdown returns.
#[test]
fn shutdown_against_a_theft() {
    check("shutdown_against_a_theft", FOUR, || {
        let pools = Pools::new();
        (0..2).for_each(|number| pools.item(number));
        let thief = pools.beside(|pools| {
            pools.thief.steal();
            draw_all(&[&pools.home]);
        });
        pools.sys.shutdown_blocking().unwrap();
        assert_eq!(pools.log.get().len(), 2);
        thief.join().unwrap();
    });
}

/// The queue moves to one CPU while a thief is on its way: what was queued runs once, in the old
/// pool or at the thief's.
#[test]
fn i17_a_move_against_steal() {
    check("i17_a_move_against_steal", TWO, || {
        let pools = Pools::new();
        (0..2).for_each(|number| pools.item(number));
        let strict = attrs().cpumask([THIEF].into());
        let thief = pools.beside(|pools| _ = pools.thief.steal());
        pools.wq.set_attrs(strict).unwrap();
        pools.home.draw(1);
        thief.join().unwrap();
        pools.assert_ran(2);
    });
}

/// No pool is left but so many, in the end. If one stays for ever, the model finds no end.
fn await_pools(sys: &WorkqueueSystem, left: usize) {
    while sys.pool_count() > left {
        thread::yield_now();
    }
}

/// A pool that its queue has left goes although its last item was stolen, and so does the thief's.
/// Neither ever had a worker.
#[test]
fn i17_a_left_pool_goes_with_its_last_stolen_item() {
    check(
        "i17_a_left_pool_goes_with_its_last_stolen_item",
        TWO,
        || {
            let pools = Pools::new();
            pools.item(0);
            let strict = attrs().cpumask([THIEF].into());
            let thief = pools.beside(|pools| _ = pools.thief.steal());
            pools.wq.set_attrs(strict).unwrap();
            thief.join().unwrap();
            pools.assert_ran(1);
            let Some(Pools { sys, wq, .. }) = Arc::into_inner(pools) else {
                unreachable!("the thief has ended");
            };
            await_pools(&sys, 1);
            drop(wq);
            await_pools(&sys, 0);
            drop(sys);
        },
    );
}

/// Home's worker runs this until `count` is not 0, and does not say that it waits.
fn occupy(wq: &Workqueue, count: &Count) -> JoinHandle<()> {
    let count = count.clone();
    wq.spawn_on(HOME, move || count.wait_silently())
}

/// Looks until that has happened.
fn look_until(sys: &WorkqueueSystem, ran: &Count) {
    while ran.get() == 0 {
        sys.tick(None);
        thread::yield_now();
    }
}

/// Home's only worker waits for the item and does not say so, and the other pod has none: looks at
/// home bring one, which steals.
#[test]
fn a_missing_helper_is_created() {
    check("a_missing_helper_is_created", ZERO, || {
        let (sys, wq) = taught();
        let ran = Count::new();
        let hog = occupy(&wq, &ran);
        let other = ran.clone();
        drop(wq.spawn_on(HOME, move || other.add()));
        look_until(&sys, &ran);
        hog.wait().unwrap();
        assert!(wq.stats().stolen > 0, "nobody else could");
        drop(sys);
    });
}

/// The same where the other pod's worker is asleep, or about to be, having looked round.
#[test]
fn a_sleeping_helper_is_woken() {
    check("a_sleeping_helper_is_woken", ZERO, || {
        let (sys, wq) = taught();
        let ran = Count::new();
        drop(wq.spawn_on(THIEF, || ()));
        let hog = occupy(&wq, &ran);
        let other = ran.clone();
        drop(wq.spawn_on(HOME, move || other.add()));
        look_until(&sys, &ran);
        hog.wait().unwrap();
        assert!(wq.stats().stolen > 0, "nobody else could");
        drop(sys);
    });
}

/// The queue leaves both pools while a worker of the one is a guest in the other, whose own worker
/// sleeps: the guest's item is the last, both workers leave, and both pools go.
#[test]
fn i17_pools_with_workers_go_after_a_theft() {
    check("i17_pools_with_workers_go_after_a_theft", ZERO, || {
        let (sys, wq) = taught();
        let (ran, end) = (Count::new(), Count::new());
        let hog = occupy(&wq, &ran);
        drop(wq.spawn_on(HOME, {
            let (ran, end) = (ran.clone(), end.clone());
            move || {
                ran.add();
                end.wait_silently();
            }
        }));
        look_until(&sys, &ran);
        wq.set_attrs(attrs().cpumask([THIEF].into())).unwrap();
        hog.wait().unwrap();
        while sys.idle_count() == 0 {
            thread::yield_now();
        }
        end.add();
        await_pools(&sys, 1);
        assert!(wq.stats().stolen > 0, "nobody else could");
        drop(wq);
        await_pools(&sys, 0);
        drop(sys);
    });
}

/// An item that blocks at the thief's: the thief's pool lets another worker run, and the item is
/// not run twice.
#[test]
fn i2_a_stolen_item_blocks() {
    check("i2_a_stolen_item_blocks", ZERO, || {
        let (sys, wq) = taught();
        let (ran, over) = (Count::new(), Count::new());
        let hog = occupy(&wq, &over);
        let waits = ran.clone();
        let first = wq.spawn_on(HOME, move || blocking(|| waits.wait_silently()));
        let other = ran.clone();
        drop(wq.spawn_on(THIEF, move || other.add()));
        look_until(&sys, &ran);
        over.add();
        first.wait().unwrap();
        hog.wait().unwrap();
        drop(sys);
        assert_eq!(wq.stats().completed, 3);
    });
}
