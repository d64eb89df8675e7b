//! One work: queueing, waiting, cancelling, disabling, panicking, never twice at once.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::{Arc, Mutex, cpu, thread};
use inflight_workqueue::{
    Attrs, DisableError, EnableError, NotDisabled, QueueError, Queued, WaitError, Work, Workqueue,
    WorkqueueSystem, blocking,
};
use support::{Inside, Level, Log, bound, counting, held_work, one_cpu, plug, system};

#[test]
fn pending_means_from_queue_to_the_beginning_of_the_run() {
    let sys = system();
    let wq = bound(&sys);
    let open = plug(&wq);
    let (work, release, begun) = held_work();
    assert_eq!(wq.queue_on(0, &work), Ok(Queued::Queued));
    assert_eq!(wq.queue_on(0, &work), Ok(Queued::AlreadyPending));
    assert_eq!(
        wq.queue_on(1, &work),
        Ok(Queued::AlreadyPending),
        "on whatever CPU"
    );
    open.raise();
    begun.wait(1);
    assert_eq!(
        wq.queue_on(0, &work),
        Ok(Queued::Queued),
        "it runs, so it is not pending"
    );
    release.raise();
    release.raise();
    work.flush_blocking().unwrap();
    assert_eq!(begun.get(), 2);
}

#[test]
fn clones_are_the_same_work() {
    let sys = system();
    let wq = bound(&sys);
    let open = plug(&wq);
    let runs = Level::new();
    let work = counting(&runs);
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    assert_eq!(wq.queue_on(0, &work.clone()), Ok(Queued::AlreadyPending));
    open.raise();
    work.clone().flush_blocking().unwrap();
    assert_eq!(runs.get(), 1);
}

#[test]
fn flush_waits_for_the_last_instance_and_no_later_one() {
    let sys = system();
    let wq = bound(&sys);
    let (work, release, begun) = held_work();
    assert_eq!(work.flush_blocking(), Ok(false), "never queued");
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    begun.wait(1);
    let flusher = thread::spawn({
        let work = work.clone();
        move || work.flush_blocking()
    });
    release.raise();
    assert_eq!(flusher.join().unwrap().map(|_| begun.get()), Ok(1));
    assert_eq!(work.flush_blocking(), Ok(false), "it has ended");
}

/// A work that queues itself again for as long as the test lives does not hold a flush.
#[test]
fn i11_flush_is_not_held_by_requeueing() {
    let sys = system();
    let wq = bound(&sys);
    let runs = Level::new();
    let own: Arc<Mutex<Option<Work>>> = Arc::new(Mutex::new(None));
    let work = Work::new({
        let (wq, own, runs) = (wq.clone(), own.clone(), runs.clone());
        move || {
            runs.raise();
            let me = own.lock().clone().expect("set before the first run");
            let _ = wq.queue(&me);
        }
    });
    *own.lock() = Some(work.clone());
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    runs.wait(1);
    for _ in 0..20 {
        let before = runs.get();
        assert_eq!(work.flush_blocking(), Ok(true));
        assert!(runs.get() >= before);
    }
    work.cancel_sync_blocking().unwrap();
    let stopped = runs.get();
    assert_eq!(
        work.flush_blocking(),
        Ok(false),
        "cancel_sync stops work that queues itself"
    );
    assert_eq!(runs.get(), stopped);
    assert!(
        wq.queue_on(0, &work).unwrap().is_queued(),
        "it can be used afterwards"
    );
    runs.wait(stopped + 1);
    work.disable_sync_blocking().unwrap();
    *own.lock() = None;
}

#[test]
fn cancel_takes_a_pending_instance_back() {
    let sys = system();
    let wq = bound(&sys);
    let open = plug(&wq);
    let (work, _, begun) = held_work();
    assert!(!work.cancel());
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    assert!(work.cancel());
    assert!(!work.cancel());
    open.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(begun.get(), 0);
    let stats = wq.stats();
    assert_eq!((stats.queued, stats.completed, stats.cancelled), (2, 1, 1));
}

#[test]
fn cancel_takes_an_inactive_instance_back_and_gives_no_slot_away() {
    let sys = system();
    let wq = sys.workqueue("one").bound().max_active(1).build().unwrap();
    let (first, release, begun) = held_work();
    let (second, _, second_begun) = held_work();
    let third = Work::new(|| ());
    assert!(wq.queue_on(0, &first).unwrap().is_queued());
    begun.wait(1);
    assert!(wq.queue_on(0, &second).unwrap().is_queued());
    assert!(wq.queue_on(0, &third).unwrap().is_queued());
    assert_eq!((wq.stats().active, wq.stats().inactive), (1, 2));
    assert!(second.cancel());
    assert_eq!((wq.stats().active, wq.stats().inactive), (1, 1));
    release.raise();
    wq.flush_blocking().unwrap();
    assert_eq!((second_begun.get(), wq.stats().completed), (0, 2));
}

/// A waiter for a pending instance leaves when that is cancelled, but not before the run in front.
#[test]
fn a_flush_of_a_cancelled_instance_ends_with_the_one_before() {
    let sys = system();
    let wq = bound(&sys);
    let (work, release, begun) = held_work();
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    begun.wait(1);
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    let flusher = thread::spawn({
        let work = work.clone();
        move || work.flush_blocking()
    });
    assert!(work.cancel());
    release.raise();
    assert!(flusher.join().unwrap().is_ok());
    assert_eq!(begun.get(), 1);
}

#[test]
fn cancel_sync_waits_for_the_running_instance() {
    let sys = system();
    let wq = bound(&sys);
    let (work, release, begun) = held_work();
    let done = Level::new();
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    begun.wait(1);
    let canceller = thread::spawn({
        let (work, done) = (work.clone(), done.clone());
        move || {
            let was_pending = work.cancel_sync_blocking();
            done.raise();
            was_pending
        }
    });
    // While it waits nobody can queue the work.
    while wq.queue_on(0, &work).unwrap() != Queued::Disabled {
        work.cancel();
    }
    assert_eq!(done.get(), 0, "the run has not ended");
    release.raise();
    assert!(canceller.join().unwrap().is_ok());
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    release.raise();
    work.flush_blocking().unwrap();
}

#[test]
fn disable_nests_and_refuses() {
    let sys = system();
    let wq = bound(&sys);
    let work = Work::new(|| ());
    assert_eq!(work.disable(), Ok(false));
    assert_eq!(work.disable_sync_blocking(), Ok(false));
    assert_eq!(wq.queue(&work), Ok(Queued::Disabled));
    assert_eq!(work.enable(), Ok(false));
    assert_eq!(wq.queue(&work), Ok(Queued::Disabled));
    assert_eq!(work.enable(), Ok(true));
    assert_eq!(work.enable(), Err(NotDisabled));
    assert!(
        wq.queue(&work).unwrap().is_queued(),
        "refused calls are not made up for"
    );
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().completed, 1);
}

#[test]
fn the_last_enable_queues() {
    let sys = system();
    let wq = bound(&sys);
    let (work, release, begun) = held_work();
    assert_eq!(wq.enable_and_queue(&work), Err(EnableError::NotDisabled));
    work.disable().unwrap();
    work.disable().unwrap();
    assert_eq!(wq.enable_and_queue(&work), Ok(Queued::Disabled));
    assert_eq!((begun.get(), work.is_pending()), (0, false));
    assert_eq!(wq.enable_and_queue(&work), Ok(Queued::Queued));
    begun.wait(1);
    assert!(work.is_running() && !work.is_pending());
    release.raise();
    work.flush_blocking().unwrap();
    work.disable().unwrap();
    wq.destroy_blocking().unwrap();
    let rejected = EnableError::Rejected(QueueError::Destroyed);
    assert_eq!(wq.enable_and_queue(&work), Err(rejected));
    assert_eq!(work.enable(), Err(NotDisabled), "it was enabled");
}

#[test]
fn disable_cancels_what_is_pending() {
    let sys = system();
    let wq = bound(&sys);
    let open = plug(&wq);
    let work = Work::new(|| ());
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    assert_eq!(work.disable(), Ok(true));
    open.raise();
    wq.flush_blocking().unwrap();
    assert_eq!((wq.stats().completed, wq.stats().cancelled), (1, 1));
}

/// An enable too many must leave a pending instance alone.
#[test]
fn i37_enable_takes_nothing_away() {
    let sys = system();
    let wq = bound(&sys);
    let open = plug(&wq);
    let runs = Level::new();
    let work = counting(&runs);
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    assert_eq!(work.enable(), Err(NotDisabled));
    open.raise();
    runs.wait(1);
}

#[test]
fn the_disable_depth_is_limited() {
    let work = Work::new(|| ());
    for _ in 0..65_535 {
        work.disable().unwrap();
    }
    assert_eq!(work.disable(), Err(DisableError::DepthOverflow));
    assert_eq!(
        work.disable_sync_blocking(),
        Err(DisableError::DepthOverflow)
    );
    for _ in 0..65_534 {
        assert_eq!(work.enable(), Ok(false));
    }
    assert_eq!(work.enable(), Ok(true));
}

#[test]
fn waiting_for_oneself_is_an_error() {
    let sys = system();
    let wq = bound(&sys);
    let own: Arc<Mutex<Option<Work>>> = Arc::new(Mutex::new(None));
    let seen = Log::new();
    let work = Work::new({
        let (own, seen) = (own.clone(), seen.clone());
        move || {
            let me = own.lock().clone().expect("set before the run");
            seen.push((
                me.flush_blocking(),
                me.cancel_sync_blocking(),
                me.disable_sync_blocking(),
            ));
            // These do not wait, so they may.
            assert_eq!(me.disable(), Ok(false));
            assert_eq!(me.enable(), Ok(true));
        }
    });
    *own.lock() = Some(work.clone());
    assert!(wq.queue(&work).unwrap().is_queued());
    wq.flush_blocking().unwrap();
    let expected = (
        Err(WaitError::WouldDeadlock),
        Err(WaitError::WouldDeadlock),
        Err(DisableError::WouldDeadlock),
    );
    assert_eq!(seen.entries(), [expected]);
    assert_eq!(wq.stats().panicked, 0);
    *own.lock() = None;
}

#[test]
fn a_panicking_work_is_counted_and_can_be_queued_again() {
    let sys = system();
    let wq = bound(&sys);
    let runs = Level::new();
    let work = Work::new({
        let runs = runs.clone();
        move || {
            runs.raise();
            assert!(runs.get() > 1, "the first run panics, on purpose");
        }
    });
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    work.flush_blocking().unwrap();
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    work.flush_blocking().unwrap();
    wq.flush_blocking().unwrap();
    let stats = wq.stats();
    assert_eq!((stats.completed, stats.panicked, runs.get()), (2, 1, 2));
}

/// A destructor that panics must not take the worker along.
#[test]
fn the_worker_survives_a_panicking_destructor() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic!("in drop, on purpose");
            }
        }
    }
    let sys = system();
    let wq = bound(&sys);
    let open = plug(&wq);
    let bomb = Bomb;
    let work = Work::new(move || {
        let _ = &bomb;
    });
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    drop(work);
    open.raise();
    wq.flush_blocking().unwrap();
    let after = Work::new(|| ());
    assert!(wq.queue_on(0, &after).unwrap().is_queued());
    after.flush_blocking().unwrap();
}

/// What a panic throws may panic when it is dropped, and so on. No worker dies of it.
#[test]
fn the_worker_survives_a_payload_that_panics() {
    struct Endless;
    impl Drop for Endless {
        fn drop(&mut self) {
            std::panic::panic_any(Endless);
        }
    }
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Endless);
        }
    }
    // A worker that waits to print its panic may be found asleep, and get a second one beside it.
    let sys = one_cpu().sampling(false).build().unwrap();
    let wq = bound(&sys);
    let open = plug(&wq);
    drop(wq.spawn(|| Bomb)); // the result goes with the item
    drop(wq.spawn(|| std::panic::panic_any(Endless)));
    let thrower = Work::new(|| std::panic::panic_any(Endless));
    assert!(wq.queue(&thrower).unwrap().is_queued());
    open.raise();
    assert_eq!(wq.spawn(|| 1).wait().unwrap(), 1);
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().panicked, 2);
    assert!(sys.dump().contains(": 1 workers"), "{}", sys.dump());
}

/// Two queues, four CPUs, many threads: the function is never entered twice.
#[test]
fn never_twice_at_once_even_through_two_queues() {
    let sys = system();
    let queues = [
        bound(&sys),
        sys.workqueue("u").unbound(Attrs::new()).build().unwrap(),
        sys.workqueue("b2").bound().max_active(1).build().unwrap(),
    ];
    let inside = Inside::new();
    let work = Work::new({
        let inside = inside.clone();
        move || {
            inside.enter();
            blocking(thread::yield_now);
            inside.leave();
        }
    });
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let (queues, work) = (queues.clone(), work.clone());
            thread::spawn(move || {
                let mut queued = 0u64;
                for i in 0..300 {
                    let wq = &queues[(i + n) % 3];
                    queued += u64::from(wq.queue_on(i % 4, &work).unwrap().is_queued());
                }
                queued
            })
        })
        .collect();
    let queued: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    queues.iter().for_each(|wq| wq.flush_blocking().unwrap());
    assert_eq!(inside.most(), 1);
    assert_eq!(
        queues.iter().map(|wq| wq.stats().completed).sum::<u64>(),
        queued,
        "none is lost"
    );
}

/// Queued elsewhere while it runs, it runs there, and not before it has ended.
#[test]
fn a_running_work_waits_for_the_end_of_its_run() {
    let sys = system();
    let (wq, other) = (bound(&sys), sys.workqueue("other").bound().build().unwrap());
    let cpus = Log::new();
    let (release, begun) = (Level::new(), Level::new());
    let work = Work::new({
        let (release, begun, cpus) = (release.clone(), begun.clone(), cpus.clone());
        move || {
            cpus.push(cpu::current());
            begun.raise();
            release.wait(begun.get());
        }
    });
    assert!(wq.queue_on(2, &work).unwrap().is_queued());
    begun.wait(1);
    assert!(other.queue_on(0, &work).unwrap().is_queued());
    release.raise();
    begun.wait(2);
    release.raise();
    work.flush_blocking().unwrap();
    assert_eq!(cpus.entries(), [2, 0]);
}

#[test]
fn a_work_that_runs_in_another_system_waits_for_the_end_of_that_run() {
    let (here, there) = (system(), system());
    let (wq, other) = (bound(&here), bound(&there));
    let (work, release, begun) = held_work();
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    begun.wait(1);
    assert!(other.queue_on(0, &work).unwrap().is_queued());
    // What is behind it does not wait for it.
    other.spawn_on(0, || ()).wait().unwrap();
    assert_eq!((begun.get(), work.is_pending()), (1, true));
    release.raise();
    begun.wait(2);
    release.raise();
    work.flush_blocking().unwrap();
    // The counters follow when the batch is settled.
    wq.flush_blocking().unwrap();
    other.flush_blocking().unwrap();
    assert_eq!((wq.stats().completed, other.stats().completed), (1, 2));
}

/// The last handle of a work goes before its run: it runs all the same.
#[test]
fn dropping_the_handle_does_not_cancel() {
    let sys = system();
    let wq = bound(&sys);
    let open = plug(&wq);
    let runs = Level::new();
    {
        let runs = runs.clone();
        assert!(
            wq.queue_on(0, &Work::new(move || runs.raise()))
                .unwrap()
                .is_queued()
        );
    }
    open.raise();
    runs.wait(1);
}

#[test]
fn handles_are_send_sync_and_static() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Work>();
    check::<Workqueue>();
    check::<WorkqueueSystem>();
    check::<inflight_workqueue::JoinHandle<u32>>();
    check::<inflight_workqueue::JoinError>();
}

/// A function's memory is used again as soon as its result has been taken, while its worker may
/// still be on the way to its next item. What is made there is known from it: it runs as often as
/// it was queued, never twice at once, and is found by who takes it back.
#[test]
fn an_item_in_the_memory_of_another_is_another() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 2_000 };
    let sys = system();
    let wq = sys
        .workqueue("names")
        .unbound(Attrs::new())
        .build()
        .unwrap();
    let mut taken_back = 0;
    for _ in 0..ROUNDS {
        wq.spawn(|| ()).wait().unwrap();
        let (inside, runs) = (Inside::new(), Level::new());
        let work = Work::new({
            let (inside, runs) = (inside.clone(), runs.clone());
            move || {
                inside.enter();
                runs.raise();
                thread::yield_now();
                inside.leave();
            }
        });
        let mut queued = 0;
        for n in 0..4 {
            queued += usize::from(wq.queue(&work).unwrap().is_queued());
            if n == 2 && work.cancel() {
                queued -= 1;
                taken_back += 1;
            }
            // While it runs, if it can be.
            runs.wait(queued);
        }
        work.flush_blocking().unwrap();
        assert_eq!((runs.get(), inside.most()), (queued, 1));
        drop(work);
    }
    wq.drain_blocking().unwrap();
    let stats = wq.stats();
    let all = stats.completed + stats.panicked + stats.cancelled;
    assert_eq!((stats.queued, stats.cancelled), (all, taken_back));
}
