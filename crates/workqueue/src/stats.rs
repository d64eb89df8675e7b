//! Statistics of a workqueue.

use std::time::Duration;

/// The counters of a workqueue, and the number of items in it.
///
/// ```
/// use inflight_workqueue::{WorkqueueStats, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("new").bound().build()?;
/// assert_eq!(wq.stats(), WorkqueueStats::default());
/// assert_eq!(wq.stats().in_flight(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkqueueStats {
    /// Items queued since the queue was made.
    pub queued: u64,
    /// Runs that have begun. An item that is cancelled when a worker is just about to run it may be
    /// counted until then, so this number may fall by it.
    pub started: u64,
    /// Runs that have ended, by return or by panic. Each poll of a future is a run. A future that
    /// wakes itself in its last poll leaves one more item, which polls nothing and counts too.
    pub completed: u64,
    /// Runs that have ended by panic.
    pub panicked: u64,
    /// Items taken back before their run began.
    pub cancelled: u64,
    /// Delayed items whose delay ended, works that were to run again, and functions and futures
    /// that were spawned or woken, after the queue or the system had stopped taking items. Also
    /// functions and futures that were spawned when no thread could be had for them. Not items that
    /// a call such as `queue` and `try_spawn` refused with an error.
    pub refused: u64,
    /// How often a worker was woken or started because an item blocked: it said so, or its function
    /// has been found asleep before and counts as blocked from its start.
    pub cm_wakeups: u64,
    /// How often an item was found asleep outside a blocking section. Counted when it is found.
    pub found_asleep: u64,
    /// How often an item of a bound queue was found to compute for long.
    pub cpu_intensive: u64,
    /// CPU time that the queue's items have used on workers, sampled every 10 ms. `None` unless the
    /// measurement is on: see [`SystemBuilder::cpu_time`](crate::SystemBuilder::cpu_time).
    pub cpu_time: Option<Duration>,
    /// How often the queue's rescuer was called; 0 for a queue without one.
    pub maydays: u64,
    /// Items that the rescuer ran.
    pub rescued: u64,
    /// How often a worker of another group of CPUs was woken for items of the queue, because that
    /// was better than waking one of their own group.
    pub remote_wakeups: u64,
    /// Items that workers of another group of CPUs took.
    pub stolen: u64,
    /// How often a worker of an unbound queue that is not strict, woken where it ran last, on a CPU
    /// of another group, moved back to its own before it ran an item of the queue.
    pub repatriated: u64,
    /// How often the queue's [wake rules](crate::WorkqueueBuilder::wake_rules) chose another CPU
    /// for an item than the previous one.
    pub placed: u64,
    /// Items that run, and waiting items for which a slot of `max_active` is free. Computed when it
    /// is read. An item that was cancelled after a worker had taken it counts, here or in
    /// [`inactive`](Self::inactive), until that worker's batch ends.
    pub active: usize,
    /// Waiting items for which no slot is free.
    pub inactive: usize,
}

/// The name of a counter, what it counts, and its value.
pub(crate) type Counter = (&'static str, &'static str, fn(&WorkqueueStats) -> u64);

macro_rules! counters {
    ($($field:ident $what:literal)*) => {
        [$((stringify!($field), $what, |stats| stats.$field)),*]
    };
}

/// The counters, as reports show them.
pub(crate) const COUNTERS: [Counter; 15] = counters! {
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

impl WorkqueueStats {
    /// Runs that have begun and not ended.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.completed)
    }
}
