//! A closed set: who waits and who comes later is refused, what is out comes back.
#![cfg(not(any(loom, shuttle)))]

use inflight_sync::{Arc, Mutex, block_on, thread};
use inflight_tags::{
    Admission, AllocError, AllocOptions, Engine, FreezeError, TagSet, TenantError,
};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

fn sets() -> Vec<TagSet<u32>> {
    let set = |admission, engine| {
        let set = TagSet::builder().depth(4).reserved(1).admission(admission);
        set.engine(engine).build(|_, _| 0).unwrap()
    };
    vec![
        set(Admission::WholeIo, Engine::Auto),
        set(Admission::WholeIo, Engine::Shared),
        set(Admission::preempt(), Engine::Auto),
    ]
}

#[test]
fn every_form_is_refused_and_what_is_out_comes_back() {
    for set in sets() {
        let dev = set.add_tenant("nvme0n1").unwrap();
        let mut held = dev.try_alloc().unwrap();
        *held = 7;
        let token = dev.try_alloc().unwrap().into_token();
        assert!(!set.is_closed());
        set.close();
        set.close();
        assert!(set.is_closed());
        let reserved = AllocOptions::new().reserved();
        for result in [
            dev.try_alloc(),
            dev.try_alloc_with(reserved),
            dev.alloc_blocking(),
            dev.alloc_timeout(LONG),
            block_on(dev.alloc()),
            block_on(dev.alloc_owned()),
        ] {
            assert_eq!(result.unwrap_err(), AllocError::Closed);
        }
        assert!(dev.try_alloc_batch(2).is_empty());
        let refused = dev.try_alloc_batch_with(2, AllocOptions::new());
        assert_eq!(refused.unwrap_err(), AllocError::Closed);
        assert_eq!(
            block_on(dev.split(2).next()).unwrap_err(),
            AllocError::Closed
        );
        let refused = dev.split(2).next_blocking();
        assert_eq!(refused.unwrap_err(), AllocError::Closed);
        let refused = set.add_tenant("nvme1n1").unwrap_err();
        assert_eq!(refused, TenantError::Closed);

        assert_eq!(*held, 7);
        drop(held);
        assert_eq!(*set.redeem(token).unwrap(), 0);
        assert_eq!(set.in_use(), 0);
        drop(set.freeze_blocking());
    }
}

/// Threads, timed ones and tasks that sleep, for normal and for reserved tags.
#[test]
fn sleepers_hear_of_it() {
    for set in sets() {
        let dev = set.add_tenant("nvme0n1").unwrap();
        let reserved = AllocOptions::new().reserved();
        let mut held: Vec<_> = (0..3).map(|_| dev.try_alloc().unwrap()).collect();
        held.push(dev.try_alloc_with(reserved).unwrap());
        let told = Arc::new(());
        let threads: Vec<_> = (0..6)
            .map(|i| {
                let (dev, told) = (dev.clone(), told.clone());
                thread::spawn(move || {
                    let result = match i {
                        0 | 1 => dev.alloc_blocking(),
                        2 => dev.alloc_timeout(LONG),
                        3 => block_on(dev.alloc()),
                        4 => dev.alloc_blocking_with(reserved),
                        _ => dev.split(2).next_blocking().map(Option::unwrap),
                    };
                    drop(told);
                    result.map(drop)
                })
            })
            .collect();
        while dev.stats().waits < 6 {
            thread::yield_now();
        }
        set.close();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Err(AllocError::Closed));
        }
        assert_eq!(Arc::strong_count(&told), 1);
        drop(held);
        assert_eq!(set.in_use(), 0, "nothing was given to who had gone");
    }
}

/// Who waits for a thaw is refused too, and the freeze goes on.
#[test]
fn who_waits_for_a_thaw_hears_of_it() {
    let set = &sets()[0];
    let dev = set.add_tenant("nvme0n1").unwrap();
    let frozen = set.freeze_blocking();
    let mut future = pin!(dev.alloc());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut cx).is_pending());
    let thread = thread::spawn({
        let dev = dev.clone();
        move || dev.alloc_blocking().map(drop)
    });
    while dev.stats().waits < 2 {
        thread::yield_now();
    }
    set.close();
    assert_eq!(thread.join().unwrap(), Err(AllocError::Closed));
    let refused = future.as_mut().poll(&mut cx);
    assert!(matches!(refused, Poll::Ready(Err(AllocError::Closed))));
    drop(frozen);
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Closed);
}

/// A freeze that waits for what is out is not in the way, and the other way round.
#[test]
fn freezes_and_closes_do_not_mind_each_other() {
    let set = &sets()[0];
    let dev = set.add_tenant("nvme0n1").unwrap();
    let token = dev.try_alloc().unwrap().into_token();
    assert_eq!(set.try_freeze().unwrap_err(), FreezeError::InUse);
    let freezer = thread::spawn({
        let set = set.clone();
        move || drop(set.freeze_blocking())
    });
    set.close();
    drop(set.redeem(token).unwrap());
    freezer.join().unwrap();
}

/// Drops whatever it has when it is woken, as the waker of a task that others run.
struct Drops(Mutex<Vec<Box<dyn Send>>>);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        let waits = std::mem::take(&mut *self.0.lock());
        drop(waits);
    }
}

/// A waker may end other waits of the same set.
#[test]
fn a_waker_may_drop_waits_for_the_set_that_is_closed() {
    for set in sets() {
        let dev = set.add_tenant("nvme0n1").unwrap();
        let held = dev.try_alloc_batch(4);
        let drops = Arc::new(Drops(Mutex::new(Vec::new())));
        let waker = Waker::from(drops.clone());
        let mut cx = Context::from_waker(&waker);
        let (mut alloc, mut split) = (dev.alloc_owned(), dev.split(2));
        assert!(alloc.poll_alloc(&mut cx).is_pending());
        assert!(split.poll_next(&mut cx).is_pending());
        drops.0.lock().push(Box::new(alloc));
        drops.0.lock().push(Box::new(split));
        set.close();
        assert!(drops.0.lock().is_empty());
        drop(held);
        assert_eq!(set.in_use(), 0);
    }
}
