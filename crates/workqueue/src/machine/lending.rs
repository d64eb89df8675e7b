//! What a core gives to other pools, and its workers take from them. `PROTOCOL-lending.md`.

use super::{Action, Core, Item};

impl<T: Item> Core<T> {
    /// Q1: an item that may run now has come. Whom to wake for it is decided elsewhere.
    pub(crate) fn append(&mut self, item: T) {
        self.ready.push_back(item);
    }

    /// Q2: a worker is wanted although nothing may be ready here.
    pub(crate) fn invite(&mut self) -> Action {
        if self.running >= self.target || self.stopped {
            return Action::None;
        }
        self.bring(None)
    }

    /// V2: the oldest item, for a worker of another pool.
    pub(crate) fn lend(&mut self) -> Option<T> {
        let item = self.ready.front()?;
        if self.runner_of(item).is_some() {
            return None; // It has to wait for that one.
        }
        self.ready.pop_front()
    }

    /// V3: the worker, which has nothing to do here, runs an item of another pool.
    pub(crate) fn adopt(&mut self, me: usize, item: &T) {
        self.arrive(me);
        self.release(me);
        let worker = &mut self.workers[me];
        worker.current = Some(item.key());
        worker.turn += 1;
        self.taken += 1;
    }

    /// Items that no worker has taken, those behind a run of the same thing aside.
    pub(crate) fn listed(&self) -> usize {
        self.ready.len()
    }
}
