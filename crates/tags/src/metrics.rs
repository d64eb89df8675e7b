//! The counters for whoever collects figures: through the `metrics` facade, when asked.

use crate::set::TagSet;
use crate::stats::{SetStats, TenantStats};
use crate::tenant_handle::Tenant;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

type Counter<S> = (&'static str, &'static str, fn(&S) -> u64);

const SET: [Counter<SetStats>; 6] = [
    ("inflight_tags_allocated_total", "tags given out", |s| {
        s.allocs
    }),
    ("inflight_tags_freed_total", "tags freed", |s| s.frees),
    ("inflight_tags_waits_total", "waits for a free tag", |s| {
        s.waits
    }),
    (
        "inflight_tags_wakeups_total",
        "waiters woken for a free tag",
        |s| s.wakeups,
    ),
    (
        "inflight_tags_redeem_errors_total",
        "tokens that were refused",
        |s| s.redeem_errors,
    ),
    (
        "inflight_tags_late_completions_total",
        "completions that came after their request had timed out",
        |s| s.late_completions,
    ),
];

const TENANT: [Counter<TenantStats>; 5] = [
    (
        "inflight_tags_tenant_allocated_total",
        "tags the tenant got",
        |s| s.allocs,
    ),
    (
        "inflight_tags_tenant_exhausted_total",
        "tries refused: all tags were in use, the share was used up, or others waited",
        |s| s.exhausted,
    ),
    (
        "inflight_tags_tenant_frozen_total",
        "tries refused because the set was frozen or quiesced",
        |s| s.frozen,
    ),
    (
        "inflight_tags_tenant_waits_total",
        "allocations that had to wait",
        |s| s.waits,
    ),
    (
        "inflight_tags_tenant_timeouts_total",
        "waits that were given up because the time was up",
        |s| s.timeouts,
    ),
];

const IN_USE: &str = "inflight_tags_in_use";
const IN_FLIGHT: &str = "inflight_tags_in_flight";
const DEPTH: &str = "inflight_tags_depth";
const LONGEST_WAIT: &str = "inflight_tags_tenant_longest_wait_seconds";

/// Gauges are floating-point numbers; counts of tags fit.
#[allow(clippy::cast_precision_loss)]
fn level(number: usize) -> f64 {
    number as f64
}

impl<T: Send + 'static> TagSet<T> {
    /// Hands the set's counters to the recorder of the `metrics` crate, as they are now, under the
    /// label `set`. To be called before figures are collected: by the handler of a scrape, or every
    /// few seconds. Walks all slots, as [`stats`](TagSet::stats) does.
    ///
    /// The names stand in `docs/metrics.md`; [`describe_metrics`] tells them to the recorder.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(32).build(|_, _| ())?;
    /// set.record_metrics("nvme0"); // inflight_tags_depth{set="nvme0"} 32, and so on
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_metrics(&self, set: &str) {
        let stats = self.stats();
        for (name, _, read) in SET {
            counter!(name, "set" => set.to_owned()).absolute(read(&stats));
        }
        gauge!(IN_USE, "set" => set.to_owned()).set(level(stats.in_use));
        gauge!(IN_FLIGHT, "set" => set.to_owned()).set(level(stats.in_flight));
        gauge!(DEPTH, "set" => set.to_owned()).set(level(self.depth()));
    }
}

impl<T: Send + 'static> Tenant<T> {
    /// Hands the tenant's counters to the recorder of the `metrics` crate, as they are now, under
    /// the labels `set` and `tenant`, its [name](Tenant::name).
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(32).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// dev.record_metrics("nvme0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_metrics(&self, set: &str) {
        let stats = self.stats();
        let labels = [("set", set.to_owned()), ("tenant", self.name().to_owned())];
        for (name, _, read) in TENANT {
            counter!(name, &labels).absolute(read(&stats));
        }
        gauge!(LONGEST_WAIT, &labels).set(stats.longest_wait.as_secs_f64());
    }
}

/// Tells the recorder of the `metrics` crate what the figures of tag sets are and their units.
/// Once, after the recorder has been installed.
///
/// ```
/// inflight_tags::describe_metrics();
/// ```
pub fn describe_metrics() {
    let set = SET.map(|(name, what, _)| (name, what));
    let tenant = TENANT.map(|(name, what, _)| (name, what));
    for (name, what) in set.into_iter().chain(tenant) {
        describe_counter!(name, Unit::Count, what);
    }
    describe_gauge!(IN_USE, Unit::Count, "tags held or in flight");
    describe_gauge!(IN_FLIGHT, Unit::Count, "tags in flight");
    describe_gauge!(DEPTH, Unit::Count, "tags of each hardware queue");
    describe_gauge!(
        LONGEST_WAIT,
        Unit::Seconds,
        "the longest wait that has ended"
    );
}
