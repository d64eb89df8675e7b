//! What a queued closure and an idle thread cost in resident memory.

use super::ours::OwnWork;
use super::{Kind, Own, Pool, PoolContender, thread_count};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Bytes, by the growth of the resident set.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// For each closure with 32 bytes captured that waits to run.
    pub queued: f64,
    /// For each thread of the pool, when it has run something and sleeps.
    pub thread: f64,
}

/// Measures one contender. Only in a process that has done nothing else: memory that was used and
/// freed before would be used again.
#[must_use]
pub fn memory_of(contender: &PoolContender, workers: usize) -> Memory {
    const ITEMS: u64 = 200_000;
    let (threads, before) = (thread_count(), resident());
    let pool = (contender.make)(workers);
    let _ = pool.ping(100, Duration::ZERO);
    pool.hold(workers, 0, &mut || ());
    let idle = resident();
    let mut full = 0;
    pool.hold(workers, ITEMS, &mut || full = resident());
    Memory {
        queued: (full.saturating_sub(idle)) as f64 / ITEMS as f64,
        thread: (idle.saturating_sub(before)) as f64
            / thread_count().saturating_sub(threads).max(1) as f64,
    }
}

/// Bytes in memory for each of this many works that are queued and wait. Only in a process that has
/// done nothing else.
///
/// # Panics
///
/// If one of them does not run once.
#[must_use]
pub fn memory_of_queued(works: usize) -> f64 {
    let own = Own::new(Kind::Limited(1));
    let ran = Arc::new(AtomicU64::new(0));
    let works: Vec<_> = (0..works)
        .map(|_| {
            let ran = ran.clone();
            OwnWork::new(move || _ = ran.fetch_add(1, Ordering::Relaxed))
        })
        .collect();
    let open = Arc::new(AtomicBool::new(false));
    own.spawn({
        let open = open.clone();
        move || {
            // Ordering: Acquire, pairs with the store below.
            while !open.load(Ordering::Acquire) {
                thread::sleep(Duration::from_micros(50));
            }
        }
    });
    let before = resident();
    works.iter().for_each(|work| work.queue(&own));
    let queued = resident();
    // Ordering: Release, pairs with the load above.
    open.store(true, Ordering::Release);
    own.flush();
    assert_eq!(ran.load(Ordering::Relaxed), works.len() as u64, "once each");
    queued.saturating_sub(before) as f64 / works.len() as f64
}

/// Bytes of this process that are in memory, its files aside: the program's own text comes in as it
/// is used for the first time, and is no worker's.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}
