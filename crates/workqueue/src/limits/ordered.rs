//! One item at a time in the order of queueing, while the place where items run changes.
//!
//! A change of attributes gives an ordered queue a new front end. It is plugged: what is queued
//! from now on collects there, and nothing of it starts before the older ones have run dry. Changes
//! may follow each other faster than items end; only the oldest front end is ever open.

use super::fronts::Fronts;
use super::per_node::PerNode;
use super::share::Shares;
use std::collections::VecDeque;

/// The limit of an ordered queue. It is one, and nothing can change that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ordered<T> {
    fronts: Fronts<T>,
    slot: PerNode,
    /// Front ends that are not dry, and the newest, oldest first.
    open: VecDeque<usize>,
}

impl<T> Ordered<T> {
    /// With its first front end, number 0.
    #[must_use]
    pub fn new() -> Self {
        let mut fronts = Fronts::new(1);
        let mut slot = PerNode::new(1);
        let one = Shares {
            nodes: vec![1],
            nodeless: 1,
        };
        slot.set(&mut fronts, &one, &mut |_, _| {});
        let first = fronts.add(0, false);
        Self {
            fronts,
            slot,
            open: VecDeque::from([first]),
        }
    }

    /// The attributes have changed: from now on items go to a new front end. Returns its number.
    pub fn change(&mut self) -> usize {
        let newest = self.fronts.add(0, true);
        self.open.push_back(newest);
        self.advance(&mut |_, _| unreachable!("the new front end is empty"));
        newest
    }

    /// The front end of new items.
    #[must_use]
    pub fn newest(&self) -> usize {
        *self.open.back().expect("there is always one")
    }

    /// A new item has come.
    pub fn admit(&mut self, item: T, mut started: impl FnMut(usize, T)) {
        let front = self.newest();
        let fronts = &mut self.fronts;
        self.slot.admit(fronts, front, item, &mut started);
    }

    /// The active item, which is of this front end, has ended.
    pub fn leave(&mut self, front: usize, mut started: impl FnMut(usize, T)) {
        let group = self.fronts.finish(front);
        self.slot.release(&mut self.fronts, group, &mut started);
        self.advance(&mut started);
    }

    /// Takes back an item that waits. What became active for it in its stead is told.
    pub fn remove(
        &mut self,
        front: usize,
        wanted: impl Fn(&T) -> bool,
        mut started: impl FnMut(usize, T),
    ) -> Option<T> {
        let item = self.fronts.take(front, wanted);
        self.advance(&mut started);
        item
    }

    /// The oldest front end that is dry gives way to the next.
    fn advance(&mut self, started: &mut dyn FnMut(usize, T)) {
        while let [oldest, next, ..] = *self.open.make_contiguous() {
            if self.fronts.active(oldest) + self.fronts.inside(oldest).len() > 0 {
                return;
            }
            self.open.pop_front();
            self.fronts.unplug(next);
            self.slot.fill_in_turn(&mut self.fronts, 0, started, 1);
        }
    }
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self::new()
    }
}
