//! Which CPUs' stacks are in use: opening, closing and emptying one.

use super::stack::Exclusion;
use super::{Backend, Stacks};
use crate::atomic::{Ordering, fence};

impl Stacks {
    /// Lets stack `i` hold up to `limit` ids, at most [`CAPACITY`](super::CAPACITY).
    ///
    /// # Panics
    ///
    /// If there is no such stack, as in every call that names one.
    pub fn open(&self, i: usize, limit: u32) {
        match self.backend() {
            Backend::TryLock => self.stacks[i].open_locked(limit),
            _ => self.stacks[i].open(limit),
        }
    }

    /// As [`open`](Stacks::open), for users with a lock, whatever the back end: closed again
    /// without a [`barrier`](Stacks::barrier) and emptied by
    /// [`drain_locked`](Stacks::drain_locked). The calls named `_once` are refused where sections
    /// are used.
    pub fn open_locked(&self, i: usize, limit: u32) {
        self.stacks[i].open_locked(limit);
    }

    /// Whether stack `i` is open. To rely on the answer a caller keeps the closers out.
    #[must_use]
    pub fn is_open(&self, i: usize) -> bool {
        self.stacks[i].is_open()
    }

    /// Closes stack `i`. Users that are under way may still end, until
    /// [`barrier`](Stacks::barrier).
    pub fn close(&self, i: usize) {
        self.stacks[i].close();
    }

    /// After this, users of stacks closed before have ended, and what they did is visible; or, by
    /// [`drain`](Stacks::drain)'s look at the lock or flag, it will be there. It panics as
    /// [`Rseq::barrier`](crate::rseq::Rseq::barrier).
    pub fn barrier(&self) {
        match self.rseq {
            Some(rseq) => rseq.barrier(),
            // Ordering: pairs with the fence of `Stack::enter` (busy flag): one of the two
            // sees what the other wrote before it.
            None => fence(Ordering::SeqCst),
        }
    }

    /// Empties the closed stack `i`.
    pub fn drain(&self, i: usize, each: impl FnMut(u32)) {
        let stack = &self.stacks[i];
        if self.rseq.is_some() {
            stack.empty(each);
        } else {
            stack.wait_and_empty(self.exclusion, each);
        }
    }

    /// Empties the closed stack `i`, which [`open_locked`](Stacks::open_locked) opened last.
    pub fn drain_locked(&self, i: usize, each: impl FnMut(u32)) {
        self.stacks[i].wait_and_empty(Exclusion::TryLock, each);
    }
}
