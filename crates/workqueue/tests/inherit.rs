//! Threads of the system inherit nothing from the thread that makes them: neither its CPUs nor its
//! priority. Those that serve all queues keep to the CPUs of unbound queues.
#![cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]

mod support;

use inflight_sync::{Mutex, thread};
use inflight_topology::{CpuSet, Scope, Topology};
use inflight_workqueue::{Attrs, DelayedWork, Workqueue, WorkqueueSystem};
use std::path::PathBuf;
use std::time::Duration;
use support::{Level, bound};

/// Threads are found by their names, which those of another test would have too.
static ALONE: Mutex<()> = Mutex::new(());

/// The CPUs that the thread may use whose files stand there.
fn allowed(task: impl Into<PathBuf>) -> Option<CpuSet> {
    let status = std::fs::read_to_string(task.into().join("status")).ok()?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    list.trim().parse().ok()
}

fn own_cpus() -> CpuSet {
    allowed("/proc/thread-self").unwrap()
}

fn own_nice() -> i32 {
    rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap()
}

/// The CPUs of this process's threads of that name.
fn of_threads(name: &str) -> Vec<CpuSet> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let named = tasks.filter(|task| {
        let comm = std::fs::read_to_string(task.path().join("comm"));
        comm.is_ok_and(|comm| comm.trim() == name)
    });
    named.filter_map(|task| allowed(task.path())).collect()
}

/// This machine, if there is more than one CPU to be on.
fn machine() -> Option<Topology> {
    let machine = Topology::discover().unwrap();
    if machine.cpus().len() < 2 {
        println!("skipped: the process may use one CPU only");
        return None;
    }
    Some(machine)
}

fn wide(sys: &WorkqueueSystem) -> Workqueue {
    let attrs = Attrs::new().scope(Scope::System);
    sys.workqueue("wide").unbound(attrs).build().unwrap()
}

/// The affinity of whoever queues the first item is not the worker's.
#[test]
fn an_unbound_worker_does_not_stay_where_its_maker_is_pinned() {
    let _alone = ALONE.lock();
    let Some(machine) = machine() else { return };
    let first = machine.cpus().iter().take(1).collect();
    let sys = WorkqueueSystem::builder();
    let sys = sys.topology(&machine).build().unwrap();
    let wq = wide(&sys);
    let pinned = machine.pin_current_thread(&first).unwrap();
    assert_eq!(own_cpus(), first);
    let cpus = wq.spawn(own_cpus).wait().unwrap();
    drop(pinned);
    assert_eq!(cpus, *machine.cpus());
}

/// Nor is that of a bound worker, whose item needs the first worker of another pool, or the next
/// one of a pool.
#[test]
fn an_unbound_worker_does_not_stay_with_the_bound_worker_that_made_it() {
    let _alone = ALONE.lock();
    let Some(machine) = machine() else { return };
    let sys = WorkqueueSystem::builder();
    let sys = sys.topology(&machine).build().unwrap();
    let (bound, wide) = (bound(&sys), wide(&sys));
    let cpu = machine.cpus().first().unwrap();
    let open = Level::new();
    let (begun, made) = (Level::new(), machine.cpus().len() + 1);
    let workers = bound.spawn_on(cpu, {
        let (wide, begun, open) = (wide.clone(), begun.clone(), open.clone());
        move || {
            assert_eq!(own_cpus(), [cpu].into());
            // Each blocks, so that there is a worker for each.
            let item = move || {
                begun.raise();
                open.wait(1);
                own_cpus()
            };
            let items = (0..made).map(|_| wide.spawn(item.clone()));
            items.collect::<Vec<_>>()
        }
    });
    let workers = workers.wait().unwrap();
    begun.wait(made);
    open.raise();
    for worker in workers {
        assert_eq!(worker.wait().unwrap(), *machine.cpus());
    }
}

/// A worker has the priority of its own pool, whatever that of its maker is: a highpri worker, or
/// one that is nicer than the process.
#[test]
fn a_worker_has_not_the_priority_of_its_maker() {
    let _alone = ALONE.lock();
    let sys = WorkqueueSystem::builder();
    let sys = sys.topology(support::four_cpus()).build().unwrap();
    let high = sys.workqueue("high").bound().highpri().build().unwrap();
    let nicer = Attrs::new().nice(19);
    let nicer = sys.workqueue("nicer").unbound(nicer).build().unwrap();
    let normal = rustix::process::getpriority_process(Some(rustix::process::getpid())).unwrap();
    let nices = [high.spawn_on(0, own_nice), nicer.spawn_on(0, own_nice)];
    let nices = nices.map(|nice| nice.wait().unwrap());
    if let Some(refused) = sys.nice_refused() {
        println!("skipped: the system refuses priorities: {refused}");
        return;
    }
    assert_eq!(nices, [-20, 19]);
    let (other, wide) = (bound(&sys), wide(&sys));
    for (maker, cpu) in [(&high, 1), (&nicer, 2)] {
        let (other, wide) = (other.clone(), wide.clone());
        let made = maker.spawn_on(cpu, move || {
            let bound = other.spawn_on(cpu, own_nice).wait().unwrap();
            [bound, wide.spawn(own_nice).wait().unwrap()]
        });
        assert_eq!(
            made.wait().unwrap(),
            [normal; 2],
            "made by {}",
            maker.name()
        );
    }
    assert_eq!(sys.nice_refused(), None);
}

/// Rescuers, the timer and the thread for reports keep to the CPUs of unbound queues, whoever has
/// made them and whenever those change.
#[test]
fn housekeepers_follow_the_unbound_mask() {
    let _alone = ALONE.lock();
    let Some(machine) = machine() else { return };
    let (told, stalls) = (Level::new(), Level::new());
    let sys = WorkqueueSystem::builder();
    let sys = sys
        .topology(&machine)
        .sampling(false)
        .watchdog(Duration::from_millis(1), {
            let stalls = stalls.clone();
            move |_| stalls.raise()
        });
    let sys = sys.build().unwrap();
    let (first, last) = (
        machine.cpus().first().unwrap(),
        machine.cpus().last().unwrap(),
    );
    let pinned = machine.pin_current_thread(&[first].into()).unwrap();
    let safe = sys.workqueue("hk").bound().mem_reclaim().build().unwrap();
    let delayed = DelayedWork::new({
        let told = told.clone();
        move || told.raise()
    });
    let queued = safe.queue_delayed(&delayed, Duration::from_nanos(1));
    assert!(queued.unwrap().is_queued());
    told.wait(1);
    // An item holds its CPU until a stall has been reported.
    let (open, begun) = (Level::new(), Level::new());
    let holds = safe.spawn_on(first, {
        let (open, begun) = (open.clone(), begun.clone());
        move || {
            begun.raise();
            open.wait_silently(1);
        }
    });
    begun.wait(1);
    let waits = safe.spawn_on(first, || ());
    stalls.wait(1);
    open.raise();
    holds.wait().unwrap();
    waits.wait().unwrap();
    drop(pinned);
    let names = ["inflight/R-hk", "inflight/timer", "inflight/report"];
    let all_on = |cpus: &CpuSet| {
        let are_there = || names.map(of_threads);
        let wanted = names.map(|_| vec![cpus.clone()]);
        // A tick takes longer than others do.
        let mut looks = 0..support::LOOKS / 50;
        let arrived = looks.any(|_| {
            thread::yield_now();
            are_there() == wanted
        });
        assert!(arrived, "{:?} of {names:?}, not {cpus}", are_there());
    };
    all_on(machine.cpus());
    for cpu in [last, first] {
        sys.set_unbound_cpumask(&[cpu].into()).unwrap();
        all_on(&[cpu].into());
    }
}
