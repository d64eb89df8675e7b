//! Delayed works, on a clock that the test moves.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::fault::Faults;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{
    DelayedWork, FlushError, Modified, QueueError, Queued, Workqueue, WorkqueueSystem,
};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use support::{LOOKS, Level, Log, bound, builder, delayed_counting, plug};

const MS: Duration = Duration::from_millis(1);

fn manual() -> (WorkqueueSystem, Workqueue, Clock) {
    let clock = Clock::manual();
    let builder = builder();
    let sys = builder.clock(clock.clone()).build().unwrap();
    let wq = bound(&sys);
    (sys, wq, clock)
}

/// Waits until the timer sleeps towards a time that has not come.
fn settled(clock: &Clock) {
    while clock.sleepers() == 0 {
        thread::yield_now();
    }
}

#[test]
fn it_runs_when_its_time_has_come_and_not_before() {
    let (_sys, wq, clock) = manual();
    let (work, runs) = delayed_counting();
    assert_eq!(wq.queue_delayed(&work, 10 * MS), Ok(Queued::Queued));
    assert_eq!(wq.queue_delayed(&work, MS), Ok(Queued::AlreadyPending));
    assert!(work.is_pending());
    settled(&clock);
    clock.advance(9 * MS);
    settled(&clock);
    assert_eq!((runs.get(), wq.stats().queued), (0, 0), "not in the queue");
    clock.advance(MS);
    runs.wait(1);
    wq.flush_blocking().unwrap();
    assert_eq!((wq.stats().queued, work.is_pending()), (1, false));
}

/// Works due at different times start in the order of their times, whatever the order in which
/// the times were set; those of one time in that order.
#[test]
fn the_earliest_comes_first() {
    let (_sys, wq, clock) = manual();
    let log = Log::new();
    let works: Vec<_> = [30, 10, 20, 10]
        .into_iter()
        .enumerate()
        .map(|(n, ms)| {
            let log = log.clone();
            let work = DelayedWork::new(move || log.push(n));
            assert!(wq.queue_delayed_on(0, &work, ms * MS).unwrap().is_queued());
            work
        })
        .collect();
    settled(&clock);
    clock.advance(30 * MS);
    while wq.stats().completed < 4 {
        thread::yield_now();
    }
    assert_eq!(log.entries(), [1, 3, 2, 0]);
    assert!(works.iter().all(|work| !work.is_pending()));
}

#[test]
fn no_delay_is_a_plain_queueing() {
    let faults = Faults::new();
    let builder = builder();
    let sys = builder.faults(&faults).build().unwrap();
    let (wq, (work, runs)) = (bound(&sys), delayed_counting());
    assert!(wq.queue_delayed(&work, Duration::ZERO).unwrap().is_queued());
    runs.wait(1);
    assert_eq!(
        faults.spawn_attempts(),
        2,
        "a worker, and the timer that looks after it"
    );
}

/// The time of a pending work moves both ways, and out of a queue.
#[test]
fn a_modified_work_runs_at_its_new_time_alone() {
    let (_sys, wq, clock) = manual();
    let (work, runs) = delayed_counting();
    assert_eq!(wq.mod_delayed_on(0, &work, 10 * MS), Ok(Modified::Queued));
    assert_eq!(wq.mod_delayed_on(0, &work, 20 * MS), Ok(Modified::Moved));
    settled(&clock);
    clock.advance(15 * MS);
    settled(&clock);
    assert_eq!(runs.get(), 0, "later than first asked");
    assert_eq!(wq.mod_delayed_on(0, &work, MS), Ok(Modified::Moved));
    clock.advance(MS);
    runs.wait(1);

    let open = plug(&wq);
    assert!(
        wq.queue_delayed_on(0, &work, Duration::ZERO)
            .unwrap()
            .is_queued()
    );
    assert_eq!(wq.mod_delayed_on(0, &work, MS), Ok(Modified::Moved));
    open.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(runs.get(), 1, "taken out of the queue");
    clock.advance(MS);
    runs.wait(2);
    work.disable().unwrap();
    assert_eq!(wq.mod_delayed(&work, MS), Ok(Modified::Disabled));
}

/// The work goes to where the last call sends it.
#[test]
fn a_modified_work_changes_its_queue() {
    let (sys, wq, clock) = manual();
    let other = sys.workqueue("other").bound().build().unwrap();
    let (work, runs) = delayed_counting();
    assert!(wq.queue_delayed(&work, 10 * MS).unwrap().is_queued());
    assert_eq!(other.mod_delayed(&work, 20 * MS), Ok(Modified::Moved));
    settled(&clock);
    clock.advance(20 * MS);
    runs.wait(1);
    assert_eq!((wq.stats().queued, other.stats().queued), (0, 1));
}

#[test]
fn cancel_takes_it_from_its_timer() {
    let (_sys, wq, clock) = manual();
    let (work, runs) = delayed_counting();
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    assert!(work.cancel());
    assert!(!work.is_pending() && !work.cancel());
    assert!(wq.queue_delayed(&work, 2 * MS).unwrap().is_queued());
    assert_eq!(work.cancel_sync_blocking(), Ok(true));
    assert!(wq.queue_delayed(&work, 3 * MS).unwrap().is_queued());
    assert_eq!(work.disable(), Ok(true));
    assert_eq!(wq.queue_delayed(&work, MS), Ok(Queued::Disabled));
    assert_eq!(work.enable(), Ok(true));
    clock.advance(5 * MS);
    wq.queue_delayed(&work, MS).unwrap();
    clock.advance(MS);
    runs.wait(1);
    wq.flush_blocking().unwrap();
    assert_eq!(runs.get(), 1, "only the last one has run");
}

#[test]
fn flush_makes_its_time_now() {
    let (_sys, wq, _clock) = manual();
    let (work, runs) = delayed_counting();
    assert_eq!(work.flush_blocking(), Ok(false));
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    assert_eq!(work.flush_blocking(), Ok(true));
    assert_eq!(runs.get(), 1);
    let own = DelayedWork::new({
        let (work, runs) = (work.clone(), runs.clone());
        move || {
            assert_eq!(work.flush_blocking(), Ok(false), "others may be flushed");
            runs.raise();
        }
    });
    assert!(wq.queue_delayed(&own, MS).unwrap().is_queued());
    assert_eq!(own.flush_blocking(), Ok(true));
    assert_eq!(runs.get(), 2);
}

/// A queue that was destroyed before the time comes takes nothing; the work is idle afterwards, and
/// the refusal is counted.
#[test]
fn a_destroyed_queue_takes_nothing_whose_time_comes() {
    let (_sys, wq, clock) = manual();
    let (work, runs) = delayed_counting();
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    wq.destroy_blocking().unwrap();
    assert_eq!(wq.mod_delayed(&work, MS), Err(QueueError::Destroyed));
    assert_eq!(
        work.flush_blocking(),
        Err(FlushError::Rejected(QueueError::Destroyed))
    );
    assert!(work.is_pending(), "it goes on waiting");
    settled(&clock);
    clock.advance(MS);
    while work.is_pending() || wq.stats().refused == 0 {
        thread::yield_now();
    }
    assert_eq!((wq.stats().refused, runs.get()), (1, 0));
}

/// Does something when it is woken, once.
struct Then(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Then {
    fn waker(f: impl FnOnce() + Send + 'static) -> Waker {
        Waker::from(Arc::new(Self(Mutex::new(Some(Box::new(f))))))
    }
}

impl Wake for Then {
    fn wake(self: Arc<Self>) {
        let f = self.0.lock().take();
        if let Some(f) = f {
            f();
        }
    }
}

/// Polls a flush of that work, and then something is done.
fn flush_then(
    work: &DelayedWork,
    f: impl FnOnce() + Send + 'static,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let work = work.clone();
    let mut flush: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        let _ = work.flush().await;
    });
    let polled = flush
        .as_mut()
        .poll(&mut Context::from_waker(&Then::waker(f)));
    assert!(polled.is_pending());
    flush
}

/// The queue closes while a work moves there: the move is refused, and the work is not pending. Who
/// queues it elsewhere at that moment is told that a run follows, and so it does.
#[test]
fn a_refused_move_takes_nothing_back_but_itself() {
    let (sys, wq, _) = manual();
    let other = sys.workqueue("other").bound().build().unwrap();
    let (runs, open) = (Level::new(), Level::new());
    let work = DelayedWork::new({
        let (runs, open) = (runs.clone(), open.clone());
        move || {
            runs.raise();
            open.wait_silently(1);
        }
    });
    // It runs, so that flushes wait during the move, and is queued once more.
    let queue = |wq: &Workqueue| wq.queue_delayed_on(0, &work, Duration::ZERO);
    assert!(queue(&wq).unwrap().is_queued());
    runs.wait(1);
    assert!(queue(&wq).unwrap().is_queued());
    let own = Arc::new(Mutex::new(Vec::new()));
    let queued = Log::new();
    // The move takes the work from the queue, and tells the first flush. The refusal tells the
    // second one.
    let first = flush_then(&work, {
        let (wq, other, work) = (wq.clone(), other.clone(), work.clone());
        let (own, queued) = (own.clone(), queued.clone());
        move || {
            let mut destroy = Box::pin(wq.destroy());
            let polled = destroy
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            let second = flush_then(&work.clone(), move || {
                queued.push(other.queue_delayed_on(0, &work, Duration::ZERO));
            });
            own.lock().push((destroy, second));
        }
    });
    let moved = wq.mod_delayed_on(0, &work, Duration::ZERO);
    open.raise();
    wq.destroy_blocking().unwrap();
    other.flush_blocking().unwrap();
    assert_eq!(moved, Err(QueueError::Destroyed));
    assert_eq!(queued.entries(), [Ok(Queued::Queued)]);
    assert_eq!(runs.get(), 2);
    drop((first, own));
}

/// The timer has the last handle of a work, which its queue refuses: a function that takes
/// its time to go holds up nobody who waits for his.
#[test]
fn a_slow_destructor_holds_up_no_other_delay() {
    struct Slow(Level, Level);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.raise();
            self.1.wait_silently(1);
        }
    }
    let (sys, wq, clock) = manual();
    let (begun, open) = (Level::new(), Level::new());
    let closed = sys.workqueue("closed").bound().build().unwrap();
    let slow = Slow(begun.clone(), open.clone());
    let work = DelayedWork::new(move || _ = &slow);
    assert!(closed.queue_delayed(&work, MS).unwrap().is_queued());
    drop(work);
    closed.destroy_blocking().unwrap();
    settled(&clock);
    clock.advance(MS);
    begun.wait(1);
    let (work, runs) = delayed_counting();
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    let looks = |_| {
        clock.advance(MS);
        thread::yield_now();
        runs.get() == 1
    };
    let ran = (0..LOOKS).any(looks);
    open.raise();
    assert!(ran, "the timer waits");
}

/// What waits for its time when the system ends is idle again, and nothing waits for that time.
#[test]
fn shutdown_does_not_wait_for_times() {
    let (sys, wq, _clock) = manual();
    let (work, runs) = delayed_counting();
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    drop(sys);
    assert_eq!((work.is_pending(), runs.get()), (false, 0));
    assert_eq!(wq.stats().refused, 1);
    assert_eq!(wq.queue_delayed(&work, MS), Err(QueueError::ShutDown));
}

/// The last handle on the system goes on the timer's own thread: it does not wait for itself.
#[test]
fn the_last_handle_may_go_on_the_timer_thread() {
    let (sys, wq, clock) = manual();
    let gone = Level::new();
    struct Says(Level, Option<WorkqueueSystem>);
    impl Drop for Says {
        fn drop(&mut self) {
            self.1.take();
            self.0.raise();
        }
    }
    let says = Says(gone.clone(), Some(sys));
    let work = DelayedWork::new(move || says.0.raise());
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    wq.destroy_blocking().unwrap();
    drop(work);
    clock.advance(MS);
    gone.wait(1);
}

/// Without a thread to wait on, the caller is told at once and the work is idle.
#[test]
fn a_refused_timer_thread_is_an_error() {
    let faults = Faults::new();
    let builder = builder();
    let sys = builder.faults(&faults).build().unwrap();
    let (wq, (work, runs)) = (bound(&sys), delayed_counting());
    faults.refuse_spawns(true);
    let refused = wq.queue_delayed(&work, MS);
    assert!(matches!(refused, Err(QueueError::NoTimer(_))));
    assert!(matches!(
        wq.mod_delayed(&work, MS),
        Err(QueueError::NoTimer(_))
    ));
    assert!(!work.is_pending());
    faults.refuse_spawns(false);
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    runs.wait(1);
}

/// The time comes when no worker can be had: the item is tried again, not lost.
#[test]
fn an_item_whose_pool_has_no_worker_yet_is_tried_again() {
    let faults = Faults::new();
    let builder = builder();
    let sys = builder.faults(&faults).build().unwrap();
    let (wq, (work, runs)) = (bound(&sys), delayed_counting());
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    let before = faults.spawn_attempts();
    faults.refuse_spawns(true);
    while faults.spawn_attempts() < before + 2 {
        thread::yield_now();
        if runs.get() > 0 {
            return; // It was faster than the refusal.
        }
    }
    assert!(work.is_pending());
    faults.refuse_spawns(false);
    runs.wait(1);
}

/// A flush that cannot have a worker for it leaves it to its time, and to the next flush.
#[test]
fn a_flush_without_a_worker_leaves_the_work_to_its_time() {
    let (faults, clock) = (Faults::new(), Clock::manual());
    let builder = builder().faults(&faults).clock(clock);
    let sys = builder.build().unwrap();
    let (wq, (work, runs)) = (bound(&sys), delayed_counting());
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    faults.refuse_spawns(true);
    let flushed = work.flush_blocking();
    assert!(
        matches!(flushed, Err(FlushError::Rejected(QueueError::NoWorker(_)))),
        "{flushed:?}"
    );
    assert_eq!((work.is_pending(), runs.get()), (true, 0));
    faults.refuse_spawns(false);
    assert_eq!(work.flush_blocking(), Ok(true));
    assert_eq!(runs.get(), 1);
}

/// While nothing waits for its time the timer sleeps without limit.
#[test]
fn the_timer_thread_sleeps_when_nothing_is_armed() {
    let (_sys, wq, clock) = manual();
    let (work, runs) = delayed_counting();
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    settled(&clock);
    clock.advance(MS);
    runs.wait(1);
    wq.flush_blocking().unwrap();
    while clock.sleepers() > 0 {
        thread::yield_now();
    }
}

/// On the system's own clock.
#[test]
fn the_real_time_comes_too() {
    let sys = builder().build().unwrap();
    let (wq, (work, runs)) = (bound(&sys), delayed_counting());
    let clock = Clock::system();
    let start = clock.now();
    assert!(wq.queue_delayed(&work, 20 * MS).unwrap().is_queued());
    runs.wait(1);
    assert!(clock.now() - start >= 20 * MS, "not before");
}
