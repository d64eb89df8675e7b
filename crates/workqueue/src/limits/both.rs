//! The two forms side by side: each event happens to both, and they have to do the same.

use super::machine;
use super::{FrontEnd, Share, Slots, Tuning, Waits, gate_of};
use std::fmt::Debug;
use std::ops::Deref;

impl Waits for u32 {
    fn waits_at(&self, _ticket: u64) {}
}

impl Waits for () {
    fn waits_at(&self, _ticket: u64) {}
}

/// The pure form, to which it dereferences, and the threaded one.
#[derive(Debug)]
pub(super) struct Limits<T> {
    pure: machine::Limits<T>,
    pub(super) slots: Slots<T>,
    share: Share,
    fronts: Vec<Option<usize>>,
}

impl<T> Deref for Limits<T> {
    type Target = machine::Limits<T>;

    fn deref(&self) -> &Self::Target {
        &self.pure
    }
}

impl<T: Waits + Copy + Debug + Ord> Limits<T> {
    pub(super) fn new(share: Share, max: usize, cpus: &[usize]) -> Self {
        Self::tuned(share, max, cpus, Tuning::default())
    }

    pub(super) fn tuned(share: Share, max: usize, cpus: &[usize], tuning: Tuning) -> Self {
        Self {
            pure: machine::Limits::tuned(share, max, cpus, tuning),
            slots: Slots::tuned(share, max, cpus, tuning),
            share,
            fronts: Vec::new(),
        }
    }

    /// Before anything has come.
    pub(super) fn add_front(&mut self, node: Option<usize>) -> FrontEnd {
        self.fronts.push(node);
        self.pure.add_front(node)
    }

    /// What the threaded form calls it.
    fn slot(&self, front: FrontEnd) -> FrontEnd {
        self.slots.front(front, self.fronts[front])
    }

    fn each(
        &mut self,
        in_order: bool,
        mut started: impl FnMut(FrontEnd, T),
        pure: impl FnOnce(&mut machine::Limits<T>, &mut dyn FnMut(FrontEnd, T)),
        slots: impl FnOnce(&Slots<T>, &mut dyn FnMut(FrontEnd, T)),
    ) {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        pure(&mut self.pure, &mut |front, item| {
            one.push((front, item));
            started(front, item);
        });
        slots(&self.slots, &mut |front, item| {
            other.push((gate_of(front), item));
        });
        if !in_order {
            one.sort_unstable();
            other.sort_unstable();
        }
        assert_eq!(one, other, "pure and threaded");
        assert_eq!(self.pure.active(), self.slots.active());
        if self.share == Share::Lend {
            assert_eq!(self.pure.idle_tokens(), self.slots.idle_tokens());
        }
    }

    pub(super) fn admit(&mut self, front: FrontEnd, item: T, started: impl FnMut(FrontEnd, T)) {
        let pure = |limits: &mut machine::Limits<T>, started: &mut dyn FnMut(FrontEnd, T)| {
            limits.admit(front, item, started);
        };
        let slot = self.slot(front);
        self.each(true, started, pure, |slots, started| {
            match slots.try_admit(slot) {
                Ok(()) => started(slot, item),
                Err(why) => slots.admit_slowly(slot, item, why, started),
            }
        });
    }

    pub(super) fn leave(&mut self, front: FrontEnd, started: impl FnMut(FrontEnd, T)) {
        let pure = |limits: &mut machine::Limits<T>, started: &mut dyn FnMut(FrontEnd, T)| {
            limits.leave(front, started);
        };
        let slot = self.slot(front);
        self.each(true, started, pure, |slots, started| {
            slots.leave(slot, started);
        });
    }

    pub(super) fn remove(&mut self, front: FrontEnd, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let slot = self.slot(front);
        let ticket = self.slots.find(slot, &wanted);
        let other = ticket.and_then(|ticket| self.slots.remove(slot, ticket, &wanted));
        let one = self.pure.remove(front, wanted);
        assert_eq!(one, other);
        one
    }

    pub(super) fn set_max_active(&mut self, max: usize, started: impl FnMut(FrontEnd, T)) {
        self.each(
            false,
            started,
            |limits, started| limits.set_max_active(max, started),
            |slots, started| slots.set_max_active(max, started),
        );
    }

    pub(super) fn set_min_active(&mut self, min: usize, started: impl FnMut(FrontEnd, T)) {
        self.each(
            false,
            started,
            |limits, started| limits.set_min_active(min, started),
            |slots, started| slots.set_min_active(min, started),
        );
        let both = (self.pure.max_active(), self.pure.min_active());
        assert_eq!(both, self.slots.limits());
    }

    pub(super) fn freeze(&mut self) {
        self.pure.freeze();
        self.slots.set_frozen(true, &mut |_, _| panic!("frozen"));
    }

    pub(super) fn thaw(&mut self, started: impl FnMut(FrontEnd, T)) {
        self.each(
            false,
            started,
            |limits, started| limits.thaw(started),
            |slots, started| slots.set_frozen(false, started),
        );
    }

    pub(super) fn set_cpus(&mut self, cpus: &[usize], started: impl FnMut(FrontEnd, T)) {
        self.each(
            false,
            started,
            |limits, started| limits.set_cpus(cpus, started),
            |slots, started| slots.set_cpus(cpus, started),
        );
    }

    /// Active items of a node, or of no node, and how many there may be.
    pub(super) fn node(&self, node: Option<usize>) -> (usize, usize) {
        let nodes = self.slots.by_node(&[]);
        let seen = nodes[node.unwrap_or(nodes.len() - 1)];
        assert_eq!(seen, self.pure.node(node));
        seen
    }

    /// Active items of a front end, and items that wait in it.
    pub(super) fn front(&self, front: FrontEnd) -> (usize, usize) {
        let seen = self.pure.front(front);
        assert_eq!(seen.1, self.slots.inactive_at(self.slot(front)));
        seen
    }
}
