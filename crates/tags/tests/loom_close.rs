//! Models of closing (`src/close.rs`; K in sbitmap's pages), driving the shipped set.
//!
//! | weaken | fails |
//! |---|---|
//! | `close_set` does not tell who waits for the thaw | `h24_close_against_a_thaw_waiter` |
//! | `close` does not tell who waits for timeouts | `h24_close_against_an_expirer` |
//! | N4 tells nobody, L1 is not Acquire, or L6 compares with a later word | `h24_a_shorter_timeout_against_an_expirer` |
//! | no fence N2 | `h24_a_timeout_against_a_longer_interval` |
//! | `close` closes the bitmaps and not the gate | `h22_close_against_try`, `h6_close_put_and_task` |
//! | `close` closes the gate and not the bitmaps | `h6_close_against_waiter`, both |
//! | a refusal for want of tags does not look at the gate again, or without the Acquire fence | `h22_close_against_try` |

#![cfg(loom)]

use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, block_on, thread};
use inflight_tags::{Admission, AllocError, Clock, TagSet, Tenant};
use std::time::Duration;

const THREE: Bound = Bound {
    quick: Some(3),
    deep: None,
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

fn set_of(depth: usize, admission: Admission) -> (TagSet<()>, Tenant<()>) {
    let set = TagSet::builder().depth(depth).admission(admission);
    let set = set.ages(false).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    (set, dev)
}

/// After `close` has returned nobody gets a tag.
#[test]
fn h22_close_against_try() {
    check("h22_close_against_try", THREE, || {
        let (set, dev) = set_of(1, Admission::WholeIo);
        let submitter = thread::spawn(move || match dev.try_alloc() {
            Ok(tag) => Some(tag.into_token()),
            Err(error) => {
                assert_eq!(error, AllocError::Closed);
                None
            }
        });
        set.close();
        let token = submitter.join().unwrap();
        if let Some(token) = token {
            drop(set.redeem(token).unwrap());
        }
        assert_eq!(set.in_use(), 0);
    });
}

fn close_against_waiter(admission: Admission) {
    let (set, dev) = set_of(1, admission);
    let tag = dev.try_alloc().unwrap();
    let waiter = thread::spawn(move || dev.alloc_blocking().map(drop));
    set.close();
    assert_eq!(waiter.join().unwrap(), Err(AllocError::Closed));
    drop(tag);
    assert_eq!(set.in_use(), 0);
}

/// Nothing is ever put: only the close can end the wait.
#[test]
fn h6_close_against_waiter() {
    check("h6_close_against_waiter", THREE, || {
        close_against_waiter(Admission::WholeIo);
    });
}

#[test]
fn h6_close_against_waiter_batched() {
    check("h6_close_against_waiter_batched", THREE, || {
        close_against_waiter(Admission::preempt());
    });
}

/// A put and a close meet a task that waits: it has the tag or it is refused, and nothing is lost.
#[test]
fn h6_close_put_and_task() {
    check("h6_close_put_and_task", TWO, || {
        let (set, dev) = set_of(1, Admission::WholeIo);
        let tag = dev.try_alloc().unwrap();
        let waiter = thread::spawn({
            let dev = dev.clone();
            move || block_on(dev.alloc()).map(drop)
        });
        let closer = thread::spawn({
            let set = set.clone();
            move || set.close()
        });
        drop(tag);
        closer.join().unwrap();
        if let Err(error) = waiter.join().unwrap() {
            assert_eq!(error, AllocError::Closed);
        }
        assert_eq!(set.in_use(), 0);
        assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Closed);
    });
}

/// Who waits for a thaw that does not come is refused.
#[test]
fn h24_close_against_a_thaw_waiter() {
    check("h24_close_against_a_thaw_waiter", THREE, || {
        let (set, dev) = set_of(1, Admission::WholeIo);
        let frozen = set.freeze_blocking();
        let waiter = thread::spawn(move || dev.alloc_blocking().map(drop));
        set.close();
        assert_eq!(waiter.join().unwrap(), Err(AllocError::Closed));
        drop(frozen);
        assert_eq!(set.in_use(), 0);
    });
}

/// Who waits for timeouts of an idle set hears of its end. By a clock that stands, it does not look
/// again by itself.
#[test]
fn h24_close_against_an_expirer() {
    check("h24_close_against_an_expirer", THREE, || {
        let set = TagSet::builder().depth(1).clock(Clock::manual());
        let set = set.ages(false).build(|_, _| ()).unwrap();
        let expirer = thread::spawn({
            let set = set.clone();
            move || assert!(set.expired_blocking().is_none())
        });
        set.close();
        expirer.join().unwrap();
    });
}

/// Who waits for timeouts hears of one that is shorter than all before. By a clock that stands, it
/// does not look again by itself.
#[test]
fn h24_a_shorter_timeout_against_an_expirer() {
    check("h24_a_shorter_timeout_against_an_expirer", THREE, || {
        let set = TagSet::builder().depth(1).clock(Clock::manual());
        let set = set.build(|_, _| ()).unwrap();
        let mut tag = set.add_tenant("q").unwrap().try_alloc().unwrap();
        let expirer = thread::spawn({
            let set = set.clone();
            move || set.expired_blocking().map(|late| late.token())
        });
        tag.track();
        tag.set_timeout(Duration::ZERO);
        assert_eq!(expirer.join().unwrap(), Some(None));
        assert!(tag.is_overdue());
    });
}

/// The interval of those who wait is raised while a request gets a timeout that is not below it.
/// The waiter looks within that timeout all the same.
#[test]
fn h24_a_timeout_against_a_longer_interval() {
    check("h24_a_timeout_against_a_longer_interval", THREE, || {
        let interval = Duration::from_millis(10);
        let clock = Clock::manual();
        let set = TagSet::builder().depth(2).clock(clock.clone());
        let set = set.build(|_, _| ()).unwrap();
        let dev = set.add_tenant("q").unwrap();
        let (mut gone, mut tag) = (dev.try_alloc().unwrap(), dev.try_alloc().unwrap());
        gone.set_timeout(interval);
        drop(gone);
        let done = Arc::new(AtomicBool::new(false));
        let expirer = thread::spawn({
            let (set, done) = (set.clone(), done.clone());
            move || {
                let late = set.expired_blocking().map(|late| late.token());
                done.store(true, Ordering::Relaxed);
                late
            }
        });
        clock.advance(interval); // if it sleeps already, it raises the interval
        tag.set_timeout(interval);
        tag.track();
        // Three times as long, while it sleeps: less than the longest interval.
        for _ in 0..3 {
            while clock.sleepers() == 0 && !done.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            clock.advance(interval);
        }
        assert_eq!(expirer.join().unwrap(), Some(None));
        assert!(tag.is_overdue());
    });
}
