//! Models of queues that go over to other pools, and of pools that go when no queue uses them any
//! more. Events as in `PROTOCOL.md`.
//!
//! A worker that takes an item from a pool that is over fails an assertion of the pool itself.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::thread;
use inflight_sync::{Arc, Mutex};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{Attrs, Work, Workqueue, WorkqueueSystem};
use model_support::{Count, ONE, THREE, TWO, Touched, ZERO};
use std::time::Duration;

fn system() -> WorkqueueSystem {
    system_with("core:1")
}

fn system_with(machine: &str) -> WorkqueueSystem {
    let topo = Topology::synthetic(machine).unwrap();
    let builder = WorkqueueSystem::builder().topology(topo);
    builder.idle_timeout(Duration::MAX).build().unwrap()
}

fn unbound(sys: &WorkqueueSystem, strict: bool) -> Workqueue {
    let attrs = Attrs::new().scope(Scope::System).strict(strict);
    sys.workqueue("model").unbound(attrs).build().unwrap()
}

/// Whether no pool is left, in the end. If one is for ever, the model finds no end.
fn await_none(sys: &WorkqueueSystem) {
    while sys.pool_count() > 0 {
        thread::yield_now();
    }
}

/// The last handle goes against the end of the last item: whoever comes last sees that nobody needs
/// the pool, its thread leaves, and the item has run.
#[test]
fn a_pool_goes_against_its_last_item() {
    check("a_pool_goes_against_its_last_item", TWO, || {
        let sys = system();
        let wq = unbound(&sys, false);
        let runs = Count::new();
        drop(wq.spawn({
            let runs = runs.clone();
            move || runs.add()
        }));
        drop(wq);
        await_none(&sys);
        drop(sys);
        assert_eq!(runs.get(), 1);
    });
}

/// A pool goes against another queue with the same attributes: it uses the pool, or gets a new
/// one. Its item runs either way.
#[test]
fn a_pool_goes_against_a_new_queue() {
    check("a_pool_goes_against_a_new_queue", ONE, || {
        let sys = system();
        let (old, new) = (unbound(&sys, false), unbound(&sys, false));
        old.spawn(|| ()).wait().unwrap();
        let newcomer = thread::spawn(move || {
            assert_eq!(new.spawn(|| 7).wait().unwrap(), 7);
            new
        });
        drop(old);
        let new = newcomer.join().unwrap();
        assert_eq!(sys.pool_count(), 1, "the pool that is used is the system's");
        drop(new);
        await_none(&sys);
        drop(sys);
    });
}

/// I.17, I.24: a work runs in a pool that nobody else uses, and is queued on another queue. It goes
/// to a pool of its own, and is parked there while it runs.
#[test]
fn i17_a_pool_goes_against_the_next_run_of_its_item() {
    check(
        "i17_a_pool_goes_against_the_next_run_of_its_item",
        TWO,
        || {
            let sys = system();
            let (old, new) = (unbound(&sys, false), unbound(&sys, true));
            let (runs, inside) = (Count::new(), Count::new());
            let work = Work::new({
                let (runs, inside) = (runs.clone(), inside.clone());
                move || {
                    assert_eq!(inside.add(), 0, "it never runs twice at once");
                    inside.sub();
                    runs.add();
                }
            });
            assert!(old.queue(&work).unwrap().is_queued());
            drop(old);
            let queued = new.queue(&work).unwrap().is_queued();
            work.flush_blocking().unwrap();
            assert_eq!(runs.get(), 1 + usize::from(queued));
            drop(new);
            await_none(&sys);
            drop(sys);
        },
    );
}

/// I.17: an item is queued while the queue goes over to another pool. It runs once,
/// in the old one or the new one, and the old one goes when nothing is left in it.
#[test]
fn i17_a_move_against_queue() {
    check("i17_a_move_against_queue", ZERO, || {
        let sys = system();
        let wq = unbound(&sys, false);
        // So that there is a worker.
        wq.spawn(|| ()).wait().unwrap();
        let runs = Count::new();
        let other = thread::spawn({
            let (wq, runs) = (wq.clone(), runs.clone());
            move || drop(wq.spawn(move || runs.add()))
        });
        let strict = Attrs::new().scope(Scope::System).strict(true);
        wq.set_attrs(strict).unwrap();
        other.join().unwrap();
        wq.flush_blocking().unwrap();
        assert_eq!(runs.get(), 1);
        drop(wq);
        await_none(&sys);
        drop(sys);
    });
}

/// I.27: an ordered queue goes over to another pool between two items. They run in their order, and
/// never both at once.
#[test]
fn i27_an_ordered_queue_moves() {
    check("i27_an_ordered_queue_moves", ONE, || {
        let sys = system();
        let attrs = Attrs::new().scope(Scope::System);
        let builder = sys.workqueue("model").ordered_with(attrs.clone());
        let wq = builder.build().unwrap();
        let log: Arc<Mutex<Vec<u32>>> = Arc::default();
        let inside = Count::new();
        let item = |n| {
            let (log, inside) = (log.clone(), inside.clone());
            drop(wq.spawn(move || {
                assert_eq!(inside.add(), 0, "one at a time");
                log.lock().push(n);
                inside.sub();
            }));
        };
        item(1);
        item(2); // Drawn, or it waits.
        wq.set_attrs(attrs.strict(true)).unwrap();
        item(3);
        wq.flush_blocking().unwrap();
        assert_eq!(*log.lock(), [1, 2, 3]);
        drop(wq);
        await_none(&sys);
        drop(sys);
    });
}

/// I.27: an item is queued on an ordered queue while that goes over to another pool with nothing in
/// it: it does not come into the pool that was left, beside what comes into the new one.
#[test]
fn i27_a_move_against_queue() {
    check("i27_a_move_against_queue", THREE, || {
        let sys = system();
        let attrs = Attrs::new().scope(Scope::System);
        let builder = sys.workqueue("model").ordered_with(attrs.clone());
        let wq = builder.build().unwrap();
        let strict = unbound(&sys, true); // Has the pool that `wq` goes to.
        let (old, new) = (wq.manual_pool(0), strict.manual_pool(0));
        let touched = Touched::new();
        let other = thread::spawn({
            let (wq, old, touched) = (wq.clone(), old.clone(), touched.clone());
            move || {
                let item = wq.spawn(move || touched.touch());
                old.draw(1);
                item
            }
        });
        wq.set_attrs(attrs.strict(true)).unwrap();
        let mine = wq.spawn({
            let touched = touched.clone();
            move || touched.touch()
        });
        new.draw(1);
        let others = other.join().unwrap();
        while !(mine.is_finished() && others.is_finished()) {
            old.draw(1);
            new.draw(1);
        }
        drop(sys);
        assert_eq!(wq.stats().panicked, 0, "one at a time");
        assert_eq!(touched.times(), 2);
    });
}

/// I.27: items are queued for two CPUs, one after the other, while an ordered queue goes over to
/// another pool. They begin in that order: the second does not come into the pool that was left if
/// the first is in the new one.
#[test]
fn i27_a_move_against_queue_for_two_cpus() {
    check("i27_a_move_against_queue_for_two_cpus", ONE, || {
        let sys = system_with("core:2");
        let attrs = Attrs::new().scope(Scope::System);
        let builder = sys.workqueue("model").ordered_with(attrs.clone());
        let wq = builder.build().unwrap();
        let old = wq.manual_pool(0);
        let log: Arc<Mutex<Vec<usize>>> = Arc::default();
        let other = thread::spawn({
            let (wq, old, log) = (wq.clone(), old.clone(), log.clone());
            move || {
                for cpu in 0..2 {
                    let log = log.clone();
                    drop(wq.spawn_on(cpu, move || log.lock().push(cpu)));
                }
                old.draw(2);
            }
        });
        wq.set_attrs(attrs.strict(true)).unwrap();
        old.draw(2);
        other.join().unwrap();
        wq.flush_blocking().unwrap();
        assert_eq!(*log.lock(), [0, 1]);
        drop(sys);
    });
}

/// I.27: an ordered queue goes over to another pool and back while a thread queues two items. They
/// begin in that order: the first does not come into the pool that is used again before the one
/// between is closed for the second.
#[test]
fn i27_a_move_back_against_queue() {
    check("i27_a_move_back_against_queue", THREE, || {
        let sys = system();
        let attrs = Attrs::new().scope(Scope::System);
        let builder = sys.workqueue("model").ordered_with(attrs.clone());
        let wq = builder.build().unwrap();
        let strict = unbound(&sys, true); // Has the pool between.
        let pools = [wq.manual_pool(0), strict.manual_pool(0)];
        let log: Arc<Mutex<Vec<usize>>> = Arc::default();
        let other = thread::spawn({
            let wq = wq.clone();
            move || {
                wq.set_attrs(attrs.clone().strict(true)).unwrap();
                wq.set_attrs(attrs).unwrap();
            }
        });
        for n in 0..2 {
            let log = log.clone();
            drop(wq.spawn(move || log.lock().push(n)));
        }
        other.join().unwrap();
        while log.lock().len() < 2 {
            for pool in &pools {
                pool.draw(1);
            }
        }
        assert_eq!(*log.lock(), [0, 1]);
        drop((wq, strict, pools));
        await_none(&sys);
        drop(sys);
    });
}

/// I.13 for a thaw: an item is queued while the queue thaws. It is found
/// waiting and listed, or lists the pwq itself.
#[test]
fn i13_a_thaw_against_queue() {
    check("i13_a_thaw_against_queue", TWO, || {
        let sys = system();
        let wq = sys.workqueue("model").bound().freezable().build().unwrap();
        let frozen = sys.freeze();
        let runs = Count::new();
        let other = thread::spawn({
            let (wq, runs) = (wq.clone(), runs.clone());
            move || drop(wq.spawn(move || runs.add()))
        });
        drop(frozen);
        other.join().unwrap();
        wq.flush_blocking().unwrap();
        assert_eq!(runs.get(), 1);
        drop(sys);
    });
}
