//! Quiescing: nothing is given out, what is out lives on.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, thread};
use inflight_tags::{AllocError, AllocOptions, FreezeError, TagSet, Tenant};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const PLAIN: AllocOptions = AllocOptions::new();

fn set_of(depth: usize) -> (TagSet<u32>, Tenant<u32>) {
    let set = TagSet::builder().depth(depth).reserved(depth / 4);
    let set = set.build(|_, _| 0).unwrap();
    let dev = set.add_tenant("q").unwrap();
    (set, dev)
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn c44_no_form_gives_out_while_quiesced() {
    let (set, dev) = set_of(8);
    let quiesced = set.quiesce();
    let refused = AllocError::Quiesced;
    assert_eq!(dev.try_alloc().unwrap_err(), refused);
    assert_eq!(dev.try_alloc_with(PLAIN.reserved()).unwrap_err(), refused);
    assert_eq!(dev.try_alloc_batch_with(2, PLAIN).unwrap_err(), refused);
    assert_eq!(dev.split(2).try_next().unwrap_err(), refused);
    let late = dev.alloc_timeout(Duration::from_millis(1)).unwrap_err();
    assert_eq!(late, AllocError::TimedOut);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(pin!(dev.alloc()).as_mut().poll(&mut cx).is_pending());
    assert_eq!(set.in_use(), 0, "and no bit is kept");
    drop(quiesced);
    assert_eq!(dev.try_alloc_batch(6).len(), 6);
}

#[test]
fn c44_what_is_out_lives_on() {
    let (set, dev) = set_of(4);
    let (held, flying) = (
        dev.try_alloc().unwrap(),
        dev.try_alloc().unwrap().into_token(),
    );
    let quiesced = set.quiesce();
    assert_eq!(set.in_use(), 2, "nobody was waited for");
    let mut tag = set.redeem(flying).unwrap();
    *tag += 1;
    let again = tag.into_token();
    assert_eq!(*set.redeem(again).unwrap(), 1, "and goes round again");
    let submitted = held.into_token();
    assert!(set.any_in_flight());
    assert!(quiesced.drain_timeout(Duration::ZERO).is_err());
    drop(set.redeem(submitted).unwrap());
    assert!(quiesced.drain_timeout(Duration::ZERO).is_ok());
}

#[test]
fn c44_quiesces_nest_and_hold_a_freeze() {
    let (set, dev) = set_of(4);
    let (outer, inner) = (set.quiesce(), set.quiesce());
    let frozen = set.freeze_blocking();
    assert!(set.is_frozen() && set.is_quiesced());
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Frozen);
    drop(outer);
    drop(frozen);
    assert!(!set.is_frozen() && set.is_quiesced());
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Quiesced);
    let frozen = set.try_freeze().unwrap();
    drop(inner);
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Frozen);
    drop(frozen);
    assert!(dev.try_alloc().is_ok());
}

/// Waiters of both kinds, before and after the quiesce: all go on after it, and none meanwhile.
#[test]
fn c44_waiters_go_on_when_it_ends() {
    let (set, dev) = set_of(1);
    let held = dev.try_alloc().unwrap();
    let waiter = || {
        let dev = dev.clone();
        thread::spawn(move || drop(dev.alloc_blocking().unwrap()))
    };
    let before = waiter();
    wait_until(|| set.stats().waits == 1);
    let quiesced = set.quiesce();
    let after = waiter();
    wait_until(|| dev.stats().waits == 2);
    drop(held);
    quiesced.drain_blocking();
    assert_eq!(dev.stats().allocs, 1, "none was let in");
    drop(quiesced);
    before.join().unwrap();
    after.join().unwrap();
    assert_eq!((dev.stats().allocs, set.in_use()), (3, 0));
}

#[derive(Default)]
struct Woken(AtomicUsize);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn c44_a_drain_may_be_dropped() {
    let (set, dev) = set_of(2);
    let held = dev.try_alloc().unwrap();
    let quiesced = set.quiesce();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    {
        let mut dropped = pin!(quiesced.drain());
        assert!(dropped.as_mut().poll(&mut cx).is_pending());
    }
    let mut drain = pin!(quiesced.drain());
    assert!(drain.as_mut().poll(&mut cx).is_pending());
    drop(held);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1, "only who still waits");
    assert_eq!(drain.as_mut().poll(&mut cx), Poll::Ready(()));
}

#[test]
fn c44_the_time_is_the_sets_clock() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(2).clock(clock.clone());
    let set = set.build(|_, _| ()).unwrap();
    let _held = set.add_tenant("q").unwrap().try_alloc().unwrap();
    let drainer = thread::spawn({
        let set = set.clone();
        move || set.quiesce().drain_timeout(Duration::from_secs(5))
    });
    wait_until(|| set.is_quiesced());
    while !drainer.is_finished() {
        clock.advance(Duration::from_secs(1));
        thread::yield_now();
    }
    assert_eq!(drainer.join().unwrap(), Err(FreezeError::TimedOut));
    assert!(!set.is_quiesced());
}

#[test]
fn c61_in_flight_is_not_held() {
    let (set, dev) = set_of(4);
    assert!(!set.any_in_flight());
    let held = dev.try_alloc_with(PLAIN.reserved()).unwrap();
    assert!(!set.any_in_flight());
    let token = held.into_token();
    assert!(set.any_in_flight());
    set.for_each_in_flight(|t| assert!(t.mark_timed_out()));
    assert!(set.any_in_flight(), "one that is marked too");
    let tag = set.redeem_timed_out(token).unwrap();
    assert!(!set.any_in_flight());
    drop(tag);
}
