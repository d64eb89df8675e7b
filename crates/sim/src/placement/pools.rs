//! The worker pools: the shipped core, behind the little that this simulation asks of it.

use crate::pool::Pool;
use inflight_topology::wake::ShardLoad;
use inflight_workqueue::unstable::{Limit, WakeAction};

/// The worker that a new item needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Nobody,
    /// The worker of this number.
    Worker(usize),
    /// A new one, which will have this number.
    New(usize),
}

/// A pool of workers and the items that wait for them.
#[derive(Debug)]
pub(super) struct Workers {
    pool: Pool,
    running: u32,
}

impl Workers {
    /// A pool of which at most so many run at once. Its first worker, number 0, sleeps.
    pub(super) fn new(target: usize) -> Self {
        let mut pool = Pool::new(target);
        pool.add_pwq(0, Limit::own(usize::MAX));
        assert_eq!(pool.add_idle(), 0);
        Self { pool, running: 0 }
    }

    /// An item has come.
    pub(super) fn queue(&mut self, item: usize) -> Call {
        self.pool.push(0, item);
        match self.pool.invite() {
            WakeAction::None => Call::Nobody,
            WakeAction::Wake(worker) => Call::Worker(worker),
            WakeAction::Create(worker) => Call::New(worker),
        }
    }

    /// The worker has come, and takes an item.
    pub(super) fn begin(&mut self, worker: usize) -> Option<usize> {
        assert!(self.pool.ask(worker).is_empty(), "there is no limit");
        let item = self.pool.take(worker);
        if item.is_none() {
            self.pool.park(worker, 0);
        }
        self.running += u32::from(item.is_some());
        item
    }

    /// An item has ended.
    pub(super) fn end(&mut self) {
        self.running -= 1;
    }

    /// What waits and what runs.
    pub(super) fn load(&self) -> ShardLoad {
        ShardLoad::new(self.pool.load().waiting as u32, self.running)
    }
}
