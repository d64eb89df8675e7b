//! What a queued closure and an idle thread cost in resident memory.

use super::{PoolContender, thread_count};

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
    const ITEMS: usize = 200_000;
    let (threads, before) = (thread_count(), resident());
    let pool = (contender.make)(workers);
    let _ = pool.ping(100, std::time::Duration::ZERO);
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

/// Bytes of this process that are in memory, its files aside: the program's own text comes in as it
/// is used for the first time, and is no worker's.
pub(super) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}
