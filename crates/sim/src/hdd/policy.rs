//! The policies that are compared, by name.

use super::model::Model;
use inflight_tags::{Admission, NoPreempt, WakeAccounting};
use std::fmt;

/// The most tags beyond its depth a set can have.
const MAX_EXTRA: usize = 10_240;

/// Who may have a tag when: an [`Admission`] with the settings it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Policy {
    /// What kernels do: who asks, tries at once, and each piece waits on its own.
    Preempt,
    /// The patch series without its last two patches: newcomers wait, later pieces of a split do
    /// not, and a freed tag wakes a waiter.
    PerWaiter,
    /// The whole patch series: waiters are woken for as many tags as they need.
    PerTag,
    /// As `Preempt`, and the later pieces of a split may exceed the depth, as many of them as the
    /// IOs that `depth` admits have.
    Elastic,
    /// The library's own: whole IOs, first come first served.
    Ours,
}

impl Policy {
    /// All of them, in the order of the table's columns.
    pub const ALL: [Self; 5] = [
        Self::Preempt,
        Self::PerWaiter,
        Self::PerTag,
        Self::Elastic,
        Self::Ours,
    ];

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
            Self::Elastic => "elastic",
            Self::Ours => "ours",
        }
    }

    /// What the set is built with.
    #[must_use]
    pub fn admission(self, model: &Model) -> Admission {
        let no_preempt =
            |accounting| Admission::NoPreempt(NoPreempt::default().accounting(accounting));
        match self {
            Self::Preempt => Admission::preempt(),
            Self::PerWaiter => no_preempt(WakeAccounting::PerWaiter),
            Self::PerTag => no_preempt(WakeAccounting::PerTag),
            Self::Elastic => Admission::elastic_overcommit(
                (model.pieces().saturating_sub(1))
                    .saturating_mul(model.tags)
                    .min(MAX_EXTRA),
            ),
            Self::Ours => Admission::WholeIo,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
