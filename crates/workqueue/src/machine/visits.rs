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
        let counts = self.workers[me].state == State::Running;
        if !nothing_before || !counts || self.stopped || self.visit == 0 {
            return 0;
        }
        let most = match self.pace.estimate() {
            // Nothing is known yet. In a model items are short, or it would need one item more.
            0 if !cfg!(loom) => 1,
            estimate => (self.visit / estimate.max(1)).clamp(1, MOST) as usize,
        };
        // Of those that take tiny items one is to go: with its next one. Long ones are shared out
        // one by one.
        let shares = !self.is_tiny() && most > 1;
        if self.sharers(me) == 1 || shares {
            most
        } else {
            0
        }
    }

    /// V5: whether what the worker's item queues may be kept in its hand from now on. Then the
    /// worker is in a visit of several.
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

    /// How many workers are about to come for the next items, as far as is known. Others may count
    /// and have no CPU, or run what takes long.
    pub(crate) fn sharers(&self, me: usize) -> usize {
        let nobody_came = self.taken == self.workers[me].taken_before;
        let here = self.running - self.arriving;
        if nobody_came { 1 } else { here.max(1) }
    }

    /// Whether the worker is back from what it took, there is more mail, and the others have begun
    /// their visits since: all get on with what they have, and take from the mail by turns.
    fn goes_round(&self, me: usize) -> bool {
        let mine = &self.workers[me];
        let mut others = self.visiting().filter(|other| *other != me);
        let is_later = |other: usize| self.workers[other].taken_before > mine.taken_before;
        let goes_on = mine.stayed && self.mail && self.ready.is_empty() && !self.is_tiny();
        goes_on && others.all(is_later)
    }

    /// Whether what others have in hand is to be recalled before this worker takes something:
    /// theirs comes first. If so, until [`end_recall`](Core::end_recall) nobody begins a visit.
    pub(crate) fn begin_recall(&mut self, me: usize) -> bool {
        let recalls = self.others_visit(me) && !self.goes_round(me);
        self.recalls += usize::from(recalls);
        recalls
    }

    /// What others had in hand is ready.
    pub(crate) fn end_recall(&mut self) {
        self.recalls -= 1;
    }

    /// The worker has taken so many items, `first` is the first of them, and left so many where
    /// they were; there is `mail`, there or elsewhere.
    pub(crate) fn begin_visit(
        &mut self,
        me: usize,
        items: usize,
        first: T::Key,
        (mail, left): (bool, usize),
    ) -> Action {
        self.taken += items as u64;
        let worker = &mut self.workers[me];
        worker.visiting = items > 1;
        worker.current = (items == 1).then_some(first);
        worker.turn += 1;
        worker.taken_before = self.taken;
        worker.stayed = true;
        self.visits += usize::from(items > 1);
        self.mail = mail;
        self.letters = left as u64;
        self.kick()
    }

    /// The workers whose hands are to be emptied, but for that one, in this order: what comes back
    /// is put before what came back earlier, so the last visit to have begun comes first.
    pub(crate) fn to_be_recalled(&self, but: Option<usize>) -> Vec<usize> {
        let mut workers: Vec<_> = self.visiting().filter(|w| Some(*w) != but).collect();
        workers.sort_by_key(|w| std::cmp::Reverse(self.workers[*w].taken_before));
        workers
    }

    /// The same for the hand of one worker: with what is older in other hands.
    pub(crate) fn to_be_recalled_with(&self, worker: usize) -> Vec<usize> {
        let mut workers = self.to_be_recalled(None);
        let at = workers.iter().position(|w| *w == worker);
        workers.split_off(at.unwrap_or(workers.len()))
    }

    /// The workers that have, or have had, more in hand than what they run.
    fn visiting(&self) -> impl Iterator<Item = usize> + '_ {
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::Next;
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Job(usize);

    impl Item for Job {
        type Key = usize;
        fn key(&self) -> usize {
            self.0
        }
        fn may_be_running(&self) -> bool {
            false
        }
        fn is_intensive(&self) -> bool {
            false
        }
    }

    /// Two workers take from the mail by turns, and leave each other what they have in hand; but
    /// one that has slept, or is back for the second time, recalls what the other has.
    #[test]
    fn two_workers_visit_by_turns() {
        let mut core = Core::new(2);
        core.be_generous(20_000);
        core.be_patient(20_000);
        (0..100).for_each(|_| core.took(1_000));
        let [first, second] = [core.created(), core.created()];
        let _ = core.mail_came();
        let draw = |core: &mut Core<Job>, me, first| {
            assert_eq!(core.next(me).0, Next::Fetch);
            core.mail_stays();
            let _ = core.begin_visit(me, 5, first, (true, 50));
        };
        draw(&mut core, first, 0);
        draw(&mut core, second, 5);
        assert!(!core.begin_recall(first), "the second has begun since");
        draw(&mut core, first, 10);
        assert!(!core.begin_recall(second));
        draw(&mut core, second, 15);
        draw(&mut core, second, 20);
        assert!(core.begin_recall(second), "the first is slow");
        let _ = core.recalled(first, Some(10), [Job(11)].into_iter());
        core.end_recall();
        assert_eq!(core.next(second).0, Next::Run(Job(11)));
        draw(&mut core, first, 25);
        let _ = core.block(second);
        core.unblock(second);
        assert!(core.begin_recall(second), "it has slept");
        core.end_recall();
    }
}
