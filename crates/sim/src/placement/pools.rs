//! The worker pools: the shipped core, behind the little that this simulation asks of it.

use inflight_topology::wake::ShardLoad;
use inflight_workqueue::sim::{Bring, Pool};

/// Whom an item that has come calls for.
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
        let first = pool.created();
        assert_eq!((first, pool.take(first)), (0, None));
        Self { pool, running: 0 }
    }

    /// An item has come.
    pub(super) fn queue(&mut self, item: usize) -> Call {
        self.pool.append(item);
        match self.pool.invite() {
            Bring::Nobody => Call::Nobody,
            Bring::Wake(worker) => Call::Worker(worker),
            Bring::Create => Call::New(self.pool.created()),
        }
    }

    /// The worker has come, and takes an item.
    pub(super) fn begin(&mut self, worker: usize) -> Option<usize> {
        let item = self.pool.take(worker);
        self.running += u32::from(item.is_some());
        item
    }

    /// An item has ended.
    pub(super) fn end(&mut self) {
        self.running -= 1;
    }

    /// What waits and what runs.
    pub(super) fn load(&self) -> ShardLoad {
        ShardLoad::new(self.pool.waiting() as u32, self.running)
    }
}
