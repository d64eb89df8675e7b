//! Splits and freezes that wait at the same time: neither waits for the other, and neither wakes
//! the other for nothing.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, thread};
use inflight_tags::{Admission, AllocError, NoPreempt, Split, Tag, TagSet, Tenant};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Of a manual clock: nobody's time is up unless the test says so.
const LONG: Duration = Duration::from_secs(1_000);

fn policies() -> [Admission; 4] {
    [
        Admission::WholeIo,
        Admission::preempt(),
        Admission::NoPreempt(NoPreempt::default().threshold(0)),
        Admission::elastic_overcommit(4),
    ]
}

fn queue(depth: usize, admission: Admission) -> Tenant<u32> {
    let set = TagSet::builder().depth(depth).admission(admission);
    set.build(|_, _| 0).unwrap().add_tenant("q").unwrap()
}

/// Nothing is in use, and as many tags as the depth can be had.
fn assert_whole(dev: &Tenant<u32>, depth: usize) {
    assert_eq!(dev.set().in_use(), 0);
    assert_eq!(dev.try_alloc_batch(depth).len(), depth);
}

#[derive(Default)]
struct Counts(AtomicUsize);

impl Counts {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("the waker's panic");
    }
}

fn poll_with<F: Future>(future: Pin<&mut F>, waker: impl Into<Waker>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&waker.into()))
}

fn poll(
    split: &mut Split<u32>,
    counts: &Arc<Counts>,
) -> Poll<Option<Result<Tag<u32>, AllocError>>> {
    let waker = Waker::from(counts.clone());
    split.poll_next(&mut Context::from_waker(&waker))
}

/// A try between two polls that wait for a thaw collects tags for pieces to come. The next freeze
/// waits for them, so the next poll gives them back.
#[test]
fn a_task_that_waits_for_a_thaw_keeps_no_tags() {
    for policy in policies() {
        let dev = queue(8, policy);
        let told = Arc::new(Counts::default());
        let mut split = dev.split(3);
        let first = dev.set().freeze_blocking();
        assert!(poll(&mut split, &told).is_pending());
        drop(first);
        let tag = split.try_next().unwrap();
        assert_eq!(told.get(), 1, "{policy:?}: the thaw");
        let mut second = pin!(dev.set().freeze());
        assert!(poll_with(second.as_mut(), told.clone()).is_pending());
        drop(tag);
        assert!(poll(&mut split, &told).is_pending());
        let Poll::Ready(frozen) = poll_with(second.as_mut(), told.clone()) else {
            panic!("{policy:?}: the freeze waits for a split that waits for the thaw");
        };
        let before = told.get();
        drop(frozen);
        assert_eq!(told.get(), before + 1, "{policy:?}: it waits for the thaw");
        for _ in 0..2 {
            assert!(matches!(poll(&mut split, &told), Poll::Ready(Some(Ok(_)))));
        }
        drop(split);
        assert_whole(&dev, 8);
    }
}

/// A poll that finds nothing gives nothing back, so it tells nobody.
#[test]
fn a_poll_that_finds_nothing_wakes_no_freezer() {
    for policy in policies() {
        let dev = queue(8, policy);
        let held = dev.try_alloc_batch(8);
        let told = Arc::new(Counts::default());
        let mut split = dev.split(3);
        let mut pending = poll(&mut split, &told);
        let mut early = Vec::new(); // beyond the depth
        while let Poll::Ready(tag) = pending {
            early.push(tag.unwrap().unwrap());
            pending = poll(&mut split, &told);
        }
        let freezer = Arc::new(Counts::default());
        let mut freeze = Box::pin(dev.set().freeze());
        assert!(poll_with(freeze.as_mut(), freezer.clone()).is_pending());
        for _ in 0..3 {
            assert!(poll(&mut split, &told).is_pending());
        }
        assert_eq!(freezer.get(), 0, "{policy:?}");
        assert!(poll_with(freeze.as_mut(), Arc::new(Panics)).is_pending());
        for _ in 0..3 {
            assert!(poll(&mut split, &told).is_pending());
        }
        assert!(poll_with(freeze.as_mut(), freezer.clone()).is_pending());
        drop((held, early));
        assert!(freezer.get() > 0, "{policy:?}");
        assert!(poll(&mut split, &told).is_pending(), "{policy:?}: frozen");
        assert!(poll_with(freeze.as_mut(), freezer).is_ready(), "{policy:?}");
        drop((freeze, split));
        assert_whole(&dev, 8);
    }
}

/// A thread that leaves the line when its time is up gives back what had been collected for its
/// part, and the freezer is told.
#[test]
fn a_part_that_comes_too_late_is_given_back_and_the_freezer_told() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(8).clock(clock.clone());
    let dev = set.build(|_, _| 0).unwrap().add_tenant("q").unwrap();
    let mut held = dev.try_alloc_batch(8);
    let mut split = dev.split(8); // a part is of two
    let thread = thread::spawn(move || {
        let tag = split.next_timeout(LONG);
        (split, tag)
    });
    while clock.sleepers() == 0 {
        thread::yield_now();
    }
    held.truncate(7);
    let freezer = Arc::new(Counts::default());
    let mut freeze = pin!(dev.set().freeze());
    assert!(poll_with(freeze.as_mut(), freezer.clone()).is_pending());
    clock.advance(LONG);
    let (split, late) = thread.join().unwrap();
    assert_eq!(late.unwrap_err(), AllocError::TimedOut);
    assert_eq!(freezer.get(), 1);
    drop(held);
    assert!(poll_with(freeze, freezer).is_ready());
    drop(split);
    assert_whole(&dev, 8);
}
