//! Which hardware queues are active, and which stand in for the others: the table. `hotplug` fills
//! it.

use inflight_sync::Mutex;
use inflight_sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeSet;

/// For each hardware queue, the queue that serves for it.
#[derive(Debug)]
pub(crate) struct ActiveQueues {
    /// By hardware queue: `serial << 32 | the queue that serves for it`. The serial changes
    /// whenever the queue becomes active or inactive.
    words: Box<[AtomicU64]>,
    /// The CPUs that are offline. Changed under the lock for changes of size.
    pub(crate) gone: Mutex<BTreeSet<usize>>,
}

pub(crate) const SERIAL: u64 = 1 << 32;

impl ActiveQueues {
    pub(crate) fn new(hw_queues: usize) -> Self {
        Self {
            words: (0..hw_queues as u64).map(AtomicU64::new).collect(),
            gone: Mutex::new(BTreeSet::new()),
        }
    }

    pub(crate) fn word(&self, hw_queue: usize) -> u64 {
        // Ordering: pairs with D1 and E1 in `set_stand_in`.
        self.words[hw_queue].load(Ordering::Acquire)
    }

    /// The queue that serves for the hardware queue: itself, unless it is inactive.
    pub(crate) fn stand_in(&self, hw_queue: usize) -> usize {
        (self.word(hw_queue) % SERIAL) as usize
    }

    /// D1 or E1 of one hardware queue. One caller at a time. Returns whether it became active.
    pub(crate) fn set_stand_in(&self, hw_queue: usize, by: usize) -> bool {
        let old = self.word(hw_queue);
        let was_active = old % SERIAL == hw_queue as u64;
        let is_active = by == hw_queue;
        let serial = (old / SERIAL + u64::from(was_active != is_active)) % SERIAL;
        // Ordering: pairs with the load in `word`: a thread that sees it sees the writes before.
        self.words[hw_queue].store(serial * SERIAL + by as u64, Ordering::Release);
        is_active && !was_active
    }
}
