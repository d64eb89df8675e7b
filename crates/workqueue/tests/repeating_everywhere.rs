//! A work that says itself that it is to run again, wherever that can be: through queues of each
//! kind, traced, rescued, and while others stop it, move its queue or close it.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::fault::Faults;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{
    Attrs, JoinError, QueueError, Queued, TraceStep, WaitError, Work, WorkqueueSystem,
};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use support::{Inside, Level, Log, builder, endless, one_cpu, so_often};

/// Runs until it is stopped, counts, and says whether it ever ran twice at once.
fn alone(runs: &Level) -> (Work, Inside) {
    let (runs, inside) = (runs.clone(), Inside::new());
    let work = Work::repeating("alone", {
        let inside = inside.clone();
        move || {
            inside.enter();
            runs.raise();
            inside.leave();
            ControlFlow::Continue(())
        }
    });
    (work, inside)
}

/// Each run is an item of its own: a poll counts it, and others come in between.
#[test]
fn each_run_is_an_item_of_a_poll() {
    let sys = builder().clock(Clock::manual()).build().unwrap();
    let mut poller = sys.bh_poller(0, || ()).unwrap();
    let wq = sys.workqueue("done").bh().build().unwrap();
    let log = Log::new();
    let [three, two] = [("three", 3), ("two", 2)].map(|(name, times)| {
        let log = log.clone();
        so_often(times, move |run| {
            log.push((name, run, thread::current_id()));
        })
    });
    for work in [&three, &two] {
        assert_eq!(wq.queue_on(0, work), Ok(Queued::Queued));
    }
    for left in (0..5).rev() {
        let polled = poller.poll(1);
        assert_eq!((polled.ran, polled.more), (1, left > 0));
    }
    let order = [
        ("three", 1),
        ("two", 1),
        ("three", 2),
        ("two", 2),
        ("three", 3),
    ];
    let here = thread::current_id();
    assert_eq!(log.entries(), order.map(|(name, run)| (name, run, here)));
    assert_eq!((wq.stats().queued, wq.stats().completed), (5, 5));
}

/// In order, and at their place: what was queued during a run comes before the next one.
#[test]
fn ordered_and_bh_queues_stay_in_order() {
    let sys = one_cpu().build().unwrap();
    for draft in [sys.workqueue("done").bh(), sys.workqueue("one").ordered()] {
        let wq = draft.build().unwrap();
        let log = Log::new();
        let second = so_often(4, {
            let log = log.clone();
            move |run| log.push(("second", run))
        });
        let first = so_often(4, {
            let (wq, log) = (wq.clone(), log.clone());
            move |run| {
                log.push(("first", run));
                match run {
                    1 => assert_eq!(wq.queue_on(0, &second), Ok(Queued::Queued)),
                    3 => {
                        let log = log.clone();
                        drop(wq.spawn_on(0, move || log.push(("other", 1))));
                    }
                    _ => {}
                }
            }
        });
        assert_eq!(wq.queue_on(0, &first), Ok(Queued::Queued));
        wq.drain_blocking().unwrap();
        let expected = [
            ("first", 1),
            ("second", 1),
            ("first", 2),
            ("second", 2),
            ("first", 3),
            ("second", 3),
            ("other", 1),
            ("first", 4),
            ("second", 4),
        ];
        assert_eq!(log.entries(), expected, "{}", wq.name());
    }
}

/// Who traces is told of each run, as if the work had queued itself.
#[test]
fn each_run_is_traced() {
    use TraceStep::{Activated, Ended, Panicked, Queued, Started};
    let log = Log::new();
    let steps = log.clone();
    let sys = one_cpu().trace(move |event| log.push(event.step));
    let sys = sys.build().unwrap();
    let wq = sys.workqueue("traced").bound().build().unwrap();
    let last = Level::new();
    let work = so_often(9, {
        let last = last.clone();
        move |run| {
            if run == 4 {
                last.raise();
                resume_unwind(Box::new("on purpose"));
            }
        }
    });
    wq.queue(&work).unwrap();
    last.wait(1); // Nothing else ends a row.
    wq.drain_blocking().unwrap();
    let steps = steps.entries();
    let again = [Queued, Ended, Activated, Started];
    let all = [
        &[Queued, Activated, Started],
        &again[..],
        &again,
        &again,
        &[Panicked],
    ];
    assert_eq!(steps, all.concat());
    assert_eq!((wq.stats().completed, wq.stats().panicked), (4, 1));
}

/// A panic ends the row it is in, and nothing else: the runs before it count, the slot is free, and
/// the work can be queued again.
#[test]
fn a_panic_within_a_row() {
    let sys = one_cpu().build().unwrap();
    let wq = sys.workqueue("one").bound().max_active(1).build().unwrap();
    let runs = Level::new();
    let work = Work::repeating("panics", {
        let runs = runs.clone();
        move || {
            runs.raise();
            if runs.get() % 5 == 0 {
                resume_unwind(Box::new("on purpose"));
            }
            ControlFlow::Continue(())
        }
    });
    for n in 1..=50 {
        assert_eq!(wq.queue(&work), Ok(Queued::Queued));
        let behind = wq.spawn(|| 7);
        wq.drain_blocking().unwrap();
        assert_eq!(behind.wait().unwrap(), 7);
        assert_eq!(runs.get(), 5 * n);
        assert!(!work.is_pending() && !work.is_running());
    }
    let stats = wq.stats();
    assert_eq!((stats.completed, stats.panicked), (300, 50));
    assert_eq!((stats.active, stats.inactive), (0, 0));
}

/// It runs on, one run at a time, whatever becomes of its queue meanwhile, and goes where its queue
/// has its workers now.
#[test]
fn it_runs_on_while_its_queue_is_moved() {
    let sys = builder().build().unwrap();
    let wq = sys
        .workqueue("moved")
        .unbound(Attrs::new())
        .build()
        .unwrap();
    let runs = Level::new();
    let (work, inside) = alone(&runs);
    assert_eq!(wq.queue_on(0, &work), Ok(Queued::Queued));
    let scopes = [Scope::Cpu, Scope::Cache, Scope::System];
    for (n, scope) in scopes.into_iter().cycle().take(60).enumerate() {
        wq.set_attrs(Attrs::new().scope(scope).strict(n % 2 == 0))
            .unwrap();
        runs.wait(runs.get() + 10);
    }
    // Pools go when the last worker that ran something there asks for more.
    let until_pools_are = |left| {
        while sys.dump().matches("pool u").count() != left {
            thread::yield_now();
        }
    };
    until_pools_are(1); // It queues itself where its queue is now.
    work.cancel_sync_blocking().unwrap();
    assert_eq!(inside.most(), 1);
    until_pools_are(1);
    let before = runs.get();
    assert_eq!(wq.queue_on(0, &work), Ok(Queued::Queued));
    runs.wait(before + 10);
    until_pools_are(1);
    work.cancel_sync_blocking().unwrap();
    wq.flush_blocking().unwrap();
    let stats = wq.stats();
    assert_eq!(stats.completed, runs.get() as u64);
    assert_eq!(stats.queued, stats.completed + stats.cancelled);
}

#[test]
fn it_runs_on_while_its_cpu_goes_and_comes_back() {
    let [whole, less] = ["core:2", "core:2 offline:1"].map(|m| Topology::synthetic(m).unwrap());
    let sys = WorkqueueSystem::builder().topology(&whole).build().unwrap();
    let wq = sys.workqueue("irq").bound().build().unwrap();
    let runs = Level::new();
    let (work, inside) = alone(&runs);
    assert_eq!(wq.queue_on(1, &work), Ok(Queued::Queued));
    for machine in [&less, &whole].into_iter().cycle().take(40) {
        runs.wait(runs.get() + 10);
        sys.refresh(machine).unwrap();
        assert_eq!(wq.spawn_on(1, || 7).wait().unwrap(), 7);
    }
    sys.refresh(&less).unwrap();
    work.cancel_sync_blocking().unwrap();
    let before = runs.get();
    assert_eq!(wq.queue_on(1, &work), Ok(Queued::Queued));
    runs.wait(before + 10);
    work.cancel_sync_blocking().unwrap();
    assert_eq!(inside.most(), 1);
    wq.flush_blocking().unwrap();
    let stats = wq.stats();
    assert_eq!(stats.completed, 40 + runs.get() as u64);
    assert_eq!(stats.queued, stats.completed + stats.cancelled);
}

/// There is no worker, and no thread to be had: the rescuer runs it, and what comes beside it,
/// until there are threads again.
#[test]
fn a_rescuer_runs_it() {
    let faults = Faults::new();
    let sys = one_cpu().faults(&faults).build().unwrap();
    let wq = sys.workqueue("safe").bound().mem_reclaim().build().unwrap();
    faults.refuse_spawns(true);
    assert_eq!(wq.queue(&so_often(1_000, |_| ())), Ok(Queued::Queued));
    wq.drain_blocking().unwrap();
    assert_eq!(wq.stats().completed, 1_000);
    let (runs, by) = (Level::new(), Arc::new(Mutex::new(None)));
    let (inside, mut rescuer) = (Inside::new(), None);
    let work = Work::repeating("rescued", {
        let (runs, by, inside) = (runs.clone(), by.clone(), inside.clone());
        move || {
            inside.enter();
            *by.lock() = Some(thread::current_id());
            runs.raise();
            inside.leave();
            ControlFlow::Continue(())
        }
    });
    assert_eq!(wq.queue(&work), Ok(Queued::Queued));
    for _ in 0..10 {
        runs.wait(runs.get() + 10);
        let here = wq.spawn(thread::current_id).wait().unwrap();
        assert_eq!(here, *rescuer.get_or_insert(here));
        assert_eq!(*by.lock(), Some(here));
    }
    faults.refuse_spawns(false);
    while *by.lock() == rescuer {
        thread::yield_now();
    }
    work.cancel_sync_blocking().unwrap();
    assert_eq!(inside.most(), 1);
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().completed, 1_010 + runs.get() as u64);
}

/// It says that it is to run again, and somebody has forbidden that meanwhile, maybe itself: there
/// is no other run, also not when it may be queued again.
#[test]
fn disabled_it_stops_and_enabled_it_waits_to_be_queued() {
    let sys = one_cpu().build().unwrap();
    let wq = sys.workqueue("one").bound().max_active(1).build().unwrap();
    let myself: Arc<Mutex<Option<Work>>> = Arc::default();
    let work = so_often(9, {
        let myself = myself.clone();
        move |run| {
            if run % 3 == 0 {
                let me = myself.lock().clone().unwrap();
                assert_eq!(me.disable(), Ok(false));
            }
        }
    });
    *myself.lock() = Some(work.clone());
    for n in 1..=3 {
        assert_eq!(wq.queue(&work), Ok(Queued::Queued));
        wq.drain_blocking().unwrap();
        assert_eq!(wq.stats().completed, 3 * n);
        assert_eq!(wq.queue(&work), Ok(Queued::Disabled));
        assert_eq!(work.enable(), Ok(true));
        assert!(!work.is_pending(), "it was queued by nobody");
    }
    myself.lock().take();
    let runs = Level::new();
    let work = endless(&runs);
    for _ in 0..50 {
        assert_eq!(wq.queue(&work), Ok(Queued::Queued));
        runs.wait(runs.get() + 1);
        work.disable().unwrap();
        assert_eq!(wq.queue(&work), Ok(Queued::Disabled));
        wq.drain_blocking().unwrap();
        let after = runs.get();
        assert_eq!(work.enable(), Ok(true));
        wq.drain_blocking().unwrap();
        assert_eq!(runs.get(), after);
    }
}

/// Threads, and items of its own pool, queue it and stop it. Who has stopped it last has done so,
/// and each queueing has run or was taken back.
#[test]
fn it_is_stopped_by_many_threads() {
    let sys = one_cpu().build().unwrap();
    let wq = sys.workqueue("one").bound().build().unwrap();
    let runs = Level::new();
    let (work, inside) = alone(&runs);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (wq, work, runs) = (wq.clone(), work.clone(), runs.clone());
            thread::spawn(move || {
                for n in 0..100 {
                    let at_least = runs.get() + n % 3;
                    // Another one may stop it at once.
                    while wq.queue(&work).unwrap() == Queued::Disabled || runs.get() < at_least {
                        thread::yield_now();
                    }
                    let work = work.clone();
                    if n % 2 == 0 {
                        work.cancel_sync_blocking().unwrap();
                    } else {
                        wq.spawn(move || work.cancel_sync_blocking().unwrap())
                            .wait()
                            .unwrap();
                    }
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(!work.is_pending() && !work.is_running());
    wq.flush_blocking().unwrap();
    assert_eq!(inside.most(), 1);
    let stats = wq.stats();
    assert_eq!(stats.completed, 150 + runs.get() as u64);
    assert_eq!(stats.queued, stats.completed + stats.cancelled);
}

/// It cannot wait for itself, in whichever run of a row.
#[test]
fn it_cannot_wait_for_itself() {
    let sys = one_cpu().build().unwrap();
    let wq = sys.workqueue("one").bound().build().unwrap();
    let myself: Arc<Mutex<Option<Work>>> = Arc::default();
    let work = so_often(40, {
        let myself = myself.clone();
        move |_| {
            let me = myself.lock().clone().unwrap();
            assert_eq!(me.cancel_sync_blocking(), Err(WaitError::WouldDeadlock));
            assert_eq!(me.flush_blocking(), Err(WaitError::WouldDeadlock));
        }
    });
    *myself.lock() = Some(work.clone());
    wq.queue(&work).unwrap();
    wq.drain_blocking().unwrap();
    myself.lock().take();
    assert_eq!((wq.stats().completed, wq.stats().panicked), (40, 0));
}

/// A queue that takes nothing from outside any more lets it run on, until it breaks.
#[test]
fn a_drain_waits_until_it_breaks() {
    let sys = one_cpu().build().unwrap();
    for draft in [
        sys.workqueue("one").ordered(),
        sys.workqueue("cpu").bound(),
        sys.workqueue("any").unbound(Attrs::new()),
    ] {
        let wq = draft.build().unwrap();
        let (runs, stop, drained) = (Level::new(), Level::new(), Level::new());
        let work = Work::repeating("until told", {
            let (runs, stop) = (runs.clone(), stop.clone());
            move || {
                runs.raise();
                match stop.get() {
                    0 => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            }
        });
        assert_eq!(wq.queue(&work), Ok(Queued::Queued));
        let drains = thread::spawn({
            let (wq, drained) = (wq.clone(), drained.clone());
            move || {
                wq.drain_blocking().unwrap();
                drained.raise();
            }
        });
        let draining = JoinError::Rejected(QueueError::Draining);
        while wq.spawn(|| ()).wait().err().map(|e| e.to_string()) != Some(draining.to_string()) {
            thread::yield_now();
        }
        runs.wait(runs.get() + 100);
        assert_eq!(drained.get(), 0);
        stop.raise();
        drains.join().unwrap();
        assert_eq!(wq.stats().refused, 1, "the spawn above, and no run");
        let after = runs.get();
        assert_eq!(wq.queue(&work), Ok(Queued::Queued));
        wq.destroy_blocking().unwrap();
        assert_eq!(runs.get(), after + 1, "the last run breaks");
    }
}
