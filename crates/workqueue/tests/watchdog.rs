//! The watchdog: stalls, and the workers that are behind them.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::thread;
use inflight_sync::time::Clock;
use inflight_workqueue::{Attrs, DelayedWork, Work, Workqueue, WorkqueueSystem, touch_watchdog};
use std::time::Duration;
use support::{Level, Log, bound, one_cpu, plug, until};

const LONG: Duration = Duration::from_secs(30);

fn watched() -> (WorkqueueSystem, Workqueue, Clock, Log<String>) {
    let (clock, stalls) = (Clock::manual(), Log::new());
    let log = stalls.clone();
    let builder = one_cpu().clock(clock.clone()).idle_timeout(Duration::MAX);
    let builder = builder.watchdog(LONG, move |stall| {
        let text = stall.to_string();
        // What is behind the first line is of the workers.
        log.push(text.lines().next().unwrap().to_owned());
    });
    let sys = builder.build().unwrap();
    let wq = sys.workqueue("slow").bound().max_active(2).build().unwrap();
    (sys, wq, clock, stalls)
}

fn until_asleep(clock: &Clock) {
    while clock.sleepers() == 0 {
        thread::yield_now();
    }
}

/// Moves the clock on by the watchdog's period, when it is asleep.
fn period(clock: &Clock) {
    until_asleep(clock);
    clock.advance(LONG);
}

/// One item runs on and on, one waits for the worker, one for the limit: both are reported, with
/// how long, again and again, and no longer when they move.
#[test]
fn stalls_are_reported_with_place_item_and_time() {
    let (sys, wq, clock, stalls) = watched();
    let limited = sys.workqueue("limited").unbound(Attrs::new());
    let limited = limited.max_active(1).build().unwrap();
    let (open, limit) = (plug(&wq), plug(&limited));
    let (waits, starves) = (Work::named("waits", || ()), Work::named("starves", || ()));
    assert!(wq.queue(&waits).unwrap().is_queued());
    assert!(limited.queue(&starves).unwrap().is_queued());
    period(&clock);
    period(&clock);
    while stalls.entries().len() < 2 {
        thread::yield_now();
    }
    assert_eq!(
        stalls.entries(),
        [
            "pool cpu 0: 1 waiting, first slow: waits, nothing has moved for 30s",
            "queue limited: 1 waiting, first limited: starves, nothing has moved for 30s",
        ]
    );
    period(&clock);
    while stalls.entries().len() < 4 {
        thread::yield_now();
    }
    assert!(stalls.entries()[2].ends_with("for 60s"));
    assert!(stalls.entries()[3].ends_with("for 60s"));
    open.raise();
    limit.raise();
    wq.flush_blocking().unwrap();
    limited.flush_blocking().unwrap();
    period(&clock);
    while clock.sleepers() > 0 {
        thread::yield_now();
    }
    assert_eq!(stalls.entries().len(), 4, "and then it sleeps");
}

/// Who holds a pool up, or has a limit's slots, is named: by the user's name of the item, the
/// thread and the time since somebody has first looked; in the dump, too.
#[test]
fn busy_workers_are_named_in_stalls_and_in_the_dump() {
    let (clock, stalls) = (Clock::manual(), Log::new());
    let log = stalls.clone();
    let builder = one_cpu().clock(clock.clone()).idle_timeout(Duration::MAX);
    let builder = builder.watchdog(LONG, move |stall| log.push(stall.clone()));
    let sys = builder.build().unwrap();
    let slow = sys.workqueue("slow").bound().build().unwrap();
    let limited = sys.workqueue("limited").unbound(Attrs::new());
    let limited = limited.max_active(1).build().unwrap();
    let (begun, open) = (Level::new(), Level::new());
    let holds = || {
        let (begun, open) = (begun.clone(), open.clone());
        move || {
            begun.raise();
            open.wait_silently(1);
        }
    };
    // What ran there before had another name, or none.
    slow.spawn_named("before", || ()).wait().unwrap();
    limited.spawn(|| ()).wait().unwrap();
    assert!(
        slow.queue_on(0, &Work::named("rescan", holds()))
            .unwrap()
            .is_queued()
    );
    let sends = limited.spawn_named(String::from("send part 1"), holds());
    begun.wait(2);
    let waits = [slow.spawn_on(0, || ()), limited.spawn(|| ())];
    period(&clock);
    period(&clock);
    while stalls.entries().len() < 2 {
        thread::yield_now();
    }
    until_asleep(&clock);
    let dump = sys.dump();
    open.raise();
    sends.wait().unwrap();
    waits.into_iter().for_each(|item| item.wait().unwrap());
    for (stall, queue, item, name) in [
        (&stalls.entries()[0], "slow", "rescan", "inflight/0:0"),
        (
            &stalls.entries()[1],
            "limited",
            "send part 1",
            "inflight/u0:0",
        ),
    ] {
        let [busy] = &stall.running[..] else {
            panic!("{stall}");
        };
        assert_eq!((busy.queue.as_str(), busy.item.as_str()), (queue, item));
        assert_eq!(busy.thread_name.as_deref(), Some(name));
        assert_eq!(busy.running_for, LONG, "since the tick before");
        let number = busy
            .thread
            .map_or(String::new(), |number| format!(" ({number})"));
        let line = format!("\n  {name}{number} runs {queue}: {item} for 30s");
        assert!(stall.to_string().contains(&line), "{stall}");
        assert!(dump.contains(&line), "{line} in {dump}");
    }
}

/// Queues may have the same name: each is looked at by itself.
#[test]
fn a_stall_is_found_beside_a_queue_of_the_same_name() {
    let (sys, _, clock, stalls) = watched();
    let twins = [1, 2].map(|_| {
        let twin = sys.workqueue("twin").unbound(Attrs::new());
        twin.max_active(1).build().unwrap()
    });
    // One has run more than the other.
    twins[0].spawn(|| ()).wait().unwrap();
    let (begun, open) = (Level::new(), Level::new());
    for twin in &twins {
        let (begun, open) = (begun.clone(), open.clone());
        drop(twin.spawn(move || {
            begun.raise();
            open.wait(1);
        }));
    }
    begun.wait(2);
    let waits = ["of one", "of the other"].map(|name| Work::named(name, || ()));
    for (twin, work) in twins.iter().zip(&waits) {
        assert!(twin.queue(work).unwrap().is_queued());
    }
    // It looks a third time when what the second look has found has been told.
    (0..3).for_each(|_| period(&clock));
    until_asleep(&clock);
    let told = |item| stalls.entries().iter().any(|stall| stall.contains(item));
    until(
        || told("first twin: of the other,"),
        || format!("{:?}", stalls.entries()),
    );
    open.raise();
    twins.iter().for_each(|twin| twin.flush_blocking().unwrap());
    assert!(told("first twin: of one,"), "{:?}", stalls.entries());
}

/// Nobody has asked for a watchdog when the system was made. It is switched on when items hang: the
/// dump tells what it finds, until that is over.
#[test]
fn a_watchdog_that_is_switched_on_later_tells_the_dump() {
    let clock = Clock::manual();
    let builder = one_cpu().clock(clock.clone()).idle_timeout(Duration::MAX);
    let sys = builder.build().unwrap();
    assert_eq!(sys.watchdog_threshold(), Duration::ZERO);
    let wq = bound(&sys);
    let open = plug(&wq);
    let waits = Work::named("waits", || ());
    assert!(wq.queue_on(0, &waits).unwrap().is_queued());
    sys.set_watchdog_threshold(LONG);
    assert_eq!(sys.watchdog_threshold(), LONG);
    period(&clock);
    period(&clock);
    until_asleep(&clock);
    clock.advance(Duration::from_secs(1));
    let stalled = sys.dump();
    open.raise();
    wq.flush_blocking().unwrap();
    let line =
        "\nstall 1s ago: pool cpu 0: 1 waiting, first bound: waits, nothing has moved for 30s\n";
    assert!(stalled.contains(line), "{stalled}");
    clock.advance(LONG);
    until(|| !sys.dump().contains("\nstall "), || sys.dump());
}

/// A watchdog that is switched off forgets what it has found.
#[test]
fn a_watchdog_that_is_switched_off_tells_nothing() {
    let (sys, wq, clock, _) = watched();
    let open = plug(&wq);
    assert!(wq.queue_on(0, &Work::new(|| ())).unwrap().is_queued());
    period(&clock);
    period(&clock);
    until(|| sys.dump().contains("\nstall "), || sys.dump());
    sys.set_watchdog_threshold(Duration::ZERO);
    let dump = sys.dump();
    open.raise();
    wq.flush_blocking().unwrap();
    assert!(!dump.contains("\nstall "), "{dump}");
}

/// An item that hangs in a poll is found like any other.
#[test]
fn what_hangs_in_a_poll_is_a_stall() {
    let (sys, _, clock, stalls) = watched();
    let done = sys.workqueue("done").bh().build().unwrap();
    let mut poller = sys.bh_poller(0, || ()).unwrap();
    let (begun, open) = (Level::new(), Level::new());
    let hangs = done.spawn_on(0, {
        let (begun, open) = (begun.clone(), open.clone());
        move || {
            begun.raise();
            open.wait_silently(1);
        }
    });
    let waits = Work::named("waits", || ());
    assert!(done.queue_on(0, &waits).unwrap().is_queued());
    let polls = thread::spawn(move || while poller.poll(10).more {});
    begun.wait(1);
    let told = || {
        stalls
            .entries()
            .iter()
            .any(|s| s.contains("first done: waits"))
    };
    let mut looks = 0;
    while !told() && looks < support::LOOKS {
        clock.advance(LONG);
        thread::yield_now();
        looks += 1;
    }
    let found = told();
    open.raise();
    hangs.wait().unwrap();
    polls.join().unwrap();
    assert!(found);
}

/// A threshold counts from when it is set, whatever was planned before.
#[test]
fn a_threshold_that_is_lowered_counts_at_once() {
    let (sys, wq, clock, stalls) = watched();
    sys.set_watchdog_threshold(100 * LONG);
    let open = plug(&wq);
    assert!(wq.queue_on(0, &Work::new(|| ())).unwrap().is_queued());
    sys.set_watchdog_threshold(LONG);
    // The timer sleeps until the tick before, unless it has done something since.
    let high = sys.workqueue("high").bound().highpri().build().unwrap();
    let (now, came) = (Duration::from_nanos(1), Level::new());
    let delayed = DelayedWork::new({
        let came = came.clone();
        move || came.raise()
    });
    assert!(high.queue_delayed(&delayed, now).unwrap().is_queued());
    clock.advance(now);
    came.wait(1);
    period(&clock);
    period(&clock);
    until_asleep(&clock);
    open.raise();
    wq.flush_blocking().unwrap();
    sys.shutdown_blocking().unwrap();
    assert_eq!(stalls.entries().len(), 1);
}

/// E17: an item that is long but says that it gets on stalls neither its pool nor its queue's
/// limit.
#[test]
fn e17_an_item_that_touches_the_watchdog_is_no_stall() {
    let (sys, wq, clock, stalls) = watched();
    touch_watchdog(); // On a thread that is no worker, for nobody.
    let limited = sys.workqueue("limited").unbound(Attrs::new());
    let limited = limited.max_active(1).build().unwrap();
    let (step, done) = (Level::new(), Level::new());
    let long = |wq: &Workqueue| {
        let (step, done) = (step.clone(), done.clone());
        wq.spawn_on(0, move || {
            for n in 1..=4 {
                step.wait_silently(n);
                touch_watchdog();
                done.raise();
            }
            step.wait_silently(5);
        })
    };
    let long = [long(&wq), long(&limited)];
    let (waits, starves) = (Work::named("waits", || ()), Work::named("starves", || ()));
    assert!(wq.queue_on(0, &waits).unwrap().is_queued());
    assert!(limited.queue_on(0, &starves).unwrap().is_queued());
    for n in 1..=4 {
        step.raise();
        done.wait(2 * n);
        period(&clock);
        until_asleep(&clock);
    }
    assert_eq!(stalls.entries(), Vec::<String>::new());
    // It says nothing more: now it is one.
    period(&clock);
    while stalls.entries().len() < 2 {
        thread::yield_now();
    }
    step.raise();
    long.into_iter().for_each(|item| item.wait().unwrap());
    wq.flush_blocking().unwrap();
    limited.flush_blocking().unwrap();
}

/// I.31: slow, but each time another one waits: that is no stall.
#[test]
fn i31_what_moves_is_no_stall() {
    let (_sys, wq, clock, stalls) = watched();
    let mut open = plug(&wq);
    for _ in 0..4 {
        let next = {
            let (begun, next) = (Level::new(), Level::new());
            let release = next.clone();
            let started = begun.clone();
            drop(wq.spawn_on(0, move || {
                started.raise();
                release.wait_silently(1);
            }));
            period(&clock);
            // It has looked before the next one waits.
            until_asleep(&clock);
            open.raise();
            begun.wait(1);
            next
        };
        open = next;
    }
    open.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(stalls.entries(), [""; 0]);
}
