//! Models of the wake counters and of the size of a batch. Events as in `PROTOCOL.md`.
//!
//! In models the counters begin just below their largest value, so every batch wraps (H30).
//!
//! | weaken | fails |
//! |---|---|
//! | comparison of the counters without wrapping | `h5_h10_h12_h13_h30_two_batches` |
//! | the turn stays with a queue that was served | `h7_a_newcomer_does_not_keep_the_turn` |
//! | the batch ignores the share | `h9_a_batch_within_the_share`, `h15_*` |
//! | the least share is asked for without the lock | `h15_*` |
#![cfg(loom)]

#[path = "common/wake_flag.rs"]
mod wake_flag;

use inflight_sbitmap::tenancy::{Rules, ShareLimiter, Tenancy, TenantIndex};
use inflight_sbitmap::{Fairness, Get, SbitmapQueue};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, thread};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use wake_flag::WakeFlag;

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

/// One word of `depth` bits, all taken.
fn all_taken(depth: usize) -> Arc<SbitmapQueue> {
    let queue = SbitmapQueue::builder(depth)
        .fairness(Fairness::batched())
        .shift(depth.next_power_of_two().ilog2())
        .trusted(true)
        .fairness(Fairness::batched())
        .build()
        .unwrap();
    assert_eq!(queue.try_get_batch(depth, &mut Vec::new()), depth);
    Arc::new(queue)
}

/// A task that has been polled and stands in a queue.
fn waiting(queue: &SbitmapQueue) -> (Pin<Box<Get<'_>>>, Arc<WakeFlag>) {
    let woken: Arc<WakeFlag> = Arc::default();
    let mut get = Box::pin(queue.get());
    let waker = Waker::from(woken.clone());
    let pending = get.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(pending.is_pending());
    (get, woken)
}

/// H5, H10, H12, H13, H30. Two batches of two, by two putters in any order: four waiters in two
/// queues are all woken, and the counters meet.
#[test]
fn h5_h10_h12_h13_h30_two_batches() {
    check("h5_h10_h12_h13_h30_two_batches", TWO, || {
        let queue = all_taken(16);
        let tasks: Vec<_> = (0..4).map(|_| waiting(&queue)).collect();
        let before = queue.snapshot();
        assert_eq!(before.completions, before.wakeups);
        let other = thread::spawn({
            let queue = queue.clone();
            move || [0, 1].iter().for_each(|&bit| queue.put(bit).unwrap())
        });
        [2, 3].iter().for_each(|&bit| queue.put(bit).unwrap());
        other.join().unwrap();
        assert!(tasks.iter().all(|(_, woken)| woken.is_woken()), "4 wakes");
        let after = queue.snapshot();
        assert_eq!(after.completions, before.completions.wrapping_add(4));
        assert_eq!(after.wakeups, after.completions);
    });
}

/// H7. Somebody comes back to the queue that has just been served: the next batch serves the
/// other.
#[test]
fn h7_a_newcomer_does_not_keep_the_turn() {
    check("h7_a_newcomer_does_not_keep_the_turn", TWO, || {
        let queue = all_taken(2);
        let (first, second) = (waiting(&queue), waiting(&queue));
        let newcomer = thread::spawn({
            let queue = queue.clone();
            move || {
                let mut get = Box::pin(queue.get());
                let mut cx = Context::from_waker(Waker::noop());
                let _: Poll<Result<usize, _>> = get.as_mut().poll(&mut cx);
            }
        });
        queue.put_batch(&[0]).unwrap();
        queue.put_batch(&[1]).unwrap();
        assert!(first.1.is_woken() && second.1.is_woken());
        newcomer.join().unwrap();
    });
}

/// H9. Eight users share 16 bits, so each sees two puts at most: one of them must wake.
#[test]
fn h9_a_batch_within_the_share() {
    check("h9_a_batch_within_the_share", UNBOUNDED, || {
        let queue = all_taken(16);
        queue.set_least_share(Some(2));
        let waiter = thread::spawn({
            let queue = queue.clone();
            move || queue.get_blocking().unwrap()
        });
        queue.put_batch(&[5]).unwrap();
        assert_eq!(waiter.join().unwrap(), 5);
    });
}

/// Puts a bit when it is woken, as an interrupt of the waking thread would.
struct Interrupt {
    queue: Arc<SbitmapQueue>,
    bit: usize,
}

impl Wake for Interrupt {
    fn wake(self: Arc<Self>) {
        self.queue.put_batch(&[self.bit]).unwrap();
    }
}

/// H14. A put from within a wake finds everything in order, whatever another putter is doing.
#[test]
fn h14_a_put_from_within_a_wake() {
    check("h14_a_put_from_within_a_wake", TWO, || {
        let queue = all_taken(4);
        let waker = Waker::from(Arc::new(Interrupt {
            queue: queue.clone(),
            bit: 0,
        }));
        let mut interrupted = Box::pin(queue.get());
        let pending = interrupted.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(pending.is_pending());
        let others = [waiting(&queue), waiting(&queue)];
        let putter = thread::spawn({
            let queue = queue.clone();
            move || queue.put_batch(&[1]).unwrap()
        });
        queue.put_batch(&[2]).unwrap();
        putter.join().unwrap();
        assert!(
            others.iter().all(|(_, woken)| woken.is_woken()),
            "three puts, three wakes"
        );
        drop((others, interrupted, waker));
    });
}

/// How many users there are.
#[derive(Clone, Debug)]
struct Users(Arc<AtomicUsize>);

impl ShareLimiter for Users {
    fn may_take(&self, _tenant: TenantIndex) -> bool {
        true
    }

    fn took(&self, _tenant: TenantIndex, _bit: usize) {}

    fn gives(&self, _bit: usize) {}

    fn least_share(&self) -> Option<usize> {
        Some(64 / self.0.load(Ordering::Relaxed))
    }
}

/// H15. Two users come at once, each of whom counts itself first: the batch is that for two.
#[test]
fn h15_users_and_batch_change_together() {
    check("h15_users_and_batch_change_together", UNBOUNDED, || {
        let users = Users(Arc::new(AtomicUsize::new(0)));
        let rules = Rules {
            shares: Some(Arc::new(users.clone())),
            ..Rules::default()
        };
        let queue = SbitmapQueue::builder(64)
            .shift(6)
            .trusted(true)
            .fairness(Fairness::batched())
            .build_with_rules(rules);
        let queue = Arc::new(queue.unwrap());
        let add_user = {
            let queue = queue.clone();
            move || {
                users.0.fetch_add(1, Ordering::Relaxed);
                queue.shares_changed();
            }
        };
        let other = thread::spawn(add_user.clone());
        add_user();
        other.join().unwrap();
        assert_eq!(queue.snapshot().wake_batch, 4, "an eighth of 32");
    });
}
