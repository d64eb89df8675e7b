//! Models of the end of a set (`PROTOCOL.md`, "Memory", K1 to K7), driving the shipped set.
//!
//! Seen to fail: S5 that stores its state after the turns
//! (`the_last_tag_or_the_last_handle`, `two_tags_and_a_handle`); K2 that adds 1 for a batch
//! (`a_batch_or_the_last_handle`). No other weakening has been tried.

#![cfg(loom)]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, thread};
use inflight_tags::{AllocOptions, Tag, TagSet};

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
    let queue = set.add_queue("q");
    let tags = (0..depth).map(|_| queue.try_alloc(AllocOptions::new()).unwrap());
    let tags = tags.collect();
    (set, tags, payloads)
}

/// A held tag ends while the last handle goes: the payload is dropped once, whoever is first, and
/// the memory is freed (or loom reports a leak).
#[test]
fn the_last_tag_or_the_last_handle() {
    check("the_last_tag_or_the_last_handle", UNBOUNDED, || {
        let (set, tags, payloads) = held(1);
        let holder = thread::spawn(move || drop(tags));
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
