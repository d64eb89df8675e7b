//! `max_active` of an unbound queue for the whole system, as a pure state machine: what the
//! threaded form does, for the simulator, for the search of all orders of its steps, and as oracle.

use super::fronts::Fronts;
use super::per_node::PerNode;
use super::rules::Tuning;
use super::steps::Op;
use super::tokens::{Tokens, Touches, plain};
use super::{FrontEnd, Share, Started, default_min_active, group_of, groups, shares, weights};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Policy {
    PerNode(PerNode),
    Lend(Tokens),
}

/// What a queue lets through at once, over all its front ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits<T> {
    policy: Policy,
    pub(super) fronts: Fronts<T>,
    max_active: usize,
    min_active: usize,
    frozen: bool,
    /// Usable online CPUs by node.
    cpus: Vec<usize>,
}

impl<T> Limits<T> {
    /// A queue without front ends yet. `cpus` counts the usable online CPUs of each node.
    #[must_use]
    pub fn new(share: Share, max_active: usize, cpus: &[usize]) -> Self {
        Self::tuned(share, max_active, cpus, Tuning::default())
    }

    /// As `new`, with constants of one's own.
    #[must_use]
    pub fn tuned(share: Share, max_active: usize, cpus: &[usize], tuning: Tuning) -> Self {
        let groups = groups(share, cpus.len());
        let policy = match share {
            Share::PerNode => Policy::PerNode(PerNode::new(groups)),
            Share::Lend => Policy::Lend(Tokens::new(max_active, &weights(cpus, groups), tuning)),
        };
        let mut limits = Self {
            policy,
            fronts: Fronts::new(groups),
            max_active,
            min_active: default_min_active(max_active),
            frozen: false,
            cpus: cpus.to_vec(),
        };
        limits.apply(&mut |_, _| unreachable!("nothing waits yet"));
        limits
    }

    /// A further front end, on a node or on none.
    pub fn add_front(&mut self, node: Option<usize>) -> FrontEnd {
        let group = self.group_of(node);
        self.fronts.add(group, false)
    }

    fn group_of(&self, node: Option<usize>) -> usize {
        group_of(node, self.groups())
    }

    fn groups(&self) -> usize {
        match &self.policy {
            Policy::PerNode(_) => {
                let nodes = self.cpus.len();
                if nodes <= 1 { 1 } else { nodes + 1 }
            }
            Policy::Lend(tokens) => tokens.groups.len(),
        }
    }

    /// A new item has come. `started` is told if it is active; if not it waits in its front end.
    /// With `Lend` another one may be active in its place, whose turn it was.
    pub fn admit(&mut self, front: FrontEnd, item: T, mut started: impl FnMut(FrontEnd, T)) {
        match &mut self.policy {
            Policy::PerNode(nodes) => nodes.admit(&mut self.fronts, front, item, &mut started),
            Policy::Lend(tokens) => Op::Try {
                front,
                item,
                place: 0,
            }
            .run(&mut plain(&mut self.fronts, tokens), &mut started),
        }
    }

    /// An active item of the front end has ended. At most one becomes active for it.
    pub fn leave(&mut self, front: FrontEnd, mut started: impl FnMut(FrontEnd, T)) {
        match &mut self.policy {
            Policy::PerNode(nodes) => {
                let group = self.fronts.finish(front);
                nodes.release(&mut self.fronts, group, &mut started);
            }
            Policy::Lend(tokens) => {
                let words = &mut plain(&mut self.fronts, tokens);
                Op::Release { front }.run(words, &mut started);
            }
        }
    }

    /// Takes back an item that has not become active.
    pub fn remove(&mut self, front: FrontEnd, wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.fronts.take(front, wanted)
    }

    /// Changes the limit. Lowering stops nothing that is active; after a rise what waits starts.
    pub fn set_max_active(&mut self, max_active: usize, mut started: impl FnMut(FrontEnd, T)) {
        self.max_active = max_active;
        self.min_active = self.min_active.min(max_active);
        self.apply(&mut started);
    }

    /// Changes how many items each node is sure of, up to `max_active`.
    pub fn set_min_active(&mut self, min_active: usize, mut started: impl FnMut(FrontEnd, T)) {
        self.min_active = min_active.min(self.max_active);
        self.apply(&mut started);
    }

    /// Nothing becomes active until [`thaw`](Limits::thaw); what is active ends in its time.
    pub fn freeze(&mut self) {
        self.frozen = true;
        self.apply(&mut |_, _| {});
    }

    /// The limits are what they were, or what they have been set to meanwhile.
    pub fn thaw(&mut self, mut started: impl FnMut(FrontEnd, T)) {
        self.frozen = false;
        self.apply(&mut started);
    }

    /// CPUs have come or gone.
    pub fn set_cpus(&mut self, cpus: &[usize], mut started: impl FnMut(FrontEnd, T)) {
        self.cpus = cpus.to_vec();
        self.apply(&mut started);
    }

    fn apply(&mut self, started: &mut Started<'_, T>) {
        let (max, min) = match self.frozen {
            true => (0, 0),
            false => (self.max_active, self.min_active),
        };
        match &mut self.policy {
            Policy::PerNode(nodes) => {
                nodes.set(&mut self.fronts, &shares(max, min, &self.cpus), started);
            }
            Policy::Lend(tokens) => {
                tokens.set_weights(&weights(&self.cpus, tokens.groups.len()));
                for op in tokens.change(max) {
                    op.run(&mut plain(&mut self.fronts, tokens), started);
                }
            }
        }
    }

    /// The limit, also while frozen.
    #[must_use]
    pub fn max_active(&self) -> usize {
        self.max_active
    }

    /// What each node is sure of, also while frozen.
    #[must_use]
    pub fn min_active(&self) -> usize {
        self.min_active
    }

    /// Active items of all front ends.
    #[must_use]
    pub fn active(&self) -> usize {
        match &self.policy {
            Policy::PerNode(nodes) => (0..self.groups()).map(|g| nodes.active(g)).sum(),
            Policy::Lend(tokens) => tokens.active(),
        }
    }

    /// Active items of a node, or of no node, and how many there may be.
    #[must_use]
    pub fn node(&self, node: Option<usize>) -> (usize, usize) {
        let group = self.group_of(node);
        match &self.policy {
            Policy::PerNode(nodes) => (nodes.active(group), nodes.max(group)),
            Policy::Lend(tokens) => (tokens.groups[group].active, tokens.limit),
        }
    }

    /// Active items of a front end, and items that wait in it.
    #[must_use]
    pub fn front(&self, front: FrontEnd) -> (usize, usize) {
        (self.fronts.active(front), self.fronts.inside(front).len())
    }

    /// How often words of others were written; with `PerNode` none are.
    #[must_use]
    pub fn touches(&self) -> Touches {
        match &self.policy {
            Policy::PerNode(_) => Touches::default(),
            Policy::Lend(tokens) => tokens.touches,
        }
    }

    /// Slots that nobody has although the limit would let somebody; with `Lend` only.
    #[must_use]
    pub fn idle_tokens(&self) -> usize {
        match &self.policy {
            Policy::PerNode(_) => 0,
            Policy::Lend(tokens) => tokens.idle(),
        }
    }

    /// Whether there is one count for all, because the limit is too small to be split.
    #[must_use]
    pub fn is_central(&self) -> bool {
        matches!(&self.policy, Policy::Lend(tokens) if tokens.central)
    }
}
