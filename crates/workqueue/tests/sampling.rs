//! Workers that hold others back without saying so: found asleep, or computing for long.
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

mod support;

use inflight_topology::{Scope, Topology};
use inflight_workqueue::{Attrs, Work, Workqueue, WorkqueueSystem, blocking};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use support::{Level, bound, one_cpu};

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
    wq.flush_blocking().unwrap();
}

/// Where nobody looks, nothing is left to an item that runs and might sleep: each CPU runs one.
#[test]
fn without_looks_each_cpu_runs_an_item() {
    let topo = Topology::synthetic("core:2").unwrap();
    let builder = WorkqueueSystem::builder().topology(topo);
    let sys = builder.sampling(false).build().unwrap();
    let attrs = Attrs::new().scope(Scope::System);
    let wq = sys.workqueue("pair").unbound(attrs).build().unwrap();
    for _ in 0..20 {
        sleeps_until_a_later_item(&wq, 0);
    }
}

/// Small items, so that a worker takes many at once, and a sleeper at every place among them:
/// what lies behind it in the same batch, and what waits for the slots of those that have ended,
/// gets on.
#[test]
fn a_silent_sleeper_holds_nothing_in_its_batch() {
    let sys = one_cpu().build().unwrap();
    let wq = sys.workqueue("narrow").bound().max_active(64);
    let wq = wq.build().unwrap();
    for round in 0..48 {
        for _ in 0..200 {
            drop(wq.spawn(|| ()));
        }
        // All in the pwq, in this order, before the first of them runs.
        let release = Level::default();
        let closed = wq.spawn({
            let release = release.clone();
            move || blocking(|| release.wait(1))
        });
        for _ in 0..round {
            drop(wq.spawn(|| ()));
        }
        let (mut sleeper, mut waker) = UnixStream::pair().unwrap();
        let waits = wq.spawn(move || sleeper.read(&mut [0]));
        for _ in round..60 {
            drop(wq.spawn(|| ()));
        }
        // The 63rd to 66th: some of them have no slot yet.
        for _ in 0..3 {
            drop(wq.spawn(|| ()));
        }
        drop(wq.spawn(move || waker.write_all(&[7])));
        release.raise();
        assert_eq!(waits.wait().unwrap().unwrap(), 1);
        closed.wait().unwrap();
    }
    wq.flush_blocking().unwrap();
    let stats = wq.stats();
    assert_eq!((stats.active, stats.inactive), (0, 0));
    assert_eq!(stats.completed, stats.queued);
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
    wq.flush_blocking().unwrap();
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
    assert_eq!(faults.spawn_attempts(), 2, "one worker, and the timer");
}

/// Reads until another item of the same CPU has written.
fn one_that_reads(wq: &Workqueue) {
    let (mut sleeper, mut waker) = UnixStream::pair().unwrap();
    let handle = wq.spawn(move || sleeper.read(&mut [0]).unwrap());
    drop(wq.spawn(move || waker.write_all(&[1]).unwrap()));
    assert_eq!(handle.wait().unwrap(), 1);
}

/// A function that has been found asleep twice is known: it need not be found again.
#[test]
fn a_function_that_sleeps_is_learned() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    while wq.stats().found_asleep < 2 {
        one_that_reads(&wq);
    }
    for i in 0..200 {
        sys.record_trace(i >= 100); // whether steps are recorded changes nothing
        one_that_reads(&wq);
    }
    // A thread that waits for a lock when it is looked at counts, too.
    assert!(wq.stats().found_asleep < 50, "{}", wq.stats().found_asleep);
}

/// One function, which sleeps until another item of the same CPU has written, or computes.
fn one_that_reads_or_computes(wq: &Workqueue, reads: bool) {
    let (mut sleeper, mut waker) = UnixStream::pair().unwrap();
    let handle = wq.spawn(move || {
        if reads {
            return sleeper.read(&mut [0]).unwrap();
        }
        let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let begin = used();
        while (used() - begin).tv_nsec < 5_000_000 {
            std::hint::spin_loop();
        }
        1
    });
    drop(wq.spawn(move || waker.write_all(&[1]).unwrap()));
    assert_eq!(handle.wait().unwrap(), 1);
}

/// A known function that computes instead has left its CPU to others without need. It is known no
/// more, and has to be found twice again.
#[test]
fn a_function_that_computes_is_forgotten() {
    let builder = one_cpu().intensive_threshold(Duration::ZERO);
    let sys = builder.build().unwrap();
    let wq = bound(&sys);
    while wq.stats().found_asleep < 2 {
        one_that_reads_or_computes(&wq, true);
    }
    // Those that wait for a lock when they are looked at count in the statistic, too.
    (0..20).for_each(|_| one_that_reads_or_computes(&wq, true));
    one_that_reads_or_computes(&wq, false);
    let before = wq.stats().found_asleep;
    let mut rounds = 0;
    while wq.stats().found_asleep < before + 2 {
        one_that_reads_or_computes(&wq, true);
        rounds += 1;
    }
    assert!(rounds < 100, "found only after {rounds} rounds");
}

/// Items that are too short to wake a second worker for do not wait long for the first, even if
/// that one computes until they have run.
#[test]
fn a_short_item_does_not_wait_for_one_that_computes() {
    let topo = Topology::synthetic("core:2").unwrap();
    let sys = WorkqueueSystem::builder().topology(topo).build().unwrap();
    let wq = sys
        .workqueue("short")
        .unbound(inflight_workqueue::Attrs::new())
        .build()
        .unwrap();
    for _ in 0..20 {
        for _ in 0..200 {
            drop(wq.spawn(|| ()));
        }
        let stop = Level::new();
        let long = wq.spawn({
            let stop = stop.clone();
            move || {
                while stop.get() == 0 {
                    inflight_sync::thread::yield_now();
                }
            }
        });
        drop(wq.spawn(move || stop.raise()));
        long.wait().unwrap();
    }
}

/// B2 against a refused thread: the worker is back from its block, the thread that was to replace
/// it was refused, and then it sleeps without a word until the item runs that waits behind it. By
/// then threads can be had again, and only who looks at the worker asks for one.
#[test]
fn one_that_comes_back_from_a_block_is_looked_at() {
    let faults = inflight_sync::fault::Faults::new();
    let sys = one_cpu().faults(&faults).build().unwrap();
    let wq = bound(&sys);
    let (mut blocked, mut unblocks) = UnixStream::pair().unwrap();
    let (mut sleeper, mut waker) = UnixStream::pair().unwrap();
    let begun = Level::new();
    let first = wq.spawn({
        let begun = begun.clone();
        move || {
            blocking(|| {
                begun.raise();
                blocked.read_exact(&mut [0]).unwrap();
            });
            sleeper.read(&mut [0]).unwrap()
        }
    });
    begun.wait(1);
    faults.refuse_spawns(true);
    let second = wq.spawn(move || waker.write_all(&[1]).unwrap());
    faults.refuse_spawns(false);
    unblocks.write_all(&[1]).unwrap();
    assert_eq!(first.wait().unwrap(), 1);
    second.wait().unwrap();
}
