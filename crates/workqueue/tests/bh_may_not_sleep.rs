//! BH items never sleep: waits, calls and polls inside them.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::Mutex;
use inflight_sync::time::Clock;
use inflight_workqueue::{
    Attrs, BhPoller, DisableError, JoinError, WaitError, Work, Workqueue, WorkqueueSystem, blocking,
};
use support::{Level, builder, system};

/// A system whose time stands still: nobody is late.
fn still() -> (WorkqueueSystem, Clock) {
    let clock = Clock::manual();
    let builder = builder();
    (builder.clock(clock.clone()).build().unwrap(), clock)
}

fn done(sys: &WorkqueueSystem) -> Workqueue {
    sys.workqueue("done").bh().build().unwrap()
}

/// A poller of CPU 0, and how often it has been called.
fn polled(sys: &WorkqueueSystem) -> (BhPoller, Level) {
    let calls = Level::new();
    let notify = calls.clone();
    (sys.bh_poller(0, move || notify.raise()).unwrap(), calls)
}

/// Runs `f` in an item of a BH queue, by the thread and by a poller.
fn inside<T: Send + 'static>(f: impl Fn() -> T + Clone + Send + 'static, check: impl Fn(T)) {
    let sys = system();
    check(done(&sys).spawn_on(0, f.clone()).wait().unwrap());
    let (sys, _clock) = still();
    let (mut poller, _) = polled(&sys);
    let item = done(&sys).spawn_on(0, f);
    assert_eq!(poller.poll(1).ran, 1);
    check(item.wait().unwrap());
}

#[test]
fn a41_an_item_that_would_wait_is_told_so() {
    let other = system();
    let wq = support::bound(&other);
    let (idle, open) = (Work::new(|| ()), Level::new());
    inside(
        {
            let (wq, idle, open) = (wq.clone(), idle.clone(), open.clone());
            move || {
                let waits = [
                    wq.flush_blocking(),
                    wq.drain_blocking(),
                    wq.destroy_blocking(),
                ];
                let works = [idle.flush_blocking(), idle.cancel_sync_blocking()];
                let open = open.clone();
                let unended = wq.spawn(move || open.wait(1));
                (waits, works, idle.disable_sync_blocking(), unended.wait())
            }
        },
        |(waits, works, disable, handle)| {
            assert_eq!(waits, [Err(WaitError::WouldDeadlock); 3]);
            assert!(
                WaitError::WouldDeadlock
                    .to_string()
                    .contains("an item of a BH workqueue")
            );
            assert_eq!(works, [Err(WaitError::WouldDeadlock); 2]);
            assert_eq!(disable, Err(DisableError::WouldDeadlock));
            assert!(matches!(handle, Err(JoinError::WouldDeadlock)));
        },
    );
    open.raise();
    assert!(wq.queue(&idle).unwrap().is_queued(), "nothing was disabled");
}

#[test]
fn a_call_inside_an_item_runs_at_once_or_never() {
    let other = system();
    let (bound, free) = (
        support::bound(&other),
        other.workqueue("free").unbound(Attrs::new()),
    );
    let free = free.build().unwrap();
    let calls = {
        let (bound, free) = (bound.clone(), free.clone());
        move || (bound.call_blocking(|| ()), free.call_blocking(|| 7))
    };
    inside(calls, |(elsewhere, here)| {
        assert!(matches!(elsewhere, Err(JoinError::WouldDeadlock)));
        assert_eq!(here.unwrap(), 7);
    });
    bound.flush_blocking().unwrap();
    assert_eq!((bound.stats().queued, free.stats().completed), (0, 2));
}

#[test]
fn an_item_that_sleeps_panics() {
    let sys = system();
    let wq = done(&sys);
    let never = Level::new();
    let sleeps: [Box<dyn FnOnce() + Send>; 2] = [
        Box::new(|| blocking(|| ())),
        Box::new(move || never.wait(1)),
    ];
    for sleep in sleeps {
        let Err(JoinError::Panicked(panic)) = wq.spawn_on(0, sleep).wait() else {
            panic!("it slept");
        };
        let message = panic.message().unwrap();
        assert_eq!(message, "an item of a BH workqueue may not sleep");
    }
    wq.flush_blocking().unwrap(); // A result is there before the item has been counted.
    assert_eq!(wq.stats().panicked, 2);
    assert_eq!(
        wq.spawn_on(0, || 7).wait().unwrap(),
        7,
        "the thread goes on"
    );
    assert_eq!(
        support::bound(&sys)
            .spawn(|| blocking(|| 8))
            .wait()
            .unwrap(),
        8
    );
}

#[test]
fn a_poll_inside_an_item_does_nothing() {
    let (sys, _clock) = still();
    let (mut poller, _) = polled(&sys);
    let wq = done(&sys);
    let other = Mutex::new(sys.bh_poller(1, || ()).unwrap());
    let there = wq.spawn_on(1, || ());
    let here = wq.spawn_on(0, move || {
        let mut other = other.lock();
        let inner = other.poll(10).ran;
        drop(other);
        inner
    });
    assert_eq!(poller.poll(10).ran, 1);
    assert_eq!(here.wait().unwrap(), 0);
    there.wait().unwrap(); // Its poller went with the item.
}
