//! What a set takes of memory, as docs/tags.md states it.
#![cfg(not(any(loom, shuttle, miri)))]

use inflight_sync::percpu::{Backend, Stacks};
use inflight_tags::{HwQueueOptions, TagSet};
use inflight_topology::Topology;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

// Of the calling thread: the harness allocates too.
inflight_sync::thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.set(BYTES.get().wrapping_add(layout.size()));
        // SAFETY: by the contract of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: by the contract of this call.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a thing takes while it lives.
fn bytes<T>(make: impl FnOnce() -> T) -> usize {
    let before = BYTES.get();
    let thing = make();
    let bytes = BYTES.get().wrapping_sub(before);
    drop(thing);
    bytes
}

fn bytes_of(hw_queues: usize, depth: usize) -> usize {
    let set = TagSet::builder().hw_queues(hw_queues).depth(depth);
    bytes(|| set.build(|_, _| 0u64).unwrap())
}

const LINE: usize = 128;
const STACK: usize = 256;

/// A slot of one line and the number of its tenant, and a line for each 32 tags and each 512.
fn tags(n: usize) -> usize {
    n * (LINE + 4) + n / 32 * LINE + n / 512 * LINE
}

/// What else a hardware queue takes, and what a set takes once.
const REST: usize = 3 * 1024;

/// The terms of the formula in docs/tags.md, "Memory".
#[test]
fn memory_is_what_the_page_says() {
    // Whatever is made once in a process.
    bytes_of(1, 8);
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
    let stacks = |n| bytes(|| Stacks::new(Backend::best(), n));
    assert_eq!((stacks(65) - stacks(1)) / 64, STACK);
    assert!(queue - tags(1024) - STACK * cpus <= REST, "{queue}");
    assert!(one - queue - LINE * cpus <= REST, "{}", one - queue);
}

/// A set of 1,024 tags for each hardware queue on a machine of 64 CPUs.
fn bytes_on_64_cpus(hw_queues: usize) -> usize {
    let topology = Topology::synthetic("core:64").unwrap();
    let set = TagSet::builder()
        .topology(&topology)
        .hw_queues(HwQueueOptions::new(hw_queues).max(hw_queues))
        .depth(1024);
    bytes(|| set.build(|_, _| 0u64).unwrap())
}

#[test]
fn memory_on_64_cpus() {
    bytes_of(1, 8);
    // Counts of allocations are by the CPUs that this machine may have, not those of the set's.
    let counts = LINE * inflight_sync::cpu::online();
    for (hw_queues, on_the_page) in [(1, 159), (64, 9_920)] {
        let taken = bytes_on_64_cpus(hw_queues);
        println!("{hw_queues} hardware queues: {taken} bytes, of these {counts} for this machine");
        let known = hw_queues * (tags(1024) + STACK * 64) + counts + 12 * 64;
        assert!(
            (known..known + (hw_queues + 1) * REST).contains(&taken),
            "{taken}"
        );
        let kib = (taken - counts) / 1024;
        assert!(
            kib.abs_diff(on_the_page) <= on_the_page / 50,
            "{kib} KiB, not {on_the_page}"
        );
    }
}

#[test]
fn a_tenant_takes_a_line_for_each_cpu() {
    let set = TagSet::builder().depth(8).build(|_, _| 0u64).unwrap();
    drop(set.add_tenant("first").unwrap());
    let tenant = bytes(|| set.add_tenant("nvme0n1").unwrap());
    let counts = LINE * inflight_sync::cpu::online();
    assert!((counts..counts + 512).contains(&tenant), "{tenant}");
}
