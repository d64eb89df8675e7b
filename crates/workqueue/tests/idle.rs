//! Workers that nobody needs leave, and then all is quiet.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::thread;
use inflight_sync::time::Clock;
use inflight_workqueue::{Workqueue, WorkqueueSystem};
#[cfg(target_os = "linux")]
use std::io::{BufRead, BufReader, Read, Write};
#[cfg(target_os = "linux")]
use std::os::unix::net::UnixStream;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
#[cfg(target_os = "linux")]
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Level, bound, one_cpu, until};

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
    wq.flush_blocking().unwrap();
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
    until_dump_has(&sys, "5 idle");
    // Those of a later burst leave, too.
    until(|| clock.sleepers() > 0, || "nobody looks".to_owned());
    clock.advance(Duration::from_secs(300));
    until_dump_has(&sys, "2 workers (0 running of 1, 0 blocked, 2 idle)");
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

/// After the last has left, no thread above the idle rule is there and the process makes no
/// wakeups: a process of its own has nothing to do, and this one counts the switches of all its
/// threads, the voluntary and the others, from outside.
#[cfg(target_os = "linux")]
#[test]
fn a_process_with_nothing_to_do_makes_no_wakeups() {
    if std::env::var_os(CHILD).is_some() {
        return; // The child runs the other test alone.
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "with_nothing_to_do", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let idle = lines.any(|line| line.contains(IDLE));
    assert!(idle, "the child has failed");

    // The last to leave may still be on its way, so it is given more than one second to be quiet.
    let mut seconds = (0..10).map(|_| {
        let before = switches(child.id());
        pass(Duration::from_secs(1));
        (before, switches(child.id()))
    });
    let quiet = seconds.find(|(before, after)| before == after);
    let (threads, _) = quiet.expect("there are wakeups in each second");
    let workers = threads.iter().filter(|t| t.name.starts_with("inflight/0:"));
    assert_eq!(workers.count(), 2, "the idle rule leaves two: {threads:?}");

    drop(child.stdin.take()); // It may end.
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
}

/// The child: each kind of thread has been there, and had something to do. An item slept without
/// saying so, so the timer has looked at workers; another waited for its time; a queue has a
/// rescuer; the CPU time of its items is measured; a flush waits.
#[cfg(target_os = "linux")]
#[test]
fn with_nothing_to_do() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let builder = one_cpu().idle_timeout(Duration::from_millis(100));
    let sys = builder.cpu_time(true).build().unwrap();
    let wq = sys.workqueue("quiet").bound().mem_reclaim();
    let wq = wq.build().unwrap();
    let timed = inflight_workqueue::DelayedWork::new(|| ());
    let queued = wq.queue_delayed(&timed, Duration::from_millis(5));
    assert!(queued.unwrap().is_queued());
    let (mut sleeps, mut wakes) = UnixStream::pair().unwrap();
    let sleeper = wq.spawn(move || sleeps.read(&mut [0]).unwrap());
    drop(wq.spawn(move || wakes.write_all(&[1]).unwrap()));
    assert_eq!(sleeper.wait().unwrap(), 1);
    burst(&wq, 12);
    while timed.is_pending() || !sys.dump().contains("2 workers (0 running") {
        pass(Duration::from_millis(10));
    }
    // Nothing moves behind a flush that waits for what is frozen.
    let held = sys.workqueue("held").bound().freezable().build().unwrap();
    let frozen = sys.freeze();
    held.spawn(|| ()).detach();
    let flush = held.flush();
    println!("{IDLE}");
    // Until the other process has seen enough.
    let _ = std::io::stdin().read(&mut [0]);
    drop((frozen, flush));
}

#[cfg(target_os = "linux")]
const CHILD: &str = "INFLIGHT_TEST_IDLE";
#[cfg(target_os = "linux")]
const IDLE: &str = "the child is idle";

/// Real time passes.
#[cfg(target_os = "linux")]
fn pass(time: Duration) {
    let clock = Clock::system();
    let end = clock.now() + time;
    while inflight_sync::Parker::current().park_until(&clock, end) {}
}

/// A thread, and how often it has given a CPU up or lost it: it has been woken as often.
#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Switches {
    name: String,
    thread: String,
    count: u64,
}

/// Of all threads of that process. One that ends meanwhile is left out.
#[cfg(target_os = "linux")]
fn switches(process: u32) -> Vec<Switches> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let read = |path: PathBuf| std::fs::read_to_string(path.join("status")).ok();
    let texts = tasks.flatten().filter_map(|task| read(task.path()));
    let mut all: Vec<_> = texts
        .map(|text| {
            let field = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_default().trim().to_owned()
            };
            let count = |name: &str| field(name).parse::<u64>().unwrap();
            Switches {
                name: field("Name:"),
                thread: field("Pid:"),
                count: count("voluntary_ctxt_switches:") + count("nonvoluntary_ctxt_switches:"),
            }
        })
        .collect();
    all.sort();
    all
}
