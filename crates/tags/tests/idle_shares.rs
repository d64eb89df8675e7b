//! Promise 4: an idle tenant's share comes back in time also when nothing else happens.
#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::block_hook::{BlockHook, install};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, thread};
use inflight_tags::{Admission, Engine, TagSet};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
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
        // It sleeps towards its next look, and is let look.
        let mut passed = 0;
        loop {
            while clock.sleepers() == 0 && !done.load(Ordering::Acquire) {
                thread::yield_now();
            }
            if done.load(Ordering::Acquire) {
                break;
            }
            passed += 1;
            assert!(passed <= 3, "{mode:?}: at most 3 s");
            clock.advance(Duration::from_secs(1));
        }
        drop(waiter.join().unwrap().unwrap());
        assert_eq!(held.len(), 16);
    }
}

/// Runs once the thread is about to sleep: the first time it does something, and then a second is
/// over each time.
struct AsItSleeps<F> {
    clock: Clock,
    first: Cell<Option<F>>,
    seconds: Cell<usize>,
}

impl<F: FnOnce()> BlockHook for AsItSleeps<F> {
    fn blocking(&self) {
        if let Some(first) = self.first.take() {
            first();
        }
        assert_eq!(self.clock.sleepers(), 1, "it will look again by itself");
        self.seconds.set(self.seconds.get() + 1);
        self.clock.advance(Duration::from_secs(1));
    }
    fn unblocked(&self) {}
}

/// A thread goes to sleep below its limit. It comes to the limit there, as another one of its
/// tenant passes it, and nobody wakes it for what is free then.
#[test]
fn c28_a_thread_that_comes_to_its_limit_asleep_looks_itself() {
    let clock = Clock::manual();
    let set = set((Admission::preempt(), Engine::Shared), clock.clone());
    let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
    let mut others = b.try_alloc_batch(17);
    let held = a.try_alloc_batch(15);
    assert_eq!((others.len(), held.len(), a.share(0)), (17, 15, Some(16)));
    let (passed, last) = (Rc::new(Cell::new(None)), others.pop());
    let hook = Rc::new(AsItSleeps {
        clock,
        first: Cell::new(Some({
            let (a, passed) = (a.clone(), passed.clone());
            move || {
                drop(last); // half of a batch of wakes
                passed.set(a.try_alloc().ok());
                drop(others);
            }
        })),
        seconds: Cell::new(0),
    });
    let installed = install(hook.clone());
    let tag = a.alloc_blocking();
    drop(installed);
    assert!(passed.take().is_some(), "it was passed");
    assert!(hook.seconds.get() <= 3, "at most 3 s");
    drop((tag.unwrap(), held));
}

/// A thread below its limit waits for a tag, not for a larger share: its looks take nothing from a
/// tenant that is idle.
#[test]
fn a_thread_below_its_limit_takes_no_share_back() {
    for mode in modes() {
        let clock = Clock::manual();
        let set = set(mode, clock.clone());
        let [a, b, c] = ["a", "b", "c"].map(|name| set.add_tenant(name).unwrap());
        let held = b.try_alloc_batch(32);
        assert_eq!(held.len(), 32, "{mode:?}");
        assert!(c.try_alloc().is_err(), "active, then silent");
        let waiter = thread::spawn({
            let a = a.clone();
            move || a.alloc_blocking()
        });
        while a.stats().waits == 0 {
            thread::yield_now();
        }
        let asleep = || {
            while clock.sleepers() == 0 {
                assert_eq!(a.share(0), Some(11), "{mode:?}: of three tenants");
                thread::yield_now();
            }
        };
        for _ in 0..3 {
            asleep();
            clock.advance(Duration::from_secs(1));
        }
        asleep();
        assert_eq!(a.share(0), Some(11), "{mode:?}: of three tenants");
        drop(held);
        drop(waiter.join().unwrap().unwrap());
    }
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

/// Also of tenants with gaps between their numbers: the first one here has taken nothing.
#[test]
fn all_idle_shares_come_back_at_once() {
    for mode in modes() {
        for others in 1..6 {
            let set = set(mode, Clock::manual());
            let a = set.add_tenant("a").unwrap();
            let others: Vec<_> = (0..others)
                .map(|n| set.add_tenant(format!("b{n}")).unwrap())
                .collect();
            for other in &others {
                drop(other.try_alloc().unwrap()); // active, then silent
            }
            assert_eq!(set.reclaim_idle_shares(), 1);
            let _all = a.try_alloc_batch(32);
            assert_eq!(set.in_use(), 32, "{mode:?}, {} others", others.len());
            assert_eq!(set.reclaim_idle_shares(), 0, "nobody is idle");
        }
    }
}
