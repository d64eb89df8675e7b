//! What a set takes of memory, as docs/tags.md states it.
#![cfg(not(any(loom, shuttle, miri)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::percpu::{Backend, Stacks};
use inflight_tags::TagSet;
use std::alloc::{GlobalAlloc, Layout, System};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: by the contract of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: by the contract of this call.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a thing takes while it lives.
fn bytes<T>(make: impl FnOnce() -> T) -> usize {
    let before = BYTES.load(Ordering::Relaxed);
    let thing = make();
    let bytes = BYTES.load(Ordering::Relaxed) - before;
    drop(thing);
    bytes
}

fn bytes_of(hw_queues: usize, depth: usize) -> usize {
    let set = TagSet::builder().hw_queues(hw_queues).depth(depth);
    bytes(|| set.build(|_, _| 0u64).unwrap())
}

/// The terms of the formula in docs/tags.md, "Memory".
#[test]
fn memory_is_what_the_page_says() {
    // Whatever is made once in a process.
    bytes_of(1, 8);
    let line = 128;
    // A slot of one line and the number of its tenant, and a line for each 32 tags and each 512.
    let tags = |n: usize| n * (line + 4) + n / 32 * line + n / 512 * line;
    let (one, two) = (bytes_of(1, 1024), bytes_of(1, 2048));
    assert_eq!(two - one, tags(1024));
    // Several hardware queues have room for twice as many.
    let queue = (bytes_of(4, 1024) - bytes_of(2, 1024)) / 4;
    assert_eq!(
        one - queue,
        (bytes_of(2, 1024) - 4 * queue),
        "what a set has once"
    );
    let cpus = inflight_sync::cpu::online();
    let stack =
        bytes(|| Stacks::new(Backend::best(), 65)) - bytes(|| Stacks::new(Backend::best(), 1));
    assert_eq!(stack / 64, 256, "for each CPU and hardware queue");
    assert!(queue - tags(1024) - 256 * cpus <= 3 * 1024, "{queue}");
    assert!(one - queue - line * cpus <= 3 * 1024, "{}", one - queue);
}
