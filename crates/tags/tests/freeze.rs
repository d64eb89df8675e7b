//! Freezing and thawing.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, thread};
use inflight_tags::{AllocError, AllocOptions, TagSet, Tenant};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const PLAIN: AllocOptions = AllocOptions::new();

fn queue(depth: usize) -> Tenant<()> {
    let set = TagSet::builder().depth(depth).reserved(depth / 4);
    set.build(|_, _| ()).unwrap().add_tenant("q").unwrap()
}

#[derive(Default)]
struct Told(AtomicBool);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn while_frozen_nothing_is_given_out() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(8).reserved(1).clock(clock.clone());
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let frozen = set.freeze_blocking();
    assert!(set.is_frozen());
    let shown = format!("{set:?}");
    assert!(shown.contains("freezes: 1, quiesces: 0"), "{shown}");
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Frozen);
    let refused = dev.try_alloc_with(PLAIN.reserved()).unwrap_err();
    assert_eq!(refused, AllocError::Frozen);
    assert!(dev.try_alloc_batch(4).is_empty());
    let late = thread::spawn({
        let dev = dev.clone();
        move || dev.alloc_timeout(Duration::from_secs(1)).map(drop)
    });
    wait_until(|| clock.sleepers() == 1);
    clock.advance(Duration::from_secs(1));
    assert_eq!(late.join().unwrap(), Err(AllocError::TimedOut));

    let waiting = thread::spawn({
        let dev = dev.clone();
        move || dev.alloc_blocking().map(drop)
    });
    let mut task = pin!(dev.alloc());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(task.as_mut().poll(&mut cx).is_pending());
    wait_until(|| dev.stats().waits == 3);
    assert_eq!((set.in_use(), dev.stats().allocs), (0, 0));
    drop(frozen);
    assert_eq!(waiting.join().unwrap(), Ok(()));
    assert!(block_on(task).is_ok());
    assert_eq!(dev.stats().frozen, 3);
}

#[test]
fn guards_nest_in_any_order() {
    let dev = queue(4);
    let set = dev.set();
    let guards = [
        set.freeze_blocking(),
        set.freeze_blocking(),
        block_on(set.freeze()),
    ];
    let [first, second, third] = guards;
    drop(second);
    assert!(set.is_frozen());
    drop(first);
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Frozen);
    drop(third);
    assert!(!set.is_frozen());
    assert!(dev.try_alloc().is_ok());
}

/// A freeze waits for tags in hand and for tags in flight.
#[test]
fn freezing_waits_for_the_last_tag() {
    let dev = queue(4);
    let set = dev.set();
    let held = dev.try_alloc_with(PLAIN.reserved()).unwrap();
    let token = dev.try_alloc().unwrap().into_token();
    assert!(set.try_freeze().is_err());
    assert!(!set.is_frozen(), "a try leaves nothing behind");
    let done = Arc::new(AtomicBool::new(false));
    let freezer = thread::spawn({
        let (set, done) = (set.clone(), done.clone());
        move || {
            let frozen = set.freeze_blocking();
            done.store(true, Ordering::Release);
            assert_eq!(set.in_use(), 0);
            frozen
        }
    });
    wait_until(|| set.is_frozen());
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Frozen);
    drop(held);
    assert!(!done.load(Ordering::Acquire));
    let tag = set.redeem(token).unwrap();
    assert!(!done.load(Ordering::Acquire));
    drop(tag);
    let frozen = freezer.join().unwrap();
    assert!(done.load(Ordering::Acquire) && set.is_frozen());
    drop(frozen);
    assert!(!set.is_frozen());
}

/// What was in flight before the freeze may be submitted again while it drains.
#[test]
fn a_request_may_be_submitted_again_while_draining() {
    let dev = queue(4);
    let set = dev.set();
    let token = dev.try_alloc().unwrap().into_token();
    let mut freeze = pin!(set.freeze());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(freeze.as_mut().poll(&mut cx).is_pending());
    let token = set.redeem(token).unwrap().into_token();
    assert!(freeze.as_mut().poll(&mut cx).is_pending());
    drop(set.redeem(token).unwrap());
    assert!(freeze.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn a_dropped_freeze_thaws() {
    let dev = queue(4);
    let set = dev.set();
    let held = dev.try_alloc().unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut waiting = pin!(dev.alloc());
    {
        let mut freeze = Box::pin(set.freeze());
        assert!(!set.is_frozen(), "nothing happens before the first poll");
        assert!(freeze.as_mut().poll(&mut cx).is_pending());
        assert!(set.is_frozen());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
    }
    assert!(!set.is_frozen());
    assert!(waiting.as_mut().poll(&mut cx).is_ready());
    drop(held);
}

/// A wait that is given up with a tag in it, which nobody has fetched: the freeze waits for that
/// tag, and hears that it is back.
#[test]
fn a_wait_that_ends_tells_the_freezer() {
    for several in [false, true] {
        let dev = queue(4);
        let held = dev.try_alloc_batch(3);
        let mut split = dev.split(3);
        let mut waiting: Pin<Box<dyn Future<Output = _>>> = match several {
            false => Box::pin(async { dev.alloc().await.map(drop) }),
            true => Box::pin(async { split.next().await.map(drop) }),
        };
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        drop(held);
        let told = Arc::new(Told::default());
        let mut freeze = pin!(dev.set().freeze());
        let waker = Waker::from(told.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(freeze.as_mut().poll(&mut cx).is_pending());
        drop(waiting);
        drop(split);
        assert!(told.0.load(Ordering::Acquire), "several: {several}");
        assert!(freeze.as_mut().poll(&mut cx).is_ready());
    }
}

#[test]
fn a_timed_freeze_gives_up() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(2).clock(clock.clone());
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let held = dev.try_alloc().unwrap();
    let freezer = thread::spawn({
        let set = set.clone();
        move || set.freeze_timeout(Duration::from_secs(1)).is_ok()
    });
    wait_until(|| clock.sleepers() == 1);
    clock.advance(Duration::from_secs(1));
    assert!(!freezer.join().unwrap());
    assert!(!set.is_frozen());
    drop(held);
    assert!(set.freeze_timeout(Duration::ZERO).is_ok());
}

/// A sleeper that is woken by a put of the draining set does not get through: it waits for the
/// thaw.
#[test]
fn h24_a_sleeper_does_not_slip_through_a_freeze() {
    let dev = queue(1);
    let set = dev.set();
    let held = dev.try_alloc().unwrap();
    let mut sleeper = pin!(dev.alloc());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(sleeper.as_mut().poll(&mut cx).is_pending());
    let mut freeze = pin!(set.freeze());
    assert!(freeze.as_mut().poll(&mut cx).is_pending());
    drop(held);
    assert!(sleeper.as_mut().poll(&mut cx).is_pending());
    assert_eq!(set.in_use(), 0);
    let std::task::Poll::Ready(frozen) = freeze.as_mut().poll(&mut cx) else {
        panic!("no tag was in use");
    };
    assert!(sleeper.as_mut().poll(&mut cx).is_pending());
    drop(frozen);
    assert!(sleeper.as_mut().poll(&mut cx).is_ready());
}

/// A guard outlives all handles.
#[test]
fn a_guard_needs_no_handle() {
    let frozen = queue(4).set().freeze_blocking();
    drop(frozen);
}

/// Freezes among submitters of all kinds: while a guard lives no tag exists, afterwards all go on.
#[test]
fn freezes_under_load() {
    let (threads, rounds) = if cfg!(miri) { (2, 10) } else { (4, 2000) };
    let set = TagSet::builder().hw_queues(2).depth(2).build(|_, _| ());
    let set = set.unwrap();
    let inside = Arc::new(AtomicUsize::new(0));
    let frozen_now = Arc::new(AtomicBool::new(false));
    let submitters: Vec<_> = (0..threads)
        .map(|kind| {
            let dev = set.add_tenant(format!("q{kind}")).unwrap();
            let (inside, frozen_now) = (inside.clone(), frozen_now.clone());
            thread::spawn(move || {
                for round in 0..rounds {
                    let options = PLAIN.hw_queue((kind + round) % 2);
                    let tag = match kind % 4 {
                        0 => dev.alloc_blocking_with(options),
                        1 => block_on(dev.alloc_with(options)),
                        2 => dev.alloc_timeout_with(Duration::from_secs(600), options),
                        _ => dev.try_alloc_with(options),
                    };
                    match tag {
                        Ok(tag) => {
                            inside.fetch_add(1, Ordering::Relaxed);
                            assert!(!frozen_now.load(Ordering::Relaxed));
                            let token = tag.into_token();
                            thread::yield_now();
                            let tag = dev.set().redeem(token).unwrap();
                            inside.fetch_sub(1, Ordering::Relaxed);
                            drop(tag);
                        }
                        Err(error) => {
                            assert!(kind % 4 == 3, "{error:?}");
                            assert!(matches!(error, AllocError::Exhausted | AllocError::Frozen));
                        }
                    }
                }
            })
        })
        .collect();
    let freezer = thread::spawn({
        let set = set.clone();
        move || {
            for _ in 0..rounds / 10 {
                let outer = set.freeze_blocking();
                frozen_now.store(true, Ordering::Relaxed);
                let inner = block_on(set.freeze());
                drop(outer);
                assert_eq!(inside.load(Ordering::Relaxed), 0);
                assert_eq!((set.in_use(), set.in_flight()), (0, 0));
                frozen_now.store(false, Ordering::Relaxed);
                drop(inner);
                thread::yield_now();
            }
        }
    });
    submitters.into_iter().for_each(|t| t.join().unwrap());
    freezer.join().unwrap();
    assert_eq!((set.in_use(), set.is_frozen()), (0, false));
    let stats = set.stats();
    assert_eq!(stats.allocs, stats.frees);
}

/// A guard in somebody's struct prints a word, not the set's insides.
#[test]
fn debug_of_a_guard_is_short() {
    let set = TagSet::builder().depth(2).build(|_, _| ()).unwrap();
    assert_eq!(format!("{:?}", set.freeze_blocking()), "FrozenGuard { .. }");
}
