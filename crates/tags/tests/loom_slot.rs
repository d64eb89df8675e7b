//! Models of slot ownership (`PROTOCOL.md`, S1 to S5), driving the shipped set.
//!
//! | weaken | fails |
//! |---|---|
//! | S1, the Release store in `issue` | `h23_age`, `payload_to_handler`, `payload_to_next` |
//! | S2 and S4, the Acquire of the exchange | `payload_to_handler`, `payload_to_next` |
//! | S2 to S4, load and store for the exchange | all with `h23_` but `h23_age`; `payload_to_next` |
//! | S3 a plain store | the same but `h23_redeem_twice`; `payload_to_handler` |
//! | S3 marks whatever generation it finds | `h23_visitor` |
//! | S5 keeps the generation | `h23_redeem_or_timeout`, `h23_visitor` |
//! | S5 after the put | `h4_alloc_or_free`, `payload_to_next` |
//! | the Acquire in `observe` | `h23_age` |
//! | S6, the Release store in `track` | `h23_the_time_of_what_is_tracked` |
//!
//! Models in which a token is handed over Relaxed show that the payload is ordered by S1 and S2 to
//! S4 alone, once the exchange succeeds. That it succeeds they cannot show: here an exchange always
//! reads the newest store, while a machine may show the Relaxed token before S1. `PROTOCOL.md`,
//! "The hand-over of the token", says what a hand-over must order.

#![cfg(loom)]

use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, thread};
use inflight_tags::{RedeemError, Tag, TagSet, Tenant};
use std::time::Duration;

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(4),
};

fn one_tag() -> (TagSet<u32>, Tenant<u32>) {
    let set = TagSet::builder()
        .depth(1)
        .ages(false)
        .build(|_, _| 0)
        .unwrap();
    let queue = set.add_tenant("q").unwrap();
    (set, queue)
}

fn submit(queue: &Tenant<u32>, value: u32) -> u64 {
    let mut tag = queue.try_alloc().unwrap();
    *tag = value;
    tag.into_token()
}

/// Two completions of one token (S2 against S2): exactly one gets the tag, the other is told that
/// it is not in flight, or stale once the winner has freed it.
#[test]
fn h23_redeem_twice() {
    check("h23_redeem_twice", UNBOUNDED, || {
        let (set, queue) = one_tag();
        let token = submit(&queue, 7);
        let redeem = move |set: &TagSet<u32>| match set.redeem(token) {
            Ok(mut tag) => {
                assert_eq!(*tag, 7);
                *tag = 8;
                true
            }
            Err(error) => {
                assert!(matches!(
                    error,
                    RedeemError::NotInFlight { .. } | RedeemError::Stale { .. }
                ));
                false
            }
        };
        let other = thread::spawn({
            let set = set.clone();
            move || redeem(&set)
        });
        let here = redeem(&set);
        assert!(here ^ other.join().unwrap());
        assert_eq!(set.in_use(), 0);
    });
}

/// A completion against the mark of a timeout (S2 against S3, S4): exactly one side owns the tag.
#[test]
fn h23_redeem_or_timeout() {
    check("h23_redeem_or_timeout", UNBOUNDED, || {
        let (set, queue) = one_tag();
        let token = submit(&queue, 7);
        let handler = thread::spawn({
            let set = set.clone();
            move || {
                let mut marked = false;
                set.for_each_in_flight(|t| marked = t.mark_timed_out());
                let taken = set.redeem_timed_out(token);
                assert_eq!(taken.is_ok(), marked);
                taken.map(|mut tag| *tag += 1).is_ok()
            }
        });
        let completed = match set.redeem(token) {
            Ok(mut tag) => {
                *tag += 1;
                true
            }
            Err(error) => {
                assert!(matches!(
                    error,
                    RedeemError::TimedOut { .. } | RedeemError::Stale { .. }
                ));
                false
            }
        };
        assert!(completed ^ handler.join().unwrap());
        assert_eq!(set.in_use(), 0);
    });
}

/// A completion that submits again with less time, against those who look for expired requests: a
/// request never expires by the time of a later one.
#[test]
fn h23_the_time_of_a_later_submission() {
    check("h23_the_time_of_a_later_submission", TWO, || {
        let clock = Clock::manual();
        let set = TagSet::builder().depth(1).clock(clock.clone());
        let set = set.timeout(Duration::from_secs(9)).build(|_, _| 0);
        let set = set.unwrap();
        let first = submit(&set.add_tenant("q").unwrap(), 7);
        clock.advance(Duration::from_secs(2));
        let visitor = thread::spawn({
            let set = set.clone();
            move || {
                set.expire(|token| assert_ne!(token, first, "it had nine seconds"));
            }
        });
        let mut tag = set.redeem(first).unwrap();
        tag.set_timeout(Duration::from_secs(1));
        let second = tag.into_token();
        visitor.join().unwrap();
        drop(set.redeem(second).unwrap());
    });
}

/// S6 against those who look for expired requests: what is tracked never expires by the time of an
/// earlier submission, or of none.
#[test]
fn h23_the_time_of_what_is_tracked() {
    check("h23_the_time_of_what_is_tracked", TWO, || {
        let clock = Clock::manual();
        let set = TagSet::builder().depth(1).clock(clock.clone());
        let set = set.timeout(Duration::from_secs(9)).build(|_, _| 0);
        let set = set.unwrap();
        clock.advance(Duration::from_secs(99));
        let mut tag = set.add_tenant("q").unwrap().try_alloc().unwrap();
        let visitor = thread::spawn({
            let set = set.clone();
            move || assert!(set.try_expired().is_none(), "it had nine seconds")
        });
        tag.track();
        visitor.join().unwrap();
        assert!(!tag.is_overdue());
    });
}

/// Two scans that mark one tag (S3 against S3), then both try to take it (S4 against S4): one each.
#[test]
fn h23_one_handler() {
    check("h23_one_handler", TWO, || {
        let (set, queue) = one_tag();
        let token = submit(&queue, 7);
        let handle = move |set: &TagSet<u32>| {
            let mut marks = 0;
            set.for_each_in_flight(|t| marks += u32::from(t.mark_timed_out()));
            let takes = set.redeem_timed_out(token).map_or(0, |mut tag| {
                *tag += 1;
                1
            });
            (marks, takes)
        };
        let other = thread::spawn({
            let set = set.clone();
            move || handle(&set)
        });
        let (marks, takes) = handle(&set);
        let (other_marks, other_takes) = other.join().unwrap();
        assert_eq!(marks + other_marks, 1);
        assert_eq!(takes + other_takes, 1);
    });
}

/// A tag that was marked, taken over by a thread that knows nothing but the token: S3 is Relaxed,
/// and as a read-modify-write continues the release sequence of S1, so a taker whose exchange
/// succeeds sees what the submitter wrote.
#[test]
fn payload_to_handler() {
    check("payload_to_handler", TWO, || {
        let (set, queue) = one_tag();
        let late = Arc::new(AtomicU64::new(0));
        let submitter = thread::spawn({
            let (set, late) = (set.clone(), late.clone());
            move || {
                let token = submit(&queue, 7);
                set.for_each_in_flight(|t| assert!(t.mark_timed_out()));
                // Relaxed, so that the hand-over cannot stand in for S1 and S4.
                late.store(token, Ordering::Relaxed);
            }
        });
        let token = loop {
            let token = late.load(Ordering::Relaxed);
            if token != 0 {
                break token;
            }
            thread::yield_now();
        };
        let mut tag = set.redeem_timed_out(token).unwrap();
        assert_eq!(*tag, 7);
        *tag = 8;
        submitter.join().unwrap();
    });
}

/// The hand-over of the token adds no ordering: a redeemer whose exchange succeeds sees what the
/// submitter wrote (S1 to S2), and the next submitter sees what the redeemer wrote (put to get).
#[test]
fn payload_to_next() {
    check("payload_to_next", TWO, || {
        let (set, queue) = one_tag();
        let ring = Arc::new(AtomicU64::new(0));
        let device = thread::spawn({
            let (set, ring) = (set.clone(), ring.clone());
            move || loop {
                // Relaxed, so that the hand-over cannot stand in for S1 and S2.
                let token = ring.load(Ordering::Relaxed);
                if token != 0 {
                    let mut tag = set.redeem(token).unwrap();
                    assert_eq!(*tag, 7);
                    *tag = 8;
                    return;
                }
                thread::yield_now();
            }
        });
        ring.store(submit(&queue, 7), Ordering::Relaxed);
        let mut next = queue.alloc_blocking().unwrap();
        assert_eq!(*next, 8);
        *next = 9;
        drop(next);
        device.join().unwrap();
    });
}

/// A visitor among reuse (H23): whatever it sees, a mark made on an old sight never hits the next
/// use.
#[test]
fn h23_visitor() {
    check("h23_visitor", TWO, || {
        let (set, queue) = one_tag();
        let first = submit(&queue, 1);
        let visitor = thread::spawn({
            let set = set.clone();
            move || {
                let mut marked = None;
                set.for_each_in_flight(|t| marked = t.mark_timed_out().then(|| t.token()));
                marked
            }
        });
        let completed_first = set.redeem(first).map(drop).is_ok();
        let second = completed_first.then(|| submit(&queue, 2));
        let marked = visitor.join().unwrap();
        match second {
            None => assert_eq!(marked, Some(first)),
            Some(second) => {
                assert_ne!(marked, Some(first), "it had completed");
                let redeemed = set.redeem(second).map(|tag| *tag);
                let expected = match marked {
                    None => Ok(2),
                    Some(token) => {
                        assert_eq!(token, second);
                        Err(RedeemError::TimedOut {
                            token: second.into(),
                        })
                    }
                };
                assert_eq!(redeemed, expected);
            }
        }
    });
}

/// A visitor that sees a tag issued sees its time stamp, not that of the slot's earlier use:
/// nothing is timed out too early.
#[test]
fn h23_age() {
    check("h23_age", TWO, || {
        let clock = Clock::manual();
        let set = TagSet::builder()
            .depth(1)
            .clock(clock.clone())
            .build(|_, _| 0)
            .unwrap();
        let queue = set.add_tenant("q").unwrap();
        let first = submit(&queue, 1);
        let visitor = thread::spawn({
            let set = set.clone();
            move || {
                let mut oldest = Duration::ZERO;
                set.for_each_in_flight(|t| {
                    if t.token() != first {
                        oldest = t.age();
                    }
                });
                oldest
            }
        });
        drop(set.redeem(first).unwrap());
        clock.advance(Duration::from_secs(1));
        let second = submit(&queue, 2);
        assert_eq!(visitor.join().unwrap(), Duration::ZERO);
        drop(set.redeem(second).unwrap());
    });
}

/// A waiter and a tag that is freed: the waiter gets it, and sees its last owner's writes.
#[test]
fn h4_alloc_or_free() {
    check("h4_alloc_or_free", UNBOUNDED, || {
        let (_set, queue) = one_tag();
        let mut held: Tag<u32> = queue.try_alloc().unwrap();
        let waiter = thread::spawn({
            let queue = queue.clone();
            move || *queue.alloc_blocking().unwrap()
        });
        *held = 7;
        drop(held);
        assert_eq!(waiter.join().unwrap(), 7);
    });
}
