//! Calls to which a system may report a loss: flushes and durable writes.
//!
//! A system reports a loss once, to the call that asks first. So the success of a call is not
//! certain until the calls that were under way when it ended have ended too: the loss may have been
//! reported to one of them. The success is held until then. A call that begins later asks later, so
//! only other losses can be reported to it.

use super::list::Id;
use super::mutation::{Mutant, Mutation};
use std::collections::VecDeque;

/// The call that has succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// The flush of this generation.
    Flush(u64),
    /// The durable write of this request.
    Write(Id),
}

/// A success that is not reported yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    owner: Owner,
    /// The last call that had begun when it ended.
    behind: u64,
}

/// The calls under way, and the successes that wait for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Calls {
    /// The number of the last call that has begun.
    last: u64,
    /// The numbers of those under way, in their order.
    under_way: Vec<u64>,
    /// In the order in which they ended, and so in that of `behind`.
    held: VecDeque<Held>,
}

impl Calls {
    /// A call begins. Returns its number.
    pub(super) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.under_way.push(self.last);
        self.last
    }

    /// A call has ended, or was not made. If it has succeeded, its owner is held.
    pub(super) fn end(&mut self, call: u64, succeeded: Option<Owner>) {
        self.under_way.retain(|&other| other != call);
        let behind = self.last;
        self.held
            .extend(succeeded.map(|owner| Held { owner, behind }));
    }

    /// The next success to report: all calls that it waited for have ended.
    pub(super) fn next_confirmed(&mut self, mutant: Mutant) -> Option<Owner> {
        let Held { owner, behind } = *self.held.front()?;
        let unheld = match owner {
            Owner::Flush(_) => Mutation::FlushIsNotHeld,
            Owner::Write(_) => Mutation::WriteIsNotHeld,
        };
        let waits = self
            .under_way
            .first()
            .is_some_and(|&oldest| oldest <= behind);
        if waits && !mutant.is(unheld) {
            return None;
        }
        self.held.pop_front();
        Some(owner)
    }

    /// Whether a call is under way: one that ended now would be held.
    pub(super) fn are_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The request of that durable write has left.
    pub(super) fn forget(&mut self, id: Id) {
        self.held.retain(|held| held.owner != Owner::Write(id));
    }

    /// Only the order of the numbers matters.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn renumber(&mut self, others: &mut [&mut u64]) {
        let mut all = self.under_way.clone();
        all.sort_unstable();
        let rank = |call: u64| all.partition_point(|&other| other <= call) as u64;
        for held in &mut self.held {
            held.behind = rank(held.behind);
        }
        others.iter_mut().for_each(|call| **call = rank(**call));
        self.under_way = (1..=all.len() as u64).collect();
        self.last = all.len() as u64;
    }
}
