//! Counters and gauges for the `metrics` facade.

use crate::set::TagSet;
use crate::stats::{SetStats, TenantStats};
use crate::steering::{Completions, SteeringStats};
use crate::tenant::Tenant;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

/// The name, the description, and the field.
type Counter<S> = (&'static str, &'static str, fn(&S) -> u64);

macro_rules! counters {
    ($($field:ident: $name:literal, $what:literal;)+) => {
        [$(($name, $what, |stats| stats.$field)),+]
    };
}

const SET: [Counter<SetStats>; 6] = counters![
    allocs: "inflight_tags_allocated_total", "tags allocated";
    frees: "inflight_tags_freed_total", "tags freed";
    waits: "inflight_tags_waits_total", "waits for a free tag";
    wakeups: "inflight_tags_wakeups_total", "waiters woken for a free tag";
    redeem_errors: "inflight_tags_redeem_errors_total", "tokens that were refused";
    late_completions: "inflight_tags_late_completions_total",
        "completions that came after their request had timed out";
];

const TENANT: [Counter<TenantStats>; 5] = counters![
    allocs: "inflight_tags_tenant_allocated_total", "tags the tenant got";
    exhausted: "inflight_tags_tenant_exhausted_total",
        "tries refused: all tags were in use, the share was used up, or others waited";
    frozen: "inflight_tags_tenant_frozen_total",
        "tries refused because the set was frozen or quiesced";
    waits: "inflight_tags_tenant_waits_total", "allocations that had to wait";
    timeouts: "inflight_tags_tenant_timeouts_total",
        "waits that timed out";
];

const STEERING: [Counter<SteeringStats>; 7] = counters![
    inline_depth: "inflight_steering_deferred_total",
        "completions put off until the callbacks around them had ended";
    redirected: "inflight_steering_sent_total", "completions put into a done list";
    redirect_wakeups: "inflight_steering_wakeups_total",
        "workers woken because a done list was empty";
    refused_wakeups: "inflight_steering_refused_wakeups_total",
        "wakeups that the worker refused; the sender ran the done list";
    batches: "inflight_steering_batches_total", "times a done list was emptied";
    submitter_moved: "inflight_steering_submitter_moved_total",
        "submitters that continued on another CPU";
    panicked: "inflight_steering_panicked_total", "callbacks that panicked";
];

type Reason = (&'static str, fn(&SteeringStats) -> u64);

/// By the reason why a completion ran where it was seen.
const RUN_HERE: &str = "inflight_steering_run_here_total";
const REASONS: [Reason; 8] = [
    ("same_cpu", |s| s.inline_same_cpu),
    ("same_cache", |s| s.inline_same_cache),
    ("policy", |s| s.inline_policy),
    ("one_shard", |s| s.inline_one_shard),
    ("polled", |s| s.inline_polled),
    ("closed", |s| s.inline_closed),
    ("unknown_cpu", |s| s.inline_unknown_cpu),
    ("asleep", |s| s.inline_asleep),
];
const WAITING: &str = "inflight_steering_waiting";
const MAX_BATCH: &str = "inflight_steering_max_batch";

const IN_USE: &str = "inflight_tags_in_use";
const IN_FLIGHT: &str = "inflight_tags_in_flight";
const DEPTH: &str = "inflight_tags_depth";
const TENANT_IN_USE: &str = "inflight_tags_tenant_in_use";
const LONGEST_WAIT: &str = "inflight_tags_tenant_longest_wait_seconds";

/// Gauges are floating-point numbers; counts of tags fit.
#[allow(clippy::cast_precision_loss)]
fn level(number: u64) -> f64 {
    number as f64
}

impl<T: Send + 'static> TagSet<T> {
    /// Passes the set's present counters to the recorder of the `metrics` crate, under the label
    /// `set`. Call it before figures are collected: in the handler of a scrape, or every few
    /// seconds. Reads all slots, as [`stats`](TagSet::stats) does.
    ///
    /// The names are in `docs/metrics.md`; [`describe_metrics`] passes them to the recorder.
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
        gauge!(IN_USE, "set" => set.to_owned()).set(level(stats.in_use as u64));
        gauge!(IN_FLIGHT, "set" => set.to_owned()).set(level(stats.in_flight as u64));
        gauge!(DEPTH, "set" => set.to_owned()).set(level(self.depth() as u64));
    }
}

impl<T: Send + 'static> Tenant<T> {
    /// Passes the tenant's present counters to the recorder of the `metrics` crate, under the
    /// labels `set` and `tenant`, its [name](Tenant::name). Reads all slots.
    pub fn record_metrics(&self, set: &str) {
        let stats = self.stats();
        let labels = [("set", set.to_owned()), ("tenant", self.name().to_owned())];
        for (name, _, read) in TENANT {
            counter!(name, &labels).absolute(read(&stats));
        }
        gauge!(TENANT_IN_USE, &labels).set(level(self.in_use() as u64));
        gauge!(LONGEST_WAIT, &labels).set(stats.longest_wait.as_secs_f64());
    }
}

impl<T: Send + 'static> Completions<T> {
    /// Passes the present counters of where completions ran to the recorder of the `metrics` crate,
    /// under the label `set`. Each done list has its own line for the number of its completions, by
    /// the label `cpus`.
    ///
    /// ```
    /// # use inflight_tags::{Tag, TagSet, Topology};
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let completions = set.completions(&Topology::discover()?).build(drop::<Tag<()>>);
    /// completions.record_metrics("nvme0"); // inflight_steering_sent_total{set="nvme0"} 0, ..
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_metrics(&self, set: &str) {
        let stats = self.stats();
        for (name, _, read) in STEERING {
            counter!(name, "set" => set.to_owned()).absolute(read(&stats));
        }
        for (reason, read) in REASONS {
            let labels = [("set", set.to_owned()), ("reason", reason.to_owned())];
            counter!(RUN_HERE, &labels).absolute(read(&stats));
        }
        gauge!(MAX_BATCH, "set" => set.to_owned()).set(level(stats.max_batch));
        for shard in self.shard_stats() {
            let labels = [("set", set.to_owned()), ("cpus", shard.cpus.to_string())];
            gauge!(WAITING, &labels).set(level(shard.stats.waiting()));
        }
    }
}

/// Describes the figures of tag sets and their completions, with their units, to the recorder of
/// the `metrics` crate. Call it once, after the recorder has been installed.
pub fn describe_metrics() {
    let set = SET.map(|(name, what, _)| (name, what));
    let tenant = TENANT.map(|(name, what, _)| (name, what));
    let steering = STEERING.map(|(name, what, _)| (name, what));
    for (name, what) in set.into_iter().chain(tenant).chain(steering) {
        describe_counter!(name, Unit::Count, what);
    }
    describe_counter!(
        RUN_HERE,
        Unit::Count,
        "completions run where they were seen"
    );
    describe_gauge!(WAITING, Unit::Count, "completions in a done list");
    describe_gauge!(MAX_BATCH, Unit::Count, "completions in the largest batch");
    describe_gauge!(IN_USE, Unit::Count, "tags held or in flight");
    describe_gauge!(IN_FLIGHT, Unit::Count, "tags in flight");
    describe_gauge!(DEPTH, Unit::Count, "tags of each hardware queue");
    describe_gauge!(
        TENANT_IN_USE,
        Unit::Count,
        "the tenant's tags, held or in flight"
    );
    describe_gauge!(
        LONGEST_WAIT,
        Unit::Seconds,
        "the longest wait that has ended"
    );
}
