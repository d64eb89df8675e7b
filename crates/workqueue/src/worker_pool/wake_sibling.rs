//! Which worker to wake for a new item that other pods could take: the other half of
//! [`StealPolicy`].

use crate::steal_policy::{Load, Reason, StealPolicy};

/// The worker to wake for a new item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeTarget {
    /// A worker of its own pod.
    Own,
    /// A worker of that pod, which will steal it.
    Other(usize, Reason),
    /// None: the running workers will take it.
    Nobody,
}

impl StealPolicy {
    /// The number of waiting entries from which a pool wants help, whatever the others do, while
    /// the rest of its load stays the same. With fewer, it has its own workers to wake, or a move
    /// does not pay.
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

    /// Whether an item would run better elsewhere than beside the awake workers of its own pod, if
    /// there is a place.
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
        };
        match self.others(own).find(idle) {
            Some(to) => WakeTarget::Other(to, Reason::Backlog),
            None => WakeTarget::Nobody,
        }
    }
}
