//! Slots that belong to a memory node and are not lent: `Share::PerNode`.

use super::Started;
use super::fronts::Fronts;
use super::share::Shares;

/// By group: how many items are active, and how many may be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PerNode {
    active: Vec<usize>,
    max: Vec<usize>,
}

impl PerNode {
    pub(super) fn new(groups: usize) -> Self {
        Self {
            active: vec![0; groups],
            max: vec![0; groups],
        }
    }

    pub(super) fn active(&self, group: usize) -> usize {
        self.active[group]
    }

    pub(super) fn max(&self, group: usize) -> usize {
        self.max[group]
    }

    pub(super) fn admit<T>(
        &mut self,
        fronts: &mut Fronts<T>,
        front: usize,
        item: T,
        started: &mut Started<'_, T>,
    ) {
        let group = fronts.group(front);
        if fronts.must_wait(front) || self.active[group] >= self.max[group] {
            fronts.join(front, item);
            return;
        }
        self.active[group] += 1;
        fronts.start(front);
        started(front, item);
    }

    /// One slot comes free; one item is activated, unless the limit has been lowered below what is
    /// active.
    pub(super) fn release<T>(
        &mut self,
        fronts: &mut Fronts<T>,
        group: usize,
        started: &mut Started<'_, T>,
    ) {
        self.active[group] -= 1;
        self.fill_in_turn(fronts, group, started, 1);
    }

    /// Up to `most` of the group's line become active.
    pub(super) fn fill_in_turn<T>(
        &mut self,
        fronts: &mut Fronts<T>,
        group: usize,
        started: &mut Started<'_, T>,
        most: usize,
    ) {
        for _ in 0..most {
            if self.active[group] >= self.max[group] {
                return;
            }
            let Some((front, item)) = fronts.next(group) else {
                return;
            };
            self.active[group] += 1;
            fronts.start(front);
            started(front, item);
        }
    }

    /// New limits. What is active stays so; after a rise the front ends are served in their order,
    /// one item each, until a round brings nothing.
    pub(super) fn set<T>(
        &mut self,
        fronts: &mut Fronts<T>,
        shares: &Shares,
        started: &mut Started<'_, T>,
    ) {
        let nodeless = (self.max.len() > 1).then_some(shares.nodeless);
        self.max = shares.nodes.iter().copied().chain(nodeless).collect();
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for front in 0..fronts.len() {
                let group = fronts.group(front);
                if self.active[group] >= self.max[group] {
                    continue;
                }
                if let Some(item) = fronts.next_of(front) {
                    self.active[group] += 1;
                    fronts.start(front);
                    started(front, item);
                    moved = true;
                }
            }
        }
    }
}
