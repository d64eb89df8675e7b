//! Counters and gauges for the `metrics` facade.

use crate::counters::Counters;
use crate::domain::FlushDomain;
use crate::log::{Log, LogCounters};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use std::time::Duration;

type Counter<C> = (&'static str, Unit, &'static str, fn(&C) -> u64);
type Gauge<C> = (&'static str, Unit, &'static str, fn(&C) -> f64);

const DOMAIN: [Counter<Counters>; 11] = [
    (
        "inflight_flush_requested_total",
        Unit::Count,
        "flushes asked for",
        |c| c.requested(),
    ),
    (
        "inflight_flush_issued_total",
        Unit::Count,
        "flushes issued to the device",
        |c| c.issued,
    ),
    (
        "inflight_flush_merged_total",
        Unit::Count,
        "flushes asked for that were served by an issued one",
        |c| c.merged,
    ),
    (
        "inflight_flush_elided_total",
        Unit::Count,
        "flushes asked for that had nothing to flush",
        |c| c.elided,
    ),
    (
        "inflight_flush_cancelled_total",
        Unit::Count,
        "flushes asked for and given up: the caller left, or an earlier step failed",
        |c| c.cancelled + c.failed_before,
    ),
    (
        "inflight_flush_withdrawn_total",
        Unit::Count,
        "flushes issued and not carried out, because no request waited for them",
        |c| c.withdrawn,
    ),
    (
        "inflight_flush_errors_total",
        Unit::Count,
        "flushes and durable writes that failed",
        |c| c.errors,
    ),
    (
        "inflight_flush_deferred_total",
        Unit::Count,
        "times a flush was delayed because data was under way",
        |c| c.deferred_by_data,
    ),
    (
        "inflight_flush_forced_total",
        Unit::Count,
        "flushes issued although data was under way, because a request had waited too long",
        |c| c.forced_by_timeout,
    ),
    (
        "inflight_flush_device_microseconds_total",
        Unit::Microseconds,
        "time in flushes of the device",
        |c| micros(c.flush_time.total()),
    ),
    (
        "inflight_flush_wait_microseconds_total",
        Unit::Microseconds,
        "time that callers waited for flushes, added up",
        |c| micros(c.wait_time.total()),
    ),
];

const DOMAIN_LEVELS: [Gauge<Counters>; 2] = [
    (
        "inflight_flush_max_merged",
        Unit::Count,
        "the largest number of requests that shared a flush",
        |c| c.max_merged as f64,
    ),
    (
        "inflight_flush_longest_seconds",
        Unit::Seconds,
        "the longest flush of the device",
        |c| c.flush_time.max().as_secs_f64(),
    ),
];

const LOG: [Counter<LogCounters>; 13] = [
    (
        "inflight_log_records_total",
        Unit::Count,
        "records appended",
        |c| c.records,
    ),
    (
        "inflight_log_bytes_total",
        Unit::Bytes,
        "bytes of records appended",
        |c| c.bytes,
    ),
    (
        "inflight_log_commits_total",
        Unit::Count,
        "commits that did not find their record durable already",
        |c| c.commits,
    ),
    (
        "inflight_log_buffers_total",
        Unit::Count,
        "buffers written",
        |c| c.buffers,
    ),
    (
        "inflight_log_flushes_total",
        Unit::Count,
        "flushes after commits",
        |c| c.flushes + c.flushes_alone,
    ),
    (
        "inflight_log_fua_writes_total",
        Unit::Count,
        "durable writes in place of a flush",
        |c| c.fua_writes,
    ),
    (
        "inflight_log_flushes_before_total",
        Unit::Count,
        "flushes before a buffer",
        |c| c.flushes_before,
    ),
    (
        "inflight_log_flushes_of_full_segments_total",
        Unit::Count,
        "flushes of full segments",
        |c| c.flushes_of_full_segments,
    ),
    (
        "inflight_log_failed_creations_total",
        Unit::Count,
        "attempts to make a segment that failed",
        |c| c.failed_creations,
    ),
    (
        "inflight_log_failed_removals_total",
        Unit::Count,
        "attempts to remove a segment that failed",
        |c| c.failed_removals,
    ),
    (
        "inflight_log_grouped_total",
        Unit::Count,
        "commits served by a group",
        |c| c.grouped,
    ),
    (
        "inflight_log_delays_total",
        Unit::Count,
        "times a leader waited for others",
        |c| c.delays,
    ),
    (
        "inflight_log_wait_microseconds_total",
        Unit::Microseconds,
        "time in commits, added up",
        |c| micros(c.wait_time.total()),
    ),
];

const LOG_LEVELS: [Gauge<LogCounters>; 2] = [
    (
        "inflight_log_max_group",
        Unit::Count,
        "the largest number of commits in one group",
        |c| c.max_group as f64,
    ),
    (
        "inflight_log_longest_flush_seconds",
        Unit::Seconds,
        "the longest flush or durable write",
        |c| c.flush_time.max().as_secs_f64(),
    ),
];

const POISONED: &str = "inflight_flush_poisoned";
const LOG_POISONED: &str = "inflight_log_poisoned";
const SEGMENTS: &str = "inflight_log_segments";

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn record<C>(counters: &C, all: &[Counter<C>], levels: &[Gauge<C>], label: (&'static str, &str)) {
    let label = [(label.0, label.1.to_owned())];
    for (name, _, _, read) in all {
        counter!(*name, &label).absolute(read(counters));
    }
    for (name, _, _, read) in levels {
        gauge!(*name, &label).set(read(counters));
    }
}

impl FlushDomain {
    /// Gives the present counters of the domain to the recorder of the `metrics` crate, under the
    /// label `domain`. Call it before figures are collected: in the handler of a scrape, or every
    /// few seconds.
    ///
    /// `docs/metrics.md` lists the names; [`describe_metrics`] gives the descriptions to the
    /// recorder.
    ///
    /// ```
    /// # use inflight_flush::{FlushDomain, MemoryDevice};
    /// let domain = FlushDomain::new(MemoryDevice::new(4096));
    /// domain.flush_blocking()?;
    /// domain.record_metrics("nvme0"); // inflight_flush_issued_total{domain="nvme0"} 1, and so on
    /// # Ok::<(), inflight_flush::FlushError>(())
    /// ```
    pub fn record_metrics(&self, domain: &str) {
        let counters = self.counters();
        record(&counters, &DOMAIN, &DOMAIN_LEVELS, ("domain", domain));
        let poisoned = f64::from(u8::from(self.is_poisoned()));
        gauge!(POISONED, "domain" => domain.to_owned()).set(poisoned);
    }
}

impl Log {
    /// Gives the present counters of the log to the recorder of the `metrics` crate, under the
    /// label `log`.
    ///
    /// ```
    /// # use inflight_flush::{Power, log::{LogOptions, MemoryStorage}};
    /// let (log, _) = LogOptions::new().open(MemoryStorage::new(&Power::new()))?;
    /// log.record_metrics("journal"); // inflight_log_segments{log="journal"} 1, and so on
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_metrics(&self, log: &str) {
        let counters = self.counters();
        record(&counters, &LOG, &LOG_LEVELS, ("log", log));
        let poisoned = f64::from(u8::from(self.is_poisoned()));
        gauge!(LOG_POISONED, "log" => log.to_owned()).set(poisoned);
        gauge!(SEGMENTS, "log" => log.to_owned()).set(self.segments() as f64);
    }
}

/// Gives the descriptions and units of the figures of domains and logs to the recorder of the
/// `metrics` crate. Call it once, after the recorder has been installed.
///
/// ```
/// inflight_flush::describe_metrics();
/// ```
pub fn describe_metrics() {
    for (name, unit, what, _) in DOMAIN {
        describe_counter!(name, unit, what);
    }
    for (name, unit, what, _) in LOG {
        describe_counter!(name, unit, what);
    }
    for (name, unit, what, _) in DOMAIN_LEVELS {
        describe_gauge!(name, unit, what);
    }
    for (name, unit, what, _) in LOG_LEVELS {
        describe_gauge!(name, unit, what);
    }
    describe_gauge!(
        POISONED,
        Unit::Count,
        "1 while the domain is poisoned by a failed flush or durable write"
    );
    describe_gauge!(LOG_POISONED, Unit::Count, "1 if the log has failed");
    describe_gauge!(SEGMENTS, Unit::Count, "segments that hold records");
}
