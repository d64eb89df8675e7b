//! What a core gives to other pools, and its workers take from them. `PROTOCOL-lending.md`.

use super::{Action, Core, Item};

impl<T: Item> Core<T> {
    /// Q1: an item that may run now has come. Whom to wake for it is decided elsewhere.
    #[cfg(any(test, feature = "unstable-sim"))]
    pub(crate) fn append(&mut self, item: T) {
        self.ready.push_back(item);
    }

    /// Q2: until this is taken back nobody is brought here as long as somebody runs. Only where
    /// somebody then looks at the pool ([`waits`](Core::waits)).
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held && self.patience > 0;
    }

    /// Q2: a worker is wanted although nothing may be ready here.
    pub(crate) fn invite(&mut self) -> Action {
        if self.running >= self.target || self.stopped {
            return Action::None;
        }
        self.bring(None)
    }

    /// V1: whether the worker, which asks for more, is to look at other pools: nothing is to be
    /// done here, and it may run.
    pub(crate) fn may_look(&mut self, me: usize) -> bool {
        self.arrive(me);
        self.release(me);
        !self.has_work() && !self.stopped && !self.is_too_many(me)
    }

    /// V2: the oldest item, for a worker of another pool.
    pub(crate) fn lend(&mut self) -> Option<T> {
        let item = self.ready.front()?;
        if self.runner_of(item).is_some() {
            return None; // It has to wait for that one.
        }
        self.taken += 1;
        self.ready.pop_front()
    }

    /// V3: the worker, which has nothing to do here, runs an item of another pool. What has come
    /// here meanwhile is for the next one.
    pub(crate) fn adopt(&mut self, me: usize, item: &T) -> Action {
        self.arrive(me);
        self.release(me);
        self.begin(me, item);
        self.kick()
    }

    /// Items that no worker has taken, those behind a run of the same thing aside.
    #[cfg(any(test, feature = "unstable-sim"))]
    pub(crate) fn listed(&self) -> usize {
        self.ready.len()
    }

    /// Those of them for which no worker is on its way.
    pub(crate) fn unattended(&self) -> usize {
        self.ready.len().saturating_sub(self.arriving)
    }

    /// There may be more that nobody has looked at.
    pub(crate) fn has_mail(&self) -> bool {
        self.mail
    }

    /// What an item takes, in ns.
    pub(crate) fn estimate(&self) -> u64 {
        self.estimate
    }
}
