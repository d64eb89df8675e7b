//! Models of a worker that says that it sleeps while it is found asleep, or computing for long.
//! Events as in `PROTOCOL.md`. The model looks when it says so, and sees everybody
//! asleep, or computing, whatever he does: the worst sampler there could be.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::time::Clock;
use inflight_workqueue::{JoinHandle, Workqueue, blocking};
use model_support::{Count, Flag, ONE, ZERO, system, timed};

/// One item that blocks until the second has run, while the worker is looked at: the count of
/// running workers is lowered once and raised once. Too low by one, two items that do not block
/// would run at once afterwards; too high by one, the last item would find nobody.
fn looked_at(asleep: bool) {
    let (sys, wq) = system(1, 8);
    let second_ran = Flag::new();
    let first = wq.spawn({
        let second_ran = second_ran.clone();
        move || blocking(|| second_ran.wait())
    });
    drop(wq.spawn(move || second_ran.raise()));
    sys.tick(Some(asleep));
    first.wait().unwrap();
    serial(&wq);
    drop(sys);
}

/// Two items that nobody looks at: one after the other.
fn serial(wq: &Workqueue) {
    let (inside, overlaps) = (Count::new(), Count::new());
    let items = [(); 2].map(|()| {
        let (inside, overlaps) = (inside.clone(), overlaps.clone());
        wq.spawn(move || {
            if inside.add() > 0 {
                overlaps.add();
            }
            inside.sub();
        })
    });
    for item in items {
        item.wait().unwrap();
    }
    assert_eq!(overlaps.get(), 0, "two run at once");
}

/// I.4: it computes, by what was seen, and it says that it blocks.
#[test]
fn i4_guard_against_intensive() {
    check("i4_guard_against_intensive", ZERO, || looked_at(false));
}

/// I.34: it sleeps, by what was seen, and it says so itself.
#[test]
fn i34_guard_against_sampler() {
    check("i34_guard_against_sampler", ZERO, || looked_at(true));
}

/// A tick alone: the first item waits for the second without saying so, and only a tick can bring
/// the second a worker. The tick may come too early to see anything; then it is made again.
#[test]
fn i34_found_asleep_for_a_later_item() {
    check("i34_found_asleep_for_a_later_item", ZERO, || {
        let (sys, wq) = system(1, 8);
        let (begun, second_ran) = (Flag::new(), Count::new());
        let first = silent(&wq, &begun, &second_ran);
        drop(wq.spawn({
            let second_ran = second_ran.clone();
            move || {
                second_ran.add();
            }
        }));
        begun.wait();
        assert!(sys.tick(Some(true)), "it holds the second one back");
        first.wait().unwrap();
        serial(&wq);
        drop(sys);
    });
}

/// The same of one that has the second item in its batch: a tick takes that from it.
#[test]
fn i34_found_asleep_with_the_later_item_in_its_batch() {
    let name = "i34_found_asleep_with_the_later_item_in_its_batch";
    check(name, ONE, || {
        let sys = timed("core:1", &Clock::manual());
        let wq = sys.workqueue("model").bound().build().unwrap();
        let (begun, second_ran) = (Flag::new(), Count::new());
        let first = silent(&wq, &begun, &second_ran);
        drop(wq.spawn({
            let second_ran = second_ran.clone();
            move || second_ran.add()
        }));
        begun.wait();
        assert!(sys.tick(Some(true)), "it holds the second one back");
        first.wait().unwrap();
        drop(sys);
    });
}

/// An item that waits for the second one with no means that the pool knows.
fn silent(wq: &Workqueue, begun: &Flag, second_ran: &Count) -> JoinHandle<()> {
    let (begun, second_ran) = (begun.clone(), second_ran.clone());
    wq.spawn(move || {
        begun.raise();
        second_ran.wait_silently();
    })
}
