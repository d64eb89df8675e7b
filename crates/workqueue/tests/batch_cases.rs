//! What lies in the batch of a worker that has taken several small items, one case at a time: who
//! waits for it, asks for it, or holds it back. `batch_stress.rs` has all of them at once.
#![cfg(all(unix, not(any(loom, shuttle))))]

mod support;

use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::fault::Faults;
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{
    Attrs, Frozen, SystemBuilder, WaitError, Work, Workqueue, WorkqueueSystem, blocking,
    current_work,
};
use std::time::Duration;
use support::{LOOKS, Level, pipe, sleep_silently, small_items, times, until};

fn one_cpu() -> SystemBuilder {
    small_items(support::one_cpu())
}

/// Small items go through the queue: what comes next is drawn together.
fn calmed(wq: &Workqueue) {
    for _ in 0..times(1_000) {
        drop(wq.spawn(|| ()));
    }
    wq.flush_blocking().unwrap();
}

/// An item takes the next one of its own batch back, queues it again and waits for it: that is a
/// wait for itself, wherever the cancelled entry has gone.
#[test]
fn an_item_that_was_cancelled_in_a_batch_waits_where_it_was_queued_again() {
    let sys = one_cpu().build().unwrap();
    let wq = sys.workqueue("ordered").ordered().build().unwrap();
    for _ in 0..times(20) {
        calmed(&wq);
        let second = Work::new(|| ());
        let answer = Arc::new(Mutex::new(None));
        let first = Work::new({
            let (wq, second, answer) = (wq.clone(), second.clone(), answer.clone());
            move || {
                // Unless the other thread has not queued it yet.
                second.cancel();
                wq.queue(&second).unwrap();
                *answer.lock() = Some(second.flush_blocking());
            }
        });
        // The worker is woken by the first one, and finds both.
        wq.queue(&first).unwrap();
        wq.queue(&second).unwrap();
        until(|| answer.lock().is_some(), || sys.dump());
        assert_eq!(*answer.lock(), Some(Err(WaitError::WouldDeadlock)));
        wq.flush_blocking().unwrap();
    }
}

/// The last handle on a work goes while its cancelled entry is in a batch: the worker that finds
/// the entry drops the work, and does not run it.
#[test]
fn a_work_that_is_dropped_by_its_cancelled_entry_has_no_handle_on_itself() {
    struct Asks(Arc<Mutex<Vec<Option<String>>>>);
    impl Drop for Asks {
        fn drop(&mut self) {
            let own = current_work().map(|me| me.name().to_owned());
            self.0.lock().push(own);
        }
    }
    let sys = one_cpu().build().unwrap();
    let wq = sys.workqueue("ordered").ordered().build().unwrap();
    let answers = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..times(20) {
        calmed(&wq);
        let asks = Asks(answers.clone());
        let second = Work::named("second", move || drop(asks.0.lock()));
        let handle = Arc::new(Mutex::new(Some(second.clone())));
        let first = Work::named("first", move || {
            // The last handle, unless the other thread has not dropped its own yet.
            handle.lock().take().unwrap().cancel();
        });
        wq.queue(&first).unwrap();
        wq.queue(&second).unwrap();
        drop(second);
        wq.flush_blocking().unwrap();
    }
    let answers = answers.lock();
    assert!(answers.contains(&None), "none was dropped by a batch");
    assert!(!answers.contains(&Some("second".into())), "{answers:?}");
}

/// The timer can get no thread, so nobody will look: what a silent sleeper has in its batch is for
/// the worker that idles.
#[test]
fn a_silent_sleeper_holds_nothing_where_nobody_looks() {
    let faults = Faults::new();
    let sys = WorkqueueSystem::builder().faults(&faults);
    let sys = sys.topology(Topology::synthetic("core:2").unwrap());
    let sys = sys.build().unwrap();
    let wq = sys.workqueue("wide");
    let wq = wq.unbound(Attrs::new().scope(Scope::System));
    let wq = wq.build().unwrap();
    // Two workers, of which the one was brought when the other slept.
    let (begun, go) = (Level::new(), Level::new());
    let sleepers: Vec<_> = (1..=2)
        .map(|number| {
            let (raised, go) = (begun.clone(), go.clone());
            let sleeper = wq.spawn(move || {
                blocking(|| {
                    raised.raise();
                    go.wait(1);
                });
            });
            begun.wait(number);
            sleeper
        })
        .collect();
    go.raise();
    sleepers.into_iter().for_each(|s| s.wait().unwrap());
    faults.refuse_spawns(true);
    for _ in 0..times(50) {
        calmed(&wq);
        let (end, other) = pipe();
        let slept = Arc::new(AtomicBool::new(false));
        let over = slept.clone();
        drop(wq.spawn_on(0, move || {
            sleep_silently(&end);
            over.store(true, Ordering::Relaxed);
        }));
        drop(wq.spawn_on(0, move || drop(other)));
        until(|| slept.load(Ordering::Relaxed), || sys.dump());
        wq.flush_blocking().unwrap();
    }
}

/// An item moves its queue, and freezes it: what else was in the batch has not been active.
#[test]
fn a_batch_is_frozen_with_its_queue_though_that_has_moved() {
    let sys = Arc::new(one_cpu().build().unwrap());
    let attrs = [0, 1].map(|nice| Attrs::new().nice(nice));
    // So that the pools stay.
    let others = attrs.clone().map(|attrs| {
        let other = sys.workqueue("other").unbound(attrs).build().unwrap();
        other.spawn(|| ()).wait().unwrap();
        other
    });
    let wq = sys.workqueue("ordered").ordered_with(attrs[0].clone());
    let wq = wq.freezable().build().unwrap();
    for round in 0..times(20) {
        calmed(&wq);
        let ran = Arc::new(AtomicUsize::new(0));
        let frozen = Arc::new(Mutex::new(None));
        let freezes = Work::new({
            let (sys, wq, frozen) = (Arc::downgrade(&sys), wq.clone(), frozen.clone());
            let attrs = attrs[(round + 1) % 2].clone();
            move || {
                wq.set_attrs(attrs.clone()).unwrap();
                *frozen.lock() = sys.upgrade().map(|sys| sys.freeze());
            }
        });
        wq.queue(&freezes).unwrap();
        for _ in 0..20 {
            let ran = ran.clone();
            drop(wq.spawn(move || _ = ran.fetch_add(1, Ordering::Relaxed)));
        }
        let is_over = |frozen: &Frozen| !frozen.is_busy();
        until(
            || frozen.lock().as_ref().is_some_and(is_over),
            || sys.dump(),
        );
        assert_eq!(ran.load(Ordering::Relaxed), 0, "round {round}");
        *frozen.lock() = None;
        wq.flush_blocking().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 20);
    }
    drop(others);
}

/// An item asks for numbers in the middle of a batch: what has ended before it counts as ended.
#[test]
fn numbers_are_right_in_a_batch() {
    // By a clock that stands no worker is looked at: none is found asleep in `stats`, and no other
    // one takes the rest of its batch.
    let sys = one_cpu().clock(inflight_sync::time::Clock::manual());
    let sys = Arc::new(sys.build().unwrap());
    let [bound, ordered, unbound] = [
        sys.workqueue("bound").bound(),
        sys.workqueue("ordered").ordered(),
        sys.workqueue("unbound").unbound(Attrs::new()),
    ]
    .map(|draft| draft.build().unwrap());
    for (wq, dumps) in [
        (&bound, false),
        (&ordered, false),
        (&unbound, false),
        (&unbound, true),
    ] {
        for _ in 0..times(20) {
            calmed(wq);
            let before = wq.stats().completed;
            let (begun, go) = (Level::new(), Level::new());
            let holds = wq.spawn({
                let (begun, go) = (begun.clone(), go.clone());
                move || {
                    begun.raise();
                    go.wait_silently(1);
                }
            });
            begun.wait(1);
            let told = Arc::new(Mutex::new(String::new()));
            for at in 1..=5 {
                let (wq, sys, told) = (wq.clone(), Arc::downgrade(&sys), told.clone());
                drop(wq.clone().spawn(move || {
                    if at == 3 && dumps {
                        *told.lock() = sys.upgrade().map(|sys| sys.dump()).unwrap();
                    } else if at == 3 {
                        let stats = wq.stats();
                        let left = stats.active + stats.inactive;
                        *told.lock() = format!("{} {left}", stats.completed - before);
                    }
                }));
            }
            go.raise();
            holds.wait().unwrap();
            wq.flush_blocking().unwrap();
            let told = told.lock().clone();
            if dumps {
                let mut lines = told.lines().filter(|line| line.starts_with("unbound "));
                assert!(lines.any(|line| line.contains(" 3/")), "{told}");
            } else {
                // The one that holds, and two.
                assert_eq!(told, "3 3", "{}", wq.name());
            }
        }
    }
}

/// The first item of a batch has ended, and the second one waits for an item of another pod, which
/// waits for a slot.
#[test]
fn unsettled_completions_free_slots_for_other_pods_too() {
    let sys = small_items(WorkqueueSystem::builder());
    let sys = sys.topology(Topology::synthetic("core:2").unwrap());
    let sys = sys.build().unwrap();
    let attrs = Attrs::new().scope(Scope::Cpu);
    let other = sys.workqueue("other").unbound(attrs.clone());
    let other = other.build().unwrap();
    let wq = sys.workqueue("pods").unbound(attrs).max_active(4);
    let wq = wq.build().unwrap();
    for _ in 0..times(20) {
        calmed(&wq);
        for wq in [&wq, &other] {
            wq.spawn_on(1, || ()).wait().unwrap();
        }
        let (begun, go, last_ran) = (Level::new(), Level::new(), Level::new());
        let delivered = Level::new();
        let holds = wq.spawn_on(0, {
            let (begun, go) = (begun.clone(), go.clone());
            move || {
                begun.raise();
                go.wait_silently(1);
            }
        });
        begun.wait(1);
        // With the two of the batch these have all slots, until the last one has run.
        let first = Work::new({
            let (wq, other) = (wq.clone(), other.clone());
            let (last_ran, delivered) = (last_ran.clone(), delivered.clone());
            move || {
                for _ in 0..2 {
                    let last_ran = last_ran.clone();
                    drop(wq.spawn_on(1, move || last_ran.wait(1)));
                }
                let last_ran = last_ran.clone();
                drop(wq.spawn_on(1, move || last_ran.raise()));
                // It is queued later.
                let delivered = delivered.clone();
                drop(other.spawn_on(1, move || delivered.raise()));
            }
        });
        wq.queue_on(0, &first).unwrap();
        let second = wq.spawn_on(0, {
            let (last_ran, delivered) = (last_ran.clone(), delivered.clone());
            move || {
                delivered.wait_silently(1);
                last_ran.wait(1);
            }
        });
        go.raise();
        until(|| second.is_finished(), || sys.dump());
        holds.wait().unwrap();
        wq.flush_blocking().unwrap();
    }
}

/// An item that computes for long, by its queue's account, holds nobody back.
#[test]
fn what_computes_for_long_is_not_drawn() {
    let sys = one_cpu().intensive_threshold(Duration::MAX);
    let sys = sys.build().unwrap();
    let long = sys.workqueue("long").bound().cpu_intensive();
    let long = long.build().unwrap();
    let other = sys.workqueue("other").bound().build().unwrap();
    for _ in 0..times(20) {
        calmed(&long);
        let (begun, go) = (Level::new(), Level::new());
        let computes = long.spawn({
            let (begun, go) = (begun.clone(), go.clone());
            move || {
                begun.raise();
                let looks = (0..LOOKS).take_while(|_| go.get() == 0);
                looks.for_each(|_| thread::yield_now());
                go.get() > 0
            }
        });
        begun.wait(1);
        drop(other.spawn(move || go.raise()));
        assert!(computes.wait().unwrap(), "the other one has waited");
    }
}
