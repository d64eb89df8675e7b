//! The queues that every system has.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::thread;
use inflight_workqueue::{JoinError, QueueError, Work, Workqueue, WorkqueueSystem};
use support::{Level, counting, system};

type Get = fn(&WorkqueueSystem) -> Workqueue;

const ALL: [(&str, Get); 7] = [
    ("events", WorkqueueSystem::events),
    ("events_highpri", WorkqueueSystem::events_highpri),
    ("events_long", WorkqueueSystem::events_long),
    ("events_unbound", WorkqueueSystem::events_unbound),
    ("events_freezable", WorkqueueSystem::events_freezable),
    (
        "events_power_efficient",
        WorkqueueSystem::events_power_efficient,
    ),
    ("events_bh", WorkqueueSystem::events_bh),
];

fn names(sys: &WorkqueueSystem) -> Vec<String> {
    let queues = sys.queues();
    let mut names: Vec<_> = queues.iter().map(|wq| wq.name().to_owned()).collect();
    names.sort_unstable();
    names
}

/// Whoever asks, and whenever, has the same queue; nobody has one that nobody has asked for.
#[test]
fn who_asks_twice_has_the_same_queue() {
    let sys = system();
    assert!(names(&sys).is_empty(), "nobody has asked");
    let runs = Level::new();
    for (n, (name, get)) in (1..).zip(ALL) {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (sys, runs) = (sys.clone(), runs.clone());
                // The handle goes, and the queue stays.
                thread::spawn(move || get(&sys).spawn(move || runs.raise()).wait())
            })
            .collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
        let wq = get(&sys);
        wq.flush_blocking().unwrap();
        assert_eq!((wq.name(), wq.stats().completed), (name, 4));
        assert_eq!(runs.get(), 4 * n);
    }
    let all: Vec<_> = ALL.map(|(name, _)| name.to_owned()).into();
    let mut all = all;
    all.sort_unstable();
    assert_eq!(names(&sys), all, "one of each");
}

/// After the end of the system they refuse what is queued, whether they had been there before or
/// are asked for then, under their own names. What was queued before has run.
#[test]
fn after_a_shutdown_they_refuse() {
    for made_before in [false, true] {
        let sys = system();
        let runs = Level::new();
        let work = counting(&runs);
        let before: Vec<_> = ALL
            .iter()
            .filter(|_| made_before)
            .map(|(_, get)| get(&sys))
            .collect();
        for (n, wq) in before.iter().enumerate() {
            assert!(wq.queue(&counting(&runs)).unwrap().is_queued(), "{n}");
        }
        sys.shutdown_blocking().unwrap();
        assert_eq!(runs.get(), before.len());
        let after = ALL.map(|(_, get)| get(&sys));
        for wq in before.iter().chain(&after) {
            assert_eq!(wq.queue(&work), Err(QueueError::ShutDown));
            let refused = wq.spawn(|| ()).wait();
            assert!(matches!(
                refused,
                Err(JoinError::Rejected(QueueError::ShutDown))
            ));
        }
        for ((name, _), wq) in ALL.iter().zip(&after) {
            assert_eq!(wq.name(), *name);
        }
        assert_eq!(runs.get(), before.len());
    }
}

/// They do not keep their system: the last handle on that ends it, and them.
#[test]
fn they_go_with_their_system() {
    let (sys, runs) = (system(), Level::new());
    let work: Work = counting(&runs);
    let handles = ALL.map(|(_, get)| get(&sys));
    for wq in &handles {
        let runs = runs.clone();
        wq.spawn(move || runs.raise()).detach();
    }
    drop(sys);
    assert_eq!(runs.get(), ALL.len());
    for wq in handles {
        assert_eq!(wq.queue(&work), Err(QueueError::ShutDown));
    }
}
