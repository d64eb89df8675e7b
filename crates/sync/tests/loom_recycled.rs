//! The model of `Recycled`'s count: the shipped file, with the model's atomics.
//!
//! Seen to fail: the Release of who goes relaxed, or the Acquire of the last one.
#![cfg(loom)]

use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, atomic, thread};

/// The words of the model.
mod count_atomic {
    pub(crate) use super::atomic::{AtomicUsize, Ordering};
}

#[path = "../src/recycled/count.rs"]
mod count;

use count::Count;

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};

struct Shared {
    count: Count,
    value: UnsafeCell<Option<u32>>,
}

// SAFETY: the value is read by those who count and written by the last one; that the reads come
// before is what the model checks.
unsafe impl Sync for Shared {}

impl Shared {
    /// Uses the value, and then gives the pointer up; whether it was the last.
    fn use_and_drop(&self) -> bool {
        // SAFETY: a pointer is held, so the value is there.
        assert_eq!(self.value.with(|v| unsafe { *v }), Some(1));
        let last = self.count.less();
        if last {
            // SAFETY: it was the last pointer, and all that the others did came before.
            let dropped = self.value.with_mut(|v| unsafe { (*v).take() });
            assert_eq!(dropped, Some(1), "dropped once");
        }
        last
    }
}

/// Whoever drops the value does so after all that was done by the other pointers, one of which was
/// made of another in its thread.
#[test]
fn the_last_one_sees_what_the_others_did() {
    check("the_last_one_sees_what_the_others_did", UNBOUNDED, || {
        let shared = Arc::new(Shared {
            count: Count::of(1),
            value: UnsafeCell::new(Some(1)),
        });
        let each = |makes_another: bool| {
            shared.count.more().unwrap();
            let shared = shared.clone();
            thread::spawn(move || {
                if !makes_another {
                    return usize::from(shared.use_and_drop());
                }
                shared.count.more().unwrap();
                usize::from(shared.use_and_drop()) + usize::from(shared.use_and_drop())
            })
        };
        let others = [each(false), each(true)];
        let mine = usize::from(shared.use_and_drop());
        let theirs = others.into_iter().map(|t| t.join().unwrap());
        assert_eq!(mine + theirs.sum::<usize>(), 1);
    });
}
