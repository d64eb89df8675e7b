//! `max_active` of an unbound queue for the whole system, as a pure state machine.
//!
//! A queue has a front end for each CPU. Each belongs to a memory node, or to none if its pool
//! spans several. How the limit is split among the nodes is a [`Share`]. Here are no atomics,
//! threads or clocks; but what `Share::Lend` does is written step by step, one word at a time, as
//! threads would take them ([`steps`]), and `PROTOCOL-limits.md` has the proof for any order.
//!
//! Order: first come, first served within a front end, also across a rise of the limit; turn by
//! turn among the front ends of a node that wait.

mod fronts;
mod ordered;
mod per_node;
mod share;
mod steps;
mod tokens;

use fronts::Fronts;
pub use ordered::Ordered;
use per_node::PerNode;
pub use share::{Shares, default_min_active, shares};
use steps::Op;
use tokens::Tokens;
pub use tokens::{Touches, Tuning};

/// What is told of each item that becomes active, with its front end.
type Started<'a, T> = dyn FnMut(usize, T) + 'a;

/// How a limit for the whole system is split among the memory nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// Each node has its part, as in Linux since 6.9. A node that is idle does not lend: with all
    /// load on one node its part is the limit. By rounding, and by `min_active` for each node, the
    /// sum can exceed the limit.
    PerNode,
    /// Nodes lend: whatever node the load is on, as many items as the limit says are active, and
    /// never one more. `min_active` means nothing.
    Lend,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Policy {
    PerNode(PerNode),
    Lend(Tokens),
}

/// A front end of a queue, by number.
pub type FrontEnd = usize;

/// What a queue lets through at once, over all its front ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Limits<T> {
    policy: Policy,
    fronts: Fronts<T>,
    max_active: usize,
    min_active: usize,
    frozen: bool,
    /// Usable online CPUs by node.
    cpus: Vec<usize>,
}

/// More nodes than that share the words of others, which costs them locality and nothing else.
const LENDING_NODES: usize = 63;

impl<T> Limits<T> {
    /// A queue without front ends yet. `cpus` counts the usable online CPUs of each node.
    #[must_use]
    pub fn new(share: Share, max_active: usize, cpus: &[usize]) -> Self {
        Self::tuned(share, max_active, cpus, Tuning::default())
    }

    /// As `new`, with constants of one's own.
    #[must_use]
    pub fn tuned(share: Share, max_active: usize, cpus: &[usize], tuning: Tuning) -> Self {
        let nodes = match share {
            Share::PerNode => cpus.len(),
            Share::Lend => cpus.len().min(LENDING_NODES),
        };
        let groups = if nodes <= 1 { 1 } else { nodes + 1 };
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
        match (node, self.groups()) {
            (_, 1) => 0,
            (Some(node), groups) => node % (groups - 1),
            (None, groups) => groups - 1,
        }
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
            .run(&mut self.fronts, tokens, &mut started),
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
                Op::Release { front }.run(&mut self.fronts, tokens, &mut started);
            }
        }
    }

    /// Takes back an item that has not become active.
    pub fn remove(&mut self, front: FrontEnd, wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.fronts.remove(front, wanted)
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
                for op in steps::change(tokens, max) {
                    op.run(&mut self.fronts, tokens, started);
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
        (self.fronts.active(front), self.fronts.inactive(front))
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

/// By group. Nodes beyond the number of groups share one with others; the last group, of front
/// ends without a node, can use all CPUs.
fn weights(cpus: &[usize], groups: usize) -> Vec<usize> {
    if groups == 1 {
        return vec![cpus.iter().sum()];
    }
    let mut weights = vec![0; groups];
    for (node, cpus) in cpus.iter().enumerate() {
        weights[node % (groups - 1)] += cpus;
    }
    weights[groups - 1] = cpus.iter().sum();
    weights
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod explore;
#[cfg(all(test, not(any(loom, shuttle))))]
mod oracle;
#[cfg(all(test, not(any(loom, shuttle))))]
mod properties;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod touches;
