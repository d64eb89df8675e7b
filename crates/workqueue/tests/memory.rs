//! What queueing and cancelling leaves behind. In a file of its own: the allocator counts for the
//! whole process.
#![cfg(not(any(loom, shuttle, miri)))]

mod support;

use inflight_sync::Mutex;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_workqueue::{Work, Workqueue};
use std::alloc::{GlobalAlloc, Layout, System};
use support::{one_cpu, plug, refusable};

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

/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What a pool keeps for those that wait next: places for a thousand, and room for other works.
const LEFT: isize = 24 * 1_024;

fn live() -> isize {
    LIVE.load(Ordering::Relaxed) as isize
}

/// Loops, unless `INFLIGHT_STRESS_ITEMS` says otherwise.
fn loops() -> usize {
    let given = std::env::var("INFLIGHT_STRESS_ITEMS").ok();
    given.map_or(100_000, |given| given.parse().expect("a number"))
}

/// Queues and cancels, with other works waiting before and behind.
fn queue_and_cancel(wq: &Workqueue, works: &[Work], loops: usize) {
    let mut rng = fastrand::Rng::with_seed(1);
    for n in 0..loops {
        let work = &works[rng.usize(..works.len())];
        if n % 2 == 0 {
            let _ = wq.queue_on(0, work).unwrap();
        } else {
            work.cancel();
        }
    }
}

/// However often works are queued and cancelled while no worker comes to clear up, what is kept
/// depends on how many wait; and when a long list is gone so is its memory.
#[test]
fn cancelled_entries_leave_nothing() {
    let _alone = ALONE.lock();
    let (sys, _faults) = refusable(one_cpu().sampling(false));
    for limit in [1, 1_024] {
        let wq = sys.workqueue("w").bound().max_active(limit);
        let wq = wq.build().unwrap();
        let works: Vec<_> = (0..200).map(|_| Work::new(|| ())).collect();
        let open = plug(&wq);
        queue_and_cancel(&wq, &works, 2_000);
        let before = live();
        queue_and_cancel(&wq, &works, loops());
        let grown = live() - before;
        assert!(grown < LEFT, "{grown} bytes more for {} loops", loops());
        // A closure each, which go with their cancel.
        let before = live();
        for _ in 0..loops() {
            assert!(wq.spawn_on(0, || ()).try_cancel());
        }
        let grown = live() - before;
        assert!(grown < LEFT, "{grown} bytes more for {} closures", loops());
        for work in &works {
            work.cancel();
        }
        // A long list, and none any more.
        let before = live();
        let many: Vec<_> = (0..loops()).map(|_| Work::new(|| ())).collect();
        for work in &many {
            assert!(wq.queue_on(0, work).unwrap().is_queued());
        }
        for work in &many {
            work.cancel();
        }
        drop(many);
        let grown = live() - before;
        assert!(
            grown < LEFT,
            "{grown} bytes of a list of {} are kept",
            loops()
        );
        open.raise();
        wq.flush_blocking().unwrap();
        assert_eq!(wq.stats().in_flight(), 0);
    }
}

/// Queues that have gone leave little, in the pools too that they had in common with others.
#[test]
fn queues_leave_little() {
    let _alone = ALONE.lock();
    let (sys, _faults) = refusable(one_cpu().sampling(false));
    let stays = sys.workqueue("stays").bound().build().unwrap();
    let many = |queues: usize| {
        let name = |n| format!("queue {n}");
        let build = |n| sys.workqueue(name(n)).bound().build().unwrap();
        let queues: Vec<_> = (0..queues).map(build).collect();
        let run = |wq: &Workqueue| assert!(wq.spawn_on(0, || ()).wait().is_ok());
        queues.iter().for_each(run);
        run(&stays);
    };
    // With the feature `metrics` the counts of the first 128 stay.
    many(200);
    let before = live();
    many(2_000);
    // A queue that is made finds out which have gone.
    many(1);
    let grown = live() - before;
    // The lists of queues keep places of a few bytes.
    assert!(grown < 2_000 * 32, "{grown} bytes of 2,000 queues are kept");
}
