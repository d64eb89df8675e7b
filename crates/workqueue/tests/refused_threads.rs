//! Systems that cannot have the threads they ask for.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::fault::Faults;
use inflight_sync::thread;
use inflight_workqueue::{JoinError, QueueError, SystemBuilder, Work, Workqueue, blocking};
use support::{Level, Rigged, bound, builder, one_cpu, refusable};

#[test]
fn without_any_worker_the_item_is_refused_and_not_left_pending() {
    let (wq, faults, _sys) = with_faults(builder());
    let work = Work::new(|| ());
    faults.refuse_spawns(true);
    assert!(matches!(
        wq.queue_on(0, &work),
        Err(QueueError::NoWorker(_))
    ));
    let refused = wq.spawn(|| ()).wait();
    assert!(matches!(
        refused,
        Err(JoinError::Rejected(QueueError::NoWorker(_)))
    ));
    assert_eq!((work.flush_blocking(), wq.stats().queued), (Ok(false), 0));
    faults.refuse_spawns(false);
    assert!(wq.queue_on(0, &work).unwrap().is_queued(), "tried again");
    work.flush_blocking().unwrap();
}

/// The pool goes on with the worker it has, and tries again at the next item.
#[test]
fn a_pool_with_a_worker_goes_on_when_threads_are_refused() {
    let (wq, faults, _sys) = with_faults(builder());
    wq.spawn(|| ()).wait().unwrap();
    let (release, begun, ended) = (Level::new(), Level::new(), Level::new());
    let blocker = Work::new({
        let (release, begun) = (release.clone(), begun.clone());
        move || {
            begun.raise();
            release.wait(1);
        }
    });
    let quick = |ended: &Level| {
        let ended = ended.clone();
        Work::new(move || ended.raise())
    };
    // The pool of CPU 1 gets its only worker; then threads are refused.
    assert!(wq.queue_on(1, &blocker).unwrap().is_queued());
    begun.wait(1);
    faults.refuse_spawns(true);
    let before = faults.spawn_attempts();
    assert!(wq.queue_on(1, &quick(&ended)).unwrap().is_queued());
    while faults.spawn_attempts() == before {
        // The worker may not have said yet that it blocks; then its block asks for the thread.
        thread::yield_now();
    }
    assert!(wq.queue_on(1, &quick(&ended)).unwrap().is_queued());
    assert_eq!(ended.get(), 0);
    release.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(ended.get(), 2, "the old worker has run them");
    // With threads allowed again, a blocked worker is relieved.
    begun.wait(1);
    let (release, ended) = (Level::new(), Level::new());
    let blocker = Work::new({
        let release = release.clone();
        move || release.wait(1)
    });
    assert!(wq.queue_on(1, &blocker).unwrap().is_queued());
    faults.refuse_spawns(false);
    assert!(wq.queue_on(1, &quick(&ended)).unwrap().is_queued());
    ended.wait(1);
    release.raise();
}

/// One CPU, and an item that waits for another one of its pool, in several ways, while threads are
/// refused for a while. It never waits for ever.
#[test]
fn a_refused_thread_strands_no_waiting_item() {
    for refusals in [1, 2, 3, 4, 5] {
        let (wq, faults, _sys) = with_faults(one_cpu());
        let waits = wq.spawn({
            let (wq, faults) = (wq.clone(), faults.clone());
            move || {
                faults.fail_next_spawns(refusals);
                wq.spawn(|| 1).wait().unwrap()
            }
        });
        assert_eq!(waits.wait().unwrap(), 1);
        assert!(faults.spawn_attempts() > refusals + 1);

        let (wq, faults, _sys) = with_faults(one_cpu());
        let nested = wq.spawn({
            let (wq, faults) = (wq.clone(), faults.clone());
            move || {
                faults.fail_next_spawns(refusals);
                let inner = wq.spawn(|| 1);
                blocking(|| inner.wait()).unwrap()
            }
        });
        assert_eq!(nested.wait().unwrap(), 1);
    }
}

/// As above, but the thread is asked for, in vain, by somebody who does not wait himself.
#[test]
fn a_thread_refused_to_another_strands_no_waiting_item() {
    for refusals in [1, 5] {
        let (wq, faults, sys) = with_faults(one_cpu());
        let (begun, second) = (Level::new(), Level::new());
        let waits = wq.spawn({
            let (begun, second) = (begun.clone(), second.clone());
            move || {
                begun.raise();
                second.wait(1);
            }
        });
        begun.wait(1);
        while !sys.dump().contains("1 blocked") {
            thread::yield_now();
        }
        faults.fail_next_spawns(refusals);
        drop(wq.spawn(move || second.raise()));
        waits.wait().unwrap();
    }
}

/// A wait that the library does not see cannot ask again, but asks several times at once.
#[test]
fn a_few_refused_threads_strand_no_foreign_wait() {
    for refusals in 1..=3 {
        let (wq, faults, _sys) = with_faults(one_cpu());
        let waits = wq.spawn({
            let (wq, faults) = (wq.clone(), faults.clone());
            move || {
                faults.fail_next_spawns(refusals);
                let second = Level::new();
                drop(wq.spawn({
                    let second = second.clone();
                    move || second.raise()
                }));
                blocking(|| second.wait_silently(1));
            }
        });
        waits.wait().unwrap();
    }
}

fn with_faults(builder: SystemBuilder) -> (Workqueue, Faults, Rigged) {
    let (sys, faults) = refusable(builder);
    (bound(&sys), faults, sys)
}
