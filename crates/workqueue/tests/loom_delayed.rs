//! Models of delayed works: the timer against those who cancel, move and shut down. Events
//! as in `PROTOCOL.md`.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::{Bound, check};
use inflight_sync::time::Clock;
use inflight_sync::{block_on, thread};
use inflight_topology::Topology;
use inflight_workqueue::{
    DelayedWork, FlushError, QueueError, Queued, Workqueue, WorkqueueSystem, blocking,
};
use model_support::{Count, Flag, ONE, TWO};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

/// With two workers there are too many executions for more.
const FEW: Bound = Bound {
    quick: Some(0),
    deep: Some(1),
};

const TICK: Duration = Duration::from_millis(1);

fn system() -> (WorkqueueSystem, Workqueue, Clock) {
    let clock = Clock::manual();
    let topo = Topology::synthetic("core:1").unwrap();
    let builder = WorkqueueSystem::builder().topology(topo);
    let sys = builder
        .clock(clock.clone())
        .idle_timeout(Duration::MAX)
        .build()
        .unwrap();
    let wq = sys.workqueue("model").bound().build().unwrap();
    (sys, wq, clock)
}

fn counting() -> (DelayedWork, Count) {
    let runs = Count::new();
    let work = DelayedWork::new({
        let runs = runs.clone();
        move || {
            runs.add();
        }
    });
    (work, runs)
}

/// I.28: the time comes while the work is disabled. After `disable_sync` nothing runs, and
/// what it took back has not run.
#[test]
fn i28_disable_against_the_timer() {
    check("i28_disable_against_the_timer", TWO, || {
        let (sys, wq, clock) = system();
        let (work, runs) = counting();
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        clock.advance(TICK);
        let taken = work.disable_sync_blocking().unwrap();
        let ran = runs.get();
        assert_eq!(ran, usize::from(!taken), "run or taken back");
        assert_eq!(wq.queue_delayed(&work, TICK), Ok(Queued::Disabled));
        drop(sys);
        assert_eq!(runs.get(), ran, "nothing runs while it is disabled");
    });
}

/// I.28, *move* against *disable*: a pending instance is moved, and runs, while the work is being
/// disabled. Who waits for the runs waits for that one too.
#[test]
fn i28_disable_against_a_move() {
    check("i28_disable_against_a_move", TWO, || {
        let (sys, wq, _) = system();
        let pool = wq.manual_pool(0);
        let ended = Count::new();
        let (work, begun) = {
            let (begun, ended) = (Count::new(), ended.clone());
            let runs = begun.clone();
            let work = DelayedWork::new(move || {
                runs.add();
                ended.add();
            });
            (work, begun)
        };
        let now = Duration::ZERO;
        assert!(wq.queue_delayed(&work, now).unwrap().is_queued());
        let mover = {
            let (wq, work, pool) = (wq.clone(), work.clone(), pool.clone());
            thread::spawn(move || {
                wq.mod_delayed(&work, now).unwrap();
                pool.draw(1);
            })
        };
        work.disable_sync_blocking().unwrap();
        let (ran, begun) = (ended.get(), begun.get());
        assert_eq!(ran, begun, "a run has not ended");
        mover.join().unwrap();
        pool.draw(1);
        assert_eq!(ended.get(), ran, "nothing runs while it is disabled");
        drop(sys);
    });
}

/// The timer thread has gone to sleep without limit, because its only timer was taken back; the
/// next one must wake it, or the work never runs.
#[test]
fn a_first_timer_wakes_the_thread() {
    check("a_first_timer_wakes_the_thread", TWO, || {
        let (sys, wq, clock) = system();
        let ran = Flag::new();
        let work = DelayedWork::new({
            let ran = ran.clone();
            move || ran.raise()
        });
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        assert!(work.cancel());
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        clock.advance(TICK);
        ran.wait();
        drop(sys);
    });
}

/// The work moves to a later time while the first one comes. It runs for either
/// one, once.
#[test]
fn a_moved_work_runs_once() {
    check("a_moved_work_runs_once", TWO, || {
        let (sys, wq, clock) = system();
        let (work, runs) = counting();
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        clock.advance(TICK);
        let moved = wq.mod_delayed(&work, TICK * 1000).unwrap();
        let ran = work.cancel_sync_blocking().unwrap();
        assert!(ran, "it waits for the far time, whatever happened before");
        let expected = usize::from(moved == inflight_workqueue::Modified::Queued);
        drop(sys);
        assert_eq!(runs.get(), expected, "run before, or moved");
    });
}

/// *shutdown* against *redirect*: the system ends while the time comes. Run or refused, never both,
/// never left pending.
#[test]
fn shutdown_against_the_timer() {
    check("shutdown_against_the_timer", TWO, || {
        let (sys, wq, clock) = system();
        let (work, runs) = counting();
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        let mover = thread::spawn(move || clock.advance(TICK));
        drop(sys);
        assert!(!work.is_pending());
        assert_eq!(runs.get() as u64 + wq.stats().refused, 1);
        mover.join().unwrap();
    });
}

/// *shutdown* against the first queueing with a delay, which starts the timer's thread: it is told
/// that the system ends, and not that a thread was refused.
#[test]
fn shutdown_against_a_first_timer() {
    check("shutdown_against_a_first_timer", TWO, || {
        let (sys, wq, _clock) = system();
        let (work, runs) = counting();
        let other = thread::spawn({
            let work = work.clone();
            move || wq.queue_delayed(&work, TICK)
        });
        drop(sys);
        let queued = other.join().unwrap();
        assert!(
            matches!(queued, Ok(_) | Err(QueueError::ShutDown)),
            "{queued:?}"
        );
        assert!(!work.is_pending());
        assert_eq!(runs.get(), 0);
    });
}

/// *shutdown* against a queueing with a delay that it refuses: that one is never seen as pending,
/// so there is nothing that a cancel could take back.
#[test]
fn a_refused_delay_against_a_cancel() {
    check("a_refused_delay_against_a_cancel", TWO, || {
        let (sys, wq, _clock) = system();
        let (work, _) = counting();
        let other = thread::spawn({
            let (wq, work) = (wq.clone(), work.clone());
            move || wq.queue_delayed(&work, TICK)
        });
        let end = thread::spawn(move || drop(sys));
        let cancelled = work.cancel();
        match other.join().unwrap() {
            Ok(queued) => assert_eq!(queued, Queued::Queued),
            Err(why) => assert_eq!((why, cancelled), (QueueError::ShutDown, false)),
        }
        end.join().unwrap();
    });
}

/// A work is cancelled before its time has been set, and is queued again. Its timer is that of the
/// second queueing: a flush makes that time now.
#[test]
fn a_cancelled_queueing_sets_no_timer() {
    check("a_cancelled_queueing_sets_no_timer", ONE, || {
        let (sys, wq, _clock) = system();
        let (work, runs) = counting();
        let other = thread::spawn({
            let (wq, work) = (wq.clone(), work.clone());
            move || {
                work.cancel();
                wq.queue_delayed(&work, TICK).unwrap();
            }
        });
        wq.queue_delayed(&work, TICK).unwrap();
        other.join().unwrap();
        assert_eq!(work.flush_blocking(), Ok(true));
        assert_eq!(runs.get(), 1);
        drop(sys);
    });
}

/// A work is cancelled, and queued again before whoever cancels has come to its timer. That goes
/// all the same: at the end of the system only what waits for its time is refused.
#[test]
fn a_cancel_against_the_next_queueing() {
    check("a_cancel_against_the_next_queueing", TWO, || {
        let (sys, wq, _clock) = system();
        let (work, runs) = counting();
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        let other = thread::spawn({
            let work = work.clone();
            move || assert!(work.cancel(), "one of them waits")
        });
        let again = wq.queue_delayed(&work, TICK).unwrap().is_queued();
        other.join().unwrap();
        assert_eq!(work.is_pending(), again);
        drop(sys);
        assert_eq!((runs.get(), wq.stats().refused), (0, u64::from(again)));
    });
}

/// *cancel* against *shutdown*: the queueing is taken back by one of them, and counted once.
#[test]
fn a_cancel_against_the_end() {
    check("a_cancel_against_the_end", TWO, || {
        let (sys, wq, _clock) = system();
        let (work, runs) = counting();
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        let other = thread::spawn({
            let work = work.clone();
            move || work.cancel()
        });
        drop(sys);
        let cancelled = other.join().unwrap();
        let refused = wq.stats().refused;
        assert_eq!((runs.get(), refused + u64::from(cancelled)), (0, 1));
    });
}

/// Polls a flush of the work once, while nobody runs the work.
fn waits(work: &DelayedWork) {
    let mut flush = pin!(work.flush());
    let polled = flush.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "the work has not run");
}

/// *flush* against the timer: whoever of them queues the work, the flush waits for it.
#[test]
fn a_flush_against_the_timer() {
    check("a_flush_against_the_timer", TWO, || {
        let (sys, wq, clock) = system();
        let _nobody = wq.manual_pool(0);
        let (work, _) = counting();
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        clock.advance(TICK);
        waits(&work);
        work.cancel();
        drop(sys);
    });
}

/// *flush* by an item against the timer: whoever of them queues the work behind that item, the item
/// is told that it would wait for its own slot.
#[test]
fn a_flush_by_an_item_against_the_timer() {
    check("a_flush_by_an_item_against_the_timer", ONE, || {
        let (sys, _, clock) = system();
        let wq = sys.workqueue("one").bound().max_active(1).build().unwrap();
        let (work, _) = counting();
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        let inside = wq.spawn({
            let work = work.clone();
            move || assert_eq!(block_on(work.flush()), Err(FlushError::WouldDeadlock))
        });
        clock.advance(TICK);
        inside.wait().unwrap();
        drop(sys);
    });
}

/// *flush* against another one: both wait for the work that one of them queues.
#[test]
fn a_flush_against_a_flush() {
    check("a_flush_against_a_flush", TWO, || {
        let (sys, wq, _clock) = system();
        let _nobody = wq.manual_pool(0);
        let (work, _) = counting();
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        let other = thread::spawn({
            let work = work.clone();
            move || waits(&work)
        });
        waits(&work);
        other.join().unwrap();
        work.cancel();
        drop(sys);
    });
}

/// *postpone* against the end of a drain: the time comes while the drain begins and ends. The work
/// runs once, and nobody has to queue it again.
#[test]
fn a_drain_against_the_timer() {
    check("a_drain_against_the_timer", ONE, || {
        let (sys, wq, clock) = system();
        let ran = Flag::new();
        let work = DelayedWork::new({
            let ran = ran.clone();
            move || ran.raise()
        });
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        clock.advance(TICK);
        wq.drain_blocking().unwrap();
        ran.wait();
        drop(sys);
        assert_eq!((wq.stats().completed, wq.stats().refused), (1, 0));
    });
}

/// *postpone* against *cancel*: what is cancelled while it comes due does not run after the drain,
/// and goes before its end.
#[test]
fn a_drain_against_a_cancel() {
    check("a_drain_against_a_cancel", TWO, || {
        struct Raises(Flag);
        impl Drop for Raises {
            fn drop(&mut self) {
                self.0.raise();
            }
        }
        let (sys, wq, clock) = system();
        let (gone, runs) = (Flag::new(), Count::new());
        let work = DelayedWork::new({
            let (raises, runs) = (Raises(gone.clone()), runs.clone());
            move || {
                let _ = &raises;
                runs.add();
            }
        });
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        let drain = wq.drain();
        clock.advance(TICK);
        assert!(work.cancel(), "it waits for the end of the drain");
        drop(work);
        gone.wait();
        drop(drain);
        drop(sys);
        assert_eq!((runs.get(), wq.stats().refused), (0, 0));
    });
}

/// *flush* against the begin of a drain: the work runs now, or goes on waiting for its time.
#[test]
fn a_drain_against_a_flush() {
    check("a_drain_against_a_flush", ONE, || {
        let (sys, wq, _clock) = system();
        let (work, runs) = counting();
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        let other = thread::spawn({
            let wq = wq.clone();
            move || wq.drain()
        });
        match work.flush_blocking() {
            Ok(waited) => assert_eq!((waited, runs.get()), (true, 1)),
            Err(why) => {
                assert_eq!(why, FlushError::Rejected(QueueError::Draining));
                assert_eq!((work.is_pending(), runs.get()), (true, 0));
            }
        }
        drop(other.join().unwrap());
        drop(sys);
    });
}

/// *flush* by an item of the queue against *postpone*: the drain waits for the item, so the work
/// may not wait for the end of the drain.
#[test]
fn a_drain_against_a_flush_by_an_item() {
    check("a_drain_against_a_flush_by_an_item", FEW, || {
        let (sys, wq, clock) = system();
        let (work, runs) = counting();
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        let item = wq.spawn({
            let work = work.clone();
            move || blocking(|| work.flush_blocking().unwrap())
        });
        let drain = wq.drain();
        clock.advance(TICK);
        assert!(item.wait().is_ok());
        assert_eq!(runs.get(), 1);
        drop(drain);
        drop(sys);
    });
}
