//! What is counted, and what comes of it.

use std::time::Duration;

/// What one run showed, after its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Throughput in MiB/s.
    pub mib_s: f64,
    /// Jobs woken for a tag, a second.
    pub wakes_per_s: f64,
    /// Part of the requests that began where the one before ended, as they went to the drive.
    pub sequential: f64,
    /// The longest wait for one tag, in seconds, of large IOs.
    pub longest_wait_s: f64,
    /// The mean wait for one tag, in seconds, of large IOs.
    pub mean_wait_s: f64,
    /// The longest wait for a tag of a small IO, in seconds; 0 if there are none.
    pub small_longest_wait_s: f64,
    /// The mean wait for a tag of small IOs, in seconds.
    pub small_mean_wait_s: f64,
    /// Jain's index over the IOs of equal jobs: 1 if all did as much.
    pub jain: f64,
    /// Large IOs finished.
    pub large_ios: u64,
    /// Small IOs finished.
    pub small_ios: u64,
}

/// Jain's fairness index: 1 if all are equal, 1/n if one has everything.
///
/// ```
/// use inflight_sim::hdd::jain;
/// assert_eq!(jain([3, 3, 3]), 1.0);
/// assert_eq!(jain([9, 0, 0]), 1.0 / 3.0);
/// assert_eq!(jain([]), 1.0, "nobody is treated worse");
/// ```
#[must_use]
pub fn jain(shares: impl IntoIterator<Item = u64>) -> f64 {
    let (mut n, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        let share = share as f64;
        n += 1.0;
        sum += share;
        squares += share * share;
    }
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (n * squares)
}

/// Waits of one kind of IO.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    count: u64,
    sum: Duration,
    pub(super) longest: Duration,
}

impl Waits {
    pub(super) fn add(&mut self, wait: Duration) {
        self.count += 1;
        self.sum += wait;
        self.longest = self.longest.max(wait);
    }

    pub(super) fn mean_s(&self) -> f64 {
        match self.count {
            0 => 0.0,
            n => self.sum.as_secs_f64() / n as f64,
        }
    }
}

/// Counters of a run, cleared when the warm-up is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    /// Acknowledged.
    pub(super) bytes: u64,
    pub(super) wakes: u64,
    pub(super) large: Waits,
    pub(super) small: Waits,
    /// IOs finished, by job.
    pub(super) ios: Vec<u64>,
}
