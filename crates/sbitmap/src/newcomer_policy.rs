//! When a newcomer has to wait although ids are free.
//!
//! | mode | it has to wait | unless |
//! |---|---|---|
//! | `Fair`, `Fifo` | while there are waiters: `must_wait` (G1) | it overtakes them: `turns/overtake.rs` |
//! | `Batched` | if a crate above has a [`NewcomerPolicy`], and this one does not admit it (E1, E2) | it is privileged, or tries without waiting |
//! | all, in a crate above | while its tenant has its share: [`ShareLimiter`](crate::share_limiter::ShareLimiter) | |

/// G1: returns whether a newcomer gets no id because others wait, in `Fair` and `Fifo`.
#[inline(always)]
pub(crate) const fn must_wait(waiters: usize) -> bool {
    waiters != 0
}

/// When newcomers may try although more than the threshold wait: when tags are plenty.
///
/// Looked at with each batch of wakes, by the number of free tags and the size `B` of the batch.
/// With a batch of one, newcomers are never let past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Force {
    /// From more than `2 * B` free tags on, until at most `B` are.
    #[default]
    Hysteresis,
    /// While at least `2 * B` are free: what the patch series did as posted.
    AsPosted,
    /// Never: only the threshold counts.
    Never,
}

/// Rules for [`Fairness::Batched`](crate::Fairness::Batched): who may try past those who wait.
#[derive(Clone, Copy, Debug)]
pub struct NewcomerPolicy {
    /// While at most so many wait, newcomers try at once.
    pub threshold: usize,
    /// And also then.
    pub force: Force,
    /// Whether a wake is worth the waiter's [`weight`](crate::tenancy::Request::weight), and not
    /// one bit.
    pub per_tag: bool,
}
