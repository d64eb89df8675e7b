//! BH queues and the rest of the house: refused threads, works that wait for their time, futures, a
//! work that goes through two queues, tools that show them.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::fault::Faults;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{
    BH_PATIENCE, BhPoller, DelayedWork, JoinError, PollerError, QueueError, Work, Workqueue,
    blocking,
};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Duration;
use support::{Inside, Level, Log, Rigged, bound, builder, rigged};

struct Rig {
    sys: Rigged,
    done: Workqueue,
    clock: Clock,
    faults: Faults,
}

fn rig() -> Rig {
    let (sys, faults, clock) = rigged(builder());
    let done = sys.workqueue("done").bh().build().unwrap();
    Rig {
        sys,
        done,
        clock,
        faults,
    }
}

fn nothing(rig: &Rig) -> Work {
    let work = Work::new(|| ());
    assert!(rig.done.queue_on(0, &work).unwrap().is_queued());
    work
}

#[test]
fn without_a_thread_and_a_poller_the_item_is_refused() {
    let rig = rig();
    rig.faults.refuse_spawns(true);
    let work = Work::new(|| ());
    let refused = rig.done.queue_on(0, &work);
    assert!(matches!(refused, Err(QueueError::NoWorker(_))));
    assert!(!work.is_pending());
    let refused = rig.sys.bh_poller(0, || ()).unwrap_err();
    assert!(matches!(refused, PollerError::NoTimer(_)));
    rig.faults.refuse_spawns(false);
    assert!(
        rig.done.queue_on(0, &work).unwrap().is_queued(),
        "tried again"
    );
    rig.done.flush_blocking().unwrap();
    assert_eq!(rig.done.stats().completed, 1);
}

/// A poller that has gone is no worker any more.
#[test]
fn behind_a_poller_that_has_gone_the_item_is_refused() {
    let rig = rig();
    let mut poller = rig.sys.bh_poller(0, || ()).unwrap();
    rig.faults.refuse_spawns(true);
    let work = nothing(&rig);
    assert_eq!(poller.poll(10).ran, 1);
    drop(poller);
    let refused = rig.done.queue_on(0, &work);
    assert!(matches!(refused, Err(QueueError::NoWorker(_))));
    rig.faults.refuse_spawns(false);
    assert!(rig.done.queue_on(0, &work).unwrap().is_queued());
    rig.done.flush_blocking().unwrap();
}

/// A poller needs no thread; late and without one, it finds all when it comes. Who comes while the
/// thread is asked for finds nothing, and is called when that has been refused.
#[test]
fn a_poller_runs_items_while_threads_are_refused() {
    let rig = rig();
    let calls = Level::new();
    let notify = calls.clone();
    let mut poller = rig.sys.bh_poller(0, move || notify.raise()).unwrap();
    rig.faults.refuse_spawns(true);
    let works = [nothing(&rig), nothing(&rig)];
    let before = rig.faults.spawn_attempts();
    rig.clock.advance(BH_PATIENCE);
    while rig.faults.spawn_attempts() == before {
        thread::yield_now(); // The timer asks for the thread.
    }
    let mut polled = poller.poll(10);
    if polled.ran == 0 {
        calls.wait(2);
        polled = poller.poll(10);
    }
    assert_eq!(polled.ran, 2);
    assert!(works.iter().all(|work| !work.is_pending()));
    assert_eq!(rig.done.stats().completed, 2);
}

/// The poller leaves what waits to a thread that cannot be had yet.
#[test]
fn what_a_poller_leaves_waits_for_a_thread() {
    let rig = rig();
    let poller = rig.sys.bh_poller(0, || ()).unwrap();
    rig.faults.refuse_spawns(true);
    let work = nothing(&rig);
    drop(poller);
    assert!(work.is_pending());
    rig.faults.refuse_spawns(false);
    while work.is_pending() {
        // A pool that has called mayday asks again by the clock.
        rig.clock.advance(Duration::from_secs(1));
        thread::yield_now();
    }
    rig.done.flush_blocking().unwrap();
    assert_eq!(rig.done.stats().completed, 1);
}

/// Or for the next poller, who is called for it.
#[test]
fn what_a_poller_leaves_waits_for_the_next_one() {
    let rig = rig();
    let poller = rig.sys.bh_poller(0, || ()).unwrap();
    rig.faults.refuse_spawns(true);
    let work = nothing(&rig);
    drop(poller);
    let calls = Level::new();
    let notify = calls.clone();
    let mut next = rig.sys.bh_poller(0, move || notify.raise()).unwrap();
    assert_eq!(calls.get(), 1);
    assert_eq!(next.poll(10).ran, 1);
    assert!(!work.is_pending());
}

#[test]
fn a_delayed_work_goes_to_the_poller_in_its_time() {
    let rig = rig();
    let calls = Level::new();
    let notify = calls.clone();
    let mut poller = rig.sys.bh_poller(0, move || notify.raise()).unwrap();
    let log = Log::new();
    let work = DelayedWork::new({
        let log = log.clone();
        move || log.push(thread::current_id())
    });
    let cancelled = DelayedWork::new(|| unreachable!("it was cancelled"));
    let ms = Duration::from_millis(1);
    let queue = |work, delay| rig.done.queue_delayed_on(0, work, delay).unwrap();
    assert!(queue(&work, 5 * ms).is_queued());
    assert!(queue(&cancelled, 5 * ms).is_queued());
    assert!(cancelled.cancel());
    assert_eq!((poller.poll(10).ran, calls.get()), (0, 0));
    rig.clock.advance(5 * ms);
    calls.wait(1);
    assert_eq!(poller.poll(10).ran, 1);
    assert_eq!(log.entries(), [thread::current_id()]);
}

/// Each poll of a future is an item; where the future wakes itself the next one comes after what
/// waits.
#[test]
fn a_future_is_polled_by_the_poller() {
    let rig = rig();
    let mut poller = rig.sys.bh_poller(0, || ()).unwrap();
    let log = Log::new();
    let (polls, others) = (log.clone(), log.clone());
    inflight_sync::cpu::set_current_for_thread(Some(0));
    let mut left = 3;
    let future = rig.done.spawn_future(poll_fn(move |context| {
        polls.push(("poll", thread::current_id()));
        left -= 1;
        if left == 0 {
            return Poll::Ready(7);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }));
    let other = rig
        .done
        .spawn(move || others.push(("other", thread::current_id())));
    inflight_sync::cpu::set_current_for_thread(None);
    while poller.poll(1).more {}
    let me = thread::current_id();
    let order = ["poll", "other", "poll", "poll"].map(|name| (name, me));
    assert_eq!(log.entries(), order);
    other.wait().unwrap();
    assert_eq!(future.wait().unwrap(), 7);
}

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in drop, on purpose");
    }
}

/// Who had the last way to wake a future drops it: the call that has spawned it, if it was polled
/// meanwhile, or else its poll. A panic of its destructor is neither the call's nor the poll's.
#[test]
fn a_future_that_nobody_can_wake_panics_nowhere() {
    for in_call in [true, false] {
        let rig = rig();
        let place = Arc::new(Mutex::new(None::<BhPoller>));
        let called = place.clone();
        let poller = rig.sys.bh_poller(0, move || {
            if let Some(poller) = &mut *called.lock() {
                assert_eq!(poller.poll(1).ran, 1);
            }
        });
        let mut poller = Some(poller.unwrap());
        if in_call {
            *place.lock() = poller.take();
        }
        inflight_sync::cpu::set_current_for_thread(Some(0));
        let bomb = PanicsInDrop;
        let spawned = catch_unwind(AssertUnwindSafe(|| {
            rig.done.spawn_future(async move {
                let _bomb = bomb;
                pending::<()>().await;
            })
        }));
        inflight_sync::cpu::set_current_for_thread(None);
        if let Some(poller) = &mut poller {
            assert_eq!(poller.poll(1).ran, 1);
        }
        let ended = spawned.expect("the call does not panic").wait();
        assert!(matches!(ended, Err(JoinError::Cancelled)));
        assert_eq!(rig.done.stats().panicked, 0, "in_call {in_call}");
        // It is in its own function.
        drop(place.lock().take());
    }
}

/// A work of a BH queue and of another one runs once at a time, whichever it goes through, and as
/// often as it has been accepted.
#[test]
fn a_work_of_two_queues_never_overlaps_itself() {
    let rig = rig();
    let bound = bound(&rig.sys);
    let mut poller = rig.sys.bh_poller(0, || ()).unwrap();
    let (inside, runs) = (Inside::new(), Level::new());
    let work = Work::new({
        let (inside, runs) = (inside.clone(), runs.clone());
        move || {
            inside.enter();
            thread::yield_now();
            inside.leave();
            runs.raise();
        }
    });
    const EACH: usize = 300;
    let threads = [&rig.done, &bound].map(|wq| {
        let (wq, work) = (wq.clone(), work.clone());
        thread::spawn(move || {
            let mut accepted = 0;
            while accepted < EACH {
                accepted += usize::from(wq.queue_on(0, &work).unwrap().is_queued());
                thread::yield_now();
            }
        })
    });
    while !threads.iter().all(|thread| thread.is_finished()) {
        let _ = poller.poll(2);
        rig.clock.advance(BH_PATIENCE / 3);
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    drop(poller);
    rig.done.flush_blocking().unwrap();
    bound.flush_blocking().unwrap();
    assert_eq!((inside.most(), runs.get()), (1, 2 * EACH));
    let completed = [&rig.done, &bound].map(|wq| wq.stats().completed);
    assert_eq!(completed, [EACH as u64; 2]);
}

/// It may sleep or not by the queue it was accepted by, whoever runs it.
#[test]
fn a_work_may_sleep_where_its_queue_lets_it() {
    let rig = rig();
    let bound = bound(&rig.sys);
    let slept = Level::new();
    let work = Work::new({
        let slept = slept.clone();
        move || blocking(|| slept.raise())
    });
    for _ in 0..2 {
        assert!(bound.queue_on(0, &work).unwrap().is_queued());
        bound.flush_blocking().unwrap();
        assert!(rig.done.queue_on(0, &work).unwrap().is_queued());
        rig.done.flush_blocking().unwrap();
    }
    assert_eq!(slept.get(), 2);
    assert_eq!((bound.stats().panicked, rig.done.stats().panicked), (0, 2));
}

#[test]
fn the_dump_tells_what_it_is() {
    let rig = rig();
    nothing(&rig).flush_blocking().unwrap();
    let urgent = rig.sys.workqueue("urgent").bh().highpri().build().unwrap();
    urgent.spawn_on(1, || ()).wait().unwrap();
    let dump = rig.sys.dump();
    for line in [
        "pool cpu 0 bh:",
        "pool cpu 1 bh highpri:",
        "queue done bh:",
        "queue urgent bh highpri:",
    ] {
        assert!(dump.contains(line), "{line}\n{dump}");
    }
    assert!(dump.contains("flags=0x01"), "{dump}");
}
