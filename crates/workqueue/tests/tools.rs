//! What can be seen of a system: names, counters, traces, panics, stalls, the dump.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::thread;
use inflight_sync::time::Clock;
use inflight_workqueue::{
    Attrs, DelayedWork, JoinError, SystemBuilder, TraceStep, Work, Workqueue, WorkqueueSystem,
    blocking, current_item, set_worker_desc, touch_watchdog,
};
use std::fmt;
use std::time::Duration;
use support::{Level, Log, bound, one_cpu, plug, until};

fn a_function_with_a_name() {}

#[test]
fn works_have_names() {
    assert_eq!(Work::named("rescan", || ()).name(), "rescan");
    assert!(
        Work::new(a_function_with_a_name)
            .name()
            .ends_with("a_function_with_a_name")
    );
    let number = 3;
    assert_eq!(
        DelayedWork::named(format!("flush {number}"), || ()).name(),
        "flush 3"
    );
    assert!(format!("{:?}", Work::named("rescan", || ())).contains("rescan"));
}

/// A panic is told with the name of its item: by the handle, and by the dump for works.
#[test]
fn panics_are_told_with_the_items_name() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    let work = Work::named("rescan", || panic!("no disk {}", 3));
    assert!(wq.queue(&work).unwrap().is_queued());
    wq.flush_blocking().unwrap();
    assert!(sys.dump().contains("last panic: rescan: \"no disk 3\""));
    fn fails() {
        panic!("at once");
    }
    let Err(JoinError::Panicked(payload)) = wq.spawn(fails).wait() else {
        panic!("it panics");
    };
    assert!(payload.item().ends_with("fails"));
    assert_eq!(payload.message(), Some("at once"));
    wq.flush_blocking().unwrap();
    assert_eq!((wq.stats().panicked, wq.stats().in_flight()), (2, 0));
}

/// Each block that brings a worker counts, for the queue of the item that blocks.
#[test]
fn wakeups_are_counted_for_the_queue_that_blocks() {
    let sys = one_cpu().build().unwrap();
    let (blocks, other) = (bound(&sys), bound(&sys));
    for _ in 0..3 {
        let done = Level::new();
        let first = blocks.spawn({
            let (other, done) = (other.clone(), done.clone());
            move || {
                drop(other.spawn({
                    let done = done.clone();
                    move || done.raise()
                }));
                blocking(|| done.wait_silently(1));
            }
        });
        first.wait().unwrap();
    }
    blocks.flush_blocking().unwrap();
    other.flush_blocking().unwrap();
    assert_eq!(
        (blocks.stats().cm_wakeups, other.stats().cm_wakeups),
        (3, 0)
    );
}

/// What was found out is counted for the queue of the item that it was found out about.
#[cfg(target_os = "linux")]
#[test]
fn findings_are_counted() {
    use std::io::{Read, Write};
    let builder = one_cpu().intensive_threshold(Duration::from_millis(2));
    let sys = builder.build().unwrap();
    let (sleeps, other) = (bound(&sys), bound(&sys));
    let (mut sleeper, mut waker) = std::os::unix::net::UnixStream::pair().unwrap();
    let waits = sleeps.spawn(move || sleeper.read(&mut [0]).unwrap());
    other
        .spawn(move || waker.write_all(&[1]).unwrap())
        .wait()
        .unwrap();
    waits.wait().unwrap();
    sleeps.flush_blocking().unwrap();
    assert_eq!(sleeps.stats().found_asleep, 1);

    let computes = bound(&sys);
    let stop = Level::new();
    let long = computes.spawn({
        let stop = stop.clone();
        move || {
            while stop.get() == 0 {
                std::hint::spin_loop();
            }
        }
    });
    other.spawn(move || stop.raise()).wait().unwrap();
    long.wait().unwrap();
    computes.flush_blocking().unwrap();
    let stats = computes.stats();
    // A thread that waits for a lock for a moment looks asleep, too.
    assert_eq!(stats.cpu_intensive + stats.found_asleep, 1);
}

type Steps = Log<(String, TraceStep)>;

fn traced(builder: SystemBuilder) -> (WorkqueueSystem, Steps) {
    let steps = Steps::new();
    let log = steps.clone();
    let builder = builder.trace(move |event| {
        assert_eq!(event.queue, "bound");
        log.push((event.item.to_owned(), event.step));
    });
    (builder.build().unwrap(), steps)
}

fn of(steps: &Steps, item: &str) -> Vec<TraceStep> {
    let entries = steps.entries().into_iter();
    entries
        .filter(|(name, _)| name == item)
        .map(|(_, step)| step)
        .collect()
}

#[test]
fn each_step_is_traced() {
    let (sys, steps) = traced(one_cpu());
    let wq = sys
        .workqueue("bound")
        .bound()
        .max_active(2)
        .build()
        .unwrap();
    let open = plug(&wq);
    let works: Vec<_> = ["first", "second", "taken back"]
        .map(|name| Work::named(name, || ()))
        .into();
    for work in &works {
        assert!(wq.queue_on(0, work).unwrap().is_queued());
    }
    assert!(works[2].cancel());
    open.raise();
    wq.flush_blocking().unwrap();
    let whole = [
        TraceStep::Queued,
        TraceStep::Activated,
        TraceStep::Started,
        TraceStep::Ended,
    ];
    assert_eq!(of(&steps, "first"), whole);
    // It became active when another one ended; who tells that may be slower than who runs it.
    let mut second = of(&steps, "second");
    second.sort_by_key(|step| whole.iter().position(|s| s == step));
    assert_eq!(second, whole);
    assert_eq!(
        of(&steps, "taken back"),
        [TraceStep::Queued, TraceStep::Cancelled]
    );
    let bad = Work::named("bad", || panic!("on purpose"));
    assert!(wq.queue_on(0, &bad).unwrap().is_queued());
    wq.flush_blocking().unwrap();
    assert!(of(&steps, "bad").contains(&TraceStep::Panicked));
}

/// A recording has room for so many steps; how many came before those is told.
#[test]
#[cfg(not(miri))]
fn a_recording_tells_how_many_steps_it_has_dropped() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    let run = |items| {
        (0..items).for_each(|_| wq.spawn(|| ()).detach());
        wq.flush_blocking().unwrap();
    };
    let taken = || {
        let trace = sys.take_trace();
        (trace.steps.len(), trace.dropped)
    };
    sys.record_trace(true);
    run(16_384 / 4 + 100);
    assert_eq!(taken(), (16_384, 400));
    run(1);
    assert_eq!(taken(), (4, 0));
    run(16_384 / 4 + 100);
    sys.record_trace(false);
    sys.record_trace(true);
    assert_eq!(taken(), (0, 0), "a new one");
}

/// A tracer that panics harms nobody.
#[test]
fn a_panicking_tracer_is_ignored() {
    let sys = one_cpu()
        .trace(|_| panic!("of the tracer"))
        .build()
        .unwrap();
    let wq = bound(&sys);
    assert_eq!(wq.spawn(|| 5).wait().unwrap(), 5);
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().panicked, 0);
}

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

/// A name goes with its item.
#[test]
fn an_item_without_a_name_does_not_get_that_of_another() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    wq.spawn_named("before", || ()).wait().unwrap();
    let open = plug(&wq);
    let dump = sys.dump();
    open.raise();
    assert!(dump.contains(" runs bound: "), "{dump}");
    assert!(dump.contains("support::plug"), "{dump}");
    assert!(!dump.contains("before"), "{dump}");
}

/// As the kernel's `set_worker_desc`: told in dumps, until the item ends.
#[test]
fn an_item_describes_itself_while_it_runs() {
    struct Unwanted;
    impl fmt::Display for Unwanted {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("nobody runs an item here");
        }
    }
    set_worker_desc(Unwanted);
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    let (told, next) = (Level::new(), Level::new());
    let described = wq.spawn_named("rescan", {
        let (told, next) = (told.clone(), next.clone());
        move || {
            for (n, percent) in [40, 80].into_iter().enumerate() {
                set_worker_desc(format_args!("sda: {percent} %"));
                told.raise();
                next.wait(n + 1);
            }
            set_worker_desc("ä".repeat(1_000));
            told.raise();
            next.wait(3);
        }
    });
    let cut = "ä".repeat(64);
    for (n, text) in ["sda: 40 %", "sda: 80 %", &cut].into_iter().enumerate() {
        told.wait(n + 1);
        let dump = sys.dump();
        next.raise();
        assert!(
            dump.contains(&format!(" runs bound: rescan ({text})")),
            "{dump}"
        );
    }
    described.wait().unwrap();
    let open = plug(&wq);
    let dump = sys.dump();
    open.raise();
    assert!(dump.contains(" runs bound: "), "{dump}");
    assert!(!dump.contains(&cut), "{dump}");
}

/// A function that is called runs on its caller's thread, which runs an item.
#[test]
fn what_is_called_describes_the_item_that_calls() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    let called = sys.workqueue("called").unbound(Attrs::new());
    let called = called.build().unwrap();
    let observer = sys.observer();
    let describe = move || {
        set_worker_desc("from inside");
        (current_item().map(|item| item.item), observer.dump())
    };
    let (item, dump) = wq
        .spawn_named("caller", {
            let (called, describe) = (called.clone(), describe.clone());
            move || called.call_blocking(describe).unwrap()
        })
        .wait()
        .unwrap();
    assert_eq!(item.as_deref(), Some("caller"));
    assert!(dump.contains(" runs bound: caller (from inside)"), "{dump}");
    wq.flush_blocking().unwrap();
    let (item, dump) = called.call_blocking(describe).unwrap();
    assert_eq!(item, None, "this thread runs no item");
    assert!(!dump.contains("from inside"), "{dump}");
}

/// Who asks is told what the dump tells.
#[test]
fn an_item_knows_its_name_and_its_worker() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    let (named, unnamed) = (|| current_item().unwrap(), || current_item().unwrap());
    let type_name = std::any::type_name_of_val(&unnamed);
    let named = wq.spawn_named("rescan", named).wait().unwrap();
    let unnamed = wq.spawn(unnamed).wait().unwrap();
    assert_eq!(
        (named.item.as_str(), unnamed.item.as_str()),
        ("rescan", type_name)
    );
    assert_eq!(named.thread_name.as_deref(), Some("inflight/0:0"));
    let text = format!("bound on cpu 0, inflight/0:0, CPU {}: rescan", named.cpu);
    assert_eq!(named.to_string(), text);
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
