//! The words of `Share::Lend` as plain numbers: who holds the tokens.
//!
//! A token is the right to have one active item. There are `limit` of them, plus `debt` that are
//! to be destroyed. What is not in somebody's hand lies in a node's `free` or in `spare`.

use super::Started;
use super::fronts::Fronts;
use super::rules::{Touch, Tuning, Words, high};
use super::steps::{self, Op};

/// How often words were written that do not belong to the writer's node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Touches {
    /// The common stock.
    pub spare: u64,
    /// The word of starving nodes.
    pub bits: u64,
    /// Another node's words.
    pub foreign: u64,
}

impl Touches {
    /// All of them.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.spare + self.bits + self.foreign
    }
}

/// What belongs to a group: one cache line of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) free: usize,
    pub(super) active: usize,
    weight: usize,
    peak: usize,
    grace: u32,
}

/// All tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tokens {
    pub(super) limit: usize,
    pub(super) debt: usize,
    pub(super) spare: usize,
    pub(super) starving: u64,
    pub(super) groups: Vec<Group>,
    pub(super) central: bool,
    tuning: Tuning,
    pub(super) touches: Touches,
}

impl Tokens {
    pub(super) fn new(limit: usize, weights: &[usize], tuning: Tuning) -> Self {
        let group = |&weight: &usize| Group {
            free: 0,
            active: 0,
            weight: weight.max(1),
            peak: 0,
            grace: 0,
        };
        let mut tokens = Self {
            limit,
            debt: 0,
            spare: limit,
            starving: 0,
            groups: weights.iter().map(group).collect(),
            central: tuning.is_central(limit, weights.len()),
            tuning,
            touches: Touches::default(),
        };
        if let [alone] = &mut tokens.groups[..] {
            alone.free = std::mem::take(&mut tokens.spare);
        }
        tokens
    }

    /// The limit is another one, and so is the debt, in one step. Returns what is to be done then.
    pub(super) fn change<T>(&mut self, limit: usize) -> impl Iterator<Item = Op<T>> + use<T> {
        let groups = self.groups.len();
        let central = self.tuning.is_central(limit, groups);
        let was_central = std::mem::replace(&mut self.central, central);
        let old = std::mem::replace(&mut self.limit, limit);
        self.debt += old.saturating_sub(limit);
        steps::change(old, limit, groups, central && !was_central)
    }

    /// The CPUs of the nodes have changed.
    pub(super) fn set_weights(&mut self, weights: &[usize]) {
        for (group, weight) in self.groups.iter_mut().zip(weights) {
            group.weight = (*weight).max(1);
        }
    }

    pub(super) fn active(&self) -> usize {
        self.groups.iter().map(|g| g.active).sum()
    }

    /// Tokens in nobody's hand.
    pub(super) fn idle(&self) -> usize {
        self.spare + self.groups.iter().map(|g| g.free).sum::<usize>()
    }
}

/// The tokens, and the lines of those who wait for some.
pub(super) struct Plain<'a, T> {
    pub(super) fronts: &'a mut Fronts<T>,
    pub(super) tokens: &'a mut Tokens,
}

pub(super) fn plain<'a, T>(fronts: &'a mut Fronts<T>, tokens: &'a mut Tokens) -> Plain<'a, T> {
    Plain { fronts, tokens }
}

impl<T> Words<T> for Plain<'_, T> {
    fn groups(&self) -> usize {
        self.tokens.groups.len()
    }

    fn tuning(&self) -> &Tuning {
        &self.tokens.tuning
    }

    fn limit(&self) -> usize {
        self.tokens.limit
    }

    fn is_central(&self) -> bool {
        self.tokens.central
    }

    fn debt(&self) -> usize {
        self.tokens.debt
    }

    fn starving(&self) -> u64 {
        self.tokens.starving
    }

    fn active(&self, group: usize) -> usize {
        self.tokens.groups[group].active
    }

    fn weight(&self, group: usize) -> usize {
        self.tokens.groups[group].weight
    }

    fn high(&self, group: usize) -> usize {
        let Tokens { limit, central, .. } = *self.tokens;
        high(limit, central, self.groups(), group, |g| self.weight(g))
    }

    fn peak(&self, group: usize) -> usize {
        self.tokens.groups[group].peak
    }

    fn set_peak(&mut self, group: usize, peak: usize) {
        self.tokens.groups[group].peak = peak;
    }

    fn grace(&self, group: usize) -> u32 {
        self.tokens.groups[group].grace
    }

    fn set_grace(&mut self, group: usize, grace: u32) {
        self.tokens.groups[group].grace = grace;
    }

    fn take_free(&mut self, group: usize, part: impl Fn(usize) -> usize) -> usize {
        let free = &mut self.tokens.groups[group].free;
        let taken = part(*free);
        *free -= taken;
        taken
    }

    fn add_free(&mut self, group: usize, tokens: usize) {
        self.tokens.groups[group].free += tokens;
    }

    fn take_spare(&mut self, part: impl Fn(usize) -> usize) -> usize {
        let taken = part(self.tokens.spare);
        self.tokens.spare -= taken;
        taken
    }

    fn add_spare(&mut self, tokens: usize) {
        self.tokens.spare += tokens;
    }

    fn pay(&mut self, tokens: usize) -> usize {
        let paid = tokens.min(self.tokens.debt);
        self.tokens.debt -= paid;
        paid
    }

    fn count(&mut self, group: usize) {
        self.tokens.groups[group].active += 1;
    }

    fn group(&self, front: usize) -> usize {
        self.fronts.group(front)
    }

    fn must_wait(&self, front: usize) -> bool {
        self.fronts.must_wait(front) || self.has_line(self.fronts.group(front))
    }

    fn has_line(&self, group: usize) -> bool {
        self.fronts.waiting(group) > 0
    }

    fn start(&mut self, front: usize) {
        self.fronts.start(front);
    }

    fn join(&mut self, front: usize, item: T) {
        let group = self.fronts.group(front);
        self.fronts.join(front, item);
        if !self.is_alone() && self.tokens.starving & (1 << group) == 0 {
            self.tokens.starving |= 1 << group;
            self.touched(Touch::Mark);
        }
    }

    fn finish(&mut self, front: usize) -> usize {
        let group = self.fronts.finish(front);
        self.tokens.groups[group].active -= 1;
        group
    }

    fn serve(&mut self, group: usize, tokens: usize, started: &mut Started<'_, T>) -> usize {
        for served in 0..tokens {
            let Some((front, item)) = self.fronts.next(group) else {
                return served;
            };
            self.count(group);
            self.fronts.start(front);
            started(front, item);
        }
        tokens
    }

    fn serve_or_unmark(&mut self, group: usize, started: &mut Started<'_, T>) -> bool {
        if self.serve(group, 1, started) == 1 {
            return true;
        }
        if self.tokens.starving & (1 << group) != 0 {
            self.tokens.starving &= !(1 << group);
            self.touched(Touch::Mark);
        }
        false
    }

    fn fence(&self) {}

    fn touched(&mut self, what: Touch) {
        let touches = &mut self.tokens.touches;
        match what {
            Touch::Spare => touches.spare += 1,
            Touch::Mark => touches.bits += 1,
            Touch::Foreign => touches.foreign += 1,
        }
    }
}
