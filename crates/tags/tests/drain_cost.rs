//! What a drain costs: it looks at each word once, not once for each slot, and asks the allocator
//! for nothing on the way. Alone in its process, for it counts what all threads allocate.
#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_tags::{AllocOptions, DrainError, HwQueueOptions, TagSet};
use inflight_topology::Topology;
use std::alloc::{GlobalAlloc, Layout, System};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: each call is the system's own; counting touches no memory of theirs.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_drain_of_shared_tags_looks_at_each_word_once() {
    let topology = Topology::synthetic("core:2").unwrap();
    let set = TagSet::builder()
        .hw_queues(HwQueueOptions::new(2).shared_tags(true))
        .depth(4_096);
    let set = set.topology(&topology).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let held = dev.try_alloc_batch_with(4_096, AllocOptions::new().hw_queue(1));
    let mut held = held.unwrap();
    assert_eq!(set.cpus().offline(1), [1]);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let none = Duration::ZERO;
    assert_eq!(
        set.hw_queues().drain_timeout(1, none),
        Err(DrainError::TimedOut { hw_queue: 1 })
    );
    held.drain(1..).for_each(drop);
    assert_eq!(
        set.hw_queues().drain_timeout(1, none),
        Err(DrainError::TimedOut { hw_queue: 1 })
    );
    drop(held);
    assert_eq!(set.hw_queues().drain_timeout(1, none), Ok(()));
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert!(allocations < 100, "{allocations} for 4,096 tags");
}
