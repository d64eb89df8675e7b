//! Who runs where: workers that are brought or kept with their CPUs in mind.
//!
//! All of this is a hint. A worker may have moved since it was seen, and any choice is right.

use super::{Core, Item, State, Worker};

/// So many idle workers are looked at for one that was on a certain CPU.
const LOOKED_AT: usize = 32;

impl<T: Item> Core<T> {
    /// The worker is on that CPU, now or a moment ago.
    pub(crate) fn at(&mut self, me: usize, cpu: usize) {
        self.workers[me].cpu = cpu;
    }

    /// The worker that went idle last, or one of the last of those that were on that CPU: systems
    /// wake a thread where it ran last unless that CPU is busy and they know of another, so one
    /// from elsewhere would queue behind who runs there while this CPU lies idle. Never the one
    /// that has been idle longest before all others: it keeps the time.
    pub(super) fn take_idle(&mut self, cpu: Option<usize>) -> Option<usize> {
        let last = self.idle.len().checked_sub(1)?;
        let lowest = self.idle.len().saturating_sub(LOOKED_AT).max(1);
        let is_near = |at: &usize| Some(self.workers[self.idle[*at]].cpu) == cpu;
        let at = (lowest..=last).rev().find(is_near).unwrap_or(last);
        Some(self.idle.remove(at))
    }

    /// Whether the worker, which has come back to the running ones, is one more than may run. One
    /// that is still on its way does not make it that: it will see for itself when it arrives, and
    /// until then the CPU would lie idle; but this CPU will not if somebody else runs on it too.
    pub(super) fn is_too_many(&self, me: usize) -> bool {
        if self.running - self.arriving > self.target {
            return true;
        }
        let cpu = self.workers[me].cpu;
        let is_beside = |(number, w): (usize, &Worker<T>)| {
            number != me && w.state == State::Running && w.cpu == cpu
        };
        self.running > self.target && self.workers.iter().enumerate().any(is_beside)
    }
}
