//! Workers that hold others back without saying so: found asleep, or computing for long.
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

mod support;

use inflight_topology::Topology;
use inflight_workqueue::{SystemBuilder, Work, Workqueue, WorkqueueSystem};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use support::{Level, bound};

fn one_cpu() -> SystemBuilder {
    WorkqueueSystem::builder().topology(Topology::synthetic("core:1").unwrap())
}

/// An item that sleeps in foreign code until another one of the same CPU, queued so many places
/// behind it, lets it go.
fn sleeps_until_a_later_item(wq: &Workqueue, between: usize) {
    let (mut sleeper, mut waker) = UnixStream::pair().unwrap();
    let waits = wq.spawn(move || {
        let mut byte = [0];
        sleeper.read_exact(&mut byte).map(|()| byte[0])
    });
    for _ in 0..between {
        drop(wq.spawn(|| ()));
    }
    drop(wq.spawn(move || waker.write_all(&[7])));
    assert_eq!(waits.wait().unwrap().unwrap(), 7);
}

/// Without looking, each of these would wait for ever.
#[test]
fn a_silent_sleeper_does_not_hold_back_the_item_it_waits_for() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    for round in 0..100 {
        sleeps_until_a_later_item(&wq, round % 12);
    }
    wq.flush().unwrap();
}

/// Ten sleepers in a row, each waiting for the last item of all.
#[test]
fn silent_sleepers_are_found_one_after_the_other() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    let pairs: Vec<_> = (0..10).map(|_| UnixStream::pair().unwrap()).collect();
    let (sleepers, wakers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let handles: Vec<_> = sleepers
        .into_iter()
        .map(|mut s| wq.spawn(move || s.read(&mut [0]).unwrap()))
        .collect();
    drop(wq.spawn(move || {
        wakers
            .into_iter()
            .for_each(|mut w| w.write_all(&[1]).unwrap());
    }));
    for handle in handles {
        assert_eq!(handle.wait().unwrap(), 1);
    }
}

/// An item that computes until a later one of the same CPU stops it: found by its CPU time.
#[test]
fn an_item_that_computes_for_long_lets_others_run() {
    let builder = one_cpu().intensive_threshold(Duration::from_millis(2));
    let sys = builder.build().unwrap();
    let wq = bound(&sys);
    let stop = Level::new();
    let long = wq.spawn({
        let stop = stop.clone();
        move || {
            while stop.get() == 0 {
                std::hint::spin_loop();
            }
        }
    });
    wq.spawn(move || stop.raise()).wait().unwrap();
    long.wait().unwrap();
}

/// The queue says it itself: the second item starts although the first one computes.
#[test]
fn items_of_an_intensive_queue_hold_nobody_back() {
    let sys = one_cpu().sampling(false).build().unwrap();
    let wq = sys
        .workqueue("sums")
        .bound()
        .cpu_intensive()
        .build()
        .unwrap();
    let stop = Level::new();
    let long = wq.spawn({
        let stop = stop.clone();
        move || stop.wait_silently(1)
    });
    wq.spawn(move || stop.raise()).wait().unwrap();
    long.wait().unwrap();
}

/// A long row of short items, which is looked at all the time: each runs once.
#[test]
fn short_items_that_are_looked_at_all_run() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    let works: Vec<_> = (0..20_000)
        .map(|_| Work::new(std::hint::spin_loop))
        .collect();
    for work in &works {
        assert!(wq.queue(work).unwrap().is_queued());
    }
    wq.flush().unwrap();
    assert_eq!(wq.stats().completed, 20_000);
}

/// Without anything that waits nobody is looked at: the thread that would look is not even started.
#[test]
fn an_item_alone_may_sleep_as_it_likes() {
    let faults = inflight_sync::fault::Faults::new();
    let sys = one_cpu().faults(&faults).build().unwrap();
    let wq = bound(&sys);
    let (mut sleeper, mut waker) = UnixStream::pair().unwrap();
    let handle = wq.spawn(move || sleeper.read(&mut [0]).unwrap());
    waker.write_all(&[1]).unwrap();
    assert_eq!(handle.wait().unwrap(), 1);
    assert_eq!(faults.spawn_attempts(), 1, "one worker");
}
