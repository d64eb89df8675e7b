//! Models of sets that change while they are used, driving the shipped set.
//!
//! Seen to fail: growth without R2, the heavy fence in `publish` (`a_set_grows`). No other
//! weakening has been tried.

#![cfg(loom)]

use inflight_sync::model::{Bound, check};
use inflight_sync::thread;
use inflight_tags::{AllocOptions, TagSet};

const ONE_OR_THREE: Bound = Bound {
    quick: Some(1),
    deep: Some(3),
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

/// A submitter for a hardware queue that goes away meanwhile: it is refused, or the change waits
/// for its tag.
#[test]
fn a_queue_vanishes() {
    check("a_queue_vanishes", TWO, || {
        let set = TagSet::builder().hw_queues(2).depth(1).ages(false);
        let set = set.build(|_, _| ()).unwrap();
        let queue = set.add_tenant("q").unwrap();
        let submitter = thread::spawn({
            let set = set.clone();
            move || {
                if let Ok(tag) = queue.try_alloc_with(AllocOptions::new().hw_queue(1)) {
                    assert_eq!(tag.hw_queue(), 1);
                    assert_eq!(set.hw_queues().len(), 2, "while its tag is held");
                }
            }
        });
        set.set_hw_queues_blocking(1).unwrap();
        submitter.join().unwrap();
        assert_eq!(set.in_use(), 0);
    });
}

/// A waiter gets the tag of a new slot, with the payload that was made for it.
#[test]
fn a_set_grows() {
    check("a_set_grows", ONE_OR_THREE, || {
        let set = TagSet::builder().depth(1).max_depth(2).ages(false);
        let set = set.build(|_, tag| tag).unwrap();
        let queue = set.add_tenant("q").unwrap();
        let held = queue.try_alloc().unwrap();
        let waiter = thread::spawn(move || {
            let tag = queue.alloc_blocking().unwrap();
            assert_eq!(*tag, tag.index());
        });
        set.resize(2).unwrap();
        waiter.join().unwrap();
        drop(held);
    });
}
