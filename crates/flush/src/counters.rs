//! The counters of a domain.

use std::fmt;
use std::time::Duration;

/// The number of powers of two of a nanosecond with a bucket; the last one begins at 4.6 minutes.
const BUCKETS: usize = 40;

/// Durations, counted by powers of two.
///
/// ```
/// use inflight_flush::Histogram;
/// use std::time::Duration;
/// let mut flushes = Histogram::default();
/// flushes.record(Duration::from_micros(90));
/// flushes.record(Duration::from_micros(110));
/// assert_eq!(flushes.count(), 2);
/// assert_eq!(flushes.mean(), Duration::from_micros(100));
/// assert_eq!(flushes.max(), Duration::from_micros(110));
/// assert!(flushes.quantile(0.5) >= Duration::from_micros(90));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            total: 0,
            max: 0,
        }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - nanos.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.total = self.total.saturating_add(nanos);
        self.max = self.max.max(nanos);
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all.
    #[must_use]
    pub const fn total(&self) -> Duration {
        Duration::from_nanos(self.total)
    }

    /// Returns the mean, or zero if none was counted.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.total.checked_div(self.count()).unwrap_or(0))
    }

    /// Returns the longest.
    #[must_use]
    pub const fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Returns an upper bound of the duration that `share` (0 to 1) of all do not exceed: at most
    /// twice as long as the exact one, never more than [`max`](Histogram::max).
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (share.clamp(0.0, 1.0) * self.count() as f64).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                let bound = if bucket + 1 == BUCKETS {
                    u64::MAX
                } else {
                    1 << bucket
                };
                return Duration::from_nanos(self.max.min(bound));
            }
        }
        Duration::ZERO
    }

    /// Returns how many were shorter than each power of two of a nanosecond: the bound, and the
    /// count. For exporters; the last bound is infinite.
    ///
    /// ```
    /// use inflight_flush::Histogram;
    /// let mut h = Histogram::default();
    /// h.record(std::time::Duration::from_nanos(5));
    /// assert_eq!(h.cumulative().find(|(_, n)| *n == 1).unwrap().0.unwrap().as_nanos(), 8);
    /// ```
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let mut seen = 0;
        self.buckets.iter().enumerate().map(move |(bucket, count)| {
            seen += count;
            let bound = (bucket + 1 < BUCKETS).then(|| Duration::from_nanos(1 << bucket));
            (bound, seen)
        })
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("mean", &self.mean())
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

/// The counters of a [`FlushDomain`](crate::FlushDomain) since it was made.
///
/// While there are no waiters, `merged == requested() - elided - failed_before - cancelled`: each
/// flush that was asked for is counted in one of the four, also if a step fails or a request
/// leaves.
///
/// ```
/// use inflight_flush::{FlushDomain, MemoryDevice};
/// let domain = FlushDomain::new(MemoryDevice::new(4096));
/// domain.flush_blocking()?;
/// let counters = domain.counters();
/// assert_eq!((counters.requested(), counters.issued, counters.merged), (1, 1, 1));
/// # Ok::<(), inflight_flush::FlushError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counters {
    /// Flushes asked for before data.
    pub requested_pre: u64,
    /// Flushes that data needs after it.
    pub requested_post: u64,
    /// Flushes asked for alone.
    pub requested_empty: u64,
    /// Flushes of the device.
    pub issued: u64,
    /// Flushes that were issued and not carried out, because all their waiters had left.
    pub withdrawn: u64,
    /// Flushes asked for alone that had nothing to flush.
    pub elided: u64,
    /// Requests that came while a flush was in flight, and were not served by it.
    pub joined_behind_running: u64,
    /// The largest number of requests that shared one flush.
    pub max_merged: u64,
    /// The number of requests that a flush served, added up.
    pub merged: u64,
    /// How often a flush was delayed because data was under way.
    pub deferred_by_data: u64,
    /// Flushes issued although data was under way, because a request had waited too long.
    pub forced_by_timeout: u64,
    /// Flushes and durable writes that failed.
    pub errors: u64,
    /// Flushes that data needed after it, and that were not waited for, because the data or the
    /// flush before it failed.
    pub failed_before: u64,
    /// Flushes that were not waited for, because the request left before they were issued.
    pub cancelled: u64,
    /// Data steps started.
    pub data_dispatched: u64,
    /// The durations of flushes.
    pub flush_time: Histogram,
    /// The times that requests waited for their flush, from the call to the report of the flush.
    pub wait_time: Histogram,
}

impl Counters {
    /// Returns the number of all flushes asked for.
    #[must_use]
    pub const fn requested(&self) -> u64 {
        self.requested_pre + self.requested_post + self.requested_empty
    }

    /// Returns how many requests shared a flush, on average; zero before the first flush. A
    /// `try_flush` that finds a flush needed counts as one that it shared with nobody.
    #[must_use]
    pub fn mean_merged(&self) -> f64 {
        if self.issued == 0 {
            0.0
        } else {
            self.merged as f64 / self.issued as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_bounds_and_no_more_than_twice_too_long() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        let mut all: Vec<u64> = (0..1000).map(|n| n * n * 17 + 1).collect();
        for &nanos in &all {
            histogram.record(Duration::from_nanos(nanos));
        }
        all.sort_unstable();
        for share in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let exact = all[((share * 1000.0) as usize).max(1) - 1];
            let said = histogram.quantile(share).as_nanos() as u64;
            assert!(
                said >= exact && said <= exact * 2,
                "{share}: {said} for {exact}"
            );
        }
        let last = histogram.cumulative().last().unwrap();
        assert_eq!(last, (None, 1000));
    }
}
