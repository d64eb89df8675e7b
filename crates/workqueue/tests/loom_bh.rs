//! Models of BH queues: the poller against those who queue, and against the thread. Events as in
//! `PROTOCOL.md`, part *BH*. The clock stands still but where a model moves it, so that no thread
//! covers for a call that is lost.
//!
//! They run to two preemptions at most: there are four threads, and a third takes minutes.
//! All that a pool does is a section of its lock, so there is no ordering to weaken.

#![cfg(loom)]

mod model_support;

use inflight_sync::fault::Faults;
use inflight_sync::model::check;
use inflight_sync::thread;
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, Mutex};
use inflight_topology::Topology;
use inflight_workqueue::{BH_PATIENCE, PollerError, Workqueue, WorkqueueSystem};
use model_support::{Count, ONE_OR_THREE, TWO};
use std::time::Duration;

fn system() -> (WorkqueueSystem, Workqueue, Clock) {
    system_with(&Faults::none())
}

fn system_with(faults: &Faults) -> (WorkqueueSystem, Workqueue, Clock) {
    let clock = Clock::manual();
    let topo = Topology::synthetic("core:1").unwrap();
    let builder = WorkqueueSystem::builder().topology(topo).faults(faults);
    let builder = builder.clock(clock.clone()).idle_timeout(Duration::MAX);
    let sys = builder.build().unwrap();
    let wq = sys.workqueue("model").bh().build().unwrap();
    (sys, wq, clock)
}

/// What an eventfd is to a loop.
#[derive(Clone)]
struct Calls(Arc<(Mutex<bool>, Event)>);

impl Calls {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(false), Event::new())))
    }

    fn call(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let called = || std::mem::take(&mut *self.0.0.lock());
        self.0.1.wait_while(|| !called());
    }
}

/// An item that finds nobody else inside.
fn alone(inside: &Count, runs: &Count) -> impl FnOnce() + Send + 'static {
    let (inside, runs) = (inside.clone(), runs.clone());
    move || {
        assert_eq!(inside.add(), 0, "one at a time");
        runs.add();
        inside.sub();
    }
}

/// Two items come while the poller takes, finds nothing and goes. Whoever comes after
/// it calls it, or it has been told that more waits; else it sleeps for ever.
#[test]
fn queue_against_the_end_of_a_poll() {
    check("queue_against_the_end_of_a_poll", TWO, || {
        let (sys, wq, _clock) = system();
        let (inside, runs) = (Count::new(), Count::new());
        let calls = Calls::new();
        let notify = calls.clone();
        let mut poller = sys.bh_poller(0, move || notify.call()).unwrap();
        let submitter = thread::spawn({
            let (inside, runs) = (inside.clone(), runs.clone());
            move || {
                for _ in 0..2 {
                    drop(wq.spawn_on(0, alone(&inside, &runs)));
                }
            }
        });
        let mut ran = 0;
        while ran < 2 {
            calls.wait();
            loop {
                let polled = poller.poll(1);
                ran += polled.ran;
                if !polled.more {
                    break;
                }
            }
        }
        submitter.join().unwrap();
        drop(poller);
        drop(sys);
        assert_eq!(runs.get(), 2);
    });
}

/// The poller's time is up while it comes and takes, and it comes again while the
/// thread may still be on its way: either it or the thread runs an item, never both, and nothing
/// stays.
#[test]
fn a_late_poller_against_the_thread() {
    check("a_late_poller_against_the_thread", TWO, || {
        let (sys, wq, clock) = system();
        let (inside, runs) = (Count::new(), Count::new());
        let mut poller = sys.bh_poller(0, || ()).unwrap();
        drop(wq.spawn_on(0, alone(&inside, &runs)));
        clock.advance(BH_PATIENCE);
        let _ = poller.poll(1);
        for _ in 0..2 {
            drop(wq.spawn_on(0, alone(&inside, &runs)));
        }
        let _ = poller.poll(1);
        drop(poller);
        drop(wq);
        drop(sys);
        assert_eq!(runs.get(), 3);
    });
}

/// The poller's time is up while it comes, and the thread is refused. A poll that finds the thread
/// on its way runs nothing; then the poller is called once more, or it sleeps for ever.
#[test]
fn a_late_poller_against_a_refusal() {
    check("a_late_poller_against_a_refusal", TWO, || {
        let faults = Faults::new();
        let (sys, wq, clock) = system_with(&faults);
        let (inside, runs) = (Count::new(), Count::new());
        let calls = Calls::new();
        let notify = calls.clone();
        let mut poller = sys.bh_poller(0, move || notify.call()).unwrap();
        faults.refuse_spawns(true);
        drop(wq.spawn_on(0, alone(&inside, &runs)));
        clock.advance(BH_PATIENCE);
        let mut ran = 0;
        while ran == 0 {
            calls.wait();
            ran = poller.poll(1).ran;
        }
        drop(poller);
        drop(wq);
        drop(sys);
        assert_eq!(runs.get(), 1);
    });
}

/// Two items come while time passes, and the poller never does: the timer was set, and the
/// thread comes.
#[test]
fn a_poller_that_does_not_come() {
    check("a_poller_that_does_not_come", ONE_OR_THREE, || {
        let (sys, wq, clock) = system();
        let (inside, runs) = (Count::new(), Count::new());
        let poller = sys.bh_poller(0, || ()).unwrap();
        let submitter = thread::spawn({
            let (inside, runs, wq) = (inside.clone(), runs.clone(), wq.clone());
            move || {
                drop(wq.spawn_on(0, alone(&inside, &runs)));
                drop(wq.spawn_on(0, alone(&inside, &runs)));
            }
        });
        clock.advance(BH_PATIENCE);
        submitter.join().unwrap();
        clock.advance(BH_PATIENCE);
        wq.flush_blocking().unwrap();
        assert_eq!(runs.get(), 2);
        drop(poller);
        drop(wq);
        drop(sys);
    });
}

/// The poller goes for good while an item comes: it is the thread's.
#[test]
fn a_poller_that_goes_against_queue() {
    check("a_poller_that_goes_against_queue", TWO, || {
        let (sys, wq, _clock) = system();
        let (inside, runs) = (Count::new(), Count::new());
        let poller = sys.bh_poller(0, || ()).unwrap();
        let submitter = thread::spawn({
            let item = alone(&inside, &runs);
            move || drop(wq.spawn_on(0, item))
        });
        drop(poller);
        submitter.join().unwrap();
        drop(sys);
        assert_eq!(runs.get(), 1);
    });
}

/// The system ends while the poller is inside its poll, and does not leave: what it
/// has not taken is the thread's.
#[test]
fn the_end_against_a_poll() {
    check("the_end_against_a_poll", ONE_OR_THREE, || {
        let (sys, wq, _clock) = system();
        let (inside, runs) = (Count::new(), Count::new());
        let mut poller = sys.bh_poller(0, || ()).unwrap();
        for _ in 0..2 {
            drop(wq.spawn_on(0, alone(&inside, &runs)));
        }
        drop(wq);
        let polls = thread::spawn(move || {
            let _ = poller.poll(1);
            poller
        });
        drop(sys);
        assert_eq!(runs.get(), 2);
        drop(polls.join().unwrap());
    });
}

/// A poller comes while the system ends: it does not hold up what it would be called for, and is
/// told why it may not come.
#[test]
fn the_end_against_a_new_poller() {
    check("the_end_against_a_new_poller", TWO, || {
        let (sys, wq, _clock) = system();
        let (inside, runs) = (Count::new(), Count::new());
        drop(wq.spawn_on(0, alone(&inside, &runs)));
        drop(wq);
        let comes = thread::spawn({
            let sys = sys.clone();
            move || sys.bh_poller(0, || ())
        });
        assert!(sys.shutdown_timeout(Duration::from_secs(1)).is_ok());
        assert_eq!(runs.get(), 1);
        if let Err(why) = comes.join().unwrap() {
            assert_eq!(why, PollerError::ShutDown);
        }
    });
}
