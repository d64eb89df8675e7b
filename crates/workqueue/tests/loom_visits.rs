//! Models of a worker that takes two items at once (PROTOCOL.md, "Visits"), and of what it owes a
//! gate meanwhile. What they catch: an item that stays in the hand of a worker that blocks or
//! sleeps, or that starts while its queue is frozen, one that is both cancelled and run or whose
//! slot is lost, ends that N5 does not tell of, what an ordered queue's visit gives back out of
//! order, what starts before an older item that is in a hand.
//!
//! | weaken | fails |
//! |---|---|
//! | V3 does not note the mailbox again, tells that nobody has rung, or looks what is left before it takes letters out | `letters_that_are_left_are_fetched` |
//! | V4 does not note the mailbox in which it leaves letters | `a_visit_owes_nothing_while_it_blocks` |
//! | V4 draws what may be running | `a_visit_leaves_what_may_be_running` |
//! | V4 takes no slots | most |
//! | N4 counts no end, or a cancelled item as begun | most; `a_visit_against_cancel` |
//! | N5 gives the slot of an ordered queue back, which the visit's end does again | `a_visit_in_order`, `a_visit_waits_for_nothing_of_its_own` |
//! | N5 leaves the ends it has told of in the hand | `a_visit_owes_nothing_while_it_blocks` |
//! | N5 does not look from which gate, or which queue, the visit is | `a_recall_finds_a_visit_from_another_gate`, `…_queue` |
//! | N5 leaves in the hand what has not begun | most |
//! | N5 gives an ordered queue's items back last first | `a_visit_in_order` |
//! | N5 forgets what the worker runs now | `a_visit_leaves_what_may_be_running` |
//! | no N5 in B1 | `a_visit_ends_with_a_block`, `a_visit_waits_for_nothing_of_its_own` |
//! | no N5 in N1 for those who visit | `what_is_in_a_hand_comes_first` |
//! | no N5 in L3 | `a_visit_ends_when_found_asleep` |
//! | no N5 in L2 | `a_look_ends_a_visit` |
//! | no N5 in a freeze | `a_freeze_finds_a_visit` |
//! | no N5 in O2 | `a_freeze_finds_a_visit_in_a_pool_that_was_left` |
//! | visits do not count for L1 | `a_visit_ends_when_found_asleep` |
//!
//! And outside of the models:
//!
//! | weaken | fails |
//! |---|---|
//! | N5 does not bring whom the items that become active by it need | `what_a_visit_owes_is_for_other_pods_too` |
//! | N5 does not set the alarm for what is ready by it | `a_silent_sleeper_holds_nothing_where_nobody_looks` |
//! | no N5 in `stats`, in a dump | `numbers_are_right_in_a_visit` |
//! | V4 draws items that compute for long | `what_computes_for_long_is_not_drawn` |
//! | H2 does not ask for items in hand | `no_order_of_events_strands_an_item` |
//! | no G3 in Y5 | `a_pool_without_workers_goes_with_the_last_item_it_lends` |

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::Scope;
use inflight_workqueue::{Attrs, Work, Workqueue, WorkqueueSystem, blocking};
use model_support::{Count, Flag, ONE, ZERO, held, opened, timed, wide};
use std::time::Duration;

/// A system over one CPU whose items are short, by what is known of them.
fn system() -> WorkqueueSystem {
    timed("core:1", &Clock::manual())
}

fn generous() -> (WorkqueueSystem, Workqueue) {
    let sys = system();
    let wq = sys.workqueue("model").bound().max_active(2);
    let wq = wq.build().unwrap();
    (sys, wq)
}

fn ordered() -> (WorkqueueSystem, Workqueue) {
    let sys = system();
    let wq = sys.workqueue("model").ordered().build().unwrap();
    (sys, wq)
}

/// B1: the first item says that it waits for the second one, which is in the same hand.
#[test]
fn a_visit_ends_with_a_block() {
    check("a_visit_ends_with_a_block", ZERO, || {
        let (sys, wq) = opened(generous());
        let second_ran = Flag::new();
        let waits = second_ran.clone();
        let first = wq.spawn(move || blocking(|| waits.wait()));
        drop(wq.spawn(move || second_ran.raise()));
        first.wait().unwrap();
        drop(sys);
    });
}

/// L3: the first item waits for the second one and does not say so.
#[test]
fn a_visit_ends_when_found_asleep() {
    check("a_visit_ends_when_found_asleep", ZERO, || {
        let (sys, wq) = opened(generous());
        let (begun, second_ran) = (Flag::new(), Count::new());
        let first = wq.spawn({
            let (begun, waits) = (begun.clone(), second_ran.clone());
            move || {
                begun.raise();
                waits.wait_silently();
            }
        });
        drop(wq.spawn(move || {
            second_ran.add();
        }));
        begun.wait();
        assert!(sys.look(true), "it holds the second one back");
        first.wait().unwrap();
        drop(sys);
    });
}

/// X2 against N4: the second item of a visit is cancelled, or runs, and never both; its slot is
/// given back once, so the flush ends.
#[test]
fn a_visit_against_cancel() {
    check("a_visit_against_cancel", ONE, || {
        let (sys, wq) = opened(generous());
        let ran = Count::new();
        let work = Work::new({
            let ran = ran.clone();
            move || {
                ran.add();
            }
        });
        drop(wq.spawn(|| ()));
        assert!(wq.queue(&work).unwrap().is_queued());
        let cancelled = work.cancel_sync_blocking().unwrap();
        assert_eq!(usize::from(cancelled) + ran.get(), 1);
        wq.flush_blocking().unwrap();
        let stats = wq.stats();
        assert_eq!((stats.queued, stats.active), (3, 0));
        assert_eq!(stats.started, stats.completed);
        assert_eq!(stats.completed + stats.cancelled, 3);
        drop(sys);
    });
}

/// What is owed for the first item is told before the second one blocks: the third one needs that
/// slot.
#[test]
fn a_visit_owes_nothing_while_it_blocks() {
    check("a_visit_owes_nothing_while_it_blocks", ZERO, || {
        let (sys, wq) = opened(generous());
        let third_ran = Flag::new();
        let waits = third_ran.clone();
        drop(wq.spawn(|| ()));
        let second = wq.spawn(move || blocking(|| waits.wait()));
        drop(wq.spawn(move || third_ran.raise()));
        second.wait().unwrap();
        drop(sys);
    });
}

/// An ordered queue's visit has one slot: what is recalled waits for it, ahead of what comes later.
#[test]
fn a_visit_in_order() {
    check("a_visit_in_order", ZERO, || {
        let (sys, wq) = opened(ordered());
        let (runs, order) = (Count::new(), Count::new());
        let item = |place: usize, blocks: bool| {
            let (runs, order) = (runs.clone(), order.clone());
            move || {
                assert_eq!(runs.get(), place, "in order, one at a time");
                if blocks {
                    blocking(|| ());
                }
                assert_eq!(order.get(), place);
                order.add();
                runs.add();
            }
        };
        drop(wq.spawn(item(0, true)));
        drop(wq.spawn(item(1, false)));
        // Not by a flush: that would empty the mailbox.
        wq.spawn(item(2, false)).wait().unwrap();
        assert_eq!(runs.get(), 3);
        drop(sys);
    });
}

/// An item that waits for one behind it in the same hand is told, as if that one were inactive.
#[test]
fn a_visit_waits_for_nothing_of_its_own() {
    check("a_visit_waits_for_nothing_of_its_own", ZERO, || {
        let (sys, wq) = opened(ordered());
        let second = Work::new(|| ());
        let first = wq.spawn({
            let second = second.clone();
            move || second.flush_blocking()
        });
        let queued = wq.queue(&second).unwrap();
        assert!(queued.is_queued());
        // Not queued yet when the flush looked, or an error: never waited for.
        assert_ne!(first.wait().unwrap(), Ok(true));
        wq.flush_blocking().unwrap();
        drop(sys);
    });
}

/// An ordered queue is frozen during a visit: what else is in the hand does not start.
fn freeze_in_a_visit(name: &str, moves: bool) {
    check(name, ZERO, move || {
        let sys = timed("core:2", &Clock::manual());
        let wq = sys.workqueue("model").ordered().freezable();
        let (sys, wq) = opened((sys, wq.build().unwrap()));
        let (begun, go, ran) = (Flag::new(), Count::new(), Count::new());
        let first = wq.spawn({
            let (begun, go) = (begun.clone(), go.clone());
            move || {
                begun.raise();
                go.wait_silently();
            }
        });
        let second = wq.spawn({
            let ran = ran.clone();
            move || {
                ran.add();
            }
        });
        begun.wait();
        if moves {
            wq.set_attrs(Attrs::new().cpumask([0].into())).unwrap();
        }
        let frozen = sys.freeze();
        go.add();
        first.wait().unwrap();
        while frozen.is_busy() {
            thread::yield_now();
        }
        assert_eq!(ran.get(), 0, "it has not begun before the freeze");
        drop(frozen);
        second.wait().unwrap();
        drop(sys);
        assert_eq!(ran.get(), 1);
    });
}

#[test]
fn a_freeze_finds_a_visit() {
    freeze_in_a_visit("a_freeze_finds_a_visit", false);
}

/// O2: the queue has gone over to another pool since.
#[test]
fn a_freeze_finds_a_visit_in_a_pool_that_was_left() {
    freeze_in_a_visit("a_freeze_finds_a_visit_in_a_pool_that_was_left", true);
}

/// N5, V4: a work runs in a visit, is found asleep, and has been queued again. Its worker is left
/// with it, and whoever comes in his place draws nothing that may be running.
#[test]
fn a_visit_leaves_what_may_be_running() {
    check("a_visit_leaves_what_may_be_running", ZERO, || {
        let (sys, wq) = opened(generous());
        let (begun, go) = (Flag::new(), Count::new());
        let (runs, waits) = (Count::new(), go.clone());
        let work = held(&begun, &runs, move || waits.wait_silently());
        assert!(wq.queue(&work).unwrap().is_queued());
        drop(wq.spawn(|| ()));
        begun.wait();
        assert!(wq.queue(&work).unwrap().is_queued());
        assert!(sys.look(true), "it holds its next run back");
        thread::yield_now();
        go.add();
        work.flush_blocking().unwrap();
        drop(sys);
        assert_eq!(runs.get(), 2);
    });
}

/// N1: one that was blocked is back, and asks for more while another one is in a visit. What that
/// one has in hand comes before what was queued later.
#[test]
fn what_is_in_a_hand_comes_first() {
    check("what_is_in_a_hand_comes_first", ZERO, || {
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
        let (begun, go, order) = (Flag::new(), Count::new(), Arc::new(Mutex::new(Vec::new())));
        let runs = wq.spawn({
            let (begun, go) = (begun.clone(), go.clone());
            move || {
                begun.raise();
                go.wait_silently();
            }
        });
        let item = |number| {
            let order = order.clone();
            wq.spawn(move || order.lock().push(number))
        };
        drop(item(1));
        begun.wait();
        let later = item(2);
        back.raise();
        blocks.wait().unwrap();
        later.wait().unwrap();
        go.add();
        runs.wait().unwrap();
        drop(sys);
        assert_eq!(*order.lock(), [1, 2]);
    });
}

/// L2: the first item of a visit computes until the second one has run.
#[test]
fn a_look_ends_a_visit() {
    check("a_look_ends_a_visit", ZERO, || {
        let clock = Clock::manual();
        let (sys, wq) = wide(&clock);
        let (begun, ran) = (Flag::new(), Count::new());
        let first = wq.spawn({
            let (begun, ran) = (begun.clone(), ran.clone());
            move || {
                begun.raise();
                ran.wait_silently();
            }
        });
        drop(wq.spawn(move || _ = ran.add()));
        begun.wait();
        clock.advance(Duration::from_millis(2));
        first.wait().unwrap();
        drop(sys);
    });
}

/// N5 against the end of a visit: who comes to recall one finds the next one of that worker, which
/// is not from there, and lets it alone.
fn a_recall_finds_another_visit(name: &str, another_gate: bool) {
    check(name, ONE, move || {
        let (sys, first) = wide(&Clock::manual());
        let (second, cpu) = if another_gate {
            (first.clone(), 1)
        } else {
            let attrs = Attrs::new().scope(Scope::System);
            (sys.workqueue("other").unbound(attrs).build().unwrap(), 0)
        };
        second.spawn_on(cpu, || ()).wait().unwrap();
        let (begun, go, over) = (Flag::new(), Count::new(), Count::new());
        drop(first.spawn_on(0, {
            let (begun, go) = (begun.clone(), go.clone());
            move || {
                begun.raise();
                go.wait_silently();
            }
        }));
        drop(first.spawn_on(0, || ()));
        begun.wait();
        drop(second.spawn_on(cpu, || ()));
        let last = second.spawn_on(cpu, {
            let over = over.clone();
            move || over.wait_silently()
        });
        go.add();
        let _ = first.stats();
        over.add();
        last.wait().unwrap();
        first.flush_blocking().unwrap();
        second.flush_blocking().unwrap();
        for wq in [first, second] {
            let stats = wq.stats();
            assert_eq!((stats.completed, stats.active), (stats.queued, 0));
        }
        drop(sys);
    });
}

#[test]
fn a_recall_finds_a_visit_from_another_gate() {
    a_recall_finds_another_visit("a_recall_finds_a_visit_from_another_gate", true);
}

#[test]
fn a_recall_finds_a_visit_from_another_queue() {
    a_recall_finds_another_visit("a_recall_finds_a_visit_from_another_queue", false);
}

/// V3: of a queue without visits a worker fetches some letters, which is one in a model, and has
/// the mailbox noted again for the rest.
#[test]
fn letters_that_are_left_are_fetched() {
    check("letters_that_are_left_are_fetched", ZERO, || {
        let sys = system();
        let wq = sys.workqueue("model").bound().cpu_intensive();
        let (sys, wq) = opened((sys, wq.build().unwrap()));
        drop(wq.spawn(|| ()));
        // Not by a flush: that would empty the mailbox.
        wq.spawn(|| ()).wait().unwrap();
        drop(sys);
    });
}
