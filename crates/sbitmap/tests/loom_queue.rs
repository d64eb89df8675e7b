//! Models of the wait queues. Events P1-P5 and S1-S5 as in `PROTOCOL.md`.
//!
//! Items (`docs/sbitmap-items.md`): A35, B14, B18, B19, B20, B23, B25.
//!
//! In models there are two wait queues. A waiter that *keeps* its bit is what shows a lost wakeup:
//! one that gives it back wakes the next by that.
//!
//! | weaken | fails |
//! |---|---|
//! | P2, the fence in `freed` | `h4_*`, `h6_*` |
//! | S2, the fence in `register` | `h4_*`, `h6_*` |
//! | P4, Acquire or Release of the count | `h31_a_batch_taken_over` |
//! | no second try after registering | `h4_*` |
//! | a dropped waiter's wake not passed on | `h6_cancelled_after_chosen`, `h6_timeout_against_wake` |
//! | a satisfied waiter's wake not passed on | `h6_wake_eaten_by_a_satisfied_waiter` |
//! | rest of a batch not passed to the next queue | `h8_batch_over_two_queues` |
//! | a batch put counted once | `h11_batch_put_counts_every_bit` |
//! | the bits of two puts not added up | `h31_two_putters_complete_a_batch` |
//! | loser of the `wakeups` exchange returns | `h31_a_batch_taken_over` |
//! | two collectors at once | `d25_two_collectors` |
//! | a collector that leaves tells nobody, or keeps his bits | both `d25_*` |
#![cfg(loom)]

#[path = "common/wake_flag.rs"]
mod wake_flag;

use inflight_sbitmap::tenancy::{Request, Tenancy};
use inflight_sbitmap::{Fairness, SbitmapQueue};
use inflight_sync::model::{Bound, check};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, block_on, thread};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wake_flag::WakeFlag;

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};
const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};
const ONE_OR_THREE: Bound = Bound {
    quick: Some(1),
    deep: Some(3),
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};
const THREE: Bound = Bound {
    quick: Some(3),
    deep: Some(4),
};

/// One word of `depth` bits, all taken.
fn all_taken(depth: usize) -> (Arc<SbitmapQueue>, Vec<usize>) {
    all_taken_by(depth, Clock::system())
}

fn all_taken_by(depth: usize, clock: Clock) -> (Arc<SbitmapQueue>, Vec<usize>) {
    let queue = SbitmapQueue::builder(depth)
        .fairness(Fairness::batched())
        .shift(depth.next_power_of_two().ilog2())
        .trusted(true)
        .clock(clock)
        .build()
        .unwrap();
    let mut bits = Vec::new();
    assert_eq!(queue.try_get_batch(depth, &mut bits), depth);
    (Arc::new(queue), bits)
}

fn spawn<T: Send + 'static>(
    queue: &Arc<SbitmapQueue>,
    f: impl FnOnce(&SbitmapQueue) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let queue = queue.clone();
    thread::spawn(move || f(&queue))
}

fn assert_quiet(queue: &SbitmapQueue) {
    let snapshot = queue.snapshot();
    assert_eq!(snapshot.ws_active, 0);
    assert_eq!(snapshot.waiters, [0, 0]);
}

/// H4, H29. Store buffering between P1-P3 and S1-S3; the count of the list that `distribute` reads
/// without its lock is part of S1.
#[test]
fn h4_h29_waiter_against_put() {
    check("h4_h29_waiter_against_put", UNBOUNDED, || {
        let (queue, bits) = all_taken(1);
        let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
        queue.put(bits[0]).unwrap();
        assert_eq!(waiter.join().unwrap(), bits[0]);
        assert_quiet(&queue);
    });
}

/// H4 with a task.
#[test]
fn h4_task_against_put() {
    check("h4_task_against_put", UNBOUNDED, || {
        let (queue, bits) = all_taken(1);
        let waiter = spawn(&queue, |q| block_on(q.get()).unwrap());
        queue.put(bits[0]).unwrap();
        assert_eq!(waiter.join().unwrap(), bits[0]);
        assert_quiet(&queue);
    });
}

/// H4. Three threads share one bit; each gets and puts.
#[test]
fn h4_three_threads_one_bit() {
    check("h4_three_threads_one_bit", ONE_OR_THREE, || {
        let (queue, bits) = all_taken(1);
        let pair = |q: &SbitmapQueue| {
            let bit = q.get_blocking().unwrap();
            q.put(bit).unwrap();
        };
        let others = [spawn(&queue, pair), spawn(&queue, pair)];
        queue.put(bits[0]).unwrap();
        others.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(queue.weight(), 0);
        assert_quiet(&queue);
    });
}

/// H4. A put that goes straight to the word (a batch) against a waiter.
#[test]
fn h4_batch_put_against_waiter() {
    check("h4_batch_put_against_waiter", UNBOUNDED, || {
        let (queue, bits) = all_taken(1);
        let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
        queue.put_batch(&bits).unwrap();
        waiter.join().unwrap();
        assert_quiet(&queue);
    });
}

/// H4 in turn: the waiter's second look begins behind the bit that comes back.
#[test]
fn h4_in_turn() {
    check("h4_in_turn", UNBOUNDED, || {
        let queue = SbitmapQueue::builder(2)
            .fairness(Fairness::batched())
            .shift(1)
            .round_robin(true)
            .trusted(true)
            .build()
            .unwrap();
        let queue = Arc::new(queue);
        // The turn stands at bit 1.
        assert_eq!(queue.try_get(), Some(0));
        let mut rest = Vec::new();
        assert_eq!(queue.try_get_batch(2, &mut rest), 1);
        queue.put(1).unwrap();
        queue.put(0).unwrap();
        assert_eq!((queue.try_get(), queue.try_get()), (Some(0), Some(1)));
        queue.put(0).unwrap();
        assert_eq!(queue.try_get(), Some(0));
        let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
        queue.put(0).unwrap();
        assert_eq!(waiter.join().unwrap(), 0);
        assert_quiet(&queue);
    });
}

/// H4. The task is polled again with another waker while the put goes on: the new one or the old
/// one is told, and a poll after that finds the bit.
#[test]
fn h4_second_poll_with_another_waker() {
    check("h4_second_poll_with_another_waker", UNBOUNDED, || {
        let (queue, bits) = all_taken(1);
        let mut get = pin!(queue.get());
        let flags = [(); 2].map(|()| Arc::new(WakeFlag::default()));
        let wakers = flags.clone().map(Waker::from);
        assert!(
            get.as_mut()
                .poll(&mut Context::from_waker(&wakers[0]))
                .is_pending()
        );
        let bit = bits[0];
        let putter = spawn(&queue, move |q| q.put(bit).unwrap());
        let second = get.as_mut().poll(&mut Context::from_waker(&wakers[1]));
        putter.join().unwrap();
        if second.is_pending() {
            assert!(flags[1].is_woken(), "the last waker given is the one woken");
            assert!(
                get.as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()))
                    .is_ready()
            );
        }
        assert_quiet(&queue);
    });
}

/// H6. A waiter that finds a bit in its second look may have eaten a wake that was meant for the
/// other waiter, a task here: it must have been told by the time everybody else is done.
#[test]
fn h6_wake_eaten_by_a_satisfied_waiter() {
    check(
        "h6_wake_eaten_by_a_satisfied_waiter",
        Bound {
            quick: Some(3),
            deep: Some(5),
        },
        || {
            let (queue, bits) = all_taken(2);
            let satisfied = spawn(&queue, |q| q.get_blocking().unwrap());
            queue.put(bits[0]).unwrap();
            let woken = Arc::new(WakeFlag::default());
            let waker = Waker::from(woken.clone());
            let mut get = pin!(queue.get());
            let pending = get
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending();
            queue.put(bits[1]).unwrap();
            satisfied.join().unwrap();
            if pending {
                assert!(woken.is_woken(), "a bit is free and the task sleeps");
                let mut cx = Context::from_waker(Waker::noop());
                assert!(get.as_mut().poll(&mut cx).is_ready());
            }
            assert_quiet(&queue);
        },
    );
}

/// D25. Two collectors of both bits: one after the other, and neither keeps what the other waits
/// for.
#[test]
fn d25_two_collectors() {
    check("d25_two_collectors", ONE, || {
        let (queue, bits) = all_taken(2);
        let other = spawn(&queue, |q| {
            let both = q.get_many_blocking(2).unwrap();
            q.put_batch(&both).unwrap();
        });
        queue.put_batch(&bits).unwrap();
        let both = queue.get_many_blocking(2).unwrap();
        assert_eq!(both.len(), 2);
        queue.put_batch(&both).unwrap();
        other.join().unwrap();
        assert_eq!(queue.weight(), 0);
        assert_quiet(&queue);
    });
}

/// D25. A collector who gives up half way leaves what he had, and the turn, to the other.
#[test]
fn d25_a_collector_gives_up() {
    check("d25_a_collector_gives_up", ONE, || {
        let (queue, bits) = all_taken(2);
        let other = spawn(&queue, |q| q.get_many_blocking(2).unwrap());
        {
            let mut many = pin!(queue.get_many(2));
            queue.put(bits[0]).unwrap();
            let mut cx = Context::from_waker(Waker::noop());
            // The other may be the one who collects.
            assert!(many.as_mut().poll(&mut cx).is_pending());
        }
        queue.put(bits[1]).unwrap();
        assert_eq!(other.join().unwrap().len(), 2);
        assert_quiet(&queue);
    });
}

/// A newcomer against a close: it has a bit, or is told; either way it does not sleep.
#[test]
fn h6_close_against_waiter() {
    check("h6_close_against_waiter", TWO, || {
        let (queue, bits) = all_taken(1);
        let waiter = spawn(&queue, |q| q.get_blocking());
        let closer = spawn(&queue, SbitmapQueue::close);
        queue.put(bits[0]).unwrap();
        closer.join().unwrap();
        if let Ok(bit) = waiter.join().unwrap() {
            queue.put(bit).unwrap();
        }
        assert_eq!((queue.try_get(), queue.weight()), (None, 0));
    });
}

/// H6. A future that was chosen is dropped before it is polled again; the other waiter keeps its
/// bit.
#[test]
fn h6_cancelled_after_chosen() {
    check("h6_cancelled_after_chosen", TWO, || {
        let (queue, bits) = all_taken(1);
        let cancelled = spawn(&queue, |q| {
            let mut get = pin!(q.get());
            match get.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(bit) => q.put(bit.unwrap()).unwrap(),
                Poll::Pending => {} // dropped here
            }
        });
        let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
        queue.put(bits[0]).unwrap();
        cancelled.join().unwrap();
        assert_eq!(waiter.join().unwrap(), bits[0]);
        assert_quiet(&queue);
    });
}

/// As a timed get whose deadline was made before.
fn get_until(queue: &SbitmapQueue, deadline: Instant) -> Option<usize> {
    queue.try_get().or_else(|| {
        let mut waiter = queue.waiter(Request::one(0));
        waiter.block_one(&queue, Some(deadline)).ok()
    })
}

/// H6. A deadline against the wake: the bit is taken in time or left for the other waiter.
#[test]
fn h6_timeout_against_wake() {
    check("h6_timeout_against_wake", TWO, || {
        let clock = Clock::manual();
        let (queue, bits) = all_taken_by(1, clock.clone());
        let deadline = clock.now() + Duration::from_nanos(1);
        let timed = spawn(&queue, move |q| {
            if let Some(bit) = get_until(q, deadline) {
                q.put(bit).unwrap();
            }
        });
        let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
        queue.put(bits[0]).unwrap();
        clock.advance(Duration::from_nanos(1));
        timed.join().unwrap();
        assert_eq!(waiter.join().unwrap(), bits[0]);
        assert_quiet(&queue);
    });
}

/// H8. Two waiters stand in different queues, a batch is two wakes, and exactly two bits come back:
/// what the first queue does not use goes to the second.
#[test]
fn h8_batch_over_two_queues() {
    check("h8_batch_over_two_queues", TWO, || {
        let (queue, bits) = all_taken(16);
        assert_eq!(queue.snapshot().wake_batch, 2);
        // Registered for certain before the puts: polled once here.
        let mut first = Box::pin(queue.get());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
        queue.put(bits[0]).unwrap();
        queue.put(bits[1]).unwrap();
        // The waiter must not sleep beside two free bits, though nothing else comes back and the
        // other one who was chosen is never polled again.
        waiter.join().unwrap();
        drop(first);
        assert_eq!(queue.weight(), 15);
        assert_quiet(&queue);
    });
}

/// H11. Two bits that come back in one call are two completions.
#[test]
fn h11_batch_put_counts_every_bit() {
    check("h11_batch_put_counts_every_bit", UNBOUNDED, || {
        let (queue, bits) = all_taken(16);
        let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
        queue.put_batch(&bits[..2]).unwrap();
        waiter.join().unwrap();
        assert_quiet(&queue);
    });
}

/// H31. Two putters complete one batch together, whoever moves the counter.
#[test]
fn h31_two_putters_complete_a_batch() {
    check("h31_two_putters_complete_a_batch", TWO, || {
        let (queue, bits) = all_taken(16);
        let waiter = spawn(&queue, |q| q.get_blocking().unwrap());
        let (a, b) = (bits[0], bits[1]);
        let putter = spawn(&queue, move |q| q.put(a).unwrap());
        queue.put(b).unwrap();
        putter.join().unwrap();
        // One more batch, in case both puts came before the waiter was counted and left one free
        // bit that it has seen by itself.
        waiter.join().unwrap();
        assert_eq!(queue.weight(), 15);
        assert_quiet(&queue);
    });
}

/// H31. One put counts another's bit and fires its batch: it must find the waiter that only the
/// other's fence has seen (case 2 of the proof). The other put is by the waiter's own thread, of
/// the bit that the waiter missed: so its fence comes after the registration.
#[test]
fn h31_a_batch_taken_over() {
    check("h31_a_batch_taken_over", THREE, || {
        let (queue, bits) = all_taken(1);
        let bit = bits[0];
        let putter = spawn(&queue, move |q| q.put(bit).unwrap());
        let taken = queue.try_get();
        let woken = Arc::new(WakeFlag::default());
        let waker = Waker::from(woken.clone());
        let mut get = pin!(queue.get());
        let polled = get.as_mut().poll(&mut Context::from_waker(&waker));
        if let Some(bit) = taken {
            queue.put(bit).unwrap();
        }
        putter.join().unwrap();
        if polled.is_pending() {
            assert!(woken.is_woken(), "a bit is free and the task sleeps");
            let mut cx = Context::from_waker(Waker::noop());
            assert!(get.as_mut().poll(&mut cx).is_ready());
        }
        assert_quiet(&queue);
    });
}
