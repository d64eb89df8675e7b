//! Random schedules of more threads than the exhaustive models can afford, on few bits.
//!
//! A lost wakeup shows as a deadlock, a bit with two owners as a failed claim, a lost bit as a
//! short count at the end.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sbitmap::tenancy::{Request, Tenancy};
use inflight_sbitmap::{Fairness, SbitmapQueue, SbitmapQueueBuilder};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{check_pct, check_random};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, block_on};
use shuttle_support::{Threads, polled};
use std::time::Duration;

const RUNS: usize = 2_000;
const SECOND: Duration = Duration::from_secs(1);

/// Both ways to choose schedules.
fn check(name: &str, model: fn()) {
    check_random(name, RUNS, model);
    check_pct(name, RUNS, 4, model);
}

/// A queue, and for each bit who holds it.
struct Owned {
    queue: SbitmapQueue,
    owners: Vec<AtomicUsize>,
}

impl Owned {
    fn new(builder: SbitmapQueueBuilder) -> Arc<Self> {
        let queue = builder.build().unwrap();
        let owners = (0..queue.depth()).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self { queue, owners })
    }

    fn claim(&self, bit: usize) {
        assert_eq!(
            self.owners[bit].swap(1, Ordering::Relaxed),
            0,
            "bit {bit} has two owners"
        );
    }

    fn put(&self, bit: usize) {
        assert_eq!(self.owners[bit].swap(0, Ordering::Relaxed), 1);
        self.queue.put(bit).unwrap();
    }

    fn use_and_put(&self, bit: usize) {
        self.claim(bit);
        self.put(bit);
    }

    fn assert_all_back(&self) {
        let snapshot = self.queue.snapshot();
        assert_eq!((self.queue.weight(), snapshot.ws_active), (0, 0));
        assert!(snapshot.waiters.iter().all(|&n| n == 0));
        let mut bits = Vec::new();
        let depth = self.queue.depth();
        assert_eq!(
            self.queue.try_get_batch(depth, &mut bits),
            depth,
            "a bit was lost"
        );
    }
}

fn cancelled_get(queue: &SbitmapQueue) -> Option<usize> {
    polled(queue.get(), 2)?.ok()
}

/// As a timed get whose deadline was made before.
fn get_until(queue: &SbitmapQueue, deadline: Instant) -> Option<usize> {
    queue.try_get().or_else(|| {
        let mut waiter = queue.waiter(Request::one(0));
        waiter.block_one(&queue, Some(deadline)).ok()
    })
}

/// One waiter of each kind, twice each, and a clock that moves meanwhile.
fn all_kinds(depth: usize) {
    let clock = Clock::manual();
    let owned = Owned::new(
        SbitmapQueue::builder(depth)
            .fairness(Fairness::batched())
            .clock(clock.clone()),
    );
    let twice = |owned: &Owned, get: fn(&SbitmapQueue) -> Option<usize>| {
        for _ in 0..2 {
            if let Some(bit) = get(&owned.queue) {
                owned.use_and_put(bit);
            }
        }
    };
    let mut threads = Threads::default();
    threads.on(&owned, move |o| {
        twice(o, |q| Some(q.get_blocking().unwrap()))
    });
    threads.on(&owned, move |o| {
        twice(o, |q| Some(q.get_blocking().unwrap()))
    });
    threads.on(&owned, move |o| {
        twice(o, |q| Some(block_on(q.get()).unwrap()))
    });
    threads.on(&owned, move |o| twice(o, cancelled_get));
    threads.on(&owned, move |o| twice(o, |q| q.get_timeout(SECOND).ok()));
    clock.advance(SECOND);
    clock.advance(SECOND);
    threads.join();
    owned.assert_all_back();
}

#[test]
fn waiters_of_all_kinds_on_two_bits() {
    check("waiters_of_all_kinds_on_two_bits", || all_kinds(2));
}

#[test]
fn waiters_of_all_kinds_on_three_bits() {
    check("waiters_of_all_kinds_on_three_bits", || all_kinds(3));
}

/// H6. Waiters that keep their bits: as many as there are bits, and two that give up.
#[test]
fn h6_those_who_stay_get_what_those_who_leave_were_offered() {
    check(
        "h6_those_who_stay_get_what_those_who_leave_were_offered",
        || {
            let clock = Clock::manual();
            let owned = Owned::new(
                SbitmapQueue::builder(2)
                    .fairness(Fairness::batched())
                    .clock(clock.clone()),
            );
            let deadline = clock.now() + SECOND;
            let bits = [
                owned.queue.get_blocking().unwrap(),
                owned.queue.get_blocking().unwrap(),
            ];
            let back = |owned: &Owned, bit: Option<usize>| {
                if let Some(bit) = bit {
                    owned.use_and_put(bit);
                }
            };
            let mut threads = Threads::default();
            threads.on(&owned, |o| o.claim(o.queue.get_blocking().unwrap()));
            threads.on(&owned, |o| o.claim(block_on(o.queue.get()).unwrap()));
            threads.on(&owned, move |o| back(o, cancelled_get(&o.queue)));
            threads.on(&owned, move |o| back(o, get_until(&o.queue, deadline)));
            owned.queue.put(bits[0]).unwrap();
            clock.advance(SECOND);
            owned.queue.put(bits[1]).unwrap();
            threads.join();
            assert_eq!(owned.queue.weight(), 2);
            (0..2).for_each(|bit| owned.put(bit));
            owned.assert_all_back();
        },
    );
}

/// H11, H31. A wake batch of two: puts of several sizes by several threads complete it together.
#[test]
fn h31_putters_complete_a_batch_together() {
    check("h31_putters_complete_a_batch_together", || {
        let owned = Owned::new(
            SbitmapQueue::builder(16)
                .fairness(Fairness::batched())
                .shift(4),
        );
        let mut bits = Vec::new();
        assert_eq!(owned.queue.try_get_batch(16, &mut bits), 16);
        let waiter = |o: &Arc<Owned>| o.claim(o.queue.get_blocking().unwrap());
        let mut threads = Threads::default();
        threads.on(&owned, waiter);
        threads.on(&owned, waiter);
        threads.on(&owned, |o| o.claim(block_on(o.queue.get()).unwrap()));
        threads.on(&owned, |o| o.queue.put_batch(&[0, 1]).unwrap());
        threads.on(&owned, |o| o.queue.put(2).unwrap());
        owned.queue.put(3).unwrap();
        threads.join();
        assert_eq!(owned.queue.weight(), 15);
        assert_eq!(owned.queue.snapshot().ws_active, 0);
    });
}

/// In turn a search may miss free bits before its start; a waiter must not sleep on that.
///
/// The turn is at 14, and 15 is taken. While the getter holds 14 the waiter's first search fails;
/// when the getter has moved the turn to 15 and put 14 back, a second search from there would fail
/// too.
#[test]
fn h4_in_turn_a_waiter_sleeps_only_if_all_is_taken() {
    check("h4_in_turn_a_waiter_sleeps_only_if_all_is_taken", || {
        let owned = Owned::new(
            SbitmapQueue::builder(16)
                .fairness(Fairness::batched())
                .shift(4)
                .round_robin(true),
        );
        let queue = &owned.queue;
        // The turn goes round once; in the second round it stops at 14.
        (0..16).for_each(|bit| assert_eq!(queue.try_get(), Some(bit)));
        queue.put_batch(&(0..15).collect::<Vec<_>>()).unwrap();
        (0..14).for_each(|bit| assert_eq!(queue.try_get(), Some(bit)));
        queue.put_batch(&(0..14).collect::<Vec<_>>()).unwrap();
        let getter = |o: &Arc<Owned>| {
            o.queue
                .try_get()
                .into_iter()
                .for_each(|bit| o.use_and_put(bit))
        };
        let waiter = |o: &Arc<Owned>| o.use_and_put(o.queue.get_blocking().unwrap());
        let mut threads = Threads::default();
        threads.on(&owned, waiter).on(&owned, getter);
        queue.put(15).unwrap();
        threads.join();
        owned.assert_all_back();
    });
}
