//! When a newcomer has to wait although ids are free.
//!
//! | mode | it has to wait | unless |
//! |---|---|---|
//! | `Fair`, `Fifo` | while anybody waits: `must_wait` (G1) | it overtakes them: `turns/overtake.rs` |
//! | `Batched` | if a crate above has a [`NewcomerPolicy`], and this one does not admit it (E1, E2) | it is privileged, or asks without waiting |
//! | all, in a crate above | while its tenant has its share: [`ShareLimiter`](crate::share_limiter::ShareLimiter) | |

/// G1: whether a newcomer gets no id because somebody waits, in `Fair` and `Fifo`.
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

impl NewcomerPolicy {
    /// E1: whether a newcomer may try, who sees so many wait. `plenty`: as `is_plenty` said.
    #[inline]
    pub(crate) fn admits(&self, plenty: bool, waiters: impl FnOnce() -> usize) -> bool {
        plenty || waiters() <= self.threshold
    }

    /// E2: the same for a newcomer that is in a list by now. Only those who sleep count, and unless
    /// as many bits are in use as make a batch, nobody might come to wake it.
    pub(crate) fn admits_waiter(
        &self,
        plenty: bool,
        sleepers: impl FnOnce() -> usize,
        in_use: impl FnOnce() -> usize,
        batch: u32,
    ) -> bool {
        let others = || sleepers().saturating_sub(1);
        self.admits(plenty, others) || in_use() < batch as usize
    }

    /// Whether tags count as plenty until a batch is woken.
    pub(crate) fn is_plenty_at_first(&self) -> bool {
        self.force != Force::Never // at first all bits are free
    }

    /// E3: whether tags are plenty, as a batch of `batch` wakes is due while `free()` are free.
    pub(crate) fn is_plenty(&self, was: bool, batch: u32, free: impl FnOnce() -> usize) -> bool {
        let batch = batch as usize;
        match self.force {
            Force::Never => false,
            // Waiters are woken one by one.
            _ if batch == 1 => false,
            Force::AsPosted => free() >= 2 * batch,
            Force::Hysteresis => {
                let free = free();
                free > 2 * batch || (was && free > batch)
            }
        }
    }
}
