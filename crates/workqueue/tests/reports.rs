//! Who is told of stalls, traces and functions that compute for long, and that a slow listener
//! holds up nobody but later reports.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::time::Clock;
#[cfg(all(target_os = "linux", not(miri)))]
use inflight_workqueue::{Attrs, TraceStep};
use inflight_workqueue::{DelayedWork, Work, Workqueue, current_item};
use std::ops::ControlFlow;
use std::time::Duration;
use support::{Level, Log, bound, one_cpu, plug, system, until};

const SECOND: Duration = Duration::from_secs(1);

/// A listener that waits is let go, also when a test fails, or the system would wait for it.
struct LetsGo(Level);

impl Drop for LetsGo {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// So many delays pass by the manual clock; each work has to come.
fn delays_pass(clock: &Clock, wq: &Workqueue) {
    for _ in 0..5 {
        let told = Level::new();
        let delayed = DelayedWork::new({
            let told = told.clone();
            move || told.raise()
        });
        assert!(wq.queue_delayed(&delayed, SECOND).unwrap().is_queued());
        clock.advance(SECOND);
        until(
            || told.get() == 1,
            || "the timer waits for a listener".to_owned(),
        );
    }
}

/// Somebody is told of a stall and does not return: delays pass all the same, and stalls after it
/// are told when he does.
#[test]
fn a_slow_listener_of_stalls_does_not_stop_the_timer() {
    let (clock, told, free) = (Clock::manual(), Level::new(), Level::new());
    let sys = one_cpu().clock(clock.clone()).watchdog(SECOND, {
        let (told, free) = (told.clone(), free.clone());
        move |_| {
            told.raise();
            free.wait(1);
        }
    });
    let sys = sys.build().unwrap();
    let _lets_go = LetsGo(free.clone());
    let wq = bound(&sys);
    let high = sys.workqueue("high").bound().highpri().build().unwrap();
    let open = plug(&wq);
    let waits = wq.spawn_on(0, || ());
    until(
        || {
            clock.advance(SECOND);
            told.get() == 1
        },
        || sys.dump(),
    );
    delays_pass(&clock, &high);
    assert_eq!(told.get(), 1, "one after the other");
    free.raise();
    until(
        || {
            clock.advance(SECOND);
            told.get() >= 2
        },
        || sys.dump(),
    );
    open.raise();
    waits.wait().unwrap();
}

/// Somebody is told of what the timer does, and does not return.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_slow_tracer_does_not_stop_the_timer() {
    let (clock, told, free) = (Clock::manual(), Level::new(), Level::new());
    let steps = Log::new();
    let sys = one_cpu().clock(clock.clone()).trace({
        let (told, free, steps) = (told.clone(), free.clone(), steps.clone());
        move |event| {
            // What workers and this thread do is told by them.
            let thread = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            if thread.trim_end() == "inflight/report" {
                steps.push(event.step);
                told.raise();
                free.wait(1);
            }
        }
    });
    let sys = sys.build().unwrap();
    let _lets_go = LetsGo(free.clone());
    let wq = bound(&sys);
    delays_pass(&clock, &wq);
    told.wait(1);
    delays_pass(&clock, &wq);
    assert_eq!(told.get(), 1, "one after the other");
    free.raise();
    told.wait(10);
    assert_eq!(steps.entries(), [TraceStep::Queued; 10]);
    assert_eq!(sys.reports_dropped(), 0);
}

/// Computes until an item behind it has been let run, so whoever runs this has been found by then.
#[cfg(all(target_os = "linux", not(miri)))]
fn computes(behind: &Workqueue) {
    let ran = Level::new();
    drop(behind.spawn_on(0, {
        let ran = ran.clone();
        move || ran.raise()
    }));
    while ran.get() == 0 {
        std::hint::spin_loop();
    }
}

/// Nor does one of functions that compute: what waits behind them runs, and each function is listed
/// with its queue and how often it was found.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn functions_that_compute_for_long_are_named() {
    let (free, reports) = (Level::new(), Log::new());
    let threshold = Duration::from_millis(1);
    let sys = one_cpu()
        .intensive_threshold(threshold)
        .hog_reports(2, {
            let (free, reports) = (free.clone(), reports.clone());
            move |hog| {
                reports.push(hog.count);
                free.wait(1);
            }
        })
        .build()
        .unwrap();
    let _lets_go = LetsGo(free.clone());
    let wq = bound(&sys);
    let short = sys.workqueue("short").bound().build().unwrap();
    for found in 1..=4 {
        let short = short.clone();
        wq.spawn_named("parse", move || computes(&short))
            .wait()
            .unwrap();
        // It is noted a moment after the item behind it has been let run.
        let counts = || sys.hogs().iter().map(|hog| hog.count).collect::<Vec<_>>();
        until(|| counts() == [found], || format!("{:?}", sys.hogs()));
    }
    let hog = &sys.hogs()[0];
    let function = "functions_that_compute_for_long_are_named";
    assert!(hog.function.contains(function), "{hog:?}");
    let worker = &hog.worker;
    assert_eq!(
        (worker.item.as_str(), worker.queue.as_str()),
        ("parse", "bound")
    );
    assert!(hog.used >= threshold && worker.thread.is_some(), "{hog:?}");
    assert!(sys.dump().contains(&format!("hog {hog}")));
    free.raise();
    // At the second, and after one and two more: the third, and 2, 4, 8 after.
    until(
        || reports.entries().len() == 2,
        || format!("{:?}", reports.entries()),
    );
    assert_eq!(reports.entries(), [2, 3]);
}

/// B27: in an unbound queue an item that computes for long lets others run, and is no hog: to be
/// there is the cure.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn b27_hogs_are_of_bound_queues() {
    let builder = one_cpu().intensive_threshold(Duration::from_millis(1));
    let sys = builder.build().unwrap();
    let unbound = sys.workqueue("unbound").unbound(Attrs::new());
    let (unbound, bound) = (unbound.build().unwrap(), bound(&sys));
    for _ in 0..4 {
        let behind = unbound.clone();
        unbound.spawn(move || computes(&behind)).wait().unwrap();
    }
    unbound.flush_blocking().unwrap();
    // What is found is noted in its order.
    while sys.hogs().is_empty() {
        let behind = bound.clone();
        bound.spawn(move || computes(&behind)).wait().unwrap();
    }
    bound.flush_blocking().unwrap();
    let hogs: Vec<_> = sys.hogs().into_iter().map(|hog| hog.worker.queue).collect();
    assert_eq!(hogs, ["bound"]);
    assert_eq!(unbound.stats().cpu_intensive, 0);
    assert!(bound.stats().cpu_intensive > 0);
}

/// Whatever holds the function inside, who asks what runs gets its own type.
#[test]
fn a_function_is_known_by_its_own_type() {
    fn tell(log: &Log<&'static str>) {
        log.push(current_item().unwrap().function);
    }
    fn named<F>(_: &F) -> &'static str {
        std::any::type_name::<F>()
    }
    let sys = system();
    let (wq, seen) = (bound(&sys), Log::new());
    let mut expected = Vec::new();
    let once = || {
        let seen = seen.clone();
        move || tell(&seen)
    };
    let repeat = {
        let seen = seen.clone();
        move || {
            tell(&seen);
            ControlFlow::Break(())
        }
    };
    let (work, delayed, task) = (once(), once(), once());
    expected.extend([named(&work), named(&repeat), named(&delayed), named(&task)]);
    wq.queue(&Work::named("work", work)).unwrap();
    wq.flush_blocking().unwrap();
    wq.queue(&Work::repeating("repeating", repeat)).unwrap();
    wq.flush_blocking().unwrap();
    let delayed = DelayedWork::named("delayed", delayed);
    wq.queue_delayed(&delayed, Duration::ZERO).unwrap();
    wq.flush_blocking().unwrap();
    wq.spawn_named("task", task).wait().unwrap();
    let future = {
        let seen = seen.clone();
        async move { tell(&seen) }
    };
    expected.push(named(&future));
    wq.spawn_future(future).wait().unwrap();
    assert_eq!(seen.entries(), expected);
}
