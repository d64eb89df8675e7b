//! Counts the items that have run, so that each load knows that each of its items ran once.

use crate::machine::process_cpu_time;
use inflight_sync::CachePadded;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How many items have run, and above [`SUM`] the sum of their indices: one locked instruction for
/// an item counts both.
static RAN: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));

/// The lowest bit of the sum.
const SUM: u32 = 24;

/// What [`RAN`] had when the last sample had ended. Held during a sample: one runs at a time.
static LAST: Mutex<u64> = Mutex::new(0);

/// How long a load took.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// From the first item queued to the last one ended.
    pub wall: Duration,
    /// How many CPUs the process used meanwhile.
    pub cpus: f64,
}

/// The items of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items {
    count: u64,
    sum: u64,
}

impl Items {
    /// This many, and each calls [`ran`] with an index of its own, from 0.
    pub(super) fn indexed(count: u64) -> Self {
        let sum = count * count.saturating_sub(1) / 2;
        assert!(count < 1 << 20, "the sum of their indices fits");
        Self { count, sum }
    }

    /// This many, and each calls [`ran`] with 0, because it captures nothing.
    pub(super) fn alike(count: u64) -> Self {
        Self { count, sum: 0 }
    }
}

/// Called by each item.
pub(super) fn ran(index: u64) {
    // Ordering: Release, pairs with the load of the thread that waits for the count.
    RAN.fetch_add(1 + (index << SUM), Ordering::Release);
}

/// How many items of this sample have run.
pub(super) fn ran_so_far() -> u64 {
    // Ordering: Acquire, pairs with `ran`.
    RAN.load(Ordering::Acquire) & ((1 << SUM) - 1)
}

/// Runs `start`, then waits until all items have called [`ran`].
///
/// # Panics
///
/// If other items have run than these, each once, or one of the last sample ran again since.
pub(super) fn until_ran(items: Items, wait: impl Fn(), start: impl FnOnce()) -> Spent {
    let mut last = LAST.lock();
    assert_eq!(
        RAN.swap(0, Ordering::Relaxed),
        *last,
        "an item of the sample before has run since"
    );
    *last = 0;
    let (begin, cpu) = (Instant::now(), process_cpu_time());
    start();
    while ran_so_far() < items.count {
        wait();
    }
    let wall = begin.elapsed();
    let cpus = (process_cpu_time() - cpu).as_secs_f64() / wall.as_secs_f64();
    *last = RAN.load(Ordering::Relaxed);
    let expected = items.count + (items.sum << SUM);
    assert_eq!(*last, expected, "each of {} items ran once", items.count);
    Spent { wall, cpus }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(indices: &[u64]) -> std::thread::Result<Spent> {
        std::panic::catch_unwind(|| {
            until_ran(
                Items::indexed(3),
                || (),
                || indices.iter().copied().for_each(ran),
            )
        })
    }

    #[test]
    fn what_runs_twice_or_late_is_noticed() {
        assert!(sample(&[2, 0, 1]).is_ok());
        assert!(sample(&[0, 1, 1]).is_err(), "2 is missing, 1 came twice");
        assert!(sample(&[0, 1, 2]).is_ok());
        ran(1);
        assert!(sample(&[0, 1, 2]).is_err(), "1 came once more");
    }
}
