//! The words of `Share::Lend`, and what is reckoned from them.
//!
//! [`Words`] names each word and each access that is atomic. There are two forms: [`Tokens`]
//! (super::tokens) are plain numbers, for the search of all orders and as oracle; `Slots`
//! (super::slots) are atomics. What is reckoned, and the steps ([`steps`](super::steps)), are here
//! once for both.

use super::Started;

/// What decides when tokens are kept, moved and passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Below so many tokens for a node there is one central count: a node's own would be empty too
    /// often to be worth it.
    pub central_below: usize,
    /// A node may keep `limit / (reserve_divisor * nodes)` idle tokens while others starve; 0 is
    /// none.
    pub reserve_divisor: usize,
    /// Of a node that holds more than its share while another starves, each so manieth release goes
    /// there; 0: none.
    pub give_every: u32,
    /// The most that is taken from `spare` at once.
    pub batch: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            central_below: 32,
            reserve_divisor: 8,
            give_every: 16,
            batch: 32,
        }
    }
}

impl Tuning {
    /// Whether so small a limit is one count for all.
    pub(super) fn is_central(&self, limit: usize, groups: usize) -> bool {
        groups > 1 && limit < self.central_below * nodes(groups)
    }
}

/// Groups that are nodes: the last is for front ends that belong to none.
fn nodes(groups: usize) -> usize {
    (groups - 1).max(1)
}

/// More idle tokens than that a group does not keep: its part of the limit.
pub(super) fn high(
    limit: usize,
    central: bool,
    groups: usize,
    group: usize,
    weight: impl Fn(usize) -> usize,
) -> usize {
    if groups == 1 {
        return usize::MAX;
    }
    if central {
        return 0;
    }
    let total: usize = (0..nodes(groups)).map(&weight).sum();
    (limit * weight(group)).div_ceil(total.max(1))
}

/// A write of a word that is not the writer's group's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Spare,
    Mark,
    Foreign,
}

const PEAK_ONE: usize = 512;

/// The words of one set of tokens and the lines of its groups. Each method is one atomic access or
/// one section of a group's lock, unless it is a rule of the lower half.
pub(super) trait Words<T> {
    fn groups(&self) -> usize;
    fn tuning(&self) -> &Tuning;
    fn limit(&self) -> usize;
    /// All tokens are in the stock.
    fn is_central(&self) -> bool;
    fn debt(&self) -> usize;
    /// Bit by group: somebody may wait there.
    fn starving(&self) -> u64;
    fn active(&self, group: usize) -> usize;
    /// CPUs: what a group's fair share is measured by.
    fn weight(&self, group: usize) -> usize;
    /// More idle tokens than that the group does not keep at all: see [`high`].
    fn high(&self, group: usize) -> usize;
    /// The most items that were active lately, falling slowly, in 1/512. A hint.
    fn peak(&self, group: usize) -> usize;
    fn set_peak(&mut self, group: usize, peak: usize);
    /// Releases since one was passed on. A hint.
    fn grace(&self, group: usize) -> u32;
    fn set_grace(&mut self, group: usize, grace: u32);

    /// Takes what `part` says of the group's idle tokens.
    fn take_free(&mut self, group: usize, part: impl Fn(usize) -> usize) -> usize;
    fn add_free(&mut self, group: usize, tokens: usize);
    fn take_spare(&mut self, part: impl Fn(usize) -> usize) -> usize;
    fn add_spare(&mut self, tokens: usize);
    /// Pays debt with at most so many tokens. Returns how many it took.
    fn pay(&mut self, tokens: usize) -> usize;
    /// One more is active.
    fn count(&mut self, group: usize);

    fn group(&self, front: usize) -> usize;
    /// Whether a newcomer of this front end has to stand behind others.
    fn must_wait(&self, front: usize) -> bool;
    /// Whether somebody may stand in the group's line.
    fn has_line(&self, group: usize) -> bool;
    /// An item of the front end, counted already, is active without having waited.
    fn start(&mut self, front: usize);
    /// J, under the lock: into the line, and the mark is set. Then the fence.
    fn join(&mut self, front: usize, item: T);
    /// An active item has ended, and its token is in hand. Returns the group.
    fn finish(&mut self, front: usize) -> usize;
    /// Under the lock: up to so many of the line start. Returns how many.
    fn serve(&mut self, group: usize, tokens: usize, started: &mut Started<'_, T>) -> usize;
    /// Under the lock: the first of that line starts, or its mark is cleared.
    fn serve_or_unmark(&mut self, group: usize, started: &mut Started<'_, T>) -> bool;
    /// The fence between a token that is published and the look at who waits.
    fn fence(&self);
    fn touched(&mut self, what: Touch);

    /// With one group nothing is shared.
    fn is_alone(&self) -> bool {
        self.groups() == 1
    }

    /// The others that starve, as bits.
    fn starving_beside(&self, group: usize) -> u64 {
        if self.is_alone() {
            return 0;
        }
        self.starving() & !(1 << group)
    }

    /// A demand of the group was seen: one more than are active.
    fn demand(&mut self, group: usize) {
        if self.is_alone() || self.tuning().reserve_divisor == 0 {
            return;
        }
        let now = (self.active(group) + 1) * PEAK_ONE;
        let peak = self.peak(group);
        let peak = match peak.checked_sub(now) {
            None => now,
            Some(over) => peak - over.div_ceil(PEAK_ONE),
        };
        self.set_peak(group, peak);
    }

    /// How many idle tokens the group may keep while others starve.
    fn reserve(&self, group: usize) -> usize {
        let parts = self.tuning().reserve_divisor * nodes(self.groups());
        if parts == 0 || self.is_alone() {
            return 0;
        }
        (self.peak(group) / PEAK_ONE)
            .saturating_sub(self.active(group))
            .min(self.limit() / parts)
    }

    /// What of the group's tokens is kept from somebody who is not without any.
    fn kept(&self, group: usize, by_the_needy: bool) -> usize {
        if by_the_needy { 0 } else { self.reserve(group) }
    }

    /// Takes a batch from the stock for the group.
    fn take_batch(&mut self, group: usize) -> usize {
        let most = if self.is_central() || self.starving_beside(group) != 0 {
            1
        } else {
            (self.limit() / (4 * nodes(self.groups()))).min(self.tuning().batch)
        };
        let taken = self.take_spare(|spare| most.min(spare / 2).max(1).min(spare));
        if taken > 0 {
            self.touched(Touch::Spare);
        }
        taken
    }

    /// Takes half of what another group can do without.
    fn take_foreign(&mut self, from: usize, by_the_needy: bool) -> usize {
        let kept = self.kept(from, by_the_needy);
        let taken = self.take_free(from, |free| free.saturating_sub(kept).div_ceil(2));
        if taken > 0 {
            self.touched(Touch::Foreign);
        }
        taken
    }

    /// Puts tokens where others look first.
    fn put_into_stock(&mut self, tokens: usize) {
        if self.is_alone() {
            self.add_free(0, tokens);
            return;
        }
        self.add_spare(tokens);
        self.touched(Touch::Spare);
    }

    /// What is the group's by right, among those that want something.
    fn fair(&self, group: usize, starving: u64) -> usize {
        let wants = |at: &usize| *at == group || self.active(*at) > 0 || starving & (1 << at) != 0;
        let groups = (0..self.groups()).filter(wants);
        let total: usize = groups.map(|g| self.weight(g)).sum();
        self.limit() * self.weight(group) / total.max(1)
    }

    /// Of the starving those that a token, held by `from` beside its active ones, should go to.
    fn worse_off(&self, from: usize) -> u64 {
        let starving = self.starving_beside(from);
        if starving == 0 {
            return 0;
        }
        let held = self.active(from) + 1;
        let over = self.is_central() || held > self.fair(from, starving);
        let worse = |to: &usize| {
            if starving & (1 << to) == 0 {
                return false;
            }
            if self.is_central() {
                // Nobody has a share to speak of: it goes round.
                self.active(*to) * self.weight(from) < held * self.weight(*to)
            } else {
                self.active(*to) < self.fair(*to, starving)
            }
        };
        let mask = |bits: u64, to: usize| bits | 1 << to;
        (0..self.groups())
            .filter(|to| over && worse(to))
            .fold(0, mask)
    }

    /// Whether one of these has nothing active.
    fn any_idle(&self, groups: u64) -> bool {
        (0..self.groups()).any(|at| groups & (1 << at) != 0 && self.active(at) == 0)
    }
}
