//! The CPU time of each queue's items.
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

mod support;

use inflight_sync::thread;
use inflight_sync::time::Clock;
use inflight_workqueue::{Attrs, Workqueue, blocking};
use std::time::Duration;
use support::{Level, bound, one_cpu};

/// The calling thread's own CPU time.
fn used() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap()
}

/// Uses so much CPU time.
fn burn(time: Duration) {
    let start = used();
    while used() - start < time {
        std::hint::spin_loop();
    }
}

fn charged(wq: &Workqueue) -> Duration {
    wq.stats().cpu_time.expect("it is measured")
}

fn until_charged(wq: &Workqueue, at_least: Duration) {
    while charged(wq) < at_least {
        thread::yield_now();
    }
}

const LONG: Duration = Duration::from_millis(60);

/// What an item uses is its queue's: also that of an item that has ended before anybody looked,
/// and not that of another queue whose item sleeps meanwhile.
#[test]
fn b8_each_queue_is_charged_what_its_items_use() {
    let sys = one_cpu().cpu_time(true).build().unwrap();
    let (burns, sleeps) = (bound(&sys), sys.workqueue("sleeps").unbound(Attrs::new()));
    let sleeps = sleeps.build().unwrap();
    assert_eq!(charged(&burns), Duration::ZERO);
    let open = Level::new();
    let asleep = sleeps.spawn({
        let open = open.clone();
        move || blocking(|| open.wait(1))
    });
    burns.spawn(|| burn(LONG)).wait().unwrap();
    // The worker may have been woken by others before and after, which is charged too; the last
    // reading comes when it sleeps.
    until_charged(&burns, LONG);
    open.raise();
    asleep.wait().unwrap();
    assert!(charged(&sleeps) < LONG / 2, "{:?}", charged(&sleeps));
}

/// Two queues whose items take turns on one worker share its time about as they used it.
#[test]
fn queues_that_take_turns_share_the_time() {
    let sys = one_cpu().cpu_time(true).sampling(false).build().unwrap();
    let (much, little) = (bound(&sys), bound(&sys));
    // Two of their turns are no multiple of the time between two readings.
    let (long, short) = (Duration::from_micros(3700), Duration::from_micros(600));
    for _ in 0..70 {
        drop(much.spawn(move || burn(long)));
        drop(little.spawn(move || burn(short)));
    }
    much.flush_blocking().unwrap();
    little.flush_blocking().unwrap();
    let all = 70 * (long + short);
    while charged(&much) + charged(&little) < all {
        thread::yield_now();
    }
    assert!(charged(&much) > charged(&little), "a sample is a sample");
}

#[test]
fn cpu_time_is_measured_only_on_request() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    wq.spawn(|| ()).wait().unwrap();
    assert_eq!(wq.stats().cpu_time, None);
    assert!(sys.dump().contains("1 workers"), "{}", sys.dump());
    let manual = one_cpu().cpu_time(true).clock(Clock::manual());
    let sys = manual.build().unwrap();
    assert_eq!(
        bound(&sys).stats().cpu_time,
        None,
        "it cannot be read in time"
    );
}

/// Asked for in the middle of things, it counts from then on, for workers that are there already.
#[test]
fn cpu_time_used_before_the_measurement_is_not_charged() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    wq.spawn(|| burn(10 * LONG)).wait().unwrap();
    sys.measure_cpu_time();
    wq.spawn(|| burn(LONG)).wait().unwrap();
    until_charged(&wq, LONG);
    assert!(charged(&wq) < 5 * LONG, "{:?}", charged(&wq));
}

/// A worker that comes back from a block is looked at again.
#[test]
fn a_worker_that_comes_back_is_charged() {
    let sys = one_cpu().cpu_time(true).build().unwrap();
    let wq = bound(&sys);
    for _ in 0..3 {
        let before = charged(&wq);
        let open = Level::new();
        let item = wq.spawn({
            let open = open.clone();
            move || {
                blocking(|| open.wait(1));
                burn(LONG);
            }
        });
        open.raise();
        item.wait().unwrap();
        until_charged(&wq, before + LONG);
    }
}
