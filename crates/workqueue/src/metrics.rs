//! Counters and gauges for the `metrics` facade, on request.

use crate::stats::COUNTERS;
use crate::system::WorkqueueSystem;
use crate::workqueue_inner::WorkqueueInner;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use std::collections::BTreeMap;
use std::time::Duration;

/// Values that go up and down.
const GAUGES: [(&str, &str); 6] = [
    (
        ACTIVE,
        "items that run, or wait for a worker while a slot of max_active is free",
    ),
    (
        INACTIVE,
        "items that wait and for which no slot of max_active is free",
    ),
    (
        MAX_ACTIVE,
        "the limit of active items: for each CPU of a bound queue, in all of an unbound one",
    ),
    (WORKERS, "workers of a pool, by state"),
    (READY, "items that wait for a worker of a pool"),
    (TARGET, "how many workers of a pool may run at once"),
];

const HOGS: &str = "inflight_workqueue_hogs_total";
const CPU_TIME: &str = "inflight_workqueue_cpu_microseconds_total";
const ACTIVE: &str = "inflight_workqueue_active";
const INACTIVE: &str = "inflight_workqueue_inactive";
const MAX_ACTIVE: &str = "inflight_workqueue_max_active";
const WORKERS: &str = "inflight_pool_workers";
const READY: &str = "inflight_pool_ready";
const TARGET: &str = "inflight_pool_target";

/// The name of a counter of queues.
fn total(name: &str) -> String {
    format!("inflight_workqueue_{name}_total")
}

/// Gauges are floating-point numbers; counts of items and threads fit.
#[allow(clippy::cast_precision_loss)]
fn level(number: usize) -> f64 {
    number as f64
}

/// Queues with the same name are one line.
#[derive(Default)]
struct Line {
    counts: [u64; COUNTERS.len()],
    cpu_time: Duration,
    active: usize,
    inactive: usize,
    max_active: Option<usize>,
}

impl Line {
    fn add(&mut self, queue: &WorkqueueInner) {
        let stats = queue.stats();
        for (sum, (_, _, read)) in self.counts.iter_mut().zip(COUNTERS) {
            *sum += read(&stats);
        }
        self.cpu_time += stats.cpu_time.unwrap_or_default();
        self.active += stats.active;
        self.inactive += stats.inactive;
        if let Some(limit) = queue.limit() {
            *self.max_active.get_or_insert(0) += limit;
        }
    }
}

impl WorkqueueSystem {
    /// Gives the present counters of all queues and pools to the recorder of the `metrics` crate.
    /// Call it before figures are collected: in the handler of a scrape, or every few seconds. It
    /// adds no counting between two calls.
    ///
    /// Queues with the same name are added up, as far as they exist: the counts of a queue end with
    /// it, and a recorder that keeps the largest value shows that one. Gauges of what has gone keep
    /// their last value. Systems that share a recorder need queues of different names.
    /// `docs/metrics.md` lists the names, each with the
    /// label `queue`, `pool` or `function` (at most 129 functions).
    /// [`describe_metrics`](WorkqueueSystem::describe_metrics) gives the descriptions to the
    /// recorder.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().cpu_time(true).build()?;
    /// let wq = sys.workqueue("crypt").bound().build()?;
    /// wq.spawn(|| ()).wait()?;
    /// WorkqueueSystem::describe_metrics();
    /// sys.record_metrics(); // inflight_workqueue_queued_total{queue="crypt"} 1, and so on
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_metrics(&self) {
        let mut lines = BTreeMap::<String, Line>::new();
        for queue in self.inner.queues() {
            lines.entry(queue.name.to_owned()).or_default().add(&queue);
        }
        for (queue, line) in lines {
            for (count, (name, ..)) in line.counts.into_iter().zip(COUNTERS) {
                counter!(total(name), "queue" => queue.clone()).absolute(count);
            }
            let micros = u64::try_from(line.cpu_time.as_micros()).unwrap_or(u64::MAX);
            counter!(CPU_TIME, "queue" => queue.clone()).absolute(micros);
            gauge!(ACTIVE, "queue" => queue.clone()).set(level(line.active));
            gauge!(INACTIVE, "queue" => queue.clone()).set(level(line.inactive));
            if let Some(limit) = line.max_active {
                gauge!(MAX_ACTIVE, "queue" => queue).set(level(limit));
            }
        }
        for pool in self.inner.pools() {
            let (name, report) = (pool.attrs.name(pool.id), pool.report());
            let others = report.workers - report.idle - report.blocked;
            for (state, number) in [
                ("idle", report.idle),
                ("blocked", report.blocked),
                ("busy", others),
            ] {
                gauge!(WORKERS, "pool" => name.clone(), "state" => state).set(level(number));
            }
            gauge!(READY, "pool" => name.clone()).set(level(report.ready));
            gauge!(TARGET, "pool" => name).set(level(report.target));
        }
        let mut hogs = BTreeMap::from([("others", self.other_hogs())]);
        for hog in self.hogs() {
            *hogs.entry(hog.function).or_default() += hog.count;
        }
        for (function, count) in hogs {
            counter!(HOGS, "function" => function).absolute(count);
        }
    }

    /// Gives the descriptions and units of the figures to the recorder. Call it once, after the
    /// recorder has been installed.
    pub fn describe_metrics() {
        for (name, what, _) in COUNTERS {
            describe_counter!(total(name), Unit::Count, what);
        }
        let what = "CPU time of items on workers, if it is measured";
        describe_counter!(CPU_TIME, Unit::Microseconds, what);
        describe_counter!(HOGS, Unit::Count, "items found to compute for long");
        for (name, what) in GAUGES {
            describe_gauge!(name, Unit::Count, what);
        }
    }
}
