//! Random schedules of queues that share pools: submitters, flushers and drainers while limits and
//! attributes change, while CPUs leave and pods steal, and while a queue ends.
//!
//! A lost wakeup, or a flush that never ends, shows as a deadlock; an item that is lost or runs
//! twice, a limit that is exceeded, an order that is broken.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, thread};
use inflight_topology::{CpuSet, Scope, Topology};
use inflight_workqueue::{Attrs, QueueError, Share, Work, Workqueue, WorkqueueStats, blocking};
use shuttle_support::{LOOK, MS, Mode, RunCounts, Threads, World, assert_settled, check, tick};

/// A queue and what it has run.
#[derive(Clone)]
struct Queue(Workqueue, RunCounts);

impl Queue {
    /// Spawns items on both CPUs, each of which spawns another one on the same queue, and waits for
    /// the first. What is refused is so because of a drain or the end.
    fn submit(&self, world_cpus: usize, first: usize) {
        let Self(wq, run_counts) = self;
        let mut handles = Vec::new();
        for number in first..first + 2 {
            let next = {
                let (wq, run_counts) = (wq.clone(), run_counts.clone());
                move || drop(run_counts.spawn(&wq, number % world_cpus, number + 50))
            };
            match run_counts.spawn_with(wq, number % world_cpus, number, next) {
                Ok(handle) => handles.push((number, handle)),
                Err(error) => assert!(
                    matches!(error, QueueError::Draining | QueueError::Destroyed),
                    "{error:?}"
                ),
            }
        }
        for (number, handle) in handles {
            assert_eq!(handle.wait().unwrap(), number);
        }
    }

    /// Everything queued before a flush has ended after it.
    fn flush(&self) {
        let known = self.1.known();
        self.0.flush_blocking().unwrap();
        self.1.assert_ended(&known);
    }

    fn drain(&self) {
        let known = self.1.known();
        self.0.drain_blocking().unwrap();
        self.1.assert_ended(&known);
    }

    /// One item for each of these CPUs, and all of them meet: no slot has been lost.
    fn assert_meet(&self, cpus: &[usize]) {
        let (all, met) = (cpus.len(), Arc::new(AtomicUsize::new(0)));
        let spawn = |cpu: &usize| {
            let met = met.clone();
            self.0.spawn_on(*cpu, move || {
                // Relaxed: shuttle runs everything in one order.
                met.fetch_add(1, Ordering::Relaxed);
                blocking(|| {
                    while met.load(Ordering::Relaxed) < all {
                        thread::yield_now();
                    }
                });
            })
        };
        let items: Vec<_> = cpus.iter().map(spawn).collect();
        items.into_iter().for_each(|item| item.wait().unwrap());
    }

    fn assert_whole(&self) {
        self.1.assert_all_ran();
        assert_settled(&self.0);
    }
}

/// Two queues over the same workers. The bound one may run one item for each CPU, the unbound one
/// two or one in all.
fn two_queues_over_one_pool(mode: Mode) {
    for limit in [1, 2] {
        let world = World::new(mode);
        let cpus = world.sys.topology().cpus().len();
        let bound = world
            .sys
            .workqueue("bound")
            .bound()
            .max_active(1)
            .build()
            .unwrap();
        let any = Queue(world.unbound("any", limit), RunCounts::new(limit));
        let bound = Queue(bound, RunCounts::new(cpus));
        let mut threads = Threads::default();
        for (n, queue) in [&bound, &any, &any].into_iter().enumerate() {
            let queue = queue.clone();
            threads.spawn(move || queue.submit(cpus, 100 * n));
        }
        let queues = [bound.clone(), any.clone()];
        threads.spawn(move || queues.iter().for_each(Queue::flush));
        let queues = [any.clone(), bound.clone()];
        threads.spawn(move || queues.iter().for_each(Queue::drain));
        tick(&world.clock, 2, LOOK);
        threads.join();
        drop(world);
        bound.assert_whole();
        any.assert_whole();
    }
}

/// The limit rises and falls under load; after a flush nothing is above the lower one.
fn the_limit_changes(mode: Mode) {
    let world = World::new(mode);
    let cpus = world.sys.topology().cpus().len();
    let wq = world
        .sys
        .workqueue("any")
        .unbound(Attrs::new().scope(Scope::Cpu));
    let queue = Queue(wq.max_active(2).build().unwrap(), RunCounts::new(3));
    let mut threads = Threads::default();
    for n in 0..3 {
        let queue = queue.clone();
        threads.spawn(move || queue.submit(cpus, 100 * n));
    }
    let changed = queue.clone();
    threads.spawn(move || {
        for limit in [1, 3, 1, 2] {
            changed.0.set_max_active(limit).unwrap();
            if limit == 1 {
                changed.flush();
                changed.1.set_limit(1);
                thread::yield_now();
                changed.1.set_limit(3);
            }
        }
    });
    tick(&world.clock, 2, LOOK);
    threads.join();
    drop(world);
    queue.assert_whole();
}

/// An item calls a function of its queue while the limit falls to 1 and rises. A call that is
/// refused, because it would wait for its caller, has taken the function back.
fn a_call_meets_the_limit(mode: Mode) {
    let world = World::new(mode);
    let wq = world.unbound("any", 3);
    let mut threads = Threads::default();
    for _ in 0..2 {
        let wq = wq.clone();
        threads.spawn(move || {
            let (inner, runs) = (wq.clone(), Arc::new(AtomicUsize::new(0)));
            let counted = runs.clone();
            // Relaxed: shuttle runs everything in one order.
            let call = move || counted.fetch_add(1, Ordering::Relaxed);
            let called = wq.spawn(move || inner.call_blocking(call)).wait().unwrap();
            wq.flush_blocking().unwrap();
            let ran = runs.load(Ordering::Relaxed);
            assert_eq!(ran, usize::from(called.is_ok()), "{called:?}");
        });
    }
    let changed = wq.clone();
    threads.spawn(move || {
        for limit in [1, 3, 1, 3] {
            changed.set_max_active(limit).unwrap();
        }
    });
    tick(&world.clock, 2, LOOK);
    threads.join();
    drop(world);
    assert_settled(&wq);
}

/// Attributes of an ordered and of another queue change, and the CPUs of all unbound ones, while
/// both get items and are flushed.
fn attributes_change(mode: Mode) {
    let world = World::new(mode);
    let cpus = world.sys.topology().cpus().len();
    let ordered = world.sys.workqueue("ordered").ordered().build().unwrap();
    let ordered = Queue(ordered, RunCounts::new(1));
    let any = Queue(world.unbound("any", 2), RunCounts::new(2));
    let mut threads = Threads::default();
    for n in 0..2 {
        let (ordered, any) = (ordered.clone(), any.clone());
        threads.spawn(move || {
            // Without the items' own: their numbers would be out of order.
            for number in 100 * n..100 * n + 3 {
                let Queue(wq, run_counts) = &ordered;
                run_counts
                    .spawn(wq, number % cpus, number)
                    .unwrap()
                    .detach();
            }
            any.submit(cpus, 100 * n);
            ordered.flush();
        });
    }
    let changed = [ordered.clone(), any.clone()];
    threads.spawn(move || {
        for attrs in [
            Attrs::new().scope(Scope::System),
            Attrs::new().nice(5),
            Attrs::new(),
        ] {
            for queue in &changed {
                queue.0.set_attrs(attrs.clone()).unwrap();
            }
        }
    });
    let (sys, last) = (world.sys.clone(), cpus - 1);
    threads.spawn(move || {
        sys.set_unbound_cpumask(&CpuSet::from([last])).unwrap();
        sys.set_unbound_cpumask(&CpuSet::from([0, last])).unwrap();
    });
    tick(&world.clock, 2, LOOK);
    threads.join();
    drop(world);
    ordered.assert_whole();
    ordered.1.assert_in_order();
    any.assert_whole();
}

/// A CPU leaves and returns, with a memory node, while the limit of a queue falls and rises and it
/// freezes. No slot of either way to split the limit is lost.
fn a_cpu_leaves(Mode(_, batches): Mode) {
    let machine = |text| Topology::synthetic(text).unwrap();
    for (share, most) in [(Share::Lend, 2), (Share::PerNode, 3)] {
        let world = World::new(Mode("numa:2 core:1", batches));
        let wq = world.sys.workqueue("any").unbound(Attrs::new()).freezable();
        let wq = wq.share(share).max_active(2).min_active(1).build().unwrap();
        let queue = Queue(wq, RunCounts::new(most));
        let mut threads = Threads::default();
        for n in 0..2 {
            let queue = queue.clone();
            threads.spawn(move || {
                queue.submit(2, 100 * n);
                queue.flush();
            });
        }
        let sys = world.sys.observer();
        threads.spawn(move || {
            sys.refresh(&machine("numa:2 core:1 offline:1")).unwrap();
            sys.refresh(&machine("numa:2 core:1")).unwrap();
        });
        let (changed, sys) = (queue.clone(), world.sys.observer());
        threads.spawn(move || {
            changed.0.set_max_active(1).unwrap();
            let frozen = sys.freeze();
            changed.0.set_max_active(2).unwrap();
            drop(frozen);
        });
        tick(&world.clock, 2, LOOK);
        threads.join();
        queue.flush();
        queue.assert_meet(&[0, 1]);
        drop(world);
        queue.assert_whole();
    }
}

/// Items of one pod take long, so that workers of another one steal them, while the queue freezes,
/// moves, and runs fewer.
fn a_pod_steals(mode: Mode) {
    let world = World::new(mode);
    let attrs = || Attrs::new().scope(Scope::Cache);
    let wq = world.sys.workqueue("any").unbound(attrs()).freezable();
    let queue = Queue(wq.max_active(3).build().unwrap(), RunCounts::new(3));
    let mut threads = Threads::default();
    for n in 0..2 {
        let (Queue(wq, run_counts), clock) = (queue.clone(), world.clock.clone());
        threads.spawn(move || {
            for number in 100 * n..100 * n + 4 {
                let clock = clock.clone();
                let takes_long = move || clock.advance(MS);
                let item = run_counts.spawn_with(&wq, 0, number, takes_long);
                item.unwrap().detach();
            }
            let known = run_counts.known();
            wq.flush_blocking().unwrap();
            run_counts.assert_ended(&known);
        });
    }
    let (frozen, sys) = (queue.clone(), world.sys.observer());
    threads.spawn(move || {
        let Queue(wq, run_counts) = frozen;
        let frozen = sys.freeze();
        while frozen.is_busy() {
            thread::yield_now();
        }
        let begun = run_counts.begun();
        thread::yield_now();
        assert_eq!(run_counts.begun(), begun);
        drop(frozen);
        wq.set_max_active(1).unwrap();
        wq.set_max_active(3).unwrap();
    });
    let moved = queue.0.clone();
    threads.spawn(move || {
        moved.set_attrs(attrs().nice(1)).unwrap();
        moved.set_attrs(attrs()).unwrap();
    });
    threads.join_ticking(&world.clock, MS / 4);
    queue.flush();
    queue.assert_meet(&[0; 3]);
    drop(world);
    queue.assert_whole();
}

/// The counts of what has been queued, ended and cancelled do not fall, whoever reads them
/// while items run, are parked and are cancelled, and the queue moves.
fn counts_are_read(mode: Mode) {
    let world = World::new(mode);
    let any = Queue(world.unbound("any", 1), RunCounts::new(1));
    let other = world.sys.workqueue("other").bound().build().unwrap();
    let work = Work::new(thread::yield_now);
    let mut threads = Threads::default();
    for n in 0..2 {
        let (queue, other, work) = (any.clone(), other.clone(), work.clone());
        threads.spawn(move || {
            let Queue(wq, run_counts) = &queue;
            for number in 100 * n..100 * n + 2 {
                run_counts.spawn(wq, 0, number).unwrap().detach();
                _ = [wq, &other][number % 2].queue(&work).unwrap();
            }
            work.cancel();
            queue.flush();
            wq.set_attrs(Attrs::new().nice(5)).unwrap();
            wq.spawn(|| ()).try_cancel();
        });
    }
    let queues = [any.0.clone(), other.clone()];
    threads.spawn(move || {
        let counts = |s: WorkqueueStats| [s.queued, s.completed, s.cancelled];
        let mut before = [[0; 3]; 2];
        for _ in 0..12 {
            for (wq, before) in queues.iter().zip(&mut before) {
                let now = counts(wq.stats());
                let grow = before.iter().zip(&now).all(|(before, now)| before <= now);
                assert!(grow, "{before:?}, then {now:?}");
                *before = now;
            }
            thread::yield_now();
        }
    });
    tick(&world.clock, 4, LOOK);
    threads.join();
    drop(world);
    any.assert_whole();
    assert_settled(&other);
}

/// A queue is destroyed while others submit, flush, change it, and drop their handles on it.
fn a_queue_is_destroyed(mode: Mode) {
    let world = World::new(mode);
    let cpus = world.sys.topology().cpus().len();
    let queue = Queue(world.unbound("any", 1), RunCounts::new(2));
    let mut threads = Threads::default();
    for n in 0..2 {
        let queue = queue.clone();
        threads.spawn(move || queue.submit(cpus, 100 * n));
    }
    let changed = queue.clone();
    threads.spawn(move || {
        changed.0.set_max_active(2).unwrap();
        changed.0.set_attrs(Attrs::new().nice(1)).unwrap();
        changed.flush();
    });
    let ended = queue.clone();
    threads.spawn(move || {
        let known = ended.1.known();
        ended.0.destroy_blocking().unwrap();
        ended.1.assert_ended(&known);
        let begun = ended.1.begun();
        assert_eq!(begun, ended.1.ended(), "it is empty");
        let late = ended.1.spawn(&ended.0, 0, 999).unwrap_err();
        assert_eq!(late, QueueError::Destroyed);
        thread::yield_now();
        assert_eq!(begun, ended.1.begun(), "nothing begins any more");
    });
    threads.join();
    let Queue(wq, run_counts) = queue;
    assert_settled(&wq);
    drop((wq, world));
    run_counts.assert_all_ran();
}

#[test]
fn two_queues_share_workers() {
    check("two_queues_share_workers", two_queues_over_one_pool);
}

#[test]
fn limits_change_under_load() {
    check("limits_change_under_load", the_limit_changes);
}

#[test]
fn attributes_change_under_load() {
    check("attributes_change_under_load", attributes_change);
}

#[test]
fn queues_are_destroyed_under_load() {
    check("queues_are_destroyed_under_load", a_queue_is_destroyed);
}

#[test]
fn cpus_leave_under_load() {
    check("cpus_leave_under_load", a_cpu_leaves);
}

#[test]
fn pods_steal_under_load() {
    check("pods_steal_under_load", a_pod_steals);
}

#[test]
fn counts_do_not_fall() {
    check("counts_do_not_fall", counts_are_read);
}

#[test]
fn calls_meet_the_limit() {
    check("calls_meet_the_limit", a_call_meets_the_limit);
}
