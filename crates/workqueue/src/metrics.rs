//! Counters and gauges for the `metrics` facade, on request.

use crate::stats::WorkqueueStats;
use crate::system::WorkqueueSystem;
use crate::workqueue_inner::WorkqueueInner;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use std::collections::BTreeMap;
use std::time::Duration;

/// Name, unit, description, field.
type Counter = (&'static str, Unit, &'static str, fn(&WorkqueueStats) -> u64);

/// The counters of these fields: `inflight_workqueue_FIELD_total`.
macro_rules! counters_of {
    ($($field:ident $what:literal)*) => {
        [
            $((
                concat!("inflight_workqueue_", stringify!($field), "_total"),
                Unit::Count,
                $what,
                |s| s.$field,
            ),)*
            (
                "inflight_workqueue_cpu_microseconds_total",
                Unit::Microseconds,
                "CPU time of items on workers, if it is measured",
                |s| micros(s.cpu_time),
            ),
        ]
    };
}

/// Values that only grow.
const COUNTERS: [Counter; 16] = counters_of! {
    queued "items queued"
    started "runs that have begun"
    completed "runs that have ended"
    panicked "runs that panicked"
    cancelled "items taken back before their run"
    refused "items refused when spawned or woken, after a delay, or when they were to run again"
    cm_wakeups "workers woken or created because an item blocked"
    found_asleep "items found asleep outside of a blocking section"
    cpu_intensive "items of bound queues found to be CPU-intensive"
    maydays "calls of the rescuer"
    rescued "items run by the rescuer"
    remote_wakeups "workers of another group of CPUs woken for items"
    stolen "items taken by a worker of another group of CPUs"
    repatriated "workers moved back to their group for items of the queue"
    placed "items that wake rules put on another CPU than the one before"
};

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
const ACTIVE: &str = "inflight_workqueue_active";
const INACTIVE: &str = "inflight_workqueue_inactive";
const MAX_ACTIVE: &str = "inflight_workqueue_max_active";
const WORKERS: &str = "inflight_pool_workers";
const READY: &str = "inflight_pool_ready";
const TARGET: &str = "inflight_pool_target";

fn micros(time: Option<Duration>) -> u64 {
    time.map_or(0, |time| {
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
    })
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
    active: usize,
    inactive: usize,
    max_active: Option<usize>,
}

impl Line {
    fn add(&mut self, queue: &WorkqueueInner) {
        let stats = queue.stats();
        for (sum, (_, _, _, read)) in self.counts.iter_mut().zip(&COUNTERS) {
            *sum += read(&stats);
        }
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
    /// Queues with the same name are added up. `docs/metrics.md` lists the names, each with the
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
            for (count, (name, _, _, _)) in line.counts.iter().zip(&COUNTERS) {
                counter!(*name, "queue" => queue.clone()).absolute(*count);
            }
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
        for (name, unit, what, _) in COUNTERS {
            describe_counter!(name, unit, what);
        }
        describe_counter!(HOGS, Unit::Count, "items found to compute for long");
        for (name, what) in GAUGES {
            describe_gauge!(name, Unit::Count, what);
        }
    }
}
