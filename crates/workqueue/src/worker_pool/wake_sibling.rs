//! Whom to wake for an item that has come, where other pods could take it: the other half of
//! [`StealPolicy`](crate::steal_policy::StealPolicy).

use crate::steal_policy::{Load, Reason, StealPolicy};

/// Who is to be woken for an item that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeTarget {
    /// A worker of its own pod.
    Own,
    /// A worker of that pod, to steal it.
    Other(usize, Reason),
    /// Nobody: those that run will take it.
    Nobody,
}

impl StealPolicy {
    /// From how many waiting entries on a pool wants help, whatever the others do, if nothing else
    /// of its load changes: with fewer it has workers of its own to wake, or a move does not pay.
    #[must_use]
    pub fn needs_help_from(&self, own: usize, mine: &Load) -> usize {
        if self.seeks_place(own, mine) {
            return 1;
        }
        if !self.is_full(own, mine) || mine.service == 0 {
            return usize::MAX;
        }
        let nearest = self.costs.near.min(self.costs.far);
        let from = nearest.saturating_mul(self.pods[own].cpus as u64);
        usize::try_from(from.div_ceil(mine.service).max(1)).unwrap_or(usize::MAX)
    }

    /// Whether an item would run better elsewhere than beside those that are awake in its own pod,
    /// if there is a place.
    #[must_use]
    pub fn seeks_place(&self, own: usize, mine: &Load) -> bool {
        let sibling =
            self.is_packed(own, mine) && self.sibling_loss(own, mine) > self.costs.transfer;
        sibling || self.is_short_of_cpus(own, mine)
    }

    /// *wake*: an item has been queued in pool `own`.
    #[must_use]
    pub fn wake_for(&self, own: usize, loads: &[Load]) -> WakeTarget {
        let mine = &loads[own];
        if self.is_packed(own, mine) {
            let loss = self.sibling_loss(own, mine);
            let whole_core = |to: &usize| {
                let theirs = &loads[*to];
                theirs.waiting == 0
                    && theirs.awake < self.cores_left(*to, theirs)
                    && self.pays(loss, own, *to)
            };
            if let Some(to) = self.others(own).find(whole_core) {
                return WakeTarget::Other(to, Reason::Sibling);
            }
        }
        if self.is_short_of_cpus(own, mine) {
            let place = |to: &usize| loads[*to].waiting == 0 && self.has_place(*to, &loads[*to]);
            if let Some(to) = self.others(own).find(place) {
                return WakeTarget::Other(to, Reason::Submitters);
            }
        }
        if !self.is_full(own, mine) {
            return WakeTarget::Own;
        }
        let drain = self.drain_ns(own, mine);
        let idle = |to: &usize| {
            let theirs = &loads[*to];
            drain >= self.threshold(own, *to)
                && theirs.waiting == 0
                && theirs.awake < self.pods[*to].cpus
                && self.is_prompt(theirs)
        };
        match self.others(own).find(idle) {
            Some(to) => WakeTarget::Other(to, Reason::Backlog),
            None => WakeTarget::Nobody,
        }
    }
}
