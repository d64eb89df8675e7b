//! Models of freezing (`src/freeze/`, A1 to A3, F1 to F3, P1 to P3, T1 and T2, B1 and B2),
//! driving the shipped set.
//!
//! Below, "all" are the models in which a submitter meets a freezer: `h24_try`, `h24_blocking`,
//! `h24_task`, `h24_sleeper`, `h24_batch`; "most" are these without `h24_batch`.
//! `h24_batch_one_by_one` repeats what `h24_try` does.
//!
//! | weaken | fails |
//! |---|---|
//! | A2, the light fence in `admits` | all |
//! | F2, the heavy fence in `FrozenGuard::raise` | all |
//! | P2, the light fence in `is_watched_after_put` | none: `SbitmapQueue::put` has a full fence of its own |
//! | P2 and that fence | all; with P2 kept, all but `h24_sleeper` pass |
//! | P3 notifies nobody | all |
//! | T1, the Release in `lower`, or its partner in `is_closed` | all |
//! | T2 notifies nobody, or before T1 | `h24_blocking`, `h24_task`, `h24_sleeper` |
//! | T1 thaws with another guard alive | `h24_two_freezers` |
//! | B1 loses the bit, or puts it without P3 | most |
//! | a woken sleeper skips A2 and A3 | `h24_sleeper` |
//! | a batch skips A2 and A3, or is not put back | `h24_batch` |
//! | a waiter that moved keeps the old bit | `h25_moving` |

#![cfg(loom)]

use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, block_on, cpu, thread};
use inflight_tags::{AllocError, AllocOptions, TagSet, Tenant};
use std::future::Future;

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};
const THREE: Bound = Bound {
    quick: Some(3),
    deep: None,
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};
const ONE_OR_THREE: Bound = Bound {
    quick: Some(1),
    deep: Some(3),
};
/// For the model of three threads and two bitmaps, which runs over 10 s at two.
const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};

fn set_of(depth: usize) -> (TagSet<()>, Tenant<()>) {
    let set = TagSet::builder()
        .depth(depth)
        .ages(false)
        .build(|_, _| ())
        .unwrap();
    let queue = set.add_tenant("q").unwrap();
    (set, queue)
}

/// Data that only the freezer and the holders of tags touch. That their accesses never meet is
/// what a freeze is for; loom reports it if they do.
struct Guarded(UnsafeCell<u32>);
// SAFETY: the models access the cell only while they hold all tags of a set, or under its freeze.
unsafe impl Sync for Guarded {}
// SAFETY: a u32 may move between threads.
unsafe impl Send for Guarded {}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Self(UnsafeCell::new(0)))
    }

    fn add(&self) {
        // SAFETY: see `Guarded`.
        self.0.with_mut(|n| unsafe { *n += 1 });
    }

    fn get(&self) -> u32 {
        // SAFETY: see `Guarded`.
        self.0.with(|n| unsafe { *n })
    }
}

/// A try against a freeze (A1 to A3 against F1 to F3): the submitter is refused, or the freezer
/// waits for it and sees what it did.
#[test]
fn h24_try() {
    check("h24_try", UNBOUNDED, || {
        let (set, queue) = set_of(1);
        let data = Guarded::new();
        let submitter = thread::spawn({
            let data = data.clone();
            move || match queue.try_alloc() {
                Ok(_tag) => data.add(),
                Err(error) => assert_eq!(error, AllocError::Frozen),
            }
        });
        let frozen = set.freeze_blocking();
        assert_eq!(set.in_use(), 0, "a bit that is only being tried is no tag");
        data.add();
        drop(frozen);
        submitter.join().unwrap();
        assert!((1..=2).contains(&data.get()));
    });
}

/// A waiting submitter against freeze and thaw (B1 and B2 against T1 and T2): it gets its tag in
/// the end, never under the freeze, and sees what was done under it.
#[test]
fn h24_blocking() {
    check("h24_blocking", THREE, || {
        let (set, queue) = set_of(1);
        let data = Guarded::new();
        let submitter = thread::spawn({
            let data = data.clone();
            move || {
                let _tag = queue.alloc_blocking().unwrap();
                data.add();
            }
        });
        let frozen = set.freeze_blocking();
        data.add();
        drop(frozen);
        submitter.join().unwrap();
        assert_eq!(data.get(), 2);
        assert_eq!(set.in_use(), 0);
    });
}

/// The same as a task.
#[test]
fn h24_task() {
    check("h24_task", THREE, || {
        let (set, queue) = set_of(1);
        let data = Guarded::new();
        let submitter = thread::spawn({
            let data = data.clone();
            move || {
                let _tag = block_on(queue.alloc()).unwrap();
                data.add();
            }
        });
        let frozen = block_on(set.freeze());
        data.add();
        drop(frozen);
        submitter.join().unwrap();
        assert_eq!(data.get(), 2);
    });
}

/// A sleeper in the bitmap's queue when the freeze begins, woken by the last put: it puts the bit
/// back and waits for the thaw; the freezer is told of the second put too.
#[test]
fn h24_sleeper() {
    check("h24_sleeper", ONE_OR_THREE, || {
        let (set, queue) = set_of(1);
        let data = Guarded::new();
        let held = queue.try_alloc().unwrap();
        let sleeper = thread::spawn({
            let (data, queue) = (data.clone(), queue.clone());
            move || {
                let _tag = queue.alloc_blocking().unwrap();
                data.add();
            }
        });
        let freezer = thread::spawn({
            let (set, data) = (set.clone(), data.clone());
            move || {
                let _frozen = set.freeze_blocking();
                data.add();
            }
        });
        data.add();
        drop(held);
        sleeper.join().unwrap();
        freezer.join().unwrap();
        assert_eq!(data.get(), 3);
        assert_eq!(set.in_use(), 0);
    });
}

/// Two freezes at once: both return, and the set is thawed only after both.
#[test]
fn h24_two_freezers() {
    check("h24_two_freezers", TWO, || {
        let (set, queue) = set_of(1);
        let other = thread::spawn({
            let (set, queue) = (set.clone(), queue.clone());
            move || {
                let _frozen = set.freeze_blocking();
                let refused = queue.try_alloc().unwrap_err();
                assert_eq!(refused, AllocError::Frozen);
            }
        });
        let frozen = set.freeze_blocking();
        let refused = queue.try_alloc().unwrap_err();
        assert_eq!(refused, AllocError::Frozen);
        drop(frozen);
        other.join().unwrap();
        assert!(queue.try_alloc().is_ok());
    });
}

/// A batch of two against a freeze. How many of them there were.
fn batch_meets_freezer(set: &TagSet<()>, queue: Tenant<()>, options: AllocOptions) -> usize {
    let data = Guarded::new();
    let submitter = thread::spawn({
        let data = data.clone();
        move || {
            let tags = queue.try_alloc_batch_with(2, options).unwrap_or_default();
            if !tags.is_empty() {
                data.add();
            }
            tags.len()
        }
    });
    let frozen = set.freeze_blocking();
    data.add();
    drop(frozen);
    let got = submitter.join().unwrap();
    assert_eq!(set.in_use(), 0);
    got
}

/// A batch that comes from the bitmap at once: all of it, or none.
#[test]
fn h24_batch() {
    check("h24_batch", TWO, || {
        let (set, queue) = set_of(2);
        let got = batch_meets_freezer(&set, queue, AllocOptions::new().hw_queue(0));
        assert!(got == 0 || got == 2);
    });
}

/// A batch that is taken one by one: what it has when the freeze begins.
#[test]
fn h24_batch_one_by_one() {
    check("h24_batch_one_by_one", TWO, || {
        let (set, queue) = set_of(2);
        assert!(batch_meets_freezer(&set, queue, AllocOptions::new()) <= 2);
    });
}

/// A waiter that was woken for a bit of one hardware queue and runs on the CPU of another (H25): it
/// takes a tag there, and the bit it leaves reaches the waiter behind it.
#[test]
fn h25_moving() {
    check("h25_moving", ONE, || {
        let set = TagSet::builder()
            .hw_queues(2)
            .depth(1)
            .ages(false)
            .build(|_, _| ())
            .unwrap();
        let queue = set.add_tenant("q").unwrap();
        let pinned = AllocOptions::new().hw_queue(0);
        let held = queue.try_alloc_with(pinned).unwrap();
        let second = thread::spawn({
            let queue = queue.clone();
            move || drop(queue.alloc_blocking_with(pinned).unwrap())
        });
        let holder = thread::spawn(move || drop(held));
        // This task is polled on CPU 0 first and on CPU 1 from then on.
        cpu::set_current_for_thread(Some(0));
        let mut first = std::pin::pin!(queue.alloc());
        let tag = block_on(std::future::poll_fn(|cx| {
            let polled = first.as_mut().poll(cx);
            cpu::set_current_for_thread(Some(1));
            polled
        }));
        let tag = tag.unwrap();
        // The tag is kept: the second waiter must not need it if it is of the other hardware queue.
        if tag.hw_queue() == 0 {
            drop(tag);
            second.join().unwrap();
        } else {
            second.join().unwrap();
            drop(tag);
        }
        holder.join().unwrap();
        assert_eq!(set.in_use(), 0);
    });
}
