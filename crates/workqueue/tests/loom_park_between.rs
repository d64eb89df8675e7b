//! Models of an item that is parked in a queue of another kind, or of another system, than the one
//! that runs it. Events as in `PROTOCOL.md`, part *item*. No workers: the threads of a model draw.
//!
//! X runs in the pool of `here`, on the model's first thread, which is inside X's function when the
//! others start. Both queues have one slot.

#![cfg(loom)]

mod model_support;

use inflight_sync::Arc;
use inflight_sync::model::{Bound, check};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::unstable::ManualPool;
use inflight_workqueue::{Attrs, Work, Workqueue, WorkqueueSystem};
use model_support::{Count, FIVE, FOUR, Log, Own, Started, THREE, Touched, draw_all};
use std::time::Duration;

fn system() -> WorkqueueSystem {
    let topo = Topology::synthetic("core:2").unwrap();
    let builder = WorkqueueSystem::builder().topology(topo);
    builder.idle_timeout(Duration::MAX).build().unwrap()
}

fn bound(sys: &WorkqueueSystem) -> Workqueue {
    let wq = sys.workqueue("bound").bound().max_active(1);
    wq.freezable().build().unwrap()
}

/// Its limit is one that its pools share.
fn unbound(sys: &WorkqueueSystem) -> Workqueue {
    let attrs = Attrs::new().scope(Scope::Cpu).strict(true);
    let wq = sys.workqueue("unbound").unbound(attrs).max_active(1);
    wq.freezable().build().unwrap()
}

fn moved(strict: bool) -> Attrs {
    Attrs::new().scope(Scope::System).strict(strict)
}

fn ordered(sys: &WorkqueueSystem) -> Workqueue {
    let wq = sys.workqueue("ordered").ordered_with(moved(false));
    wq.freezable().build().unwrap()
}

struct Queues {
    here: Workqueue,
    there: Workqueue,
    a: ManualPool,
    b: ManualPool,
    /// Another pool that `there` can go to, with the queue that has made it.
    c: Option<(ManualPool, Workqueue)>,
    systems: [WorkqueueSystem; 2],
}

impl Queues {
    fn new(systems: [WorkqueueSystem; 2], here: Workqueue, there: Workqueue) -> Self {
        let (a, b) = (here.manual_pool(0), there.manual_pool(1));
        Self {
            here,
            there,
            a,
            b,
            c: None,
            systems,
        }
    }
}

type Kind = fn(&WorkqueueSystem) -> Workqueue;

fn of_one_system(here: Kind, there: Kind) -> Queues {
    let sys = system();
    let (here, there) = (here(&sys), there(&sys));
    Queues::new([sys.clone(), sys], here, there)
}

fn of_two_systems(here: Kind, there: Kind) -> Queues {
    let systems = [system(), system()];
    let (here, there) = (here(&systems[0]), there(&systems[1]));
    Queues::new(systems, here, there)
}

fn of_a_queue_that_moves() -> Queues {
    let queues = of_one_system(bound, ordered);
    let sys = &queues.systems[0];
    let other = sys.workqueue("other").ordered_with(moved(true));
    let other = other.build().unwrap();
    let c = Some((other.manual_pool(1), other));
    Queues { c, ..queues }
}

/// What the items of a model leave behind.
struct Seen {
    runs: Count,
    log: Log,
    /// By those that run in `here` and in `there`: one after another.
    touched: [Touched; 2],
}

impl Seen {
    /// Another item of `here`.
    fn behind_here(&self, queues: &Queues, number: u32) {
        let (log, touched) = (self.log.clone(), self.touched[0].clone());
        drop(queues.here.spawn_on(0, move || {
            touched.touch();
            log.add(number);
        }));
    }

    /// Another item of `there`.
    fn behind_there(&self, queues: &Queues, number: u32) {
        let (log, touched) = (self.log.clone(), self.touched[1].clone());
        drop(queues.there.spawn_on(1, move || {
            touched.touch();
            log.add(number);
        }));
    }
}

/// X runs in `here`; it is parked in `there`, and `during` is called. Then everything is drawn, and
/// all that was queued has run once or was cancelled once.
fn while_x_is_parked(
    name: &str,
    limit: Bound,
    make: fn() -> Queues,
    during: fn(&Arc<Queues>, &Work, &Started, &Arc<Seen>),
    then: fn(&Queues, &Seen),
) {
    check(name, limit, move || {
        let queues = Arc::new(make());
        let started = Started::default();
        let seen = Arc::new(Seen {
            runs: Count::new(),
            log: Log::default(),
            touched: [Touched::new(), Touched::new()],
        });
        let own = Own::new({
            let (queues, started, seen) = (queues.clone(), started.clone(), seen.clone());
            move |work| {
                let run = seen.runs.add();
                seen.touched[run].touch();
                seen.log.add(0);
                if run == 0 {
                    assert!(queues.there.queue_on(1, work).unwrap().is_queued());
                    assert_eq!(queues.b.draw(1), 1, "it is parked");
                    during(&queues, work, &started, &seen);
                }
                seen.touched[run].touch();
            }
        });
        assert!(queues.here.queue_on(0, &own.work).unwrap().is_queued());
        assert_eq!(queues.a.draw(1), 1);
        started.join();
        let c = queues.c.as_ref().map_or(&queues.a, |(c, _)| c);
        draw_all(&[&queues.a, &queues.b, c]);
        then(&queues, &seen);
        assert!(!own.work.is_pending() && !own.work.is_running());
        for stats in [&queues.here, &queues.there].map(Workqueue::stats) {
            assert_eq!(stats.panicked, 0);
            assert_eq!(stats.queued, stats.completed + stats.cancelled);
            assert_eq!((stats.active, stats.inactive), (0, 0));
        }
        own.forget();
    });
}

/// A thread that draws from the pool of `here` or of `there`, once.
fn draws(started: &Started, pool: &ManualPool) {
    let pool = pool.clone();
    started.start(move || _ = pool.draw(1));
}

/// While X's run ends others draw in both pools: each queue runs one item at a time, and what is
/// parked is not overtaken.
fn others_draw(queues: &Arc<Queues>, _: &Work, started: &Started, seen: &Arc<Seen>) {
    seen.behind_here(queues, 1);
    seen.behind_there(queues, 2);
    draws(started, &queues.a);
    draws(started, &queues.b);
}

fn ran_in_order(_: &Queues, seen: &Seen) {
    let mut log = seen.log.get();
    assert_eq!(log.len(), 4);
    log.retain(|number| *number != 1);
    assert_eq!(log, [0, 0, 2], "X was there first");
}

#[test]
fn i15_park_of_a_bound_queue_in_an_unbound_one() {
    while_x_is_parked(
        "i15_park_of_a_bound_queue_in_an_unbound_one",
        FIVE,
        || of_one_system(bound, unbound),
        others_draw,
        ran_in_order,
    );
}

#[test]
fn i15_park_of_an_unbound_queue_in_a_bound_one() {
    while_x_is_parked(
        "i15_park_of_an_unbound_queue_in_a_bound_one",
        FIVE,
        || of_one_system(unbound, bound),
        others_draw,
        ran_in_order,
    );
}

#[test]
fn i24_park_in_another_system() {
    while_x_is_parked(
        "i24_park_in_another_system",
        FIVE,
        || of_two_systems(bound, unbound),
        others_draw,
        ran_in_order,
    );
}

#[test]
fn i27_park_in_an_ordered_queue() {
    while_x_is_parked(
        "i27_park_in_an_ordered_queue",
        FIVE,
        || of_one_system(bound, ordered),
        others_draw,
        ran_in_order,
    );
}

/// *cancel* against *end* on an ordered queue: one of them gives the slot back, and what is behind
/// goes on.
#[test]
fn i9_cancel_of_what_is_parked_in_an_ordered_queue() {
    while_x_is_parked(
        "i9_cancel_of_what_is_parked_in_an_ordered_queue",
        FOUR,
        || of_one_system(bound, ordered),
        |queues, work, started, seen| {
            seen.behind_there(queues, 2);
            let work = work.clone();
            started.start(move || _ = work.cancel());
            draws(started, &queues.b);
        },
        |queues, seen| {
            let cancelled = queues.there.stats().cancelled == 1;
            let expected: &[u32] = if cancelled { &[0, 2] } else { &[0, 0, 2] };
            assert_eq!(seen.log.get(), expected);
        },
    );
}

/// *freeze* of another system than that in which X runs: what is put back waits for the thaw.
#[test]
fn i13_freeze_of_another_system_against_put_back() {
    while_x_is_parked(
        "i13_freeze_of_another_system_against_put_back",
        THREE,
        || of_two_systems(bound, ordered),
        |queues, _, started, seen| {
            draws(started, &queues.b);
            let (queues, seen) = (queues.clone(), seen.clone());
            started.start(move || {
                let frozen = queues.systems[1].freeze();
                let before = queues.there.stats().started;
                queues.b.draw(1);
                assert_eq!(queues.there.stats().started, before, "in a freeze");
                let begun = seen.runs.get() - 1;
                assert!(begun <= before as usize);
                drop(frozen);
            });
        },
        |_, seen| assert_eq!(seen.runs.get(), 2),
    );
}

/// An ordered queue goes over to another pool while X is parked in it: what is queued then waits,
/// in the new pool, for X, which is put back in the old one.
#[test]
fn i27_an_ordered_queue_moves_with_what_is_parked() {
    while_x_is_parked(
        "i27_an_ordered_queue_moves_with_what_is_parked",
        FOUR,
        of_a_queue_that_moves,
        |queues, _, started, seen| {
            seen.behind_there(queues, 2);
            started.start({
                let (queues, seen) = (queues.clone(), seen.clone());
                move || {
                    queues.there.set_attrs(moved(true)).unwrap();
                    seen.behind_there(&queues, 3);
                    let (c, _) = queues.c.as_ref().expect("made for this");
                    c.draw(1);
                }
            });
            draws(started, &queues.b);
        },
        |_, seen| assert_eq!(seen.log.get(), [0, 0, 2, 3]),
    );
}

/// X itself is cancelled meanwhile: what waits in the new pool goes on.
#[test]
fn i27_an_ordered_queue_moves_and_what_is_parked_is_cancelled() {
    while_x_is_parked(
        "i27_an_ordered_queue_moves_and_what_is_parked_is_cancelled",
        THREE,
        of_a_queue_that_moves,
        |queues, work, started, seen| {
            started.start({
                let (queues, seen) = (queues.clone(), seen.clone());
                move || {
                    queues.there.set_attrs(moved(true)).unwrap();
                    seen.behind_there(&queues, 3);
                }
            });
            let work = work.clone();
            started.start(move || _ = work.cancel());
        },
        |queues, seen| {
            let cancelled = queues.there.stats().cancelled == 1;
            let expected: &[u32] = if cancelled { &[0, 3] } else { &[0, 0, 3] };
            assert_eq!(seen.log.get(), expected);
        },
    );
}
