//! Items that run in another pod: when they do, when they must not, and what that leaves alone.
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

mod support;

use inflight_sync::fault::Faults;
use inflight_sync::{Arc, Mutex, cpu, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{Attrs, Concurrency, JoinHandle, Work, Workqueue, WorkqueueSystem};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use support::{Level, builder, until};

/// CPUs of the two pods.
const BUSY: usize = 0;
const IDLE: usize = 2;

/// Two pods of two CPUs, in which no item is taken for one that computes for long.
fn system() -> WorkqueueSystem {
    let builder = builder();
    let builder = builder.intensive_threshold(Duration::MAX);
    builder.sampling(true).build().unwrap()
}

fn queue(sys: &WorkqueueSystem, strict: bool) -> Workqueue {
    let attrs = Attrs::new().scope(Scope::Cache).strict(strict);
    let wq = sys.workqueue("wide").unbound(attrs).max_active(512);
    wq.build().unwrap()
}

/// Items of that pod take long, as far as anybody knows: two of `BUSY`'s have.
fn teach(wq: &Workqueue) {
    for _ in 0..2 {
        let taught = wq.spawn_on(BUSY, || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
        });
        taught.wait().unwrap();
    }
}

/// All workers of `BUSY` run until `open` is raised.
fn occupy(wq: &Workqueue, open: &Level) -> Vec<JoinHandle<()>> {
    let begun = Level::new();
    let hogs = (0..2).map(|_| {
        let (begun, open) = (begun.clone(), open.clone());
        wq.spawn_on(BUSY, move || {
            begun.raise();
            open.wait_silently(1);
        })
    });
    let hogs = hogs.collect();
    begun.wait(2);
    hogs
}

/// The workers of `IDLE` come to the end of their work, and look round, so many times.
fn look_round(wq: &Workqueue, times: usize) {
    for _ in 0..times {
        wq.spawn_on(IDLE, || ()).wait().unwrap();
    }
}

/// Both workers of the pod run until an item that is on its list has run: without help this is for
/// ever.
#[test]
fn an_idle_pod_takes_what_waits_for_long() {
    let sys = system();
    let wq = queue(&sys, false);
    teach(&wq);
    // In the first round the other pod has no pool.
    for round in 1..20 {
        let (open, before) = (Level::new(), wq.stats());
        let hogs = occupy(&wq, &open);
        wq.spawn_on(BUSY, move || open.raise()).wait().unwrap();
        hogs.into_iter().for_each(|hog| hog.wait().unwrap());
        let after = wq.stats();
        assert!(after.stolen > before.stolen, "round {round}: {after:?}");
        assert!(after.stolen <= after.started, "{after:?}");
        teach(&wq);
    }
}

/// What an unmanaged queue's item does is nobody's concern, nor where it runs: the pod that has
/// taken it runs as many others as if it had not.
#[test]
fn an_unmanaged_item_does_not_hold_up_who_takes_it() {
    let sys = system();
    let wq = queue(&sys, false);
    let attrs = Attrs::new().scope(Scope::Cache);
    let unmanaged = attrs.concurrency(Concurrency::Unmanaged);
    let free = sys.workqueue("free").unbound(unmanaged).build().unwrap();
    look_round(&wq, 1);
    let (begun, stolen) = (Level::new(), || wq.stats().stolen);
    let (open, mut hogs) = loop {
        // In each round: items that end at once teach the contrary.
        teach(&wq);
        let (open, before) = (Level::new(), stolen());
        let hogs = occupy(&wq, &open);
        if stolen() == before {
            break (open, hogs);
        }
        // One of them has taken a worker of the other pod.
        open.raise();
        hogs.into_iter().for_each(|hog| hog.wait().unwrap());
    };
    let hog = |wq: &Workqueue, cpu| {
        let (begun, open) = (begun.clone(), open.clone());
        wq.spawn_on(cpu, move || {
            begun.raise();
            open.wait_silently(1);
        })
    };
    let waits = |until_so: &dyn Fn() -> bool| {
        until(until_so, || {
            open.raise();
            format!("it waits: {}", sys.dump())
        });
    };
    hogs.push(hog(&free, BUSY));
    waits(&|| begun.get() == 1);
    assert_eq!(free.stats().stolen, 1);
    hogs.push(hog(&wq, IDLE));
    waits(&|| begun.get() == 2);
    let beside = wq.spawn_on(IDLE, || ());
    waits(&|| beside.is_finished());
    open.raise();
    hogs.into_iter().for_each(|hog| hog.wait().unwrap());
    free.flush_blocking().unwrap();
    // Back at home it counts again.
    look_round(&wq, 2);
}

/// Two pods of one CPU each, of which `BUSY`'s items are taken for long ones.
fn alone(faults: &Faults) -> (WorkqueueSystem, Workqueue) {
    let topology = Topology::synthetic("core:2").unwrap();
    let builder = WorkqueueSystem::builder().topology(topology);
    let builder = builder.intensive_threshold(Duration::MAX).faults(faults);
    let sys = builder.sampling(true).build().unwrap();
    let attrs = Attrs::new().scope(Scope::Cpu);
    let wq = sys.workqueue("alone").unbound(attrs).build().unwrap();
    teach(&wq);
    (sys, wq)
}

/// Pods of one CPU help each other too.
#[test]
fn a_pod_of_one_cpu_is_helped() {
    let (_sys, wq) = alone(&Faults::new());
    let (begun, open) = (Level::new(), Level::new());
    let hog = wq.spawn_on(BUSY, {
        let (begun, open) = (begun.clone(), open.clone());
        move || {
            begun.raise();
            open.wait_silently(1);
        }
    });
    begun.wait(1);
    wq.spawn_on(BUSY, move || open.raise()).wait().unwrap();
    hog.wait().unwrap();
    // What came before may have been taken as well.
    assert!(wq.stats().stolen >= 1);
}

/// The only worker of a pod says that it blocks, and no thread is to be had in its place: the other
/// pod takes what waits.
#[test]
fn a_pod_that_gets_no_threads_is_helped() {
    let faults = Faults::new();
    let (sys, wq) = alone(&faults);
    wq.spawn_on(1, || ()).wait().unwrap();
    faults.refuse_spawns(true);
    let (begun, open) = (Level::new(), Level::new());
    let blocked = wq.spawn_on(BUSY, {
        let (begun, open) = (begun.clone(), open.clone());
        move || {
            begun.raise();
            open.wait(1);
        }
    });
    begun.wait(1);
    wq.spawn_on(BUSY, move || open.raise()).wait().unwrap();
    blocked.wait().unwrap();
    assert!(wq.stats().stolen >= 1);
    drop(sys);
}

/// Runs `given` with a list of one item in `BUSY`, whose workers are all occupied, and an idle pod
/// that looks round. Returns whether the item had begun before they were let go.
fn moves(wq: &Workqueue) -> bool {
    let (open, ran) = (Level::new(), Level::new());
    let hogs = occupy(wq, &open);
    let waits = wq.spawn_on(BUSY, {
        let ran = ran.clone();
        move || ran.raise()
    });
    look_round(wq, 50);
    let moved = ran.get() > 0;
    open.raise();
    waits.wait().unwrap();
    hogs.into_iter().for_each(|hog| hog.wait().unwrap());
    moved
}

/// One of the workers of `BUSY` computes, until `open` is raised.
fn compute(wq: &Workqueue, open: &Level) -> JoinHandle<()> {
    let (begun, open) = (Level::new(), open.clone());
    let computes = wq.spawn_on(BUSY, {
        let begun = begun.clone();
        move || {
            begun.raise();
            while open.get() == 0 {
                std::hint::spin_loop();
            }
        }
    });
    begun.wait(1);
    computes
}

/// A thread that submits needs one of the two CPUs, a worker has the other: items as short as can
/// be go to the idle pod. Nobody has to know of the thread; it is heard.
#[test]
fn a_pod_full_of_submitters_is_helped() {
    let sys = system();
    let wq = queue(&sys, false);
    look_round(&wq, 1);
    let open = Level::new();
    let computes = compute(&wq, &open);
    cpu::set_current_for_thread(Some(BUSY));
    let helped = (0..100_000).any(|_| {
        wq.spawn(|| ()).wait().unwrap();
        wq.stats().remote_wakeups > 0 && wq.stats().stolen > 0
    });
    cpu::set_current_for_thread(None);
    open.raise();
    computes.wait().unwrap();
    assert!(helped, "{:?}", wq.stats());
}

/// Whoever queues on others' behalf is on no CPU of theirs.
#[test]
fn a_thread_that_names_a_cpu_is_no_submitter_there() {
    let sys = system();
    let wq = queue(&sys, false);
    look_round(&wq, 1);
    let open = Level::new();
    let computes = compute(&wq, &open);
    for _ in 0..5_000 {
        wq.spawn_on(BUSY, || ()).wait().unwrap();
    }
    open.raise();
    computes.wait().unwrap();
}

/// A worker that submits is counted as one, and not once more.
#[test]
fn workers_are_no_submitters() {
    let sys = system();
    let wq = queue(&sys, false);
    look_round(&wq, 1);
    let submits = wq.clone();
    let all = wq.spawn_on(BUSY, move || {
        cpu::set_current_for_thread(Some(BUSY));
        for _ in 0..5_000 {
            let ran = Level::new();
            let done = ran.clone();
            drop(submits.spawn(move || done.raise()));
            while ran.get() == 0 {
                std::hint::spin_loop();
            }
        }
        cpu::set_current_for_thread(None);
    });
    all.wait().unwrap();
}

#[test]
fn strict_items_stay() {
    let sys = system();
    let wq = queue(&sys, true);
    teach(&wq);
    assert!(!moves(&wq));
    assert_eq!((wq.stats().remote_wakeups, wq.stats().stolen), (0, 0));
}

/// One item that is taken for a short one is not worth a move, as long as no long one has ended.
#[test]
fn short_items_stay() {
    let sys = system();
    let wq = queue(&sys, false);
    assert!(!moves(&wq));
}

/// Two systems: one full, one idle. Each runs its own items on its own threads.
#[test]
fn items_stay_in_their_system() {
    let systems = [system(), system()];
    let [full, idle] = systems.each_ref().map(|sys| queue(sys, false));
    let threads = [(); 2].map(|()| Arc::new(Mutex::new(BTreeSet::<String>::new())));
    let note = |of: usize| {
        let threads = threads[of].clone();
        move || {
            threads.lock().insert(format!("{:?}", thread::current_id()));
        }
    };
    teach(&full);
    let open = Level::new();
    let hogs = occupy(&full, &open);
    let items: Vec<_> = (0..50).map(|_| full.spawn_on(BUSY, note(0))).collect();
    for _ in 0..50 {
        idle.spawn_on(IDLE, note(1)).wait().unwrap();
    }
    open.raise();
    items
        .into_iter()
        .chain(hogs)
        .for_each(|item| item.wait().unwrap());
    let [first, second] = threads.each_ref().map(|threads| threads.lock().clone());
    assert!(!first.is_empty() && first.is_disjoint(&second));
}

/// Items of an ordered queue wait on the same list, and may be taken; their order is the same.
#[test]
fn an_ordered_queue_stays_in_order() {
    let sys = system();
    let wq = queue(&sys, false);
    let ordered = sys
        .workqueue("ordered")
        .ordered_with(Attrs::new().scope(Scope::Cache));
    let ordered = ordered.build().unwrap();
    teach(&wq);
    let open = Level::new();
    let hogs = occupy(&wq, &open);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let items: Vec<_> = (0..200)
        .map(|number| {
            let seen = seen.clone();
            ordered.spawn_on(BUSY, move || seen.lock().push(number))
        })
        .collect();
    // Its pool has all CPUs, and so has workers beside the hogs.
    items.into_iter().for_each(|item| item.wait().unwrap());
    open.raise();
    hogs.into_iter().for_each(|hog| hog.wait().unwrap());
    assert!(seen.lock().iter().copied().eq(0..200));
}

/// Works that queue themselves while they run, from both pods, on full lists: none runs twice at
/// once, each queueing runs once, and none moves more than once each time.
#[test]
fn a_taken_item_never_runs_twice_at_once() {
    let sys = system();
    let wq = queue(&sys, false);
    teach(&wq);
    look_round(&wq, 1);
    let overlaps = Level::new();
    let works: Vec<_> = (0..32)
        .map(|_| {
            let (inside, overlaps) = (Mutex::new(()), overlaps.clone());
            Work::new(move || match inside.try_lock() {
                None => overlaps.raise(),
                Some(_inside) => {
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_micros(300) {
                        std::hint::spin_loop();
                    }
                }
            })
        })
        .collect();
    let mut queued = 3; // by `teach` and `look_round`
    let mut cancelled = 0;
    // Whether the other pod comes in time is the machine's business; it does now and then.
    for _ in 0..100 {
        for round in 0..60 {
            for (number, work) in works.iter().enumerate() {
                queued += u64::from(wq.queue_on(BUSY, work).unwrap().is_queued());
                if (number + round) % 7 == 0 {
                    cancelled += u64::from(work.cancel());
                }
            }
        }
        wq.flush_blocking().unwrap();
        if wq.stats().stolen > 0 {
            break;
        }
    }
    let stats = wq.stats();
    assert_eq!(overlaps.get(), 0);
    assert_eq!((stats.queued, stats.cancelled), (queued, cancelled));
    assert_eq!(stats.completed, queued - cancelled);
    assert!(stats.stolen > 0 && stats.stolen <= queued, "{stats:?}");
}
