//! Models of what a worker keeps: what the items of its visit queue, and it begins at once
//! (PROTOCOL.md, V5 and V6). What they catch: an item that a flush or a freeze does not find, that
//! waits for ever behind one that blocks or sleeps, that passes an older one, that runs twice at
//! once, or whose slot is lost.
//!
//! | weaken | fails |
//! |---|---|
//! | no V6 in V2, or V6 after the mail | `what_is_kept_comes_first`, the same `_in_order` |
//! | no V6 in N5 | `a_block_gives_back_what_is_kept`, `who_is_found_asleep_gives_back_what_is_kept`, ... |
//! | what V6 has been at is kept from once more | `what_is_kept_comes_first`, the same `_in_order` |
//! | what was cancelled in a hand is not counted as ended | `a_kept_work_against_cancel` |
//! | V5 where there are letters | `what_is_kept_passes_no_letter` |
//! | V5 does not make a visit of one item one of several | `a_block_gives_back_what_is_kept`, ... |
//!
//! Of who begins to keep (V5): at a gate where somebody waits, or that leads elsewhere by now, or
//! is closed, or where another one keeps, `tests/kept.rs`; while something is ready, or by one who
//! does not count, the core's property. That nobody recalls meanwhile is not tested.

#![cfg(loom)]

mod model_support;

use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::model::check;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{Work, Workqueue, WorkqueueSystem, blocking};
use model_support::{Count, Flag, ONE, TWO, ZERO, opened, timed, wide};

fn system() -> WorkqueueSystem {
    timed("core:1", &Clock::manual())
}

fn bound() -> (WorkqueueSystem, Workqueue) {
    let sys = system();
    let wq = sys.workqueue("model").bound().max_active(2).freezable();
    let wq = wq.build().unwrap();
    (sys, wq)
}

/// With one slot.
fn narrow() -> (WorkqueueSystem, Workqueue) {
    let sys = system();
    let wq = sys.workqueue("model").bound().max_active(1).freezable();
    let wq = wq.build().unwrap();
    (sys, wq)
}

fn ordered() -> (WorkqueueSystem, Workqueue) {
    let sys = system();
    let wq = sys.workqueue("model").ordered().freezable();
    let wq = wq.build().unwrap();
    (sys, wq)
}

/// The first item keeps the second one, and says so. Then it goes on until `go`.
struct Keeps {
    kept: Flag,
    go: Count,
    ran: Count,
}

impl Keeps {
    fn new() -> Self {
        let (kept, go, ran) = (Flag::new(), Count::new(), Count::new());
        Self { kept, go, ran }
    }

    fn item(&self, wq: &Workqueue) -> impl FnOnce() + Send + 'static {
        let (kept, go, ran) = (self.kept.clone(), self.go.clone(), self.ran.clone());
        let wq = wq.clone();
        move || {
            drop(wq.spawn(move || _ = ran.add()));
            kept.raise();
            go.wait_silently();
        }
    }
}

/// F1: what was kept before a flush has run after it.
#[test]
fn a_flush_finds_what_is_kept() {
    check("a_flush_finds_what_is_kept", ZERO, || {
        for (sys, wq) in [opened(bound()), opened(ordered())] {
            let keeps = Keeps::new();
            drop(wq.spawn(keeps.item(&wq)));
            keeps.kept.wait();
            keeps.go.add();
            wq.flush_blocking().unwrap();
            assert_eq!(keeps.ran.get(), 1);
            let stats = wq.stats();
            assert_eq!((stats.queued, stats.completed, stats.active), (3, 3, 0));
            assert_eq!(stats.started, 3);
            drop(sys);
        }
    });
}

/// F1, N5: what was kept before a flush, and given back during it, has run after it.
#[test]
fn a_flush_finds_what_is_kept_and_given_back() {
    check("a_flush_finds_what_is_kept_and_given_back", ZERO, || {
        let (sys, wq) = opened(bound());
        let (kept, flushes, ran) = (Flag::new(), Count::new(), Count::new());
        drop(wq.spawn({
            let (wq, kept, flushes, ran) = (wq.clone(), kept.clone(), flushes.clone(), ran.clone());
            move || {
                drop(wq.spawn(move || _ = ran.add()));
                kept.raise();
                flushes.wait_silently();
                blocking(thread::yield_now);
            }
        }));
        kept.wait();
        let flusher = thread::spawn({
            let (wq, ran) = (wq.clone(), ran.clone());
            move || {
                wq.flush_blocking().unwrap();
                assert_eq!(ran.get(), 1);
            }
        });
        thread::yield_now();
        flushes.add();
        flusher.join().unwrap();
        drop(sys);
    });
}

/// D2: a drain that has found the mailbox empty waits for what is kept.
#[test]
fn a_drain_waits_for_what_is_kept() {
    check("a_drain_waits_for_what_is_kept", ONE, || {
        let (sys, wq) = opened(bound());
        let keeps = Keeps::new();
        keeps.go.add();
        drop(wq.spawn(keeps.item(&wq)));
        keeps.kept.wait();
        wq.drain_blocking().unwrap();
        assert_eq!(keeps.ran.get(), 1);
        drop(sys);
    });
}

/// What is kept when a freeze begins has no slot, where there is one: it does not start before the
/// freeze is over.
fn freeze(name: &str, queue: fn() -> (WorkqueueSystem, Workqueue)) {
    check(name, ONE, move || {
        let (sys, wq) = opened(queue());
        let keeps = Keeps::new();
        let first = wq.spawn(keeps.item(&wq));
        keeps.kept.wait();
        let frozen = sys.freeze();
        keeps.go.add();
        first.wait().unwrap();
        while frozen.is_busy() {
            thread::yield_now();
        }
        assert_eq!(keeps.ran.get(), 0, "it has not begun before the freeze");
        drop(frozen);
        wq.flush_blocking().unwrap();
        assert_eq!(keeps.ran.get(), 1);
        drop(sys);
    });
}

#[test]
fn a_freeze_finds_what_is_kept() {
    freeze("a_freeze_finds_what_is_kept", narrow);
}

#[test]
fn a_freeze_finds_what_is_kept_of_an_ordered_queue() {
    freeze("a_freeze_finds_what_is_kept_of_an_ordered_queue", ordered);
}

/// B1: the item says that it waits for what it has queued.
#[test]
fn a_block_gives_back_what_is_kept() {
    check("a_block_gives_back_what_is_kept", ZERO, || {
        let (sys, wq) = opened(bound());
        let inner = wq.clone();
        let first = wq.spawn(move || {
            let ran = Flag::new();
            let raises = ran.clone();
            drop(inner.spawn(move || raises.raise()));
            blocking(|| ran.wait());
        });
        first.wait().unwrap();
        drop(sys);
    });
}

/// L3: the item waits for what it has queued, and does not say so.
#[test]
fn who_is_found_asleep_gives_back_what_is_kept() {
    check("who_is_found_asleep_gives_back_what_is_kept", ZERO, || {
        let (sys, wq) = opened(bound());
        let (kept, inner) = (Flag::new(), wq.clone());
        let says = kept.clone();
        let first = wq.spawn(move || {
            let ran = Count::new();
            let counts = ran.clone();
            drop(inner.spawn(move || _ = counts.add()));
            says.raise();
            ran.wait_silently();
        });
        kept.wait();
        assert!(sys.look(true), "what is kept waits");
        first.wait().unwrap();
        drop(sys);
    });
}

/// What happens when something has been kept, and a letter has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    /// Another thread looks for an item at the gate.
    IsSought,
    /// The keeper blocks.
    Blocks,
}

/// V6: what is kept comes before what others queue later, be it found there by one who has the
/// keeper asleep, or by one who looks for something else.
fn order(name: &str, queue: fn() -> (WorkqueueSystem, Workqueue), then: Then) {
    check(
        name,
        if then == Then::Blocks { ZERO } else { ONE },
        move || {
            let (sys, wq) = opened(queue());
            let order = Arc::new(Mutex::new(Vec::new()));
            let item = |number| {
                let order = order.clone();
                move || order.lock().push(number)
            };
            let (kept, posted) = (Flag::new(), Arc::new(AtomicBool::new(false)));
            let first = wq.spawn({
                let (wq, kept, posted) = (wq.clone(), kept.clone(), posted.clone());
                let (one, three) = (item(1), item(3));
                move || {
                    drop(wq.spawn(one));
                    kept.raise();
                    // Ordering: Acquire, pairs with the store below: it tells of a letter.
                    while !posted.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                    if then == Then::Blocks {
                        blocking(|| ());
                    }
                    drop(wq.spawn(three));
                }
            });
            kept.wait();
            let other = Work::new(|| ());
            assert!(wq.queue(&other).unwrap().is_queued());
            drop(wq.spawn(item(2)));
            if then == Then::IsSought {
                // Looks for it at the gate.
                other.cancel();
            }
            // Ordering: Release, as said.
            posted.store(true, Ordering::Release);
            first.wait().unwrap();
            wq.flush_blocking().unwrap();
            assert_eq!(*order.lock(), [1, 2, 3]);
            drop(sys);
        },
    );
}

#[test]
fn what_is_kept_comes_first() {
    order("what_is_kept_comes_first", bound, Then::IsSought);
}

#[test]
fn what_is_kept_passes_no_letter() {
    order("what_is_kept_passes_no_letter", bound, Then::Nothing);
}

#[test]
fn what_is_kept_comes_first_in_order() {
    order("what_is_kept_comes_first_in_order", ordered, Then::IsSought);
}

#[test]
fn what_is_kept_comes_first_after_a_block() {
    order(
        "what_is_kept_comes_first_after_a_block",
        ordered,
        Then::Blocks,
    );
}

/// A work that queues itself is kept, and runs once for each time; a `cancel_sync` finds it kept,
/// running, or done with.
#[test]
fn a_kept_work_against_cancel() {
    check("a_kept_work_against_cancel", TWO, || {
        let (sys, wq) = opened(bound());
        let (inside, runs, me) = (Count::new(), Count::new(), Arc::new(Mutex::new(None)));
        let work = Work::new({
            let (inside, runs, me, wq) = (inside.clone(), runs.clone(), me.clone(), wq.clone());
            move || {
                assert_eq!(inside.add(), 0, "twice at once");
                if runs.add() < 2 {
                    let me: Work = me.lock().clone().unwrap();
                    let _ = wq.queue(&me);
                }
                inside.sub();
            }
        });
        *me.lock() = Some(work.clone());
        assert!(wq.queue(&work).unwrap().is_queued());
        work.cancel_sync_blocking().unwrap();
        let seen = runs.get();
        wq.flush_blocking().unwrap();
        assert_eq!(runs.get(), seen, "it is neither pending nor running");
        let stats = wq.stats();
        assert_eq!(stats.completed + stats.cancelled, stats.queued);
        *me.lock() = None;
        drop(sys);
    });
}

/// S2 in V5: a work that another worker runs is not kept.
#[test]
fn what_runs_elsewhere_is_not_kept() {
    check("what_runs_elsewhere_is_not_kept", ZERO, || {
        let (sys, wq) = opened(bound());
        let (begun, go, inside) = (Flag::new(), Flag::new(), Count::new());
        let work = Work::new({
            let (begun, go, inside) = (begun.clone(), go.clone(), inside.clone());
            move || {
                assert_eq!(inside.add(), 0, "twice at once");
                begun.raise();
                blocking(|| go.wait());
                inside.sub();
            }
        });
        assert!(wq.queue(&work).unwrap().is_queued());
        begun.wait();
        let (inner, queues) = (wq.clone(), work.clone());
        wq.spawn(move || assert!(inner.queue(&queues).unwrap().is_queued()))
            .wait()
            .unwrap();
        go.raise();
        work.flush_blocking().unwrap();
        drop(sys);
    });
}

/// The slot of the item that has kept another is that one's, and is given back once.
#[test]
fn what_is_kept_has_its_keepers_slot() {
    check("what_is_kept_has_its_keepers_slot", ZERO, || {
        let (sys, wq) = opened(narrow());
        let (inside, inner) = (Count::new(), wq.clone());
        let alone = move || {
            assert_eq!(inside.add(), 0, "one at a time");
            blocking(thread::yield_now);
            inside.sub();
        };
        let second = alone.clone();
        drop(wq.spawn(move || drop(inner.spawn(second))));
        wq.spawn(alone.clone()).wait().unwrap();
        wq.flush_blocking().unwrap();
        wq.spawn(alone).wait().unwrap();
        wq.flush_blocking().unwrap();
        assert_eq!(wq.stats().active, 0);
        drop(sys);
    });
}

/// N1: another worker asks for more while one has kept something. That comes first.
#[test]
fn what_another_one_has_kept_comes_first() {
    check("what_another_one_has_kept_comes_first", ZERO, || {
        let (sys, wq) = wide(&Clock::manual());
        let (asleep, back) = (Flag::new(), Flag::new());
        let blocks = wq.spawn({
            let (asleep, back) = (asleep.clone(), back.clone());
            move || {
                blocking(|| {
                    asleep.raise();
                    back.wait();
                });
            }
        });
        asleep.wait();
        let order = Arc::new(Mutex::new(Vec::new()));
        let item = |number| {
            let order = order.clone();
            move || order.lock().push(number)
        };
        let (kept, go) = (Flag::new(), Count::new());
        let keeps = wq.spawn({
            let (wq, kept, go, one) = (wq.clone(), kept.clone(), go.clone(), item(1));
            move || {
                drop(wq.spawn(one));
                kept.raise();
                go.wait_silently();
            }
        });
        kept.wait();
        let later = wq.spawn(item(2));
        back.raise();
        blocks.wait().unwrap();
        later.wait().unwrap();
        go.add();
        keeps.wait().unwrap();
        drop(sys);
        assert_eq!(*order.lock(), [1, 2]);
    });
}
