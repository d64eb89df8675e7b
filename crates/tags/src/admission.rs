//! The order of callers when tags are short: the policies, as data.
//!
//! The bitmap decides which newcomer has to wait, by [`NewcomerPolicy`] in its module
//! `newcomer_policy`.

use inflight_sbitmap::WakePolicy;
use inflight_sbitmap::tenancy::{Force, NewcomerPolicy};

/// The order in which callers get tags when tags are short.
///
/// Large requests are split into pieces of the size that the device takes, and each piece needs a
/// tag of its own. When many submitters wait, the order in which tags are given out decides whether
/// the pieces of one request stay together. A disk needs a seek wherever they do not. So the
/// policies differ most for [`Tenant::split`](crate::Tenant::split).
///
/// | | newcomers past those who wait | pieces of a split | a wake |
/// |---|---|---|---|
/// | [`WholeIo`](Admission::WholeIo) | no | together, before anybody else's | one for a whole request |
/// | [`Preempt`](Admission::Preempt) | yes | each for itself | one for a piece |
/// | [`NoPreempt`](Admission::NoPreempt) | while few wait, or tags are plenty | each, past newcomers | by [`WakeAccounting`] |
/// | [`ElasticOvercommit`](Admission::ElasticOvercommit) | yes | beyond the depth if need be | one for a request that has no tag yet |
///
/// The ideas: `Preempt` is what block layers do; `NoPreempt` and the accounting by tags come from a
/// patch series for blk-mq ("improve tag allocation under heavy load", 2022), `ElasticOvercommit`
/// from its review. `WholeIo` is this crate's.
///
/// ```
/// use inflight_tags::{Admission, NoPreempt, TagSet, WakeAccounting};
/// let policy = NoPreempt::default().accounting(WakeAccounting::PerTag);
/// let set = TagSet::builder()
///     .depth(64)
///     .admission(Admission::NoPreempt(policy))
///     .build(|_, _| ())?;
/// # let _ = set;
/// # Ok::<(), inflight_tags::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// The tags of one request arrive together, or in sequence before anybody else's, in the order
    /// of requests. Small requests do not wait behind all large ones.
    #[default]
    WholeIo,
    /// A caller that tries while a tag is free may take it, past all waiters, which are woken in
    /// batches: [`Fairness::Batched`](inflight_sbitmap::Fairness::Batched), whose wait queues are
    /// served in this order.
    Preempt(WakePolicy),
    /// As `Preempt`, but newcomers wait behind the others while many wait and few tags are free.
    NoPreempt(NoPreempt),
    /// As `Preempt`, and the later pieces of a request whose first piece has a tag take one of
    /// `max_extra` more ids when no other is free, so for a while more tags than the depth are in
    /// flight. Each hardware queue has `max_extra` of them.
    ElasticOvercommit {
        /// The number of tags beyond the depth, per hardware queue.
        max_extra: usize,
        /// The order in which the wait queues are served.
        wake_policy: WakePolicy,
    },
}

impl Admission {
    /// Returns [`Preempt`](Admission::Preempt) with its wait queues served round robin.
    #[must_use]
    pub const fn preempt() -> Self {
        Self::Preempt(WakePolicy::RoundRobin)
    }

    /// Returns [`ElasticOvercommit`](Admission::ElasticOvercommit) with its wait queues served
    /// round robin.
    ///
    /// ```
    /// # use inflight_tags::{Admission, TagSet};
    /// let set = TagSet::builder().depth(8).admission(Admission::elastic_overcommit(2));
    /// assert_eq!(set.build(|_, _| ())?.capacity(), 10);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub const fn elastic_overcommit(max_extra: usize) -> Self {
        Self::ElasticOvercommit {
            max_extra,
            wake_policy: WakePolicy::RoundRobin,
        }
    }

    /// The order of the wait queues, if there are several.
    pub(crate) const fn wake_policy(self) -> Option<WakePolicy> {
        match self {
            Self::WholeIo => None,
            Self::Preempt(wake_policy) | Self::ElasticOvercommit { wake_policy, .. } => {
                Some(wake_policy)
            }
            Self::NoPreempt(rules) => Some(rules.wake_policy),
        }
    }

    pub(crate) fn newcomers(self) -> Option<NewcomerPolicy> {
        let Self::NoPreempt(rules) = self else {
            return None;
        };
        Some(NewcomerPolicy {
            threshold: rules.threshold,
            force: rules.force,
            per_tag: rules.accounting == WakeAccounting::PerTag,
        })
    }
}

/// The settings of [`Admission::NoPreempt`].
///
/// ```
/// use inflight_tags::{Force, NoPreempt, WakeAccounting, WakePolicy};
/// let policy = NoPreempt::default();
/// assert_eq!(policy.threshold, 8);
/// assert_eq!(policy.force, Force::Hysteresis);
/// assert_eq!(policy.accounting, WakeAccounting::PerTag);
/// let as_posted = policy.force(Force::AsPosted).threshold(4);
/// assert_eq!(as_posted.threshold, 4);
/// let by_waiters = policy.accounting(WakeAccounting::PerWaiter);
/// assert_eq!(by_waiters.wake_policy(WakePolicy::FullestFirst).threshold, 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoPreempt {
    /// While at most this many callers wait, newcomers try at once.
    pub threshold: usize,
    /// When newcomers may try although more wait.
    pub force: Force,
    /// The worth of a wake.
    pub accounting: WakeAccounting,
    /// The order in which the wait queues are served.
    pub wake_policy: WakePolicy,
}

impl Default for NoPreempt {
    fn default() -> Self {
        Self {
            threshold: 8,
            force: Force::Hysteresis,
            accounting: WakeAccounting::PerTag,
            wake_policy: WakePolicy::RoundRobin,
        }
    }
}

impl NoPreempt {
    /// Sets the number of waiters up to which newcomers try at once.
    #[must_use]
    pub const fn threshold(mut self, waiters: usize) -> Self {
        self.threshold = waiters;
        self
    }

    /// Sets when newcomers may try although more wait.
    #[must_use]
    pub const fn force(mut self, force: Force) -> Self {
        self.force = force;
        self
    }

    /// Sets the worth of a wake.
    #[must_use]
    pub const fn accounting(mut self, accounting: WakeAccounting) -> Self {
        self.accounting = accounting;
        self
    }

    /// Sets the order in which the wait queues are served.
    #[must_use]
    pub const fn wake_policy(mut self, policy: WakePolicy) -> Self {
        self.wake_policy = policy;
        self
    }
}

/// The worth of a waiter's wake when a batch of freed tags is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WakeAccounting {
    /// One tag: as many waiters are woken as tags came back.
    PerWaiter,
    /// As many tags as the waiter needs for its whole request. Waiters are woken until the sum
    /// reaches the number of tags that came back; a rest that a wait queue cannot use passes on to
    /// the next.
    PerTag,
}
