//! Queues with a rescuer, in systems that can get no more threads.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::fault::Faults;
use inflight_sync::time::Clock;
use inflight_sync::{block_on, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{
    Attrs, BuildError, JoinError, QueueError, Work, Workqueue, WorkqueueSystem, blocking,
};
use std::time::Duration;
use support::{Inside, Level, Log, Rigged, bound, builder, one_cpu, rigged, until};

const MS: Duration = Duration::from_millis(1);

struct Rig {
    sys: Rigged,
    faults: Faults,
    clock: Clock,
    /// Has a rescuer.
    safe: Workqueue,
}

/// One CPU, a clock that the test moves.
fn rig() -> Rig {
    let (sys, faults, clock) = rigged(one_cpu());
    let safe = reclaim(&sys, "safe");
    Rig {
        sys,
        faults,
        clock,
        safe,
    }
}

fn reclaim(sys: &WorkqueueSystem, name: &str) -> Workqueue {
    sys.workqueue(name).bound().mem_reclaim().build().unwrap()
}

/// An item that holds the pool's only worker, blocked, until the level is raised.
fn block_the_worker(wq: &Workqueue) -> Level {
    let (release, begun) = (Level::new(), Level::new());
    drop(wq.spawn({
        let (release, begun) = (release.clone(), begun.clone());
        move || {
            blocking(|| {
                begun.raise();
                release.wait_silently(1);
            })
        }
    }));
    begun.wait(1);
    release
}

#[test]
fn its_thread_is_there_from_birth_or_the_queue_is_not() {
    let rig = rig();
    assert_eq!(
        rig.faults.spawn_attempts(),
        2,
        "the rescuer, and who calls it"
    );
    rig.faults.refuse_spawns(true);
    let another = rig.sys.workqueue("another").bound().mem_reclaim().build();
    assert!(matches!(another, Err(BuildError::NoRescuer(_))));
    let name = rig.safe.spawn(thread_name);
    while rig.safe.stats().maydays == 0 {
        rig.clock.advance(10 * MS);
    }
    assert_eq!(name.wait().unwrap(), "inflight/R-safe");
}

fn thread_name() -> String {
    std::fs::read_to_string("/proc/thread-self/comm").map_or_else(
        |_| "inflight/R-safe".to_owned(),
        |name| name.trim_end().to_owned(),
    )
}

/// The pool has no worker at all: the queue with a rescuer goes on, another one is told.
#[test]
fn a_pool_without_any_worker_runs_rescued_items_only() {
    let rig = rig();
    let other = bound(&rig.sys);
    rig.faults.refuse_spawns(true);
    let safe = rig.safe.spawn(|| 1);
    let refused = other.spawn(|| 2).wait();
    assert!(matches!(
        refused,
        Err(JoinError::Rejected(QueueError::NoWorker(_)))
    ));
    rig.clock.advance(10 * MS);
    assert_eq!(safe.wait().unwrap(), 1);
    rig.faults.refuse_spawns(false);
    assert_eq!(
        other.spawn(|| 2).wait().unwrap(),
        2,
        "and then it goes on too"
    );
}

/// No call before 10 ms; then the rescuer runs its own queue's items and no others.
#[test]
fn it_is_called_after_a_while_and_runs_its_own_items_only() {
    let rig = rig();
    let other = bound(&rig.sys);
    let release = block_the_worker(&other);
    rig.faults.refuse_spawns(true);
    let log = Log::new();
    let item = |name: &'static str| {
        let log = log.clone();
        move || log.push(name)
    };
    let theirs = other.spawn(item("theirs"));
    let ours: Vec<_> = [item("first"), item("second")]
        .map(|f| rig.safe.spawn(f))
        .into();
    while rig.clock.sleepers() == 0 {
        thread::yield_now();
    }
    rig.clock.advance(9 * MS);
    assert_eq!(rig.safe.stats().rescued, 0);
    rig.clock.advance(MS);
    ours.into_iter().for_each(|handle| handle.wait().unwrap());
    rig.safe.flush_blocking().unwrap();
    assert_eq!(log.entries(), ["first", "second"]);
    assert!(!theirs.is_finished());
    let stats = rig.safe.stats();
    assert_eq!((stats.rescued, stats.completed), (2, 2));
    assert!(stats.maydays > 0);
    release.raise();
    theirs.wait().unwrap();
}

/// A rescuer is no worker of the pool that it helps, also while its item blocks.
#[test]
fn a_blocked_rescuer_is_no_blocked_worker_of_the_pool() {
    let rig = rig();
    rig.faults.refuse_spawns(true);
    let (release, begun) = (Level::new(), Level::new());
    let item = rig.safe.spawn({
        let (release, begun) = (release.clone(), begun.clone());
        move || {
            blocking(|| {
                begun.raise();
                release.wait_silently(1);
            })
        }
    });
    rig.clock.advance(10 * MS);
    begun.wait(1);
    let dump = rig.sys.dump();
    release.raise();
    item.wait().unwrap();
    let workers = "pool cpu 0: 0 workers (0 running of 1, 0 blocked, 0 idle), 0 ready";
    assert!(dump.contains(workers), "{dump}");
    assert!(dump.contains(" runs safe: "), "its item is told: {dump}");
}

/// While the timer looks after the mayday, events ask for no thread; after a second it asks,
/// and with threads to be had all goes on.
#[test]
fn threads_are_asked_for_again_after_the_cooldown() {
    let rig = rig();
    let other = bound(&rig.sys);
    let release = block_the_worker(&other);
    rig.faults.refuse_spawns(true);
    let waits = other.spawn(|| ());
    let asked = rig.faults.spawn_attempts();
    for _ in 0..20 {
        drop(other.spawn(|| ()));
    }
    assert_eq!(rig.faults.spawn_attempts(), asked, "nobody asks at once");
    rig.faults.refuse_spawns(false);
    while !waits.is_finished() {
        rig.clock.advance(100 * MS);
        thread::yield_now();
    }
    assert_eq!(rig.faults.spawn_attempts(), asked + 1);
    release.raise();
    other.flush_blocking().unwrap();
}

/// The same if the pool has no worker at all: the items wait for the rescuer.
#[test]
fn who_queues_for_a_rescuer_asks_for_no_thread_again() {
    let rig = rig();
    rig.faults.refuse_spawns(true);
    let first = rig.safe.spawn(|| ());
    let asked = rig.faults.spawn_attempts();
    let more: Vec<_> = (0..20).map(|_| rig.safe.spawn(|| ())).collect();
    assert_eq!(rig.faults.spawn_attempts(), asked, "nobody asks at once");
    rig.clock.advance(10 * MS);
    first.wait().unwrap();
    more.into_iter().for_each(|item| item.wait().unwrap());
}

/// An item of the queue blocks the last worker and waits for another one: the rescuer runs it.
#[test]
fn an_item_that_waits_for_the_next_one_ends() {
    let rig = rig();
    let done = Level::new();
    let first = rig.safe.spawn({
        let (safe, done, faults) = (rig.safe.clone(), done.clone(), rig.faults.clone());
        move || {
            faults.refuse_spawns(true);
            drop(safe.spawn({
                let done = done.clone();
                move || done.raise()
            }));
            blocking(|| done.wait_silently(1));
        }
    });
    while done.get() == 0 {
        rig.clock.advance(10 * MS);
        thread::yield_now();
    }
    first.wait().unwrap();
}

/// One rescuer for many pools in turn, and more items than it takes at once; each runs once.
#[test]
fn it_serves_all_pools_in_turn() {
    let faults = Faults::new();
    let builder = builder();
    let sys = builder.faults(&faults).build().unwrap();
    let bound = reclaim(&sys, "bound");
    let attrs = Attrs::new().scope(Scope::System);
    let unbound = sys
        .workqueue("unbound")
        .unbound(attrs)
        .mem_reclaim()
        .build()
        .unwrap();
    faults.refuse_spawns(true);
    let handles: Vec<_> = (0..200)
        .map(|n| {
            if n % 5 == 4 {
                unbound.spawn(move || n)
            } else {
                bound.spawn_on(n % 5, move || n)
            }
        })
        .collect();
    for (n, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.wait().unwrap(), n);
    }
    bound.flush_blocking().unwrap();
    unbound.flush_blocking().unwrap();
    assert_eq!(bound.stats().rescued, 160);
    assert_eq!(unbound.stats().rescued, 40);
}

/// What an item queues while its queue is drained is rescued at once where the pool has called
/// before, as at any other time, and not only at the timer's next call.
#[test]
fn what_is_queued_during_a_drain_is_rescued_at_once() {
    let (sys, faults, clock) = rigged(builder());
    let safe = reclaim(&sys, "safe");
    faults.refuse_spawns(true);
    let first = [0, 1].map(|cpu| safe.spawn_on(cpu, || ()));
    clock.advance(10 * MS);
    first.into_iter().for_each(|item| item.wait().unwrap());
    let [drains, runs] = [(); 2].map(|()| Level::new());
    let outer = safe.spawn_on(1, {
        let (safe, drains, runs) = (safe.clone(), drains.clone(), runs.clone());
        move || {
            drains.wait_silently(1);
            safe.spawn_on(0, move || runs.raise()).detach();
        }
    });
    let drain = safe.drain();
    drains.raise();
    outer.wait().unwrap();
    until(|| runs.get() == 1, || "it waits for the timer".to_owned());
    block_on(drain).unwrap();
}

/// I.21: a work is queued again and again while rescuers and workers take turns at the same list:
/// each queueing is run once, never two at once, and nothing of the rescuer stays in the list.
#[test]
fn i21_a_rescued_work_never_runs_twice_at_once() {
    let faults = Faults::new();
    let builder = builder();
    let sys = builder.faults(&faults).build().unwrap();
    let wq = reclaim(&sys, "safe");
    let (inside, runs) = (Inside::new(), Level::new());
    let work = Work::new({
        let (inside, runs) = (inside.clone(), runs.clone());
        move || {
            inside.enter();
            thread::yield_now();
            inside.leave();
            runs.raise();
        }
    });
    faults.refuse_spawns(true);
    let mut queued = 0;
    for n in 0..400 {
        queued += usize::from(wq.queue_on(n % 4, &work).unwrap().is_queued());
        if n == 200 {
            faults.refuse_spawns(false);
        }
        if n % 50 == 0 {
            runs.wait(queued);
        }
    }
    wq.flush_blocking().unwrap();
    assert_eq!((inside.most(), runs.get()), (1, queued));
    assert!(wq.stats().rescued > 0);
    let dump = sys.dump();
    assert!(!dump.contains("1 ready"), "{dump}");
}

/// I.19: the rescuer has just helped a pool. Its queue goes, and then the pool with the system: a
/// destroyed queue needs no thread any more, and the system's end waits for none.
#[test]
fn i19_it_goes_with_its_queue() {
    let rig = rig();
    rig.safe.destroy_blocking().unwrap();
    drop(rig.sys);
    let second = WorkqueueSystem::builder().build().unwrap();
    drop(reclaim(&second, "dropped"));
    drop(second);
}

/// E4: while it works for a pool it runs where the pool's workers would, and afterwards anywhere
/// again.
#[cfg(target_os = "linux")]
#[test]
fn e4_it_is_pinned_to_the_pools_cpu_while_it_works_for_it() {
    let topology = Topology::discover().unwrap();
    let faults = Faults::new();
    let builder = WorkqueueSystem::builder().topology(&topology);
    let sys = builder.faults(&faults).build().unwrap();
    let safe = sys.workqueue("safe").bound().mem_reclaim().build().unwrap();
    faults.refuse_spawns(true);
    let here = || Topology::discover().unwrap().cpus().clone();
    for cpu in topology.cpus() {
        assert_eq!(safe.spawn_on(cpu, here).wait().unwrap(), [cpu].into());
    }
    assert_eq!(safe.stats().rescued, topology.cpus().len() as u64);
    // A set that is not strict does not hold it.
    let loose = sys.workqueue("loose").unbound(Attrs::new()).mem_reclaim();
    faults.refuse_spawns(false);
    let loose = loose.build().unwrap();
    faults.refuse_spawns(true);
    assert_eq!(loose.spawn(here).wait().unwrap(), *topology.cpus());
    assert_eq!(loose.stats().rescued, 1);
}

/// Within its first item the pool's worker is back: whatever else waits there is the pool's own
/// business, and the rescuer goes on to the next pool that has called.
#[test]
fn it_takes_nothing_more_once_the_pool_can_help_itself() {
    let topology = Topology::synthetic("core:2").unwrap();
    let builder = WorkqueueSystem::builder().topology(topology);
    // Nobody is taken for one that does not run.
    let (sys, faults, clock) = rigged(builder.sampling(false));
    let safe = reclaim(&sys, "safe");
    let (unblock, back, end) = (Level::new(), Level::new(), Level::new());
    let begun = Level::new();
    let worker = bound(&sys).spawn_on(0, {
        let (begun, unblock) = (begun.clone(), unblock.clone());
        let (back, end) = (back.clone(), end.clone());
        move || {
            blocking(|| {
                begun.raise();
                unblock.wait_silently(1);
            });
            back.raise();
            end.wait_silently(1);
        }
    });
    begun.wait(1);
    faults.refuse_spawns(true);
    let (inside, open) = (Level::new(), Level::new());
    let first = safe.spawn_on(0, {
        let (inside, open) = (inside.clone(), open.clone());
        move || {
            inside.raise();
            open.wait_silently(1);
        }
    });
    while inside.get() == 0 {
        clock.advance(10 * MS);
        thread::yield_now();
    }
    let log = Log::new();
    let three = [1, 2, 3].map(|number| {
        let log = log.clone();
        safe.spawn_on(0, move || log.push(number))
    });
    unblock.raise();
    back.wait(1);
    // The pool of the other CPU has no worker: its item runs when the rescuer has left the first.
    let next = safe.spawn_on(1, || ());
    open.raise();
    first.wait().unwrap();
    while !next.is_finished() {
        clock.advance(10 * MS);
        thread::yield_now();
    }
    assert_eq!((safe.stats().rescued, log.entries()), (2, vec![]));
    end.raise();
    three.into_iter().for_each(|item| item.wait().unwrap());
    worker.wait().unwrap();
    assert_eq!((safe.stats().rescued, log.entries()), (2, vec![1, 2, 3]));
}
