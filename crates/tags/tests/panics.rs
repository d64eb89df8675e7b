//! Wakers that panic: the panic comes out where it was met, and nobody else is harmed.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, block_on, cpu, thread};
use inflight_tags::{Admission, AllocOptions, Queue, TagSet};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};

const PLAIN: AllocOptions = AllocOptions::new();

/// A tag that comes back is free at once under `Preempt`, also while a future waits unpolled.
fn queue(hw_queues: usize, depth: usize) -> Queue<()> {
    let set = TagSet::builder().hw_queues(hw_queues).depth(depth);
    let set = set.admission(Admission::Preempt);
    set.build(|_, _| ()).unwrap().add_queue("q")
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("the waker's panic");
    }
}

#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<F: Future>(
    future: Pin<&mut F>,
    waker: Arc<impl Wake + Send + Sync + 'static>,
) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(waker)))
}

fn assert_panics<R>(f: impl FnOnce() -> R) {
    let message = catch_unwind(AssertUnwindSafe(f)).map(drop).unwrap_err();
    assert_eq!(message.downcast_ref(), Some(&"the waker's panic"));
}

/// The freezer is told although the waker of a submitter panics first.
#[test]
fn h24_a_freezing_task_is_told() {
    let dev = queue(1, 1);
    let set = dev.set();
    let held = dev.try_alloc(PLAIN).unwrap();
    let mut waiter = pin!(dev.alloc());
    assert!(poll(waiter.as_mut(), Arc::new(Panics)).is_pending());
    let told = Arc::new(Counts::default());
    let mut freeze = pin!(set.freeze());
    assert!(poll(freeze.as_mut(), told.clone()).is_pending());
    assert_panics(|| drop(held));
    assert_eq!(told.0.load(Ordering::Relaxed), 1);
    let Poll::Ready(frozen) = poll(freeze.as_mut(), told) else {
        panic!("no tag is in use");
    };
    drop(frozen);
    assert!(block_on(waiter).is_ok());
}

/// The same with a thread that sleeps. Without the telling this test never ends.
#[test]
fn h24_a_freezing_thread_is_told() {
    let dev = queue(1, 1);
    let set = dev.set();
    let held = dev.try_alloc(PLAIN).unwrap();
    let mut waiter = pin!(dev.alloc());
    assert!(poll(waiter.as_mut(), Arc::new(Panics)).is_pending());
    let freezer = thread::spawn({
        let set = set.clone();
        move || drop(set.freeze_blocking())
    });
    while !set.is_frozen() {
        thread::yield_now();
    }
    assert_panics(|| drop(held));
    freezer.join().unwrap();
    assert_eq!(set.in_use(), 0);
}

/// A tag that is dropped while its thread unwinds: one panic, and everybody is told.
#[test]
fn a_tag_dropped_by_a_panic_is_freed() {
    let dev = queue(1, 1);
    let held = dev.try_alloc(PLAIN).unwrap();
    let mut waiter = pin!(dev.alloc());
    assert!(poll(waiter.as_mut(), Arc::new(Panics)).is_pending());
    let engine = catch_unwind(AssertUnwindSafe(|| {
        let _held = held;
        panic!("the engine's panic");
    }));
    let message = engine.unwrap_err();
    assert_eq!(message.downcast_ref(), Some(&"the engine's panic"));
    assert!(block_on(waiter).is_ok());
}

/// Many tags dropped at once: all are freed, whichever waker panics.
#[test]
fn a_dropped_batch_is_freed_whole() {
    let dev = queue(1, 4);
    let batch = dev.try_alloc_batch(4);
    let mut first = pin!(dev.alloc());
    let mut second = pin!(dev.alloc());
    let told = Arc::new(Counts::default());
    assert!(poll(first.as_mut(), Arc::new(Panics)).is_pending());
    assert!(poll(second.as_mut(), told.clone()).is_pending());
    assert_panics(|| drop(batch));
    assert_eq!(dev.set().in_use(), 0);
    assert_eq!(told.0.load(Ordering::Relaxed), 1);
    let stats = dev.set().stats();
    assert_eq!((stats.allocs, stats.frees), (4, 4));
}

/// A waiter that moved puts its first bit back, and that waker panics: the second bit goes back
/// too.
#[test]
fn h25_a_waiter_that_moved_loses_no_tag() {
    let dev = queue(2, 1);
    cpu::set_current_for_thread(Some(0));
    let held = dev.try_alloc(PLAIN).unwrap();
    let mut moves = Box::pin(dev.alloc());
    let mut waits = pin!(dev.alloc());
    let woken = Arc::new(Counts::default());
    assert!(poll(moves.as_mut(), woken.clone()).is_pending());
    assert!(poll(waits.as_mut(), Arc::new(Panics)).is_pending());
    drop(held);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    cpu::set_current_for_thread(Some(1));
    assert_panics(|| poll(moves.as_mut(), woken));
    drop(moves);
    cpu::set_current_for_thread(None);
    for hwq in 0..2 {
        assert!(dev.try_alloc(PLAIN.hw_queue(hwq)).is_ok());
    }
}

/// The waker of a submitter who waits for the thaw.
#[test]
fn a_guard_thaws_although_a_waker_panics() {
    let dev = queue(1, 1);
    let frozen = dev.set().freeze_blocking();
    let mut waiter = pin!(dev.alloc());
    assert!(poll(waiter.as_mut(), Arc::new(Panics)).is_pending());
    assert_panics(|| drop(frozen));
    assert!(!dev.set().is_frozen());
    assert!(block_on(waiter).is_ok());
}

/// The waker of a freezer.
#[test]
fn a_tag_is_freed_although_the_freezers_waker_panics() {
    let dev = queue(1, 2);
    let set = dev.set();
    let tags = dev.try_alloc_batch(2);
    let mut freeze = Box::pin(set.freeze());
    assert!(poll(freeze.as_mut(), Arc::new(Panics)).is_pending());
    assert_panics(|| drop(tags));
    drop(freeze);
    assert!(!set.is_frozen());
    assert_eq!(dev.try_alloc_batch(3).len(), 2);
}
