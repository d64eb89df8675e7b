//! Models of hardware queues that are left (`src/hotplug.rs`, D1 to D5, E1 and E2) and of quiescing
//! (`src/quiesce.rs`), driving the shipped set.
//!
//! | weaken | fails |
//! |---|---|
//! | D4, the look at the stand-in | all `h22_*` but `h22_a_drain_against_the_return` |
//! | A2, the light fence | these and `c44_a_waiter` |
//! | P3 asks for freezes and quiesces only | as D4 |
//! | F2, the heavy fence in `close` | `c44_a_waiter` |
//! | E1, the Release in `set_short` | `h22_and_back` |
//! | E2 notifies nobody | the run aborts |
//! | D1 writes the stand-in before it says so in the gate's word | `h22_a_drain_beside_the_leave` |
//! | D2, that of the drain | `h22_a_drain_beside_the_leave` |
//! | D2, both heavy fences | as D4 |
//! | A0 after A3 | `h22_a_slot_that_named_another_queue`, `h22_a_try_of_shared_tags` |
//! | D5 notifies nobody | `h22_a_slot_that_named_another_queue` |

#![cfg(loom)]

use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, cpu, thread};
use inflight_tags::{AllocError, AllocOptions, DrainError, HwQueueOptions, TagSet, Tenant};

const THREE: Bound = Bound {
    quick: Some(3),
    deep: None,
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

/// Two hardware queues; loom has CPUs 0 and 1.
fn set_of(depth: usize, shared: bool) -> (TagSet<()>, Tenant<()>) {
    let set = TagSet::builder().depth(depth).ages(false);
    let set = set
        .hw_queues(HwQueueOptions::new(2).shared_tags(shared))
        .build(|_, _| ())
        .unwrap();
    let queue = set.add_tenant("q").unwrap();
    (set, queue)
}

/// Data that only holders of tags of hardware queue 0 touch, and who has drained it.
struct Guarded(UnsafeCell<u32>);
// SAFETY: the models access the cell only in these two ways, which the drain keeps apart.
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
}

/// A try against a drain (A1 to A3 and D4 against D1 to D3): it gets a tag elsewhere, or the
/// drain waits for it and sees what it did.
fn try_against_drain(shared: bool) {
    // Slots that all queues share begin as those of queue 0.
    let left = usize::from(shared);
    let (set, queue) = set_of(1 + left, shared);
    let data = Guarded::new();
    let submitter = thread::spawn({
        let data = data.clone();
        move || {
            cpu::set_current_for_thread(Some(left));
            let tag = queue.try_alloc().unwrap();
            if tag.hw_queue() == left {
                data.add();
            }
        }
    });
    assert_eq!(set.cpus().offline(left), [left]);
    assert_eq!(set.hw_queues().drain_blocking(left), Ok(()));
    data.add();
    submitter.join().unwrap();
    assert_eq!(set.in_use(), 0);
}

#[test]
fn h22_a_try() {
    check("h22_a_try", THREE, || try_against_drain(false));
}

#[test]
fn h22_a_try_of_shared_tags() {
    check("h22_a_try_of_shared_tags", TWO, || try_against_drain(true));
}

/// D5: a slot that still names the queue that is left, in the hand of somebody who takes it for the
/// other one (A1 to A0) and keeps it: who drains looks again.
#[test]
fn h22_a_slot_that_named_another_queue() {
    check("h22_a_slot_that_named_another_queue", TWO, || {
        let (set, queue) = set_of(1, true);
        drop(
            queue
                .try_alloc_with(AllocOptions::new().hw_queue(1))
                .unwrap(),
        );
        assert_eq!(set.cpus().offline(1), [1]);
        let drainer = thread::spawn({
            let set = set.clone();
            move || set.hw_queues().drain_blocking(1)
        });
        cpu::set_current_for_thread(Some(0));
        let token = queue.try_alloc().unwrap().into_token();
        assert_eq!(drainer.join().unwrap(), Ok(()));
        assert_eq!(set.redeem(token).unwrap().hw_queue(), 0);
    });
}

/// A drain by another thread than the one that leaves, while it leaves.
#[test]
fn h22_a_drain_beside_the_leave() {
    check("h22_a_drain_beside_the_leave", TWO, || {
        let (set, queue) = set_of(1, false);
        let data = Guarded::new();
        let submitter = thread::spawn({
            let data = data.clone();
            move || {
                cpu::set_current_for_thread(Some(0));
                let tag = queue.try_alloc().unwrap();
                if tag.hw_queue() == 0 {
                    data.add();
                }
            }
        });
        let drainer = thread::spawn({
            let set = set.clone();
            move || match set.hw_queues().drain_blocking(0) {
                Ok(()) => data.add(),
                Err(error) => assert!(matches!(error, DrainError::Active { .. })),
            }
        });
        assert_eq!(set.cpus().offline(0), [0]);
        submitter.join().unwrap();
        drainer.join().unwrap();
    });
}

/// A waiter of the queue that is left goes on at the other one.
#[test]
fn h22_a_waiter() {
    check("h22_a_waiter", TWO, || {
        let (set, queue) = set_of(1, false);
        let data = Guarded::new();
        let held = queue
            .try_alloc_with(AllocOptions::new().hw_queue(0))
            .unwrap();
        let waiter = thread::spawn({
            let data = data.clone();
            move || {
                cpu::set_current_for_thread(Some(0));
                let tag = queue.alloc_blocking().unwrap();
                if tag.hw_queue() == 0 {
                    data.add();
                }
            }
        });
        data.add();
        drop(held);
        assert_eq!(set.cpus().offline(0), [0]);
        assert_eq!(set.hw_queues().drain_blocking(0), Ok(()));
        data.add();
        waiter.join().unwrap();
        assert_eq!(set.in_use(), 0);
    });
}

/// What was done after the drain is seen by the owners of the queue's tags after its return.
#[test]
fn h22_and_back() {
    check("h22_and_back", TWO, || {
        let (set, queue) = set_of(1, false);
        let data = Guarded::new();
        let submitter = thread::spawn({
            let data = data.clone();
            move || {
                cpu::set_current_for_thread(Some(0));
                let tag = queue.try_alloc().unwrap();
                if tag.hw_queue() == 0 {
                    data.add();
                }
            }
        });
        assert_eq!(set.cpus().offline(0), [0]);
        assert_eq!(set.hw_queues().drain_blocking(0), Ok(()));
        data.add();
        assert_eq!(set.cpus().online(0), [0]);
        submitter.join().unwrap();
    });
}

/// A drain by another thread than the one that left, and the return (E2): it ends.
#[test]
fn h22_a_drain_against_the_return() {
    check("h22_a_drain_against_the_return", TWO, || {
        let (set, queue) = set_of(1, false);
        let held = queue
            .try_alloc_with(AllocOptions::new().hw_queue(0))
            .unwrap();
        assert_eq!(set.cpus().offline(0), [0]);
        let drainer = thread::spawn({
            let set = set.clone();
            move || set.hw_queues().drain_blocking(0)
        });
        assert_eq!(set.cpus().online(0), [0]);
        assert!(matches!(
            drainer.join().unwrap(),
            Err(DrainError::Active { .. })
        ));
        drop(held);
    });
}

/// A try that begins when the set is quiesced is refused.
#[test]
fn c44_a_try() {
    check("c44_a_try", TWO, || {
        let set = TagSet::builder().depth(1).ages(false);
        let set = set.build(|_, _| ()).unwrap();
        let queue = set.add_tenant("q").unwrap();
        let told = Arc::new(AtomicBool::new(false));
        let submitter = thread::spawn({
            let told = told.clone();
            move || {
                // Ordering: pairs with the store below.
                let told = told.load(Ordering::Acquire);
                match queue.try_alloc() {
                    Ok(_) => assert!(!told),
                    Err(error) => assert_eq!(error, AllocError::Quiesced),
                }
            }
        });
        let quiesced = set.quiesce();
        // Ordering: pairs with the load above.
        told.store(true, Ordering::Release);
        submitter.join().unwrap();
        drop(quiesced);
    });
}

/// A waiter against a quiesce that drains and ends (F1, F2, F3, T1, T2): as against a freeze.
#[test]
fn c44_a_waiter() {
    check("c44_a_waiter", TWO, || {
        let set = TagSet::builder().depth(1).ages(false);
        let set = set.build(|_, _| ()).unwrap();
        let queue = set.add_tenant("q").unwrap();
        let data = Guarded::new();
        let submitter = thread::spawn({
            let data = data.clone();
            move || {
                let _tag = queue.alloc_blocking().unwrap();
                data.add();
            }
        });
        let quiesced = set.quiesce();
        quiesced.drain_blocking();
        data.add();
        drop(quiesced);
        submitter.join().unwrap();
        assert_eq!(set.in_use(), 0);
    });
}
