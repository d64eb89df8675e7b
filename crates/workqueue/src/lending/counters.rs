//! What the simulator counts of lending.

use super::{Lending, Reason};

/// What has been done by the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LendingCounters {
    /// Items that ran in another pod than their own, by reason: sibling, crowd, backlog.
    pub takes: [u64; 3],
    /// Those of them that left their node.
    pub far_takes: u64,
    /// How often a worker without work looked at the other pods.
    pub scans: u64,
}

impl LendingCounters {
    /// Items that ran in another pod than their own.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.takes.iter().sum()
    }

    /// A scan, and how many items it brought from where.
    pub fn note_scan(&mut self, lending: &Lending, thief: usize, found: Option<(usize, Reason)>) {
        self.scans += 1;
        if let Some((from, reason)) = found {
            self.takes[reason as usize] += 1;
            self.far_takes += u64::from(!lending.is_near(thief, from));
        }
    }
}
