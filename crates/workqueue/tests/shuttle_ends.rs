//! Random schedules of ends: freezes, futures that others wake, drains, cancels and the end of the
//! system, among panics and destructors that queue more.
//!
//! Every handle resolves, once; what was taken runs once; a future is dropped once.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, block_on, thread};
use inflight_workqueue::{
    Attrs, JoinError, JoinHandle, QueueError, Work, Workqueue, WorkqueueSystem, current_work,
};
use shuttle_support::{
    LOOK, MS, Mode, RunCounts, Threads, World, assert_settled, check, resolved, tick,
};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

/// Spawns until the queue takes nothing more, at most so often.
fn submit(wq: &Workqueue, run_counts: &RunCounts, first: usize) -> Vec<(usize, JoinHandle<usize>)> {
    let spawn = |number| match run_counts.spawn(wq, 0, number) {
        Ok(handle) => Some((number, handle)),
        Err(QueueError::ShutDown) => None,
        Err(error) => panic!("{error:?}"),
    };
    (first..first + 3).filter_map(spawn).collect()
}

/// Two freezes overlap, among submitters, a flush, a cancel and a change of the limit.
fn queues_freeze(mode: Mode) {
    let world = World::new(mode);
    let wq = |name| world.sys.workqueue(name);
    let bound = wq("bound")
        .bound()
        .freezable()
        .max_active(1)
        .build()
        .unwrap();
    let any = wq("any").unbound(Attrs::new()).freezable().max_active(2);
    let any = any.build().unwrap();
    let queues = [(bound, RunCounts::new(1)), (any, RunCounts::new(3))];
    let mut threads = Threads::default();
    for (n, (wq, run_counts)) in queues.clone().into_iter().enumerate() {
        threads.spawn(move || {
            for (number, handle) in submit(&wq, &run_counts, 100 * n) {
                assert!(resolved(number, handle.wait()));
            }
            let known = run_counts.known();
            wq.flush_blocking().unwrap();
            run_counts.assert_ended(&known);
        });
        let (sys, queues) = (world.sys.observer(), queues.clone());
        threads.spawn(move || {
            let frozen = sys.freeze();
            let started = queues.each_ref().map(|(wq, _)| wq.stats().started);
            let cancelled = queues[n].0.spawn(|| ());
            assert!(cancelled.try_cancel(), "it is held");
            assert!(matches!(cancelled.wait(), Err(JoinError::Cancelled)));
            queues[1].0.set_max_active(2 + n).unwrap();
            while frozen.is_busy() {
                thread::yield_now();
            }
            let begun = queues.each_ref().map(|(_, run_counts)| run_counts.begun());
            thread::yield_now();
            assert_eq!(queues.each_ref().map(|(wq, _)| wq.stats().started), started);
            assert_eq!(
                queues.each_ref().map(|(_, run_counts)| run_counts.begun()),
                begun
            );
            assert_eq!(
                queues.each_ref().map(|(_, run_counts)| run_counts.ended()),
                begun
            );
            drop(frozen);
        });
    }
    tick(&world.clock, 2, LOOK);
    threads.join();
    drop(world);
    for (wq, run_counts) in &queues {
        run_counts.assert_all_ran();
        assert_settled(wq);
    }
}

/// A future that is to be woken so often, and notes how it is polled.
#[derive(Default)]
struct Stage {
    waker: Mutex<Option<Waker>>,
    wakes: AtomicUsize,
    polling: AtomicUsize,
    dropped: AtomicUsize,
    wrong: AtomicUsize,
}

impl Stage {
    fn wake(&self, by_ref: bool) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        if by_ref {
            let waker = self.waker.lock().clone();
            if let Some(waker) = waker {
                waker.wake_by_ref();
            }
        } else {
            let waker = self.waker.lock().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn assert_dropped_once(&self) {
        assert_eq!(self.dropped.load(Ordering::Relaxed), 1, "dropped");
        assert_eq!(
            self.wrong.load(Ordering::Relaxed),
            0,
            "polled twice at once, or late"
        );
    }
}

struct Steps {
    stage: Arc<Stage>,
    needed: usize,
    over: bool,
}

impl Steps {
    fn new(needed: usize) -> (Arc<Stage>, Self) {
        let stage = Arc::new(Stage::default());
        let steps = Self {
            stage: stage.clone(),
            needed,
            over: false,
        };
        (stage, steps)
    }
}

impl Future for Steps {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        let stage = self.stage.clone();
        let others = stage.polling.fetch_add(1, Ordering::Relaxed);
        stage
            .wrong
            .fetch_add(others + usize::from(self.over), Ordering::Relaxed);
        *stage.waker.lock() = Some(cx.waker().clone());
        self.over = stage.wakes.load(Ordering::Relaxed) >= self.needed;
        stage.polling.fetch_sub(1, Ordering::Relaxed);
        if self.over {
            return Poll::Ready(self.needed);
        }
        Poll::Pending
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        let polled = self.stage.polling.load(Ordering::Relaxed);
        self.stage.wrong.fetch_add(polled, Ordering::Relaxed);
        self.stage.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Two threads wake futures, during a drain, a cancel, and a destroy or the end of the system.
fn futures_are_woken(mode: Mode) {
    for by_system in [false, true] {
        let world = World::new(mode);
        let wq = world.unbound("any", 1);
        let (ends, first) = Steps::new(3);
        let (cancelled, second) = Steps::new(3);
        let (stays, third) = Steps::new(usize::MAX);
        let first = wq.spawn_future(first);
        let second = wq.spawn_future(second);
        let third = wq.spawn_future(third);
        let stages = [ends, cancelled, stays];
        let mut threads = Threads::default();
        for by_ref in [false, true] {
            let stages = stages.each_ref().map(Arc::clone);
            threads.spawn(move || {
                for _ in 0..2 {
                    stages.iter().for_each(|stage| stage.wake(by_ref));
                }
            });
        }
        let (drained, ended) = (wq.clone(), world.sys.clone());
        threads.spawn(move || {
            drained.drain_blocking().unwrap();
            assert_eq!(first.wait().unwrap(), 3);
            if by_system {
                ended.shutdown_blocking().unwrap();
            } else {
                drained.destroy_blocking().unwrap();
            }
        });
        threads.spawn(move || {
            thread::yield_now();
            let taken = second.try_cancel();
            match second.wait() {
                Ok(result) => assert_eq!(result, 3),
                Err(JoinError::Cancelled) => assert!(taken),
                Err(JoinError::Rejected(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        });
        let why = if by_system {
            QueueError::ShutDown
        } else {
            QueueError::Destroyed
        };
        threads.spawn(move || match block_on(third) {
            Err(JoinError::Rejected(error)) => assert_eq!(error, why),
            // The system has ended; nobody has woken it before.
            result => panic!("{result:?}"),
        });
        tick(&world.clock, 2, LOOK);
        threads.join();
        drop((world, wq));
        for stage in &stages {
            stage.wake(true);
            // It may have been waiting for nothing but this.
            stage.waker.lock().take();
            stage.assert_dropped_once();
        }
    }
}

/// The last handle on the system goes, from a thread or from an item, or it is shut down in other
/// forms, while closures, futures and delayed waits are pending and others freeze.
fn a_system_ends(mode: Mode) {
    for form in 0..4 {
        let world = World::new(mode);
        let wq = world.sys.workqueue("any").unbound(Attrs::new()).freezable();
        let wq = wq.max_active(1).build().unwrap();
        let run_counts = RunCounts::new(1);
        let (stage, steps) = Steps::new(usize::MAX);
        let future = wq.spawn_future(steps);
        let mut threads = Threads::default();
        let waited = (wq.clone(), run_counts.clone());
        threads.spawn(move || {
            let (wq, run_counts) = waited;
            for (number, handle) in submit(&wq, &run_counts, 0) {
                assert!(resolved(number, handle.wait()), "it was taken");
            }
            assert!(matches!(
                future.wait(),
                Err(JoinError::Rejected(QueueError::ShutDown))
            ));
        });
        // A task of the queue waits for an item of it.
        let awaited = (wq.clone(), run_counts.clone());
        threads.spawn(move || {
            let (wq, run_counts) = awaited;
            for (number, handle) in submit(&wq, &run_counts, 100) {
                match block_on(wq.spawn_future(handle)) {
                    Ok(result) => assert!(resolved(number, result), "it was taken"),
                    Err(JoinError::Rejected(QueueError::ShutDown)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
        let timed = (wq.clone(), run_counts.clone(), world.clock.clone());
        threads.spawn(move || {
            let (wq, run_counts, clock) = timed;
            for (number, mut handle) in submit(&wq, &run_counts, 200) {
                loop {
                    clock.advance(MS);
                    match handle.wait_timeout(MS) {
                        Err(JoinError::TimedOut) => {}
                        result => break assert!(resolved(number, result), "it was taken"),
                    }
                }
            }
        });
        let observer = world.sys.observer();
        threads.spawn(move || {
            let frozen = observer.freeze();
            thread::yield_now();
            if form == 3 {
                std::mem::forget(frozen); // the end lets everything go
            }
        });
        let (ended, clock, sys) = (run_counts.clone(), world.clock.clone(), world.sys.clone());
        let inside = wq.clone();
        threads.spawn(move || end(form, sys, &inside, &ended));
        drop(world);
        threads.join_ticking(&clock, MS);
        drop(wq);
        stage.waker.lock().take();
        stage.assert_dropped_once();
        run_counts.assert_all_ran();
    }
}

fn end(form: usize, sys: WorkqueueSystem, wq: &Workqueue, run_counts: &RunCounts) {
    let known = run_counts.known();
    match form {
        0 => drop(sys),
        1 => {
            let last = wq.try_spawn(move || drop(sys));
            last.unwrap().wait().unwrap();
        }
        2 => {
            sys.shutdown_blocking().unwrap();
            run_counts.assert_ended(&known);
        }
        _ => {
            block_on(sys.shutdown()).unwrap();
            run_counts.assert_ended(&known);
        }
    }
}

/// What queues one more when it is dropped.
struct QueuesMore(Workqueue, RunCounts, usize);

impl Drop for QueuesMore {
    fn drop(&mut self) {
        let Self(wq, run_counts, number) = self;
        match run_counts.spawn(wq, 0, *number) {
            Ok(handle) => handle.detach(),
            Err(error) => assert_eq!(error, QueueError::ShutDown),
        }
    }
}

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        resume_unwind(Box::new("waker"));
    }
}

/// Panics in items, in a future, in a waker and in a destructor, beside destructors that queue.
fn all_kinds_of_panics(mode: Mode) {
    let world = World::new(mode);
    let wq = world.unbound("any", 1);
    let run_counts = RunCounts::new(1);
    let more = |number| QueuesMore(wq.clone(), run_counts.clone(), number);
    let mut threads = Threads::default();
    // Whose result, whose function, and whose panic holds what queues more.
    let (result, function, thrown) = (more(1), more(2), more(3));
    let spawned = wq.clone();
    threads.spawn(move || {
        spawned.spawn(move || result).detach();
        spawned.spawn(move || drop(function)).wait().unwrap();
        let thrown = spawned.spawn(move || resume_unwind(Box::new(thrown)));
        match thrown.wait() {
            Err(JoinError::Panicked(payload)) => drop(payload),
            result => panic!("{result:?}"),
        }
        spawned.flush_blocking().unwrap();
    });
    // A work panics, and has queued itself before.
    let runs = Arc::new(AtomicUsize::new(0));
    let work = Work::new({
        let (wq, runs) = (wq.clone(), runs.clone());
        move || {
            if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                wq.queue(&current_work().unwrap()).unwrap();
            }
            resume_unwind(Box::new("work"));
        }
    });
    let queued = (wq.clone(), work.clone());
    threads.spawn(move || {
        let (wq, work) = queued;
        wq.queue(&work).unwrap();
        work.flush_blocking().unwrap();
        let future = wq.spawn_future(async { resume_unwind(Box::new("future")) });
        let result: Result<(), _> = future.wait();
        assert!(matches!(result, Err(JoinError::Panicked(_))));
    });
    // A task whose waker panics, and a function that panics when it is cancelled.
    let (wakes, cancelled) = ((wq.clone(), run_counts.clone()), more(4));
    threads.spawn(move || {
        let (wq, run_counts) = wakes;
        let mut handle = run_counts.spawn(&wq, 0, 10).unwrap();
        let waker = Waker::from(Arc::new(PanickingWaker));
        let polled = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
        match polled {
            Poll::Ready(result) => assert!(resolved(10, result)),
            Poll::Pending => assert!(resolved(10, block_on(handle))),
        }
        let handle = wq.spawn(move || {
            let _cancelled = &cancelled;
        });
        let _raced = catch_unwind(AssertUnwindSafe(|| handle.try_cancel()));
        match handle.wait() {
            Ok(()) | Err(JoinError::Cancelled) => {}
            Err(error) => panic!("{error:?}"),
        }
    });
    let drained = wq.clone();
    threads.spawn(move || drained.flush_blocking().unwrap());
    tick(&world.clock, 2, LOOK);
    threads.join();
    drop((world, work));
    run_counts.assert_all_ran();
    assert_settled(&wq);
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    assert_eq!(
        wq.stats().panicked,
        4,
        "an item, a future and two runs of a work"
    );
}

#[test]
fn freezes_under_load() {
    check("freezes_under_load", queues_freeze);
}

#[test]
fn futures_and_their_wakers() {
    check("futures_and_their_wakers", futures_are_woken);
}

#[test]
fn systems_end_under_load() {
    check("systems_end_under_load", a_system_ends);
}

#[test]
fn panics_and_destructors() {
    check("panics_and_destructors", all_kinds_of_panics);
}
