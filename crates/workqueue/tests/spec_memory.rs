//! What waits and queueings that are given up leave behind while an item runs. In a file of its
//! own: the allocator counts for the whole process.
#![cfg(not(any(loom, shuttle, miri)))]

mod support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_workqueue::{DelayedWork, Work};
use std::alloc::{GlobalAlloc, Layout, System};
use std::future::pending;
use std::time::Duration;
use support::{bound, every_kind, held_work, system};

/// Bytes that are allocated. Relaxed: read while nobody else runs.
static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// So often each is begun and given up.
const LOOPS: usize = 5_000;

/// Less than a byte for each would be kept.
fn keeps_nothing(what: &str, each: impl Fn()) {
    (0..LOOPS / 10).for_each(|_| each());
    let before = LIVE.load(Ordering::Relaxed);
    (0..LOOPS).for_each(|_| each());
    let left = LIVE.load(Ordering::Relaxed).saturating_sub(before);
    assert!(left < 8 * LOOPS, "{what} leaves {left} bytes of {LOOPS}");
}

#[test]
fn what_is_given_up_while_an_item_runs_is_not_kept() {
    let sys = system();
    for wq in every_kind(&sys).iter().filter(|wq| wq.name() != "bh") {
        let (work, release, begun) = held_work();
        wq.queue(&work).unwrap();
        begun.wait(1);
        keeps_nothing("flush", || drop(wq.flush()));
        keeps_nothing("timed flush", || {
            let _ = wq.flush_timeout(Duration::ZERO);
        });
        keeps_nothing("drain", || drop(wq.drain()));
        keeps_nothing("flush of a work", || {
            let _ = work.flush_timeout(Duration::ZERO);
        });
        keeps_nothing("cancel_sync", || {
            let _ = work.cancel_sync_timeout(Duration::ZERO);
        });
        let delayed = DelayedWork::new(|| ());
        keeps_nothing("delayed", || {
            wq.queue_delayed(&delayed, Duration::MAX).unwrap();
            assert!(delayed.cancel());
        });
        keeps_nothing("moved", || {
            wq.mod_delayed(&delayed, Duration::from_secs(1 << 20))
                .unwrap();
        });
        keeps_nothing("future", || {
            wq.spawn_future(pending::<()>()).try_cancel();
        });
        keeps_nothing("function", || {
            wq.spawn(|| ()).try_cancel();
        });
        assert!(delayed.cancel());
        release.raise();
        wq.drain_blocking().unwrap();
    }
    // A payload that nobody wants, whose destructor panics with a text.
    std::panic::set_hook(Box::new(|_| ()));
    let wq = bound(&sys);
    let work = Work::new(|| std::panic::panic_any(Bomb));
    keeps_nothing("panicking destructor", || {
        wq.queue(&work).unwrap();
        work.flush_blocking().unwrap();
    });
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a destructor panics");
    }
}
