//! The counters, for the `metrics` facade.

use crate::requeue::Requeue;
use inflight_workqueue::WorkqueueSystem;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

const REQUEUED: &str = "inflight_requeue_requeued_total";
const SENT_EARLY: &str = "inflight_requeue_sent_early_total";
const WAITING: &str = "inflight_requeue_waiting";

impl<T: Send + 'static> Requeue<T> {
    /// Passes the present counters to the recorder of the `metrics` crate, under the label
    /// `requeue`. Call it before figures are collected.
    ///
    /// ```
    /// # use inflight::prelude::*;
    /// let system = WorkqueueSystem::builder().build()?;
    /// let queue = system.workqueue("requeue").bound().build()?;
    /// let requeue = Requeue::new(&queue, |_: Tag<u32>| Ok(()));
    /// requeue.record_metrics("disk0"); // inflight_requeue_waiting{requeue="disk0"} 0, and so on
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record_metrics(&self, requeue: &str) {
        let stats = self.stats();
        let label = [("requeue", requeue.to_owned())];
        counter!(REQUEUED, &label).absolute(stats.requeued);
        counter!(SENT_EARLY, &label).absolute(stats.sent_early);
        gauge!(WAITING, &label).set(stats.waiting as f64);
    }
}

/// Describes the figures of all the crates, with their units, to the recorder of the `metrics`
/// crate. Call it once, after the recorder has been installed.
///
/// ```
/// inflight::describe_metrics();
/// ```
pub fn describe_metrics() {
    inflight_tags::describe_metrics();
    inflight_flush::describe_metrics();
    WorkqueueSystem::describe_metrics();
    describe_counter!(
        REQUEUED,
        Unit::Count,
        "requests handed in, to be sent again"
    );
    describe_counter!(
        SENT_EARLY,
        Unit::Count,
        "requests sent before their time, because the queue took no more work"
    );
    describe_gauge!(WAITING, Unit::Count, "requests that wait to be sent again");
}
