//! What a worker takes at once: several items, which it runs one after the other without coming
//! back. They are in its hand, outside of the core; whoever must have them sees to it that they are
//! given back ([`recalled`](Core::recalled)).

use super::{Action, Core, Item, State};
use std::collections::VecDeque;

/// So many items are taken at once at most.
const MOST: u64 = 32;

impl<T: Item> Core<T> {
    /// A worker may take as many items at once as take so many ns, by the estimate of an item. Only
    /// where somebody looks at the pool from time to time.
    pub(crate) fn be_generous(&mut self, ns: u64) {
        self.visit = ns;
    }

    /// How many items are in the mail, by what is known.
    pub(crate) fn letters(&self) -> u64 {
        if self.mail { self.letters.max(1) } else { 0 }
    }

    /// V4: how many items the worker, which is to fetch the mail, may take out of it at once.
    pub(crate) fn may_visit(&self, me: usize) -> usize {
        // What is ready came before, and what is being recalled too.
        let nothing_before = self.ready.is_empty() && self.recalls == 0;
        if !nothing_before || !self.is_alone(me) || self.stopped || self.visit == 0 {
            return 0;
        }
        match self.pace.estimate() {
            // Nothing is known yet. In a model items are short, or it would need one item more.
            0 if !cfg!(loom) => 1,
            estimate => (self.visit / estimate.max(1)).clamp(1, MOST) as usize,
        }
    }

    /// V5: whether what the worker's item queues may be kept in its hand from now on. Then the worker
    /// is in a visit of several.
    pub(crate) fn may_keep(&mut self, me: usize) -> bool {
        let counts = self.workers[me].state == State::Running;
        // What others have queued is not passed.
        if !counts || self.has_work() || self.recalls > 0 || self.stopped {
            return false;
        }
        let worker = &mut self.workers[me];
        if !std::mem::replace(&mut worker.visiting, true) {
            worker.current = None;
            self.visits += 1;
        }
        true
    }

    /// Whether no other worker is about to come for the next item, as far as is known: with several
    /// that come each takes one at a time, or it would have to be recalled each time. Others may
    /// count and have no CPU, or run what takes long.
    fn is_alone(&self, me: usize) -> bool {
        let worker = &self.workers[me];
        let nobody_came = self.taken == worker.taken_before;
        worker.state == State::Running && (self.running - self.arriving == 1 || nobody_came)
    }

    /// Whether what others have in hand is to be recalled before this worker takes something:
    /// theirs comes first. If so, until [`end_recall`](Core::end_recall) nobody begins a visit.
    pub(crate) fn begin_recall(&mut self, me: usize) -> bool {
        let recalls = self.others_visit(me);
        self.recalls += usize::from(recalls);
        recalls
    }

    /// What others had in hand is ready.
    pub(crate) fn end_recall(&mut self) {
        self.recalls -= 1;
    }

    /// The worker has taken so many items, `first` is the first of them, and left so many in the
    /// mail.
    pub(crate) fn begin_visit(
        &mut self,
        me: usize,
        items: usize,
        first: T::Key,
        left: usize,
    ) -> Action {
        self.taken += items as u64;
        let worker = &mut self.workers[me];
        worker.visiting = items > 1;
        worker.current = (items == 1).then_some(first);
        worker.turn += 1;
        worker.taken_before = self.taken;
        self.visits += usize::from(items > 1);
        self.mail |= left > 0;
        self.letters = left as u64;
        self.kick()
    }

    /// The workers that have, or have had, more in hand than what they run.
    pub(crate) fn visiting(&self) -> impl Iterator<Item = usize> + '_ {
        let workers = self.workers.iter().enumerate();
        let visiting = workers.filter(|(_, w)| w.visiting);
        visiting.map(|(number, _)| number)
    }

    /// Whether there are such workers, that one aside.
    fn others_visit(&self, me: usize) -> bool {
        self.visits > usize::from(self.workers[me].visiting)
    }

    pub(crate) fn visits(&self, worker: usize) -> bool {
        self.workers[worker].visiting
    }

    /// What the worker had in hand comes back, to where it would have been. It is left with `now`.
    pub(crate) fn recalled(
        &mut self,
        worker: usize,
        now: Option<T::Key>,
        hand: impl DoubleEndedIterator<Item = T>,
    ) -> Action {
        self.end_visit(worker);
        let runs = &mut self.workers[worker];
        runs.current = now;
        // What waited behind one of the others waits for nothing.
        let scheduled = std::mem::take(&mut runs.scheduled).into_iter();
        let (behind, free): (_, VecDeque<T>) = scheduled.partition(|item| now == Some(item.key()));
        runs.scheduled = behind;
        for item in hand.chain(free).rev() {
            self.ready.push_front(item);
        }
        self.kick()
    }

    pub(super) fn end_visit(&mut self, worker: usize) {
        let visiting = std::mem::take(&mut self.workers[worker].visiting);
        self.visits -= usize::from(visiting);
    }
}
