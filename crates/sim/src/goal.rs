//! Statements about results, and whether they hold.

use std::fmt;

/// A statement about a table.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Goal {
    /// What is asked for.
    pub goal: String,
    /// The point at which it is nearest to failing.
    pub seen: String,
    /// Whether it holds.
    pub holds: bool,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds = if self.holds { "holds" } else { "FAILS" };
        write!(f, "{holds}: {} ({})", self.goal, self.seen)
    }
}

/// How far a number is within its limit: negative if it is beyond it.
pub(crate) struct Margin {
    seen: String,
    by: f64,
}

impl Margin {
    pub(crate) fn at_least(what: &str, at: &str, value: f64, limit: f64) -> Self {
        Self {
            seen: format!("{what} {value:.3}, least {limit:.3}, at {at}"),
            by: value / limit - 1.0,
        }
    }

    pub(crate) fn at_most(what: &str, at: &str, value: f64, limit: f64) -> Self {
        Self {
            seen: format!("{what} {value:.3}, most {limit:.3}, at {at}"),
            by: 1.0 - value / limit,
        }
    }

    /// Either limit may be negative or 0.
    pub(crate) fn within(
        what: &str,
        at: &str,
        value: f64,
        limits: &std::ops::RangeInclusive<f64>,
    ) -> Self {
        let (low, high) = (*limits.start(), *limits.end());
        Self {
            seen: format!("{what} {value:.3}, within {low:.1} to {high:.1}, at {at}"),
            by: (value - low).min(high - value) / (high - low),
        }
    }
}

/// The goal, if the table has something to say of it.
pub(crate) fn goal(goal: &str, margins: impl Iterator<Item = Margin>) -> Option<Goal> {
    let least = margins.min_by(|a, b| a.by.total_cmp(&b.by))?;
    Some(Goal {
        goal: goal.to_owned(),
        seen: least.seen,
        holds: least.by >= 0.0,
    })
}
