//! Random schedules of queues that share pools: submitters, flushers and drainers while limits and
//! attributes change, and while a queue ends.
//!
//! A lost wakeup, or a flush that never ends, shows as a deadlock; an item that is lost or runs
//! twice, a limit that is exceeded, an order that is broken.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::thread;
use inflight_topology::{CpuSet, Scope};
use inflight_workqueue::{Attrs, QueueError, Workqueue};
use shuttle_support::{LOOK, RunCounts, Threads, World, assert_settled, check, tick};

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

    fn assert_whole(&self) {
        self.1.assert_all_ran();
        assert_settled(&self.0);
    }
}

/// Two queues over the same workers. The bound one may run one item for each CPU, the unbound one
/// two or one in all.
fn two_queues_over_one_pool(mode: shuttle_support::Mode) {
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
fn the_limit_changes(mode: shuttle_support::Mode) {
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

/// Attributes of an ordered and of another queue change, and the CPUs of all unbound ones, while
/// both get items and are flushed.
fn attributes_change(mode: shuttle_support::Mode) {
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

/// A queue is destroyed while others submit, flush, change it, and drop their handles on it.
fn a_queue_is_destroyed(mode: shuttle_support::Mode) {
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
