//! Models of a whole set on the engine that production takes: ids in per-CPU stacks, here those
//! with the flag of `BusyFlag`. The stacks alone are modelled in sbitmap's `loom_local`, waiting on
//! them in `loom_turns_local`; here what a set adds: slots, the gate, shares, a closed set.
//!
//! | weaken | fails |
//! |---|---|
//! | A2, the light fence in `state_after_get`, or F2 | `h24_local_freeze_against_try` |
//! | the fence of the waiter (G3) | `h4_local_waiter_against_put` |
//! | P3 notifies nobody | `h24_local_freeze_against_put` |
//! | P2, the light fence in `is_watched_after_put` | none: the flag of the stack orders the put; argued in `docs/orderings.md` |

#![cfg(loom)]

use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, cpu, thread};
use inflight_tags::{AllocError, Engine, TagSet, Tenant};

const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};
const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};

fn set_of(depth: usize) -> (TagSet<u32>, Tenant<u32>) {
    let set = TagSet::builder().depth(depth).engine(Engine::Local);
    let set = set.ages(false).build(|_, _| 0).unwrap();
    let dev = set.add_tenant("q").unwrap();
    (set, dev)
}

/// A thread that waits, and a put on another CPU, into that CPU's stack.
#[test]
fn h4_local_waiter_against_put() {
    check("h4_local_waiter_against_put", TWO, || {
        let (set, dev) = set_of(1);
        let tag = dev.try_alloc().unwrap();
        let waiter = thread::spawn(move || {
            cpu::set_current_for_thread(Some(1));
            drop(dev.alloc_blocking().unwrap());
        });
        drop(tag);
        waiter.join().unwrap();
        assert_eq!(set.in_use(), 0);
    });
}

/// What one owner wrote into its slot is there for the next, by whichever stack the id went.
#[test]
fn h3_local_slot_to_slot() {
    check("h3_local_slot_to_slot", TWO, || {
        let (set, dev) = set_of(1);
        let add = |dev: &Tenant<u32>| {
            if let Ok(mut tag) = dev.try_alloc() {
                *tag += 1;
                return 1;
            }
            0
        };
        let other = thread::spawn({
            let dev = dev.clone();
            move || {
                cpu::set_current_for_thread(Some(1));
                add(&dev)
            }
        });
        let mine = add(&dev);
        let all = mine + other.join().unwrap();
        assert_eq!(*dev.try_alloc().unwrap(), all);
        assert_eq!(set.in_use(), 0);
    });
}

/// Data that only the freezer and the holders of tags touch; loom reports it if they meet.
struct Guarded(UnsafeCell<u32>);
// SAFETY: the models access the cell only while they hold a tag, or under the set's freeze.
unsafe impl Sync for Guarded {}
// SAFETY: a u32 may move between threads.
unsafe impl Send for Guarded {}

impl Guarded {
    fn add(&self) {
        // SAFETY: see `Guarded`.
        self.0.with_mut(|n| unsafe { *n += 1 });
    }
}

#[test]
fn h24_local_freeze_against_try() {
    check("h24_local_freeze_against_try", ONE, || {
        let (set, dev) = set_of(1);
        let data = Arc::new(Guarded(UnsafeCell::new(0)));
        let submitter = thread::spawn({
            let data = data.clone();
            move || match dev.try_alloc() {
                Ok(_tag) => data.add(),
                Err(error) => assert_eq!(error, AllocError::Frozen),
            }
        });
        let frozen = set.freeze_blocking();
        data.add();
        drop(frozen);
        submitter.join().unwrap();
    });
}

/// The last put wakes who waits for the freeze, from another CPU's stack.
#[test]
fn h24_local_freeze_against_put() {
    check("h24_local_freeze_against_put", ONE, || {
        let (set, dev) = set_of(1);
        let tag = dev.try_alloc().unwrap();
        let holder = thread::spawn(move || {
            cpu::set_current_for_thread(Some(1));
            drop(tag);
        });
        drop(set.freeze_blocking());
        holder.join().unwrap();
        assert_eq!(set.in_use(), 0);
    });
}

#[test]
fn h6_local_close_against_waiter() {
    check("h6_local_close_against_waiter", ONE, || {
        let (set, dev) = set_of(1);
        let tag = dev.try_alloc().unwrap();
        let waiter = thread::spawn(move || dev.alloc_blocking().map(drop));
        set.close();
        assert_eq!(waiter.join().unwrap(), Err(AllocError::Closed));
        drop(tag);
        assert_eq!(set.in_use(), 0);
    });
}
