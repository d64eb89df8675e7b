//! Promise 4: an idle tenant's share comes back in time also when nothing else happens.
#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Parker, thread};
use inflight_tags::{Admission, Engine, TagSet};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn modes() -> [(Admission, Engine); 3] {
    [
        (Admission::WholeIo, Engine::Local),
        (Admission::WholeIo, Engine::Shared),
        (Admission::preempt(), Engine::Shared),
    ]
}

fn set(mode: (Admission, Engine), clock: Clock) -> TagSet<()> {
    let set = TagSet::builder().depth(32).clock(clock);
    let set = set.admission(mode.0).engine(mode.1);
    set.build(|_, _| ()).unwrap()
}

fn nap() {
    let clock = Clock::system();
    let _ = Parker::current().park_until(&clock, clock.now() + Duration::from_millis(20));
}

/// A thread waits at its limit, beside free tags of somebody who has gone silent: no tag is taken
/// or given back, only time passes.
#[test]
fn c28_a_thread_that_waits_looks_itself() {
    for mode in modes() {
        let clock = Clock::manual();
        let set = set(mode, clock.clone());
        let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
        drop(b.try_alloc().unwrap()); // active, then silent
        let held = a.try_alloc_batch(32);
        assert_eq!(held.len(), 16, "{mode:?}");
        let done = Arc::new(AtomicBool::new(false));
        let waiter = thread::spawn({
            let (a, done) = (a.clone(), done.clone());
            move || {
                let tag = a.alloc_blocking();
                // Ordering: Release, pairs with the Acquire below.
                done.store(true, Ordering::Release);
                tag
            }
        });
        while a.stats().waits == 0 {
            thread::yield_now();
        }
        let mut passed = Duration::ZERO;
        while !done.load(Ordering::Acquire) {
            assert!(passed <= Duration::from_secs(3), "{mode:?}: at most 3 s");
            clock.advance(Duration::from_millis(500));
            passed += Duration::from_millis(500);
            nap(); // time to notice
        }
        drop(waiter.join().unwrap().unwrap());
        assert_eq!(held.len(), 16);
    }
}

/// And with the clock of the machine, with nothing that advances it but itself.
#[test]
fn c28_a_thread_gets_it_within_three_seconds() {
    let set = set(modes()[0], Clock::system());
    let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
    drop(b.try_alloc().unwrap());
    let _held = a.try_alloc_batch(32);
    // Half a second more, for a machine that is busy.
    let tag = a.alloc_timeout(Duration::from_millis(3_500));
    assert!(tag.is_ok());
}

/// A task has no timer: it gets the tag by the call, at once.
#[test]
fn a_task_gets_it_by_a_call() {
    for mode in modes() {
        let set = set(mode, Clock::manual());
        let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
        drop(b.try_alloc().unwrap());
        let held = a.try_alloc_batch(32);
        let mut future = pin!(a.alloc());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut cx).is_pending());
        assert_eq!(set.reclaim_idle_shares(), 1);
        let Poll::Ready(Ok(tag)) = future.as_mut().poll(&mut cx) else {
            panic!("{mode:?}: it is not told");
        };
        assert_eq!(a.share(0), None);
        assert_eq!(set.reclaim_idle_shares(), 0, "it does not count now");
        // Who comes back has its share again.
        assert!(b.try_alloc().is_ok());
        assert_eq!((a.share(0), b.share(0)), (Some(16), Some(16)));
        drop((tag, held));
    }
}

/// Who holds or waits is not idle, whoever calls.
#[test]
fn a_call_takes_nothing_from_who_uses_it() {
    for mode in modes() {
        let set = set(mode, Clock::manual());
        let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
        let _held = a.try_alloc().unwrap();
        let _one = b.try_alloc().unwrap();
        let _more = a.try_alloc_batch(32);
        assert_eq!(set.reclaim_idle_shares(), 0, "{mode:?}");
        assert_eq!(a.share(0), Some(16));
    }
}
