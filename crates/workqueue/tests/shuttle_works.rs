//! Random schedules of works that are queued, cancelled, disabled and moved from several threads
//! while they run, and of delayed ones beside their timer.
//!
//! Every accepted queueing runs, or was cancelled or refused, and no work runs twice at once.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::Scope;
use inflight_workqueue::{
    Attrs, DelayedWork, Modified, QueueError, Queued, Work, Workqueue, blocking, current_item,
    current_work,
};
use shuttle_support::{Act, MS, Mode, RunCounts, Threads, World, assert_settled, check, tick};
use std::time::Duration;

/// Of a small model, in each schedule.
const TIMES_IN_A_ROW: usize = 10;

/// Shared by the threads of a model. Relaxed everywhere: shuttle runs everything in one order.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn add(&self, n: usize) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn set(&self, n: usize) {
        self.0.store(n, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes one, if there is one.
    fn take(&self) -> bool {
        let less = |n: usize| n.checked_sub(1);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok()
    }

    fn wait(&self, at_least: usize) {
        while self.get() < at_least {
            thread::yield_now();
        }
    }
}

/// A work and its balance.
#[derive(Clone)]
struct Balance {
    run_counts: RunCounts,
    queued: Count,
    cancelled: Count,
}

impl Balance {
    fn new() -> Self {
        Self {
            run_counts: RunCounts::new(1),
            queued: Count::default(),
            cancelled: Count::default(),
        }
    }

    fn queue(&self, wq: &Workqueue, cpu: usize, work: &Work) -> Queued {
        let queued = wq.queue_on(cpu, work).unwrap();
        self.queued.add((queued == Queued::Queued).into());
        queued
    }

    /// The same, from an item, which may see the system end.
    fn queue_again(&self, wq: &Workqueue, work: &Work) {
        match wq.queue(work) {
            Ok(queued) => self.queued.add((queued == Queued::Queued).into()),
            Err(error) => assert_eq!(error, QueueError::ShutDown),
        }
    }

    fn cancel(&self, was_pending: bool) {
        self.cancelled.add(was_pending.into());
    }

    fn assert_even(&self, queues: &[&Workqueue]) {
        self.run_counts.assert_right();
        queues.iter().for_each(|wq| assert_settled(wq));
        let refused: u64 = queues.iter().map(|wq| wq.stats().refused).sum();
        assert_eq!(
            self.queued.get(),
            self.run_counts.ended() + self.cancelled.get() + refused as usize
        );
    }
}

/// A work queues itself, on two queues by turns, while it is cancelled, disabled, enabled, flushed
/// and queued from four threads, and one of the queues moves.
fn a_work_is_pulled_about(mode: Mode) {
    let world = World::new(mode);
    let last = world.cpu(1);
    let ordered = world.sys.workqueue("ordered").ordered().build().unwrap();
    let bound = world
        .sys
        .workqueue("bound")
        .bound()
        .max_active(1)
        .build()
        .unwrap();
    let queues = [ordered.clone(), bound.clone()];
    let (balance, disabled, again) = (Balance::new(), Count::default(), Count::default());
    again.add(2);
    let work = Work::new({
        let (balance, disabled) = (balance.clone(), disabled.clone());
        move || {
            if disabled.get() > 0 {
                balance.run_counts.wrong("it runs although it is disabled");
            }
            balance.run_counts.run(0, Act::Block);
            if again.take() {
                let wq = &queues[again.get() % 2];
                balance.queue_again(wq, &current_work().unwrap());
            }
        }
    });
    let mut threads = Threads::default();
    let mut spawn = |f: fn(&Balance, &Work, [&Workqueue; 2], usize)| {
        let (balance, work, queues) = (
            balance.clone(),
            work.clone(),
            [ordered.clone(), bound.clone()],
        );
        threads.spawn(move || f(&balance, &work, queues.each_ref(), last));
    };
    spawn(|balance, work, queues, last| {
        for i in 0..3 {
            balance.queue(queues[i % 2], last, work);
        }
    });
    spawn(|balance, work, queues, _| {
        balance.cancel(work.cancel_sync_blocking().unwrap());
        balance.queue(queues[1], 0, work);
        balance.cancel(work.cancel());
        work.flush_blocking().unwrap();
    });
    spawn(|balance, work, queues, _| {
        balance.queue(queues[0], 0, work);
        work.flush_blocking().unwrap();
        queues[0].set_attrs(Attrs::new().nice(5)).unwrap();
        queues[0].flush_blocking().unwrap();
        queues[0].set_attrs(Attrs::new()).unwrap();
    });
    threads.spawn({
        let (balance, work, ordered) = (balance.clone(), work.clone(), ordered.clone());
        move || {
            balance.cancel(work.disable_sync_blocking().unwrap());
            disabled.set(1);
            assert_eq!(balance.queue(&ordered, 0, &work), Queued::Disabled);
            assert!(!work.is_running() && !work.is_pending());
            thread::yield_now();
            assert!(!work.is_running() && !work.is_pending());
            disabled.set(0);
            let queued = ordered.enable_and_queue(&work).unwrap();
            balance.queued.add((queued == Queued::Queued).into());
        }
    });
    threads.join();
    drop(world);
    balance.assert_even(&[&ordered, &bound]);
}

/// A runs, B is queued, A queues C and itself: on an ordered queue that moves meanwhile they begin
/// in that order.
fn an_ordered_queue_moves(mode: Mode) {
    let world = World::new(mode);
    let last = world.cpu(1);
    let wq = world.sys.workqueue("ordered").ordered().build().unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let (begun, queued) = (Count::default(), Count::default());
    let note = |name: &'static str| {
        let log = log.clone();
        move || log.lock().push(name)
    };
    let a = Work::new({
        let (wq, begun, queued) = (wq.clone(), begun.clone(), queued.clone());
        let (a, c) = (note("A"), note("C"));
        move || {
            a();
            begun.add(1);
            if begun.get() == 1 {
                blocking(|| queued.wait(1));
                wq.spawn(c.clone()).detach();
                wq.queue(&current_work().unwrap()).unwrap();
            }
        }
    });
    wq.queue(&a).unwrap();
    let mut threads = Threads::default();
    let moved = wq.clone();
    threads.spawn(move || {
        for attrs in [
            Attrs::new().nice(5),
            Attrs::new().scope(Scope::System),
            Attrs::new(),
        ] {
            moved.set_attrs(attrs).unwrap();
        }
    });
    let (flushed, b) = (wq.clone(), note("B"));
    threads.spawn(move || {
        begun.wait(1);
        let b = flushed.spawn_on(last, b);
        queued.set(1);
        flushed.flush_blocking().unwrap();
        assert!(b.is_finished(), "it was queued before the flush");
    });
    threads.join();
    drop(world);
    assert_eq!(*log.lock(), ["A", "B", "C", "A"]);
    assert_settled(&wq);
}

/// One work goes through two ordered queues, among items of theirs. In each of them it has its
/// turn: what is queued behind it does not begin before it has ended.
fn a_work_in_two_ordered_queues(mode: Mode) {
    let world = World::new(mode);
    let last = world.cpu(1);
    let queues = ["left", "right"].map(|name| {
        let wq = world.sys.workqueue(name).ordered().build().unwrap();
        (wq, RunCounts::new(1))
    });
    let balance = Balance::new();
    let work = Work::new({
        let (balance, queues) = (balance.clone(), queues.each_ref().map(|(_, l)| l.clone()));
        move || {
            let left = current_item().unwrap().queue == "left";
            balance.run_counts.run(0, Act::Yield);
            // Among the others of that queue.
            queues[usize::from(!left)].run(0, Act::Block);
        }
    });
    let mut threads = Threads::default();
    for (n, (wq, run_counts)) in queues.clone().into_iter().enumerate() {
        let (balance, work) = (balance.clone(), work.clone());
        threads.spawn(move || {
            for i in 0..2 {
                let begun = balance.run_counts.begun();
                let queued = balance.queue(&wq, last * i, &work) == Queued::Queued;
                let (runs, behind) = (balance.run_counts.clone(), run_counts.clone());
                let spawned = wq.spawn(move || {
                    if queued && runs.begun() <= begun {
                        runs.wrong("an item overtook the work");
                    }
                    behind.run(100 + n, Act::Nothing);
                });
                if i == 0 {
                    wq.set_attrs(Attrs::new().nice(5)).unwrap();
                }
                spawned.wait().unwrap();
            }
        });
    }
    let (work, flushed) = (work.clone(), queues[1].0.clone());
    threads.spawn(move || {
        work.flush_blocking().unwrap();
        flushed.flush_blocking().unwrap();
    });
    threads.join();
    drop(world);
    let [(left, in_left), (right, in_right)] = queues;
    in_left.assert_right();
    in_right.assert_right();
    balance.assert_even(&[&left, &right]);
}

/// A work goes through queues of two systems, whose items wait for each other's, and one of the
/// systems ends.
fn a_work_in_two_systems(mode: Mode) {
    let worlds = [World::new(mode), World::new(mode)];
    let queues = worlds.each_ref().map(|world| world.unbound("any", 2));
    let items = worlds.each_ref().map(|_| RunCounts::new(2));
    let balance = Balance::new();
    let work = Work::new({
        let run_counts = balance.run_counts.clone();
        move || run_counts.run(0, Act::Yield)
    });
    let mut threads = Threads::default();
    for n in 0..2 {
        let (queues, items) = (queues.clone(), items.clone());
        let (balance, work) = (balance.clone(), work.clone());
        threads.spawn(move || {
            let (here, there) = (n, 1 - n);
            balance.queue_again(&queues[here], &work);
            balance.queue_again(&queues[there], &work);
            let (far, counts) = (queues[there].clone(), items[there].clone());
            let waits = move || match counts.spawn(&far, 0, 100 * n + 50) {
                Ok(item) => _ = item.wait().unwrap(),
                Err(error) => assert_eq!(error, QueueError::ShutDown),
            };
            match items[here].spawn_with(&queues[here], 0, 100 * n, waits) {
                Ok(item) => assert_eq!(item.wait().unwrap(), 100 * n),
                Err(error) => assert_eq!(error, QueueError::ShutDown),
            }
            balance.cancel(work.cancel_sync_blocking().unwrap());
            balance.queue_again(&queues[here], &work);
            work.flush_blocking().unwrap();
        });
    }
    let ends = worlds[0].sys.clone();
    threads.spawn(move || ends.shutdown_blocking().unwrap());
    threads.join_ticking(&worlds[0].clock, MS);
    drop(worlds);
    items.iter().for_each(RunCounts::assert_all_ran);
    balance.assert_even(&queues.each_ref());
}

/// A delayed work is queued, moved, flushed and cancelled while its time comes.
fn a_delayed_work_is_pulled_about(mode: Mode) {
    let world = World::new(mode);
    let wq = world.sys.workqueue("bound").bound().build().unwrap();
    let balance = Balance::new();
    let work = DelayedWork::new({
        let run_counts = balance.run_counts.clone();
        move || run_counts.run(0, Act::Block)
    });
    let mut threads = Threads::default();
    let mut spawn = |f: fn(&Balance, &Workqueue, &DelayedWork)| {
        let (balance, wq, work) = (balance.clone(), wq.clone(), work.clone());
        threads.spawn(move || f(&balance, &wq, &work));
    };
    spawn(|balance, wq, work| {
        for delay in [MS, 2 * MS, Duration::ZERO] {
            let queued = wq.queue_delayed(work, delay).unwrap();
            balance.queued.add((queued == Queued::Queued).into());
        }
        work.flush_blocking().unwrap();
    });
    spawn(|balance, wq, work| {
        for delay in [2 * MS, MS, Duration::ZERO] {
            let queued = wq.mod_delayed(work, delay).unwrap();
            balance.queued.add((queued == Modified::Queued).into());
        }
        work.flush_blocking().unwrap();
    });
    spawn(|balance, wq, work| {
        balance.cancel(work.cancel());
        balance.cancel(work.cancel_sync_blocking().unwrap());
        let queued = wq.queue_delayed(work, MS).unwrap();
        balance.queued.add((queued == Queued::Queued).into());
    });
    tick(&world.clock, 3, MS);
    threads.join();
    drop(world);
    balance.assert_even(&[&wq]);
    assert!(!work.is_pending() && !work.is_running());
}

/// A delayed work is moved to run now and later, while drains begin, threads are refused and it is
/// disabled. No move loses what was pending, and who disables it waits for what runs, moved or not.
fn a_delayed_work_is_moved(mode: Mode) {
    let world = World::new(mode);
    let wq = world.sys.workqueue("bound").bound().build().unwrap();
    let balance = Balance::new();
    let work = DelayedWork::new({
        let run_counts = balance.run_counts.clone();
        move || run_counts.run(0, Act::Block)
    });
    let mut threads = Threads::default();
    for delays in [[MS, Duration::ZERO], [Duration::ZERO, MS]] {
        let (balance, wq, work) = (balance.clone(), wq.clone(), work.clone());
        threads.spawn(move || {
            for delay in [delays, delays].as_flattened() {
                match wq.mod_delayed(&work, *delay) {
                    Ok(moved) => balance.queued.add((moved == Modified::Queued).into()),
                    Err(QueueError::Draining | QueueError::NoWorker(_)) => {}
                    Err(QueueError::NoTimer(_)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
    }
    let disabled = (balance.clone(), work.clone());
    threads.spawn(move || {
        let (balance, work) = disabled;
        balance.cancel(work.disable_sync_blocking().unwrap());
        assert!(!work.is_running() && !work.is_pending());
        work.enable().unwrap();
    });
    let (drained, faults) = (wq.clone(), world.faults.clone());
    threads.spawn(move || {
        faults.refuse_spawns(true);
        drop(drained.drain());
        faults.refuse_spawns(false);
        drop(drained.drain());
    });
    threads.join_ticking(&world.clock, 10 * MS);
    balance.cancel(work.cancel_sync_blocking().unwrap());
    drop(world);
    balance.assert_even(&[&wq]);
}

/// Runs of a delayed work begin no earlier than they may, though a drain comes and goes.
fn no_run_before_its_time(mode: Mode) {
    let world = World::new(mode);
    let wq = world
        .sys
        .workqueue("any")
        .unbound(Attrs::new())
        .build()
        .unwrap();
    let (balance, due) = (Balance::new(), Arc::new(Mutex::new(Vec::new())));
    let work = DelayedWork::new({
        let (run_counts, due, clock) =
            (balance.run_counts.clone(), due.clone(), world.clock.clone());
        move || {
            // What was queued first may have been cancelled. This run is of that or a later one.
            let due = due.lock()[run_counts.begun()];
            if clock.now() < due {
                run_counts.wrong("too early");
            }
            run_counts.run(0, Act::Yield);
        }
    });
    let mut threads = Threads::default();
    let (queued, clock) = (
        (balance.clone(), wq.clone(), work.clone()),
        world.clock.clone(),
    );
    threads.spawn(move || {
        let (balance, wq, work) = queued;
        for _ in 0..4 {
            due.lock().push(clock.now() + MS);
            match wq.queue_delayed(&work, MS) {
                Ok(Queued::Queued) => balance.queued.add(1),
                Ok(_) => drop(due.lock().pop()),
                Err(error) => panic!("{error:?}"),
            }
            clock.advance(MS);
        }
    });
    let cancelled = (balance.clone(), work.clone());
    threads.spawn(move || {
        let (balance, work) = cancelled;
        balance.cancel(work.cancel());
        balance.cancel(work.cancel_sync_blocking().unwrap());
    });
    let drained = wq.clone();
    threads.spawn(move || drained.drain_blocking().unwrap());
    tick(&world.clock, 3, MS);
    threads.join();
    drop(world);
    balance.assert_even(&[&wq]);
}

#[test]
fn works_are_pulled_about() {
    check("works_are_pulled_about", a_work_is_pulled_about);
}

#[test]
fn ordered_queues_move() {
    check("ordered_queues_move", an_ordered_queue_moves);
}

#[test]
fn works_in_two_ordered_queues() {
    check("works_in_two_ordered_queues", a_work_in_two_ordered_queues);
}

#[test]
fn works_in_two_systems() {
    check("works_in_two_systems", a_work_in_two_systems);
}

#[test]
fn delayed_works_are_pulled_about() {
    check(
        "delayed_works_are_pulled_about",
        a_delayed_work_is_pulled_about,
    );
}

#[test]
fn delayed_works_are_moved() {
    check("delayed_works_are_moved", |mode| {
        (0..TIMES_IN_A_ROW).for_each(|_| a_delayed_work_is_moved(mode));
    });
}

#[test]
fn delayed_works_wait_for_their_time() {
    check("delayed_works_wait_for_their_time", no_run_before_its_time);
}
