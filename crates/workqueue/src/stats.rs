//! What can be seen of a system from outside.

use std::time::Duration;

/// What went through a workqueue, and what is in it.
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
    /// Runs that have begun.
    pub started: u64,
    /// Runs that have ended, by return or by panic.
    pub completed: u64,
    /// Runs that have ended by panic.
    pub panicked: u64,
    /// Items taken back before their run began.
    pub cancelled: u64,
    /// Delayed items that were not queued when their time had come, works that were to run again,
    /// and functions and futures that were spawned or woken, because the queue or the system took
    /// none any more. Not what a call has refused with an error, as `queue` and `try_spawn` do.
    pub refused: u64,
    /// How often a worker was brought because an item said that it blocked.
    pub cm_wakeups: u64,
    /// How often an item was found asleep although it had not said so.
    pub found_asleep: u64,
    /// How often an item of a bound queue was found to compute for long.
    pub cpu_intensive: u64,
    /// CPU time that the queue's items have used on workers, by samples every 10 ms. `None` if
    /// nobody has asked for it: see
    /// [`SystemBuilder::cpu_time`](crate::SystemBuilder::cpu_time).
    pub cpu_time: Option<Duration>,
    /// How often the queue's rescuer was called; 0 without one.
    pub maydays: u64,
    /// Items that the rescuer has run.
    pub rescued: u64,
    /// How often a worker of another group of CPUs was woken for items of the queue, because that
    /// was better than one of their own group.
    pub remote_wakeups: u64,
    /// Items that a worker of another group of CPUs has taken.
    pub stolen: u64,
    /// How often a worker that was woken on a CPU of another group, where it had run last, went
    /// back to its own group's before it ran an item of the queue. Only in unbound queues that are
    /// not strict; where it runs later is left to the system.
    pub repatriated: u64,
    /// How often the queue's [wake rules](crate::WorkqueueBuilder::wake_rules) have put an item on
    /// another CPU than the one before.
    pub placed: u64,
    /// Items that run, and items that wait and for which a slot of `max_active` is free. Computed
    /// when it is asked for.
    pub active: usize,
    /// Items that wait and for which no slot is free.
    pub inactive: usize,
}

impl WorkqueueStats {
    /// Runs that have begun and not ended.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.completed)
    }
}
