//! Depths that change while a set is used.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};
use inflight_tags::{Admission, AllocError, AllocOptions, HwQueueOptions, ResizeError, TagSet};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Wake};

const POLICIES: [Admission; 2] = [Admission::WholeIo, Admission::preempt()];

fn on(hw_queue: usize) -> AllocOptions {
    AllocOptions::new().hw_queue(hw_queue)
}

#[test]
fn a_set_grows_under_its_waiters_and_shrinks_under_its_tags() {
    for admission in POLICIES {
        let made = Arc::new(AtomicUsize::new(0));
        let set = TagSet::builder().depth(2).reserved(1).max_depth(40);
        let set = set.admission(admission).build({
            let made = made.clone();
            move |_, tag| {
                made.fetch_add(1, Ordering::Relaxed);
                tag
            }
        });
        let set = set.unwrap();
        assert_eq!(made.load(Ordering::Relaxed), 2);
        let dev = set.add_tenant("q").unwrap();
        let first = dev.try_alloc().unwrap();
        let tags = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (dev, tags) = (dev.clone(), tags.clone());
                thread::spawn(move || {
                    let tag = dev.alloc_blocking().unwrap();
                    tags.lock().push(tag);
                })
            })
            .collect();
        while set.stats().waits < 3 {
            thread::yield_now();
        }
        set.resize(40).unwrap();
        waiters
            .into_iter()
            .for_each(|waiter| waiter.join().unwrap());
        assert_eq!(made.load(Ordering::Relaxed), 40);
        let mut tags = std::mem::take(&mut *tags.lock());
        tags.push(first);
        tags.extend(dev.try_alloc_batch(100));
        assert_eq!(tags.len(), 39);
        assert!(tags.iter().all(|tag| **tag == tag.index()));
        let tokens: Vec<_> = tags.into_iter().map(|tag| tag.into_token()).collect();

        set.resize(3).unwrap();
        assert_eq!((set.depth(), set.capacity(), set.in_flight()), (3, 3, 39));
        for &token in &tokens {
            drop(set.redeem(token).expect("what is in flight stays"));
        }
        assert_eq!(dev.try_alloc_batch(100).len(), 2);
        assert!(tokens.iter().all(|&token| set.redeem(token).is_err()));
        let frozen = set.freeze_blocking();
        set.resize(40).unwrap();
        drop(frozen);
        assert_eq!(made.load(Ordering::Relaxed), 40, "made once");
        assert_eq!(dev.try_alloc_batch(100).len(), 39);
        for (depth, least, most) in [(1, 2, 40), (41, 2, 40)] {
            let error = ResizeError::Depth { depth, least, most };
            assert_eq!(set.resize(depth), Err(error));
        }
    }
}

/// Payloads that cannot be made leave the set as it was.
#[test]
fn a_failed_growth_changes_nothing() {
    let set = TagSet::builder()
        .depth(2)
        .max_depth(8)
        .hw_queues(HwQueueOptions::new(1).max(2));
    let set = set.build(|hwq, tag| assert!(hwq == 0 && tag < 4, "out of memory"));
    let set = set.unwrap();
    let dev = set.add_tenant("q").unwrap();
    for change in [TagSet::resize, TagSet::set_hw_queues_blocking] {
        let grow = std::panic::AssertUnwindSafe(|| change(&set, 8.min(set.depth() * 4)));
        let _ = std::panic::catch_unwind(grow);
        assert_eq!((set.depth(), set.hw_queues().len()), (2, 1));
        assert_eq!(dev.try_alloc_batch(9).len(), 2);
    }
    let grow = std::panic::AssertUnwindSafe(|| set.set_hw_queues_blocking(2));
    assert!(std::panic::catch_unwind(grow).is_err());
    assert!(matches!(
        dev.try_alloc_with(on(1)).unwrap_err(),
        AllocError::NoSuchHwQueue { .. }
    ));
    assert!(!set.is_frozen());
    set.resize(4).unwrap();
    assert_eq!(dev.try_alloc_batch(9).len(), 4);
}

/// A waker that runs its task at once, which changes the set, does not wait for the change that
/// woke it.
#[test]
fn a_waker_may_change_the_set_while_it_is_resized() {
    struct Change(TagSet<()>, fn(&TagSet<()>), AtomicUsize);
    impl Wake for Change {
        fn wake(self: Arc<Self>) {
            (self.1)(&self.0);
            self.2.fetch_add(1, Ordering::Relaxed);
        }
    }
    let changes: [fn(&TagSet<()>); 3] = [
        |set| set.resize(3).unwrap(),
        |set| drop(set.cpus().offline(0)),
        |set| assert_eq!(set.try_set_hw_queues(2), Err(ResizeError::InUse)),
    ];
    for (admission, change) in POLICIES.iter().flat_map(|&a| changes.map(|c| (a, c))) {
        let rings = HwQueueOptions::new(1).max(2);
        let set = TagSet::builder().depth(1).max_depth(4).hw_queues(rings);
        let set = set.admission(admission).build(|_, _| ()).unwrap();
        let dev = set.add_tenant("a").unwrap();
        let _held = dev.try_alloc().unwrap();
        let waker = Arc::new(Change(set.clone(), change, AtomicUsize::new(0)));
        let mut waiter = pin!(dev.alloc());
        let told = waker.clone().into();
        let mut cx = Context::from_waker(&told);
        assert!(waiter.as_mut().poll(&mut cx).is_pending());
        set.resize(4).unwrap();
        assert_eq!(waker.2.load(Ordering::Relaxed), 1, "{admission:?}");
        assert!(waiter.poll(&mut cx).is_ready());
    }
}
