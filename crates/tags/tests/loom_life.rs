//! Models of the end of a set (`PROTOCOL.md`, "Memory", K1 to K7), driving the shipped set.
//!
//! Seen to fail: S5 that stores its state after the uses
//! (`the_last_tag_or_the_last_handle`, `two_tags_and_a_handle`); K2 that adds 1 for a batch
//! (`a_batch_or_the_last_handle`); K1 without its Release, K4 and K6 without their Acquire
//! (`the_last_tag_or_the_last_handle`); K5 or K7 without Acquire or Release (`the_last_*_after_*`);
//! K2 without its fence (`an_ended_tag_and_one_that_lives_on`).

#![cfg(loom)]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, thread};
use inflight_tags::{Tag, TagSet};

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(4),
};

/// Counts what is dropped.
struct Counted(Arc<AtomicUsize>);
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A set whose tags are all held, and how many payloads have been dropped.
fn held(depth: usize) -> (TagSet<Counted>, Vec<Tag<Counted>>, Arc<AtomicUsize>) {
    let payloads = Arc::new(AtomicUsize::new(0));
    let set = TagSet::builder().depth(depth).ages(false).build({
        let payloads = payloads.clone();
        move |_, _| Counted(payloads.clone())
    });
    let set = set.unwrap();
    let queue = set.add_tenant("q").unwrap();
    let tags = (0..depth).map(|_| queue.try_alloc().unwrap());
    let tags = tags.collect();
    (set, tags, payloads)
}

/// A held tag ends while the last handle goes: the payload is dropped once, whoever is first, after
/// its last use, and the memory is freed (or loom reports a leak).
#[test]
fn the_last_tag_or_the_last_handle() {
    check("the_last_tag_or_the_last_handle", UNBOUNDED, || {
        let (set, mut tags, payloads) = held(1);
        let holder = thread::spawn(move || {
            let _used: &mut Counted = &mut tags[0];
            drop(tags);
        });
        drop(set);
        holder.join().unwrap();
        assert_eq!(payloads.load(Ordering::Relaxed), 1);
        assert_eq!(Arc::strong_count(&payloads), 1, "the set is freed");
    });
}

/// Two tags end on two threads while the last handle goes.
#[test]
fn two_tags_and_a_handle() {
    check("two_tags_and_a_handle", TWO, || {
        let (set, mut tags, payloads) = held(2);
        let other = tags.pop();
        let holder = thread::spawn(move || drop(other));
        let second = thread::spawn(move || drop(tags));
        drop(set);
        holder.join().unwrap();
        second.join().unwrap();
        assert_eq!(payloads.load(Ordering::Relaxed), 2);
        assert_eq!(Arc::strong_count(&payloads), 1, "the set is freed");
    });
}

/// Another tag lives on: the payload of the one that has ended does not wait for it.
#[test]
fn an_ended_tag_and_one_that_lives_on() {
    check("an_ended_tag_and_one_that_lives_on", TWO, || {
        let (set, mut tags, payloads) = held(2);
        let ended = tags.pop();
        let holder = thread::spawn(move || drop(ended));
        drop(set);
        holder.join().unwrap();
        assert_eq!(payloads.load(Ordering::Relaxed), 1);
        drop(tags);
        assert_eq!(payloads.load(Ordering::Relaxed), 2);
        assert_eq!(Arc::strong_count(&payloads), 1, "the set is freed");
    });
}

/// What a payload writes when it is dropped.
struct Cell(UnsafeCell<bool>);

// SAFETY: the models write it in the payload's drop and read it afterwards; that this is an order
// is what they check.
unsafe impl Sync for Cell {}
// SAFETY: a bool may move between threads.
unsafe impl Send for Cell {}

struct Dying(Arc<Cell>);
impl Drop for Dying {
    fn drop(&mut self) {
        // SAFETY: see `Cell`.
        self.0.0.with_mut(|dropped| unsafe { *dropped = true });
    }
}

/// Goes with the set's closure.
struct Mourner(Vec<Arc<Cell>>);
impl Drop for Mourner {
    fn drop(&mut self) {
        for cell in &self.0 {
            // SAFETY: see `Cell`.
            assert!(cell.0.with(|dropped| unsafe { *dropped }));
        }
    }
}

/// Whoever is last frees the set, with the closure, after all payloads are dropped by others.
#[test]
fn the_last_one_comes_after_the_others() {
    check("the_last_one_comes_after_the_others", TWO, || {
        let cells: Vec<_> = (0..2)
            .map(|_| Arc::new(Cell(UnsafeCell::new(false))))
            .collect();
        let mourner = Mourner(cells);
        let set = TagSet::builder().depth(2).ages(false);
        let set = set.build(move |_, tag| Dying(mourner.0[tag].clone()));
        let set = set.unwrap();
        let queue = set.add_tenant("q").unwrap();
        let mut tags = queue.try_alloc_batch(2);
        drop(queue);
        let other = tags.pop();
        let holder = thread::spawn(move || drop(other));
        let second = thread::spawn(move || drop(tags));
        drop(set);
        holder.join().unwrap();
        second.join().unwrap();
    });
}

/// The same of one tag, and a payload that goes with the last handle.
#[test]
fn the_last_of_two_comes_after_the_other() {
    check("the_last_of_two_comes_after_the_other", UNBOUNDED, || {
        let cells: Vec<_> = (0..2)
            .map(|_| Arc::new(Cell(UnsafeCell::new(false))))
            .collect();
        let mourner = Mourner(cells);
        let set = TagSet::builder().depth(2).ages(false);
        let set = set.build(move |_, tag| Dying(mourner.0[tag].clone()));
        let set = set.unwrap();
        let tag = set.add_tenant("q").unwrap().try_alloc().unwrap();
        let holder = thread::spawn(move || drop(tag));
        drop(set);
        holder.join().unwrap();
    });
}

/// As `two_tags_and_a_handle`, but one thread frees both together.
#[test]
fn a_batch_or_the_last_handle() {
    check("a_batch_or_the_last_handle", UNBOUNDED, || {
        let (set, tags, payloads) = held(2);
        let holder = thread::spawn(move || Tag::free_batch(tags));
        drop(set);
        holder.join().unwrap();
        assert_eq!(payloads.load(Ordering::Relaxed), 2);
        assert_eq!(Arc::strong_count(&payloads), 1, "the set is freed");
    });
}
