//! What queueing allocates. In a file of its own: the allocator counts for the whole process.
#![cfg(not(any(loom, shuttle, miri)))]

mod support;

use inflight_workqueue::Work;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use support::{bound, system};

inflight_sync::thread_local! {
    #[allow(clippy::missing_const_for_thread_local)]
    static ALLOCATIONS: Cell<usize> = Cell::new(0);
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the count is a thread-local without
// a destructor, so it can be used at any time.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// By this thread.
fn allocations(f: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    f();
    ALLOCATIONS.with(Cell::get) - before
}

const MANY: usize = 1_000;

/// Works allocate when they are made, and never when they are queued, the first time neither. What
/// waits is kept in pieces of 64 entries.
#[test]
fn queueing_a_work_allocates_nothing() {
    let sys = system();
    let wq = bound(&sys);
    let once: Vec<_> = (0..MANY).map(|_| Work::new(|| ())).collect();
    let repeating = (0..MANY).map(|_| Work::repeating("ends", || ControlFlow::Break(())));
    for works in [once, repeating.collect()] {
        let made = allocations(|| {
            for work in &works {
                wq.queue_on(0, work).unwrap();
            }
        });
        wq.flush_blocking().unwrap();
        assert!(made < MANY / 10, "{made} by {MANY} works");
    }
}

/// A function that is spawned is one allocation, and none once as many have come to their end as
/// are under way, whoever drops the last handle. What waits is kept in pieces of 64 entries.
#[test]
fn spawning_allocates_nothing_in_the_long_run() {
    /// Few enough to be kept.
    const SOME: usize = 500;
    let sys = system();
    let wq = bound(&sys);
    let mut handles = Vec::with_capacity(SOME);
    for keeps_handles in [false, true] {
        let mut round = || {
            let made = allocations(|| {
                for n in 0..SOME {
                    let handle = wq.spawn_on(0, move || n);
                    if keeps_handles {
                        handles.push(handle);
                    }
                }
            });
            wq.flush_blocking().unwrap();
            handles.clear();
            made
        };
        let first = round();
        assert!(first < SOME + SOME / 10, "{first} by {SOME} functions");
        let made: usize = (0..20).map(|_| round()).skip(10).sum();
        if inflight_sync::blocks::CACHED > 0 {
            assert!(made < 10 * SOME / 50, "{made} by {} functions", 10 * SOME);
        }
    }
}
