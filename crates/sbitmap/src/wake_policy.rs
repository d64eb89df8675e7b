//! In which order wait queues are served.

/// In which order [`Fairness::Batched`](crate::Fairness::Batched) serves its wait queues.
///
/// Within a queue the longest waiting is woken first, under every policy. A batch that a queue
/// cannot use up goes on to the next.
///
/// ```
/// use inflight_sbitmap::{BatchedOptions, SbitmapQueue, WakePolicy};
/// let policy = WakePolicy::BalancedRoundRobin { threshold: 4 };
/// let batched = BatchedOptions::new().wake_policy(policy);
/// let queue = SbitmapQueue::builder(64).fairness(batched).build().unwrap();
/// # let _ = queue;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum WakePolicy {
    /// One queue after the other. Of eight batches in a row each queue is looked at by one.
    #[default]
    RoundRobin,
    /// The queue with the most waiters first. Newcomers go round the queues, so one that is
    /// passed over fills up until it is served; how long that takes depends on the newcomers.
    FullestFirst,
    /// One after the other while no queue has more than `threshold` waiters above another, else the
    /// fullest first.
    BalancedRoundRobin {
        /// The largest difference that counts as balanced.
        threshold: usize,
    },
}
