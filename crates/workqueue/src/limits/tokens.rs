//! The words of `Share::Lend`: who holds the tokens.
//!
//! A token is the right to have one active item. There are `limit` of them, plus `debt` that are
//! to be destroyed. What is not in somebody's hand lies in a node's `free` or in `spare`.

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
    /// CPUs: what its fair share is measured by.
    pub(super) weight: usize,
    /// The most items that were active lately, falling slowly, in 1/512.
    peak: usize,
    /// Releases since one was passed on.
    pub(super) grace: u32,
}

/// All tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tokens {
    pub(super) limit: usize,
    pub(super) debt: usize,
    pub(super) spare: usize,
    /// Bit by group: somebody may wait there.
    pub(super) starving: u64,
    pub(super) groups: Vec<Group>,
    pub(super) central: bool,
    pub(super) tuning: Tuning,
    pub(super) touches: Touches,
}

const PEAK_ONE: usize = 512;

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
            central: false,
            tuning,
            touches: Touches::default(),
        };
        if tokens.is_alone() {
            tokens.groups[0].free = std::mem::take(&mut tokens.spare);
        }
        tokens.central = tokens.wants_central();
        tokens
    }

    /// With one group nothing is shared.
    pub(super) fn is_alone(&self) -> bool {
        self.groups.len() == 1
    }

    /// Groups that are nodes: the last is for front ends that belong to none.
    fn nodes(&self) -> usize {
        (self.groups.len() - 1).max(1)
    }

    pub(super) fn wants_central(&self) -> bool {
        !self.is_alone() && self.limit < self.tuning.central_below * self.nodes()
    }

    /// The CPUs of the nodes have changed.
    pub(super) fn set_weights(&mut self, weights: &[usize]) {
        for (group, weight) in self.groups.iter_mut().zip(weights) {
            group.weight = (*weight).max(1);
        }
    }

    /// The others, as bits.
    pub(super) fn starving_beside(&self, group: usize) -> u64 {
        self.starving & !(1 << group)
    }

    /// An item has become active in the group.
    pub(super) fn count(&mut self, group: usize) {
        self.groups[group].active += 1;
    }

    /// A demand of the group was seen: one more than are active.
    pub(super) fn demand(&mut self, group: usize) {
        if self.tuning.reserve_divisor == 0 {
            return;
        }
        let group = &mut self.groups[group];
        let now = (group.active + 1) * PEAK_ONE;
        group.peak = match group.peak.checked_sub(now) {
            None => now,
            Some(over) => group.peak - over.div_ceil(PEAK_ONE),
        };
    }

    /// How many idle tokens the group may keep while others starve.
    fn reserve(&self, group: usize) -> usize {
        let parts = self.tuning.reserve_divisor * self.nodes();
        if parts == 0 {
            return 0;
        }
        let group = &self.groups[group];
        (group.peak / PEAK_ONE)
            .saturating_sub(group.active)
            .min(self.limit / parts)
    }

    /// What may be taken from the group's free tokens: all if whoever asks is without any.
    pub(super) fn takeable(&self, group: usize, by_the_needy: bool) -> usize {
        let free = self.groups[group].free;
        if by_the_needy {
            return free;
        }
        free.saturating_sub(self.reserve(group))
    }

    /// Takes a batch from the common stock.
    pub(super) fn take_spare(&mut self, group: usize) -> usize {
        let batch = if self.central || self.starving_beside(group) != 0 {
            1
        } else {
            let part = self.limit / (4 * self.nodes());
            part.min(self.tuning.batch).min(self.spare / 2).max(1)
        };
        let taken = batch.min(self.spare);
        if taken > 0 {
            self.spare -= taken;
            self.touches.spare += 1;
        }
        taken
    }

    /// Takes half of what another group can do without.
    pub(super) fn take_foreign(&mut self, from: usize, by_the_needy: bool) -> usize {
        let taken = self.takeable(from, by_the_needy).div_ceil(2);
        if taken > 0 {
            self.groups[from].free -= taken;
            self.touches.foreign += 1;
        }
        taken
    }

    /// Puts tokens where others look first.
    pub(super) fn add_spare(&mut self, tokens: usize) {
        if self.is_alone() {
            self.groups[0].free += tokens;
            return;
        }
        self.spare += tokens;
        self.touches.spare += 1;
    }

    /// More idle tokens than that a group does not keep at all.
    pub(super) fn high(&self, group: usize) -> usize {
        if self.is_alone() {
            return usize::MAX;
        }
        if self.central {
            return 0;
        }
        let nodes = &self.groups[..self.nodes()];
        let total: usize = nodes.iter().map(|g| g.weight).sum();
        (self.limit * self.groups[group].weight).div_ceil(total.max(1))
    }

    /// What is the group's by right, among those that want something.
    fn fair(&self, group: usize, starving: u64) -> usize {
        let wants =
            |(at, g): &(usize, &Group)| *at == group || g.active > 0 || starving & (1 << at) != 0;
        let groups = self.groups.iter().enumerate().filter(wants);
        let total: usize = groups.map(|(_, g)| g.weight).sum();
        self.limit * self.groups[group].weight / total.max(1)
    }

    /// Of the starving those that a token, held by `from` beside its active ones, should go to.
    pub(super) fn worse_off(&self, from: usize) -> u64 {
        let starving = self.starving_beside(from);
        if starving == 0 {
            return 0;
        }
        let held = self.groups[from].active + 1;
        let over = self.central || held > self.fair(from, starving);
        let worse = |to: &usize| {
            if starving & (1 << to) == 0 {
                return false;
            }
            let theirs = &self.groups[*to];
            if self.central {
                // Nobody has a share to speak of: it goes round.
                theirs.active * self.groups[from].weight < held * theirs.weight
            } else {
                theirs.active < self.fair(*to, starving)
            }
        };
        let mask = |bits: u64, to: usize| bits | 1 << to;
        (0..self.groups.len())
            .filter(|to| over && worse(to))
            .fold(0, mask)
    }

    /// Whether one of these has nothing active.
    pub(super) fn any_idle(&self, groups: u64) -> bool {
        let idle = |(at, g): (usize, &Group)| groups & (1 << at) != 0 && g.active == 0;
        self.groups.iter().enumerate().any(idle)
    }

    pub(super) fn active(&self) -> usize {
        self.groups.iter().map(|g| g.active).sum()
    }

    /// Tokens in nobody's hand.
    pub(super) fn idle(&self) -> usize {
        self.spare + self.groups.iter().map(|g| g.free).sum::<usize>()
    }
}
