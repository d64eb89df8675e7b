//! What is counted while a run goes on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Latencies in nanoseconds, three digits exact.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        // Why the bounds: one nanosecond to one hour covers every latency; longer ones count as
        // an hour.
        let bounds = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        Self(bounds.expect("constant bounds that hdrhistogram documents as valid"))
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        self.0
            .saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0
            .add(&other.0)
            .expect("all histograms have the same bounds");
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that a share of `quantile` of all stays below or meets.
    pub(crate) fn micros_at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1000.0
    }

    pub(crate) fn max_micros(&self) -> f64 {
        self.0.max() as f64 / 1000.0
    }
}

/// How a job came by its completions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reaping {
    /// How often its thread slept until something came back.
    pub(crate) sleeps: u64,
    /// Requests it took off its own ring; none with psync, where workers see them.
    pub(crate) reaped: u64,
    /// Of those, how many it found without having slept for them.
    pub(crate) reaped_awake: u64,
}

impl Reaping {
    pub(crate) fn add(&mut self, other: Self) {
        self.sleeps += other.sleeps;
        self.reaped += other.reaped;
        self.reaped_awake += other.reaped_awake;
    }
}

/// What one job counted; its own until it is done.
#[derive(Clone, Debug)]
pub(crate) struct JobStats {
    /// One entry for each block.
    pub(crate) read_lat: Latencies,
    pub(crate) write_lat: Latencies,
    pub(crate) sync_lat: Latencies,
    /// From the wish for a block's first tag until it has its last, one entry for each transfer.
    pub(crate) tag_wait: Latencies,
    pub(crate) reaping: Reaping,
    /// Requests, of which a split block needs several.
    pub(crate) requests: u64,
    pub(crate) intact: u64,
    pub(crate) never_written: u64,
    pub(crate) verify_errors: u64,
}

impl JobStats {
    pub(crate) fn new() -> Self {
        Self {
            read_lat: Latencies::new(),
            write_lat: Latencies::new(),
            sync_lat: Latencies::new(),
            tag_wait: Latencies::new(),
            reaping: Reaping::default(),
            requests: 0,
            intact: 0,
            never_written: 0,
            verify_errors: 0,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.read_lat.add(&other.read_lat);
        self.write_lat.add(&other.write_lat);
        self.sync_lat.add(&other.sync_lat);
        self.tag_wait.add(&other.tag_wait);
        self.reaping.add(other.reaping);
        self.requests += other.requests;
        self.intact += other.intact;
        self.never_written += other.never_written;
        self.verify_errors += other.verify_errors;
    }

    /// Forgets how fast it went, and keeps what was found wrong.
    pub(crate) fn forget_speed(&mut self) {
        *self = Self {
            intact: self.intact,
            never_written: self.never_written,
            verify_errors: self.verify_errors,
            ..Self::new()
        };
    }

    /// Blocks read and written.
    pub(crate) fn blocks(&self) -> u64 {
        self.read_lat.count() + self.write_lat.count()
    }
}

/// Blocks done so far, for the progress bar. One per job, on its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Live {
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Live {
    // Ordering: Relaxed throughout, the numbers are only looked at.
    pub(crate) fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}

/// The mean and the peak of a number looked at now and then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Samples {
    sum: u64,
    count: u64,
    peak: u64,
}

impl Samples {
    pub(crate) fn take(&mut self, value: u64) {
        self.sum += value;
        self.count += 1;
        self.peak = self.peak.max(value);
    }

    /// None if nobody looked.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// None if nobody looked.
    pub(crate) fn peak(&self) -> Option<u64> {
        (self.count > 0).then_some(self.peak)
    }
}

/// CPU time this process has used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTime {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl CpuTime {
    /// Up to now; zero if the system does not say.
    pub(crate) fn now() -> Self {
        getrusage(UsageWho::RUSAGE_SELF).map_or_else(
            |_| Self::default(),
            |usage| Self {
                user: duration(usage.user_time()),
                system: duration(usage.system_time()),
            },
        )
    }

    pub(crate) fn since(self, start: Self) -> Self {
        Self {
            user: self.user.saturating_sub(start.user),
            system: self.system.saturating_sub(start.system),
        }
    }
}

fn duration(time: TimeVal) -> Duration {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec()).unwrap_or(0))
}

/// The largest throughput divided by the smallest; none if a job got nothing done.
pub(crate) fn spread(blocks: impl Iterator<Item = u64> + Clone) -> Option<f64> {
    let (most, least) = (blocks.clone().max()?, blocks.min()?);
    (least > 0).then(|| most as f64 / least as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut latencies = Latencies::new();
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        for (quantile, expected) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
            let found = latencies.micros_at(quantile);
            assert!(
                (found - expected).abs() <= expected * 0.001,
                "{quantile}: {found}"
            );
        }
        assert!((latencies.max_micros() - 1000.0).abs() <= 1.0);
    }

    #[test]
    fn an_absurd_latency_is_counted_and_does_not_panic() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::ZERO);
        latencies.record(Duration::MAX);
        assert_eq!(latencies.count(), 2);
    }

    #[test]
    fn spread_is_max_over_min() {
        assert_eq!(spread([30, 10, 20].into_iter()), Some(3.0));
        assert_eq!(spread([5].into_iter()), Some(1.0));
        assert_eq!(spread([5, 0].into_iter()), None);
        assert_eq!(spread(std::iter::empty()), None);
    }

    #[test]
    fn samples_give_mean_and_peak() {
        let mut samples = Samples::default();
        assert_eq!((samples.mean(), samples.peak()), (None, None));
        [1, 2, 6].into_iter().for_each(|value| samples.take(value));
        assert_eq!((samples.mean(), samples.peak()), (Some(3.0), Some(6)));
    }

    #[test]
    fn adding_jobs_adds_everything() {
        let mut one = JobStats::new();
        one.read_lat.record(Duration::from_micros(3));
        one.write_lat.record(Duration::from_micros(4));
        (one.requests, one.verify_errors) = (5, 7);
        let mut sum = JobStats::new();
        sum.add(&one);
        sum.add(&one);
        assert_eq!((sum.blocks(), sum.requests, sum.verify_errors), (4, 10, 14));
    }
}
