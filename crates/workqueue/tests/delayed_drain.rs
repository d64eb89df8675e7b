//! Works whose time comes while their queue is drained, on a clock that the test moves.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, block_on};
use inflight_workqueue::{
    DelayedWork, FlushError, Modified, QueueError, Queued, TraceStep, Wait, WaitError, Work,
    Workqueue, WorkqueueSystem,
};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use support::{
    Level, Log, Rigged, bound, builder, delayed_counting, held_work, plug, rigged, until,
};

const MS: Duration = Duration::from_millis(1);

fn manual() -> (Rigged, Workqueue, Clock) {
    let (sys, _, clock) = rigged(builder());
    let wq = bound(&sys);
    (sys, wq, clock)
}

/// A drain of a queue that goes on until the level is raised.
fn held_drain(wq: &Workqueue) -> (Wait<'static, Result<(), WaitError>>, Level) {
    let (work, hold, begun) = held_work();
    assert!(wq.queue(&work).unwrap().is_queued());
    begun.wait(1);
    let mut drain = wq.drain();
    assert!(poll(&mut drain).is_pending());
    assert_eq!(
        wq.queue(&Work::new(|| ())),
        Err(QueueError::Draining),
        "others are refused"
    );
    (drain, hold)
}

fn poll<T>(future: &mut Wait<'_, T>) -> Poll<T> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The time comes, and the timer has seen to all that is due.
fn advance(sys: &WorkqueueSystem, clock: &Clock, time: Duration) {
    let other = sys.workqueue("last").bound().build().unwrap();
    let (last, seen) = delayed_counting();
    assert!(other.queue_delayed(&last, time).unwrap().is_queued());
    clock.advance(time);
    seen.wait(1);
}

/// A drain that begins while a work is moved, as soon as it has been taken out, waits for it.
#[test]
fn a_drain_that_begins_during_a_move_refuses_nothing() {
    let (drained, drain) = (Arc::new(Mutex::new(None::<Workqueue>)), Arc::default());
    let builder = builder().trace({
        let (drained, drain) = (drained.clone(), Arc::<Mutex<_>>::clone(&drain));
        move |event| {
            if event.step == TraceStep::Cancelled {
                let wq = drained.lock().take().unwrap();
                *drain.lock() = Some(wq.drain());
            }
        }
    });
    let (sys, _, _) = rigged(builder);
    let wq = bound(&sys);
    let open = plug(&wq);
    let (work, runs) = delayed_counting();
    let queued = wq.queue_delayed_on(0, &work, Duration::ZERO);
    assert_eq!(queued, Ok(Queued::Queued));
    *drained.lock() = Some(wq.clone());
    let moved = wq.mod_delayed_on(0, &work, Duration::ZERO);
    assert_eq!((moved, work.is_pending()), (Ok(Modified::Moved), true));
    open.raise();
    let drain = drain.lock().take().unwrap();
    assert_eq!(block_on(drain), Ok(()));
    assert_eq!(runs.get(), 1);
}

/// What comes due during a drain does not run before its end, whoever has set the time and when,
/// and then runs in the order of the times.
#[test]
fn what_comes_due_during_a_drain_is_queued_when_it_ends() {
    let (sys, wq, clock) = manual();
    let log = Log::new();
    let work = |n| {
        let log = log.clone();
        DelayedWork::new(move || log.push(n))
    };
    let (before, stranger, own) = (work(2), work(1), work(3));
    assert!(wq.queue_delayed_on(0, &before, 3 * MS).unwrap().is_queued());
    let arms = Level::new();
    let armer = wq.spawn_on(1, {
        let (wq, own, arms) = (wq.clone(), own.clone(), arms.clone());
        move || {
            arms.wait(1);
            wq.queue_delayed_on(0, &own, 4 * MS)
        }
    });
    let (mut drain, hold) = held_drain(&wq);
    arms.raise();
    assert_eq!(armer.wait().unwrap(), Ok(Queued::Queued), "its own item");
    let moved = wq.mod_delayed_on(0, &stranger, 9 * MS);
    assert_eq!(moved, Ok(Modified::Queued), "a time is no queueing");
    assert_eq!(wq.mod_delayed_on(0, &stranger, 2 * MS), Ok(Modified::Moved));
    advance(&sys, &clock, 5 * MS);
    hold.raise();
    until(|| wq.stats().completed >= 2, || "it hangs".to_owned());
    assert!(before.is_pending() && stranger.is_pending() && own.is_pending());
    assert_eq!(
        before.flush_blocking(),
        Err(FlushError::Rejected(QueueError::Draining))
    );
    assert_eq!((log.entries(), wq.stats().refused), (vec![], 0));
    until(|| poll(&mut drain).is_ready(), || "it hangs".to_owned());
    for work in [before, stranger, own] {
        work.flush_blocking().unwrap();
    }
    assert_eq!((log.entries(), wq.stats().refused), (vec![1, 2, 3], 0));
}

/// As long as any drain goes on, and not after all of them.
#[test]
fn what_comes_due_during_two_drains_waits_for_both() {
    let (sys, wq, clock) = manual();
    let (work, runs) = delayed_counting();
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    let ((first, hold), second) = (held_drain(&wq), wq.drain());
    advance(&sys, &clock, MS);
    drop(first);
    assert!(work.is_pending());
    advance(&sys, &clock, MS);
    assert_eq!(runs.get(), 0, "the other one goes on");
    drop(second);
    runs.wait(1); // though an item runs
    hold.raise();
}

/// Not for that of another queue.
#[test]
fn what_comes_due_during_a_drain_waits_for_no_other_end() {
    let (sys, wq, clock) = manual();
    let other = sys.workqueue("other").bound().build().unwrap();
    let (work, runs) = delayed_counting();
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    let ((drain, hold), (ends, end)) = (held_drain(&wq), held_drain(&other));
    advance(&sys, &clock, MS);
    end.raise();
    assert_eq!(block_on(ends), Ok(()));
    assert_eq!(wq.stats().queued, 1, "what holds the drain");
    hold.raise();
    assert_eq!(block_on(drain), Ok(()));
    work.flush_blocking().unwrap();
    assert_eq!(runs.get(), 1);
}

/// It can be cancelled, and moved to a later time or to another queue.
#[test]
fn what_a_drain_postpones_can_be_taken_back() {
    let (sys, wq, clock) = manual();
    let other = sys.workqueue("other").bound().build().unwrap();
    let [(cancelled, a), (later, b), (elsewhere, c)] = [(); 3].map(|()| delayed_counting());
    for work in [&cancelled, &later, &elsewhere] {
        assert!(wq.queue_delayed(work, MS).unwrap().is_queued());
    }
    let (drain, hold) = held_drain(&wq);
    advance(&sys, &clock, MS);
    assert!(cancelled.cancel());
    assert_eq!(wq.mod_delayed(&later, MS), Ok(Modified::Moved));
    let moved = other.mod_delayed(&elsewhere, Duration::ZERO);
    assert_eq!(moved, Ok(Modified::Moved));
    c.wait(1);
    drop(drain);
    hold.raise();
    wq.flush_blocking().unwrap();
    assert_eq!((a.get(), b.get()), (0, 0));
    advance(&sys, &clock, MS);
    b.wait(1);
    wq.flush_blocking().unwrap();
    assert_eq!((a.get(), b.get(), c.get()), (0, 1, 1));
    assert_eq!(wq.stats().refused, 0);
}

/// The drain waits for the item, so what the item flushes does not wait for the drain.
#[test]
fn an_item_may_flush_what_a_drain_postpones() {
    let (sys, wq, clock) = manual();
    let (work, runs) = delayed_counting();
    assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
    let flushes = Level::new();
    let item = wq.spawn({
        let (work, flushes) = (work.clone(), flushes.clone());
        move || {
            flushes.wait(1);
            work.flush_blocking()
        }
    });
    let (drain, hold) = held_drain(&wq);
    advance(&sys, &clock, MS);
    assert!(work.is_pending());
    flushes.raise();
    until(
        || item.is_finished(),
        || "it waits for the drain".to_owned(),
    );
    assert_eq!(item.wait().unwrap(), Ok(true));
    assert_eq!(runs.get(), 1);
    hold.raise();
    assert_eq!(block_on(drain), Ok(()));
}

/// A queue that is destroyed while it is drained refuses what the drain has postponed, and so does
/// one whose system ends: the work is idle.
#[test]
fn what_a_drain_postpones_is_refused_by_the_end() {
    for by_system in [false, true] {
        let (sys, wq, clock) = manual();
        let (work, runs) = delayed_counting();
        assert!(wq.queue_delayed(&work, MS).unwrap().is_queued());
        let (drain, hold) = held_drain(&wq);
        advance(&sys, &clock, MS);
        if by_system {
            let end = sys.shutdown();
            assert!(!work.is_pending());
            hold.raise();
            block_on(end).unwrap();
        } else {
            let end = wq.destroy();
            assert!(!work.is_pending());
            hold.raise();
            block_on(end).unwrap();
        }
        drop(drain);
        assert_eq!((wq.stats().refused, runs.get()), (1, 0));
    }
}
