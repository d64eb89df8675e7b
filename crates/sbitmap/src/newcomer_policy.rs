//! When newcomers may try past those who wait: what a crate above says of `Batched`.

/// When newcomers may try although more than the threshold wait: when tags are plenty.
///
/// Looked at with each batch of wakes, by the number of free tags and the size `B` of the batch.
/// With a batch of one, newcomers are never let past.
///
/// ```
/// # use inflight_sbitmap::tenancy::Force;
/// assert_eq!(Force::default(), Force::Hysteresis);
/// ```
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
