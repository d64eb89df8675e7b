//! Workers that nobody needs leave, and then all is quiet.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::thread;
use inflight_sync::time::Clock;
use inflight_topology::Topology;
use inflight_workqueue::{SystemBuilder, Workqueue, WorkqueueSystem};
use std::time::Duration;
use support::{Level, bound};

fn one_cpu() -> SystemBuilder {
    WorkqueueSystem::builder().topology(Topology::synthetic("core:1").unwrap())
}

/// Makes a pool have so many workers, and lets them all go idle.
fn burst(wq: &Workqueue, workers: usize) {
    let (begun, open) = (Level::new(), Level::new());
    for _ in 0..workers {
        let (begun, open) = (begun.clone(), open.clone());
        drop(wq.spawn(move || {
            begun.raise();
            open.wait(1);
        }));
    }
    begun.wait(workers);
    open.raise();
    wq.flush().unwrap();
}

fn until_dump_has(sys: &WorkqueueSystem, text: &str) {
    while !sys.dump().contains(text) {
        thread::yield_now();
    }
}

/// With a clock that stands still nobody leaves; when it has moved far enough two stay, for each
/// pool, and work goes on.
#[test]
fn two_idle_workers_stay() {
    let clock = Clock::manual();
    let sys = one_cpu().clock(clock.clone()).build().unwrap();
    let wq = bound(&sys);
    burst(&wq, 8);
    until_dump_has(&sys, "8 workers (0 running of 1, 0 blocked, 8 idle)");
    while clock.sleepers() == 0 {
        thread::yield_now();
    }
    clock.advance(Duration::from_secs(299));
    assert!(sys.dump().contains("8 idle"));
    // Whoever went idle a moment later leaves a moment later.
    clock.advance(Duration::from_secs(1));
    until_dump_has(&sys, "2 workers (0 running of 1, 0 blocked, 2 idle)");
    while clock.sleepers() > 0 {
        thread::yield_now();
    }
    burst(&wq, 5);
    until_dump_has(&sys, "5 idle");
    wq.spawn(|| ()).wait().unwrap();
}

/// Workers leave while items come: none is lost, and the threads that have left do not pile up.
#[test]
fn items_that_come_while_workers_leave_all_run() {
    let clock = Clock::manual();
    let builder = one_cpu().clock(clock.clone());
    let sys = builder
        .idle_timeout(Duration::from_millis(1))
        .build()
        .unwrap();
    let wq = bound(&sys);
    for round in 0..60 {
        burst(&wq, 2 + round % 5);
        clock.advance(Duration::from_millis(1));
        for n in 0..3 {
            assert_eq!(wq.spawn(move || n).wait().unwrap(), n);
            clock.advance(Duration::from_millis(1));
        }
    }
    until_dump_has(&sys, "0 ready");
}

/// After the last has left, the process makes no wakeups.
#[cfg(target_os = "linux")]
#[test]
fn a_system_with_nothing_to_do_makes_no_wakeups() {
    let builder = one_cpu().idle_timeout(Duration::from_millis(100));
    let sys = builder.build().unwrap();
    let wq = sys
        .workqueue("quiet")
        .bound()
        .mem_reclaim()
        .build()
        .unwrap();
    let timed = inflight_workqueue::DelayedWork::new(|| ());
    assert!(
        wq.queue_delayed(&timed, Duration::from_millis(5))
            .unwrap()
            .is_queued()
    );
    burst(&wq, 12);
    while timed.is_pending() || !sys.dump().contains("2 workers (0 running") {
        pass(Duration::from_millis(10));
    }
    // Their names are cut off at 15 bytes; other tests of this process name their threads too.
    let first = switches();
    let mut quiet = false;
    // The last to leave may still be on its way, so it is given more than one second to be quiet.
    for _ in 0..10 {
        let before = switches();
        pass(Duration::from_secs(1));
        quiet |= switches() == before;
        if quiet {
            break;
        }
    }
    assert!(quiet, "{first:?} became {:?}", switches());
}

/// Real time passes.
#[cfg(target_os = "linux")]
fn pass(time: Duration) {
    let clock = Clock::system();
    let end = clock.now() + time;
    while inflight_sync::Parker::current().park_until(&clock, end) {}
}

/// Voluntary context switches of this test's threads, by thread.
#[cfg(target_os = "linux")]
fn switches() -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        // A thread may end while it is looked at.
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        if field("Name:").starts_with("inflight/") {
            let count = field("voluntary_ctxt_switches:").parse().unwrap();
            all.push((format!("{} {}", field("Name:"), field("Pid:")), count));
        }
    }
    all.sort();
    all
}
