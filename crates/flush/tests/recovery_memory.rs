//! What recovery keeps in memory. In a file of its own: the allocator counts for the whole process.
#![cfg(not(any(loom, shuttle, miri)))]

use inflight_flush::log::{DirStorage, Durability, LogOptions};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

/// Bytes in use now, and the most there were.
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counts are atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const SEGMENT: usize = 4 << 20;
const RECORD: usize = 60_000;

/// Writes a log of three segments and more, and counts the bytes that opening it takes at most.
fn most_bytes(durability: Durability) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let options = || LogOptions::new().segment_size(SEGMENT as u64);
    let (log, _) = options()
        .open(DirStorage::new(folder.path()).unwrap())
        .unwrap();
    let record = vec![7; RECORD];
    let count = 3 * SEGMENT / RECORD + 50;
    for _ in 0..count {
        let lsn = log.append_blocking(&record).unwrap();
        log.commit_blocking(lsn, durability).unwrap();
    }
    assert!(log.segments() >= 4);
    drop(log);
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let mut found = 0;
    let storage = DirStorage::new(folder.path()).unwrap();
    let opened = options().open_with(storage, |record| found += record.payload.len());
    drop(opened.unwrap());
    assert_eq!(found, count * RECORD);
    MOST.load(Ordering::Relaxed) - before
}

/// A log larger than memory is read segment by segment, and no two are there at a time: what may
/// have to be written again is kept of the last one, and not while the next one is read.
#[test]
fn one_segment_is_in_memory_at_a_time() {
    for durability in [Durability::Flushed, Durability::Buffered] {
        let most = most_bytes(durability);
        assert!(most < SEGMENT + SEGMENT / 4, "{durability:?}: {most}");
    }
}
