//! What can be seen of a system: names, counters, traces, panics, the dump.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_workqueue::{
    Attrs, DelayedWork, JoinError, SystemBuilder, TraceStep, Work, WorkqueueSystem, blocking,
    current_item, set_worker_desc,
};
use std::fmt;
use std::time::Duration;
use support::{Level, Log, bound, one_cpu, plug};

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

/// Names and descriptions may come from afar: they make no lines and do nothing to a terminal.
#[test]
fn texts_of_items_are_printed_on_one_line_and_cut() {
    let sys = one_cpu().build().unwrap();
    let wq = bound(&sys);
    let name = "part 1\nqueue fake bound: 9 active\u{1b}[31m".to_owned() + &"x".repeat(1000);
    let (told, next) = (Level::new(), Level::new());
    let described = wq.spawn_named(name.clone(), {
        let (told, next) = (told.clone(), next.clone());
        move || {
            set_worker_desc("phase 1\n\u{1b}[2Jstall");
            told.raise();
            next.wait(1);
            let item = current_item().unwrap();
            panic!("{} {item}", item.item.len());
        }
    });
    told.wait(1);
    let running = sys.dump();
    next.raise();
    let failed = described.wait().unwrap_err();
    let JoinError::Panicked(payload) = &failed else {
        panic!("{failed}");
    };
    assert_eq!(payload.item(), name, "programs get the whole name");
    let message = payload.message().unwrap();
    assert!(message.starts_with(&name.len().to_string()), "{message}");
    wq.flush_blocking().unwrap();
    let ended = sys.dump();
    let printed = "part 1\\nqueue fake bound: 9 active\\u{1b}[31mxxx";
    for text in [&running, &ended, &failed.to_string(), &message.to_owned()] {
        assert!(text.contains(printed) && text.contains("xxx..."), "{text}");
        let is_bad = |c: char| c.is_control() && c != '\n';
        assert!(
            !text.contains(is_bad) && !text.contains("\nqueue fake"),
            "{text}"
        );
        assert!(!text.contains(&"x".repeat(300)), "{text}");
    }
    assert!(running.contains("(phase 1\\n\\u{1b}[2Jstall)"), "{running}");
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
