//! Workers whose thread the system moves to another CPU, as it does when theirs goes away.
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

mod support;

use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{Attrs, Workqueue, WorkqueueSystem, blocking};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use support::{Level, bound};

fn move_to(thread: Pid, cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(Some(thread), &cpus).unwrap();
}

/// How often, among so many items of that CPU that do not block, two ran at once.
fn overlaps(wq: &Workqueue, cpu: usize, items: usize) -> usize {
    let [inside, overlaps] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let spawned: Vec<_> = (0..items)
        .map(|_| {
            let (inside, overlaps) = (inside.clone(), overlaps.clone());
            wq.spawn_on(cpu, move || {
                overlaps.fetch_add(inside.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
                inside.fetch_sub(1, Ordering::Relaxed);
            })
        })
        .collect();
    for item in spawned {
        item.wait().unwrap();
    }
    overlaps.load(Ordering::Relaxed)
}

/// I.5: a worker that blocks is moved to each of the machine's CPUs in turn, and comes back there.
/// Its pool's count of running workers is neither too high, or the next item would find nobody,
/// nor too low, or two would run at once.
#[test]
fn i5_moved_off_its_cpu_while_it_blocks() {
    let machine = Topology::discover().unwrap();
    let cpus: Vec<usize> = machine.cpus().iter().collect();
    let home = cpus[0];
    // A worker that waits for a lock looks asleep, and would be replaced.
    let builder = WorkqueueSystem::builder().sampling(false);
    let sys = builder.topology(machine).build().unwrap();
    let wq = bound(&sys);
    for away in cpus {
        let (begun, open) = (Level::new(), Level::new());
        let thread = Arc::new(inflight_sync::Mutex::new(None));
        let blocked = wq.spawn_on(home, {
            let (begun, open, thread) = (begun.clone(), open.clone(), thread.clone());
            move || {
                *thread.lock() = Some(gettid());
                blocking(|| {
                    begun.raise();
                    open.wait(1);
                });
            }
        });
        begun.wait(1);
        assert_eq!(overlaps(&wq, home, 20), 0, "while it blocks");
        let thread = thread.lock().take().unwrap();
        move_to(thread, away);
        open.raise();
        blocked.wait().unwrap();
        assert_eq!(overlaps(&wq, home, 20), 0, "back on CPU {away}");
        while !sys.dump().contains("(0 running of 1, 0 blocked") {
            inflight_sync::thread::yield_now();
        }
        move_to(thread, home);
    }
}

/// D5: a worker that went to sleep on another group's CPU, and is woken there, goes back to its own
/// before it runs an item. After that it may run anywhere, as before.
#[test]
fn d5_a_worker_is_repatriated() {
    let machine = Topology::discover().unwrap();
    let cpus: Vec<usize> = machine.cpus().iter().collect();
    let [home, away, ..] = cpus[..] else {
        return; // There is no other CPU here.
    };
    let builder = WorkqueueSystem::builder().topology(machine.clone());
    let sys = builder.build().unwrap();
    let attrs = Attrs::new().scope(Scope::Cpu);
    let wq = sys.workqueue("loose").unbound(attrs).build().unwrap();
    wq.spawn_on(home, || ()).wait().unwrap();
    // Who queues is on the worker's own CPU from now on: the other one is free when it is woken.
    let _pinned = machine.pin_current_thread(&[home].into()).unwrap();
    while wq.stats().repatriated == 0 {
        let stray = move || {
            let anywhere = sched_getaffinity(None).unwrap();
            move_to(gettid(), away);
            sched_setaffinity(None, &anywhere).unwrap();
            anywhere.is_set(home) && anywhere.is_set(away)
        };
        assert!(wq.spawn_on(home, stray).wait().unwrap(), "free to go");
    }
    let stats = wq.stats();
    assert!(stats.repatriated <= stats.started, "{stats:?}");
    // Items of a strict queue have workers that cannot go astray.
    let strict = Attrs::new().scope(Scope::Cpu).strict(true);
    let strict = sys.workqueue("strict").unbound(strict).build().unwrap();
    for _ in 0..20 {
        strict.spawn_on(home, || ()).wait().unwrap();
    }
    assert_eq!(strict.stats().repatriated, 0);
}
