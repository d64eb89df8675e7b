//! Counters and gauges for the `metrics` facade, on request.

use crate::ended_queues::{Lines, OTHERS};
use crate::stats::COUNTERS;
use crate::system::WorkqueueSystem;
use crate::worker_pool::{PoolReport, WorkerPool};
use inflight_sync::Arc;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use std::collections::{BTreeMap, BTreeSet};

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

/// Sets the gauges of a pool, all to 0 if it has gone.
fn set_pool(name: &str, report: Option<&PoolReport>) {
    let [idle, blocked, busy, ready, target] = report.map_or([0; 5], |r| {
        let busy = r.workers - r.idle - r.blocked;
        [r.idle, r.blocked, busy, r.ready, r.target]
    });
    for (state, number) in [("idle", idle), ("blocked", blocked), ("busy", busy)] {
        gauge!(WORKERS, "pool" => name.to_owned(), "state" => state).set(level(number));
    }
    gauge!(READY, "pool" => name.to_owned()).set(level(ready));
    gauge!(TARGET, "pool" => name.to_owned()).set(level(target));
}

impl WorkqueueSystem {
    /// The lines of all queues, those that have ended too.
    fn lines(&self) -> Lines {
        let ended = self.inner.shared.ended_queues.lock();
        let mut lines = ended.clone();
        for queue in self.inner.queues() {
            if !queue.is_detached() {
                let line = lines.entry(queue.name.to_owned()).or_default();
                line.add(&queue.stats(), queue.limit());
            }
        }
        lines
    }

    /// Sets the gauges of all pools, also of those that have gone since the record before.
    fn record_pools(&self) {
        let pools = self.inner.pools().into_iter();
        let named = |pool: Arc<WorkerPool>| (pool.attrs.name(pool.id), pool.report());
        let pools: BTreeMap<_, _> = pools.map(named).collect();
        let now: BTreeSet<_> = pools.keys().cloned().collect();
        // The recorder is the user's code, so it is not called under the lock.
        let recorded = &self.inner.shared.recorded_pools;
        let before = std::mem::replace(&mut *recorded.lock(), now);
        for gone in before.iter().filter(|name| !pools.contains_key(*name)) {
            set_pool(gone, None);
        }
        pools
            .iter()
            .for_each(|(name, report)| set_pool(name, Some(report)));
    }

    /// Gives the present counters of all queues and pools to the recorder of the `metrics` crate.
    /// Call it before figures are collected: in the handler of a scrape, or every few seconds. It
    /// adds no counting between two calls.
    ///
    /// Queues with the same name are added up. The counts of queues that have ended stay in the sum
    /// of their name, for the first 128 names; those of other names go to the sum of `others`.
    /// Gauges of what has gone are 0. Systems that share a recorder need queues of different names.
    /// `docs/metrics.md` lists the figures, each with the label `queue`, `pool` or `function` (at
    /// most 129 functions).
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
        let mut lines = self.lines();
        let recorded = &self.inner.shared.recorded_queues;
        let before = std::mem::replace(&mut *recorded.lock(), lines.clone());
        for (queue, line) in before {
            lines.entry(queue).or_insert_with(|| line.gone());
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
        self.record_pools();
        let mut hogs = BTreeMap::from([(OTHERS, self.other_hogs())]);
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use inflight_sync::thread;
    use inflight_topology::Topology;

    /// Whoever has run the last item may have the queue a little longer than the system.
    #[test]
    fn a_queue_that_has_ended_and_is_still_there_counts_once() {
        let sys = WorkqueueSystem::builder().topology(Topology::synthetic("core:1").unwrap());
        let sys = sys.build().unwrap();
        let wq = sys.workqueue("jobs").bound().build().unwrap();
        wq.spawn(|| panic!("on purpose")).wait().unwrap_err();
        let queue = wq.inner().clone();
        drop(wq);
        while !queue.is_detached() {
            thread::yield_now();
        }
        queue.abandon(); // It has ended already.
        let counts = COUNTERS.iter().zip(sys.lines()["jobs"].counts);
        let panicked = counts.filter(|((name, ..), _)| *name == "panicked");
        assert_eq!(panicked.map(|(_, n)| n).collect::<Vec<_>>(), [1]);
        assert!(sys.inner.queues().iter().any(|q| Arc::ptr_eq(q, &queue)));
    }
}
