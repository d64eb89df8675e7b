//! The policies that are compared, by name.

use super::model::Model;
use inflight_tags::{Admission, Force, NoPreempt, WakeAccounting, WakePolicy};
use std::fmt;

/// The most tags beyond its depth a set can have.
const MAX_EXTRA: usize = 10_240;

/// How tags are given to jobs: an [`Admission`], with the settings for a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// What kernels do: who asks, tries at once, and each piece waits on its own.
    Preempt,
    /// The patch series without its last two patches: newcomers wait, later pieces of a split do
    /// not, and a freed tag wakes a waiter.
    PerWaiter,
    /// The patch series corrected: waiters are woken for as many tags as they need, wait queues in
    /// turn, and newcomers are let past by a hysteresis.
    PerTag,
    /// All eight patches as they were posted: waiters are woken for as many tags as they need, the
    /// fullest wait queue first, and newcomers are let past while two batches are free.
    AsPosted,
    /// As `Preempt`, and the later pieces of a split may exceed the depth, as many of them as the
    /// IOs that `depth` admits have.
    Elastic,
    /// The library's own: whole IOs, first come first served.
    Ours,
    /// As posted, but for one rule.
    Switched(Rule),
}

/// A rule of the posted series, which is switched off or put right while all others stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Patch 3 off: wait queues in turn.
    InTurn,
    /// Patch 4 off: newcomers try however many wait.
    Barging,
    /// Patch 5 corrected: newcomers are let past by a hysteresis.
    Hysteresis,
    /// Patch 5 off: newcomers are never let past more than eight who wait.
    NeverForced,
    /// Patch 6 off: the later pieces of a split wait as newcomers do.
    LaterPiecesWait,
    /// Patches 7 and 8 off: a wake is worth one tag.
    PerWaiter,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::InTurn,
        Self::Barging,
        Self::Hysteresis,
        Self::NeverForced,
        Self::LaterPiecesWait,
        Self::PerWaiter,
    ];
}

impl Policy {
    /// Those of the table, in the order of its columns.
    pub const ALL: [Self; 6] = [
        Self::Preempt,
        Self::PerWaiter,
        Self::PerTag,
        Self::AsPosted,
        Self::Elastic,
        Self::Ours,
    ];

    /// As posted, and with each rule switched.
    #[must_use]
    pub fn posted() -> Vec<Self> {
        let switched = Rule::ALL.into_iter().map(Self::Switched);
        std::iter::once(Self::AsPosted).chain(switched).collect()
    }

    /// Its name in tables and in JSON.
    ///
    /// ```
    /// assert_eq!(inflight_sim::hdd::Policy::PerTag.name(), "per_tag");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preempt => "preempt",
            Self::PerWaiter => "per_waiter",
            Self::PerTag => "per_tag",
            Self::AsPosted => "as_posted",
            Self::Elastic => "elastic",
            Self::Ours => "ours",
            Self::Switched(Rule::InTurn) => "in_turn",
            Self::Switched(Rule::Barging) => "barging",
            Self::Switched(Rule::Hysteresis) => "hysteresis",
            Self::Switched(Rule::NeverForced) => "never_forced",
            Self::Switched(Rule::LaterPiecesWait) => "later_wait",
            Self::Switched(Rule::PerWaiter) => "one_tag",
        }
    }

    /// What the set is built with.
    #[must_use]
    pub fn admission(self, model: &Model) -> Admission {
        let corrected = NoPreempt::default();
        let posted = corrected
            .force(Force::AsPosted)
            .wake_policy(WakePolicy::FullestFirst);
        Admission::NoPreempt(match self {
            Self::Preempt => return Admission::preempt(),
            Self::Elastic => {
                return Admission::elastic_overcommit(
                    (model.pieces().saturating_sub(1))
                        .saturating_mul(model.tags)
                        .min(MAX_EXTRA),
                );
            }
            Self::Ours => return Admission::WholeIo,
            Self::PerWaiter => corrected.accounting(WakeAccounting::PerWaiter),
            Self::PerTag => corrected,
            Self::AsPosted | Self::Switched(Rule::LaterPiecesWait) => posted,
            Self::Switched(Rule::InTurn) => posted.wake_policy(WakePolicy::RoundRobin),
            Self::Switched(Rule::Barging) => posted.threshold(usize::MAX),
            Self::Switched(Rule::Hysteresis) => posted.force(Force::Hysteresis),
            Self::Switched(Rule::NeverForced) => posted.force(Force::Never),
            Self::Switched(Rule::PerWaiter) => posted.accounting(WakeAccounting::PerWaiter),
        })
    }

    /// Whether the later pieces of a split wait as newcomers do: that is up to who asks.
    pub(super) fn later_pieces_wait(self) -> bool {
        self == Self::Switched(Rule::LaterPiecesWait)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
