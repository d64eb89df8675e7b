//! The counters for whoever collects figures: through the `metrics` facade, when asked.

use crate::stats::WorkqueueStats;
use crate::system::WorkqueueSystem;
use crate::workqueue_inner::WorkqueueInner;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use std::collections::BTreeMap;
use std::time::Duration;

type Read = fn(&WorkqueueStats) -> u64;

/// What only grows: name, unit, description, where it is.
const COUNTERS: [(&str, Unit, &str, Read); 15] = [
    (
        "inflight_workqueue_queued_total",
        Unit::Count,
        "items queued",
        |s| s.queued,
    ),
    (
        "inflight_workqueue_started_total",
        Unit::Count,
        "runs that have begun",
        |s| s.started,
    ),
    (
        "inflight_workqueue_completed_total",
        Unit::Count,
        "runs that have ended",
        |s| s.completed,
    ),
    (
        "inflight_workqueue_panicked_total",
        Unit::Count,
        "runs that have ended by panic",
        |s| s.panicked,
    ),
    (
        "inflight_workqueue_cancelled_total",
        Unit::Count,
        "items taken back before their run",
        |s| s.cancelled,
    ),
    (
        "inflight_workqueue_refused_total",
        Unit::Count,
        "delayed items that were not queued when their time had come",
        |s| s.refused,
    ),
    (
        "inflight_workqueue_cm_wakeups_total",
        Unit::Count,
        "workers brought because an item blocked",
        |s| s.cm_wakeups,
    ),
    (
        "inflight_workqueue_found_asleep_total",
        Unit::Count,
        "items found asleep that had not said so",
        |s| s.found_asleep,
    ),
    (
        "inflight_workqueue_cpu_intensive_total",
        Unit::Count,
        "items found to compute for long",
        |s| s.cpu_intensive,
    ),
    (
        "inflight_workqueue_maydays_total",
        Unit::Count,
        "calls of the rescuer",
        |s| s.maydays,
    ),
    (
        "inflight_workqueue_rescued_total",
        Unit::Count,
        "items that the rescuer has run",
        |s| s.rescued,
    ),
    (
        "inflight_workqueue_remote_wakeups_total",
        Unit::Count,
        "workers of another group of CPUs woken for items",
        |s| s.remote_wakeups,
    ),
    (
        "inflight_workqueue_stolen_total",
        Unit::Count,
        "items that a worker of another group of CPUs has taken",
        |s| s.stolen,
    ),
    (
        "inflight_workqueue_repatriated_total",
        Unit::Count,
        "workers moved back to their group for items of the queue",
        |s| s.repatriated,
    ),
    (
        "inflight_workqueue_cpu_microseconds_total",
        Unit::Microseconds,
        "CPU time of items on workers, if it is measured",
        |s| micros(s.cpu_time),
    ),
];

/// What goes up and down.
const GAUGES: [(&str, &str); 6] = [
    (ACTIVE, "items that max_active lets run now"),
    (
        INACTIVE,
        "items that wait because max_active others are active",
    ),
    (
        MAX_ACTIVE,
        "how many items may be active: on each CPU of a bound queue, altogether of an unbound one",
    ),
    (WORKERS, "workers of a pool, by what they do"),
    (READY, "items that wait for a worker of a pool"),
    (TARGET, "how many workers of a pool may run at once"),
];

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
    /// Gives the counters of all queues and pools to the recorder of the `metrics` crate, as they
    /// are now. To be called before figures are collected: by the handler of a scrape, or every few
    /// seconds. Between two calls nothing is counted that would not be counted anyway.
    ///
    /// Queues of the same name are added up. The names, each with the label `queue` or `pool`,
    /// stand in `docs/metrics.md`; [`describe_metrics`](WorkqueueSystem::describe_metrics) tells
    /// them to the recorder.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().cpu_time(true).build()?;
    /// let wq = sys.workqueue("crypt").bound().build()?;
    /// wq.spawn(|| ()).wait()?;
    /// sys.record_metrics(); // inflight_workqueue_queued_total{queue="crypt"} 1, and so on
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_metrics(&self) {
        let mut lines = BTreeMap::<String, Line>::new();
        for queue in self.inner().queues() {
            lines
                .entry(queue.name().to_owned())
                .or_default()
                .add(&queue);
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
        for pool in self.inner().pools() {
            let (name, report) = (pool.attrs().name(pool.id()), pool.report());
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
    }

    /// Tells the recorder what the figures are and their units. Once, after the recorder has been
    /// installed.
    ///
    /// ```
    /// inflight_workqueue::WorkqueueSystem::describe_metrics();
    /// ```
    pub fn describe_metrics() {
        for (name, unit, what, _) in COUNTERS {
            describe_counter!(name, unit, what);
        }
        for (name, what) in GAUGES {
            describe_gauge!(name, Unit::Count, what);
        }
    }
}
