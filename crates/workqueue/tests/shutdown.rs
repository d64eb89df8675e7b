//! The end of a system, however it comes.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, thread};
use inflight_topology::Topology;
use inflight_workqueue::{
    Attrs, BuildError, DelayedWork, JoinError, QueueError, Queued, Work, WorkqueueSystem,
};
use std::cell::RefCell;
use std::time::Duration;
use support::{Level, Log, bound, builder, held_work, system, times, watch};

#[test]
fn what_is_queued_runs_before_the_drop_returns() {
    let sys = system();
    let queues = [
        bound(&sys),
        sys.workqueue("one")
            .unbound(Attrs::new())
            .max_active(1)
            .build()
            .unwrap(),
    ];
    let ended = Level::new();
    let handles: Vec<_> = (0..40)
        .map(|n| {
            let ended = ended.clone();
            queues[n % 2].spawn(move || ended.raise())
        })
        .collect();
    drop(sys);
    assert_eq!(ended.get(), 40);
    assert!(handles.into_iter().all(|h| h.wait().is_ok()));
}

#[test]
fn a_system_never_used_ends_at_once() {
    drop(system());
    let sys = system();
    let wq = bound(&sys);
    drop(sys);
    wq.drain_blocking().unwrap();
}

#[test]
fn a_clone_keeps_the_system_and_a_queue_does_not() {
    let sys = system();
    let wq = bound(&sys);
    let other = sys.clone();
    drop(sys);
    assert_eq!(wq.spawn(|| 1).wait().unwrap(), 1);
    drop(other);
    assert_eq!(wq.queue(&Work::new(|| ())), Err(QueueError::ShutDown));
    let refused = wq.spawn(|| ()).wait();
    assert!(matches!(
        refused,
        Err(JoinError::Rejected(QueueError::ShutDown))
    ));
}

/// A work that queues itself holds its queue, and the queue does not hold the system.
#[test]
fn work_that_queues_itself_is_stopped_by_the_shutdown() {
    let sys = system();
    let wq = bound(&sys);
    let runs = Level::new();
    fn again(wq: &inflight_workqueue::Workqueue, runs: &Level) {
        let (next, runs) = (wq.clone(), runs.clone());
        drop(wq.spawn(move || {
            runs.raise();
            again(&next, &runs);
        }));
    }
    again(&wq, &runs);
    runs.wait(10);
    drop(sys);
    let ended = runs.get();
    wq.drain_blocking().unwrap();
    assert_eq!(runs.get(), ended);
}

/// The last handle is dropped by an item: the item goes on, the rest runs, the threads end.
#[test]
fn the_last_handle_may_go_on_a_worker() {
    let sys = system();
    let wq = bound(&sys);
    let (ended, dropped, release) = (Level::new(), Level::new(), Level::new());
    let last = wq.spawn({
        let (dropped, release) = (dropped.clone(), release.clone());
        move || {
            release.wait(1);
            drop(sys);
            dropped.raise();
        }
    });
    let handles: Vec<_> = (0..10)
        .map(|_| {
            let ended = ended.clone();
            wq.spawn(move || ended.raise())
        })
        .collect();
    release.raise();
    last.wait().unwrap();
    assert_eq!(dropped.get(), 1, "the drop did not wait for its own item");
    assert!(handles.into_iter().all(|h| h.wait().is_ok()));
    assert_eq!(ended.get(), 10);
    assert_eq!(wq.queue(&Work::new(|| ())), Err(QueueError::ShutDown));
}

/// The last handle is inside a function that is dropped on a worker, after its item has ended.
#[test]
fn the_last_handle_may_go_with_a_function() {
    let sys = system();
    let wq = bound(&sys);
    let begun = Level::new();
    let work = Work::new({
        let begun = begun.clone();
        move || {
            let _held = &sys;
            begun.raise();
        }
    });
    assert!(wq.queue(&work).unwrap().is_queued());
    drop(work);
    begun.wait(1);
    while wq.queue(&Work::new(|| ())) != Err(QueueError::ShutDown) {
        thread::yield_now();
    }
}

#[test]
fn a_timed_shutdown_says_what_is_left() {
    let clock = Clock::manual();
    let sys = builder().clock(clock.clone()).build().unwrap();
    let wq = sys
        .workqueue("stuck")
        .bound()
        .max_active(1)
        .build()
        .unwrap();
    let release = Level::new();
    let stuck = Work::new({
        let release = release.clone();
        move || release.wait(1)
    });
    let behind = Work::new(|| ());
    assert!(wq.queue_on(0, &stuck).unwrap().is_queued());
    assert!(wq.queue_on(0, &behind).unwrap().is_queued());
    let shutter = thread::spawn({
        let sys = sys.clone();
        move || sys.shutdown_timeout(Duration::from_secs(1))
    });
    while clock.sleepers() == 0 {
        thread::yield_now();
    }
    clock.advance(Duration::from_secs(1));
    let left = shutter.join().unwrap().unwrap_err();
    assert_eq!(left.queues().collect::<Vec<_>>(), [("stuck", 2)]);
    assert_eq!((left.items(), left.is_own_worker()), (2, false));
    assert_eq!(left.to_string(), "2 items had not ended: 2 of stuck");
    assert_eq!(wq.queue(&Work::new(|| ())), Err(QueueError::ShutDown));
    assert_eq!(
        sys.workqueue("late").bound().build().unwrap_err(),
        BuildError::ShutDown
    );
    drop(sys); // does not wait for the stuck one
    release.raise();
    stuck.flush_blocking().unwrap();
    behind.flush_blocking().unwrap();
    assert_eq!(behind.flush_blocking(), Ok(false));
}

/// A queue that comes too late leaves no thread, for which the end would wait.
#[test]
fn the_end_does_not_wait_for_a_rescuer_that_came_too_late() {
    let sys = system();
    let wq = bound(&sys);
    let (work, hold, begun) = held_work();
    assert!(wq.queue(&work).unwrap().is_queued());
    begun.wait(1);
    let end = sys.shutdown();
    let late = sys.workqueue("late").bound().mem_reclaim().build();
    assert_eq!(late.unwrap_err(), BuildError::ShutDown);
    hold.raise();
    let news = AtomicUsize::new(0);
    let ends = thread::spawn(move || block_on(end).unwrap());
    watch(&news, vec![ends], || {
        std::mem::forget(sys.clone()); // Its drop would wait, too.
        "the end waits".to_owned()
    });
}

#[test]
fn a_timed_shutdown_in_time_joins_the_threads() {
    let sys = system();
    let wq = bound(&sys);
    let held = Arc::new(());
    drop(wq.spawn({
        let held = held.clone();
        move || drop(held)
    }));
    sys.shutdown_timeout(Duration::MAX).unwrap();
    sys.shutdown_timeout(Duration::ZERO).unwrap();
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(sys.dump().contains("0 workers"), "{}", sys.dump());
}

/// Threads queue while others shut down: every call is answered truly.
#[test]
fn racing_queues_and_shutdown_lose_nothing() {
    for _ in 0..50 {
        let sys = system();
        let wq = sys
            .workqueue("race")
            .unbound(Attrs::new())
            .max_active(2)
            .build()
            .unwrap();
        let ran = Level::new();
        let queuers: Vec<_> = (0..3)
            .map(|_| {
                let (wq, ran) = (wq.clone(), ran.clone());
                thread::spawn(move || {
                    let mut accepted = 0;
                    loop {
                        let ran = ran.clone();
                        match wq.queue(&Work::new(move || ran.raise())) {
                            Ok(queued) => accepted += usize::from(queued.is_queued()),
                            Err(refusal) => {
                                assert_eq!(refusal, QueueError::ShutDown);
                                return accepted;
                            }
                        }
                    }
                })
            })
            .collect();
        ran.wait(5);
        drop(sys);
        let ran_by_then = ran.get();
        let accepted: usize = queuers.into_iter().map(|q| q.join().unwrap()).sum();
        assert_eq!(
            accepted, ran_by_then,
            "what was accepted had run when the drop returned"
        );
    }
}

/// Closing many queues takes a while. An item that ends meanwhile in a closed queue must not
/// stop the pools, as long as another queue takes items.
#[test]
fn a_queue_that_closes_later_loses_nothing() {
    const CPUS: usize = 512;
    let topo = Topology::synthetic(&format!("core:{CPUS}")).unwrap();
    for round in 0..400 {
        let sys = WorkqueueSystem::builder().topology(&topo).build().unwrap();
        let wq = bound(&sys);
        let started = Level::new();
        let queuers = [0, CPUS - 1].map(|cpu| {
            let (runs, turn) = (Level::new(), Level::new());
            let work = Work::new({
                let (runs, turn) = (runs.clone(), turn.clone());
                move || {
                    runs.raise();
                    turn.raise();
                }
            });
            let (wq, started, next) = (wq.clone(), started.clone(), turn.clone());
            let queuer = thread::spawn(move || {
                let mut accepted = 0;
                while wq.queue_on(cpu, &work) == Ok(Queued::Queued) {
                    accepted += 1;
                    started.raise();
                    next.wait(accepted);
                }
                accepted
            });
            (queuer, runs, turn)
        });
        started.wait(10 + round % 50);
        sys.shutdown_timeout(Duration::MAX).unwrap();
        for (queuer, runs, turn) in queuers {
            turn.raise(); // does not wait for an item that was lost
            let accepted = queuer.join().unwrap();
            assert_eq!(runs.get(), accepted, "what was accepted has run");
        }
    }
}

/// The limit holds although the last item has returned and what it leaves behind takes long to go.
#[test]
fn a_timed_shutdown_counts_slow_destructors() {
    struct Slow(Level, Level);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.raise();
            self.1.wait(1);
        }
    }
    let clock = Clock::manual();
    let sys = builder().clock(clock.clone()).build().unwrap();
    let wq = bound(&sys);
    let (begun, release) = (Level::new(), Level::new());
    let (slow, let_go) = (Slow(begun.clone(), release.clone()), Level::new());
    // The result is the worker's to drop: its handle goes before it is there.
    drop(wq.spawn({
        let let_go = let_go.clone();
        move || {
            let_go.wait(1);
            slow
        }
    }));
    let_go.raise();
    begun.wait(1);
    let left = sys.shutdown_timeout(Duration::ZERO).unwrap_err();
    assert_eq!(left.items(), 1);
    release.raise();
    wq.flush_blocking().unwrap();
}

/// Says when its thread goes, and keeps it until it is let go.
struct Lasts(Level, Level);

impl Drop for Lasts {
    fn drop(&mut self) {
        self.0.raise();
        self.1.wait_silently(1);
    }
}

inflight_sync::thread_local! {
    static LASTS: RefCell<Option<Lasts>> = const { RefCell::new(None) };
}

/// Of two that shut down at once at most one waits beyond its limit, because it joins the last
/// thread; neither says that the threads have ended before they have.
#[test]
fn neither_of_two_shutdowns_forgets_the_threads() {
    let sys = system();
    let wq = bound(&sys);
    let (ending, release, answers) = (Level::new(), Level::new(), Log::new());
    let lasts = Lasts(ending.clone(), release.clone());
    wq.spawn(move || drop(LASTS.with(|slot| slot.replace(Some(lasts)))))
        .wait()
        .unwrap();
    wq.flush_blocking().unwrap();
    let returned = Level::new();
    let shutters = [(); 2].map(|()| {
        let (sys, answers, returned) = (sys.clone(), answers.clone(), returned.clone());
        thread::spawn(move || {
            answers.push(sys.shutdown_timeout(Duration::ZERO));
            returned.raise();
        })
    });
    ending.wait(1);
    returned.wait(1);
    let first = answers.entries().remove(0).unwrap_err();
    assert_eq!((first.items(), first.is_own_worker()), (0, false));
    assert_eq!(
        first.to_string(),
        "all items had ended, but not all worker threads"
    );
    assert!(answers.entries().iter().all(Result::is_err));
    release.raise();
    shutters.into_iter().for_each(|s| s.join().unwrap());
    assert_eq!(sys.shutdown_blocking(), Ok(()));
}

/// Of the threads with one of these, the one that goes as number `held` stays until it is let go.
#[derive(Clone)]
struct Goes {
    count: Arc<AtomicUsize>,
    gone: Level,
    release: Level,
    held: usize,
}

impl Goes {
    fn new(held: usize) -> Self {
        let (count, gone, release) = (Arc::default(), Level::new(), Level::new());
        Self {
            count,
            gone,
            release,
            held,
        }
    }

    /// A copy becomes a local of the calling thread.
    fn with_this_thread(&self) {
        GOES.with(|slot| slot.replace(Some(Local(self.clone()))));
    }

    /// Shuts down, which may not end before the held thread goes.
    fn hold_shutdown(&self, sys: WorkqueueSystem, meanwhile: impl FnOnce()) {
        let ended = Level::new();
        let shutter = thread::spawn({
            let ended = ended.clone();
            move || {
                sys.shutdown_blocking().unwrap();
                ended.raise();
            }
        });
        meanwhile();
        self.gone.wait(self.held + 1);
        yields(2_000);
        assert_eq!(ended.get(), 0, "thread {} is still there", self.held);
        self.release.raise();
        shutter.join().unwrap();
    }
}

struct Local(Goes);

impl Drop for Local {
    fn drop(&mut self) {
        let before = self.0.count.fetch_add(1, Ordering::Relaxed);
        self.0.gone.raise();
        if before == self.0.held {
            self.0.release.wait_silently(1);
        }
    }
}

inflight_sync::thread_local! {
    static GOES: RefCell<Option<Local>> = const { RefCell::new(None) };
}

fn yields(n: usize) {
    (0..times(n)).for_each(|_| thread::yield_now());
}

/// A shutdown ends after each worker has gone, the first that goes and the last.
#[test]
fn a_shutdown_waits_for_the_first_thread_that_goes_and_for_the_last() {
    for held in [0, 1] {
        let sys = system();
        let wq = sys.workqueue("two").unbound(Attrs::new()).build().unwrap();
        let (goes, met) = (Goes::new(held), Level::new());
        let both = [(); 2].map(|()| {
            let (goes, met) = (goes.clone(), met.clone());
            wq.spawn(move || {
                met.raise();
                met.wait(2); // on two threads
                goes.with_this_thread();
            })
        });
        both.into_iter().for_each(|one| one.wait().unwrap());
        goes.hold_shutdown(sys, || ());
    }
}

/// The thread that calls the user's report functions may be the last of all.
#[test]
fn a_shutdown_waits_for_the_thread_of_reports() {
    let (goes, clock) = (Goes::new(0), Clock::manual());
    let (begun, open) = (Level::new(), Level::new());
    let builder = builder().clock(clock.clone()).trace({
        let (goes, begun, open) = (goes.clone(), begun.clone(), open.clone());
        move |_| {
            if thread::current_name().as_deref() == Some("inflight/report") {
                goes.with_this_thread();
                begun.raise();
                open.wait(1);
            }
        }
    });
    let sys = builder.build().unwrap();
    let delayed = DelayedWork::new(|| ());
    // The timer queues it. What it traces is told by the thread of reports.
    let delay = Duration::from_millis(1);
    assert!(
        bound(&sys)
            .queue_delayed(&delayed, delay)
            .unwrap()
            .is_queued()
    );
    clock.advance(delay);
    begun.wait(1);
    let observer = sys.observer();
    goes.hold_shutdown(sys, || {
        while observer.dump().contains("pool[") {
            thread::yield_now();
        }
        yields(1_000); // The timer goes too.
        open.raise();
    });
}
