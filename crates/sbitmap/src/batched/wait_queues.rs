//! The wait queues: several lists with separate locks, so that sleepers do not contend for one.

use super::newcomer_gate::NewcomerGate;
use super::queue_order::{WAIT_QUEUES, WakePolicy};
use crate::snapshot::{QueueSnapshot, QueueStats};
use inflight_sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use inflight_sync::wait::{Notify, WaitList, WaiterKey, Wakers};
use inflight_sync::{CachePadded, Mutex};

/// The first value of the counters. In models they wrap at once.
const COUNT_FROM: u32 = if cfg!(loom) { u32::MAX - 1 } else { 0 };

#[derive(Debug)]
pub(crate) struct WaitQueues {
    /// Waiters that have registered and not yet left; more than the lists hold while woken waiters
    /// have not run yet. Written by waiters.
    pub(super) active: CachePadded<AtomicUsize>,
    /// Bits freed while `active` was not 0. Wraps.
    pub(super) completions: CachePadded<AtomicU32>,
    /// Follows `completions` in steps of `batch`. Wraps.
    pub(super) wakeups: AtomicU32,
    /// Which queue is served next; only its low bits count.
    pub(super) wake_index: AtomicUsize,
    /// Which queue the next waiter joins; only its low bits count.
    wait_index: AtomicUsize,
    /// How many freed bits make a batch. Written by `set_batch`.
    pub(super) batch: AtomicU32,
    pub(super) policy: WakePolicy,
    pub(super) gate: NewcomerGate,
    /// Whether the queue is closed.
    pub(super) closed: AtomicBool,
    pub(super) queues: [CachePadded<Queue>; WAIT_QUEUES],
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Length of the list; written under its lock, read without it.
    pub(super) len: AtomicUsize,
    pub(super) list: Mutex<Waiters>,
}

#[derive(Debug, Default)]
pub(super) struct Waiters {
    pub(super) list: WaitList,
    waits: u64,
    pub(super) wakeups: u64,
}

/// A waiter's position in one of the queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaiterPos {
    pub(super) queue: usize,
    key: WaiterKey,
}

impl WaitQueues {
    pub(crate) fn new(batch: u32, policy: WakePolicy, gate: NewcomerGate) -> Self {
        Self {
            active: CachePadded::new(AtomicUsize::new(0)),
            completions: CachePadded::new(AtomicU32::new(COUNT_FROM)),
            wakeups: AtomicU32::new(COUNT_FROM),
            wake_index: AtomicUsize::new(0),
            wait_index: AtomicUsize::new(0),
            batch: AtomicU32::new(batch),
            policy,
            gate,
            closed: AtomicBool::new(false),
            queues: std::array::from_fn(|_| CachePadded::default()),
        }
    }

    /// S1 and S2: counts the waiter and puts it in a list before it looks at the bits again.
    pub(crate) fn register(
        &self,
        notify: Notify,
        wake_info: u64,
        kept: Option<usize>,
    ) -> WaiterPos {
        // Relaxed: the fence below orders both counts before the second look.
        self.active.fetch_add(1, Ordering::Relaxed);
        // Relaxed: the choice of the queue only matters for balance.
        let next = || self.wait_index.fetch_add(1, Ordering::Relaxed) % WAIT_QUEUES;
        let queue = kept.unwrap_or_else(next);
        let mut waiters = self.queues[queue].list.lock();
        let key = waiters.list.push_back(notify, wake_info);
        waiters.waits += 1;
        self.queues[queue]
            .len
            .store(waiters.list.len(), Ordering::Relaxed);
        drop(waiters);
        // Ordering: S2, pairs with the fence in `freed` (P2).
        fence(Ordering::SeqCst);
        WaiterPos { queue, key }
    }

    /// Whether the waiter is still in its list.
    pub(crate) fn is_waiting(&self, place: WaiterPos) -> bool {
        let list = &self.queues[place.queue].list;
        list.lock().list.contains(place.key)
    }

    /// Whether the waiter is still in its list; if so, `notify` wakes it from now on.
    pub(crate) fn set_notify(&self, place: WaiterPos, notify: Notify) -> bool {
        let list = &self.queues[place.queue].list;
        // Dropping a waker may run anything, so it is not done under the lock.
        let replaced = list.lock().list.replace(place.key, notify);
        replaced.is_ok()
    }

    /// S5: leaves. Returns whether a wake had chosen the waiter.
    pub(crate) fn leave(&self, place: WaiterPos) -> bool {
        self.leave_untold(place).is_none()
    }

    /// S5: leaves. Returns how it would have been woken; `None` if a wake had chosen it.
    pub(crate) fn leave_untold(&self, place: WaiterPos) -> Option<Notify> {
        let queue = &self.queues[place.queue];
        let mut waiters = queue.list.lock();
        let left = waiters.list.remove(place.key);
        queue.len.store(waiters.list.len(), Ordering::Relaxed);
        drop(waiters);
        // Relaxed: a count that is too high only makes a put look in vain.
        self.active.fetch_sub(1, Ordering::Relaxed);
        left
    }

    pub(crate) fn batch(&self) -> u32 {
        self.batch.load(Ordering::Relaxed)
    }

    /// How many have registered and not left. More than sleep, while woken waiters have not run
    /// yet.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// How many sleep.
    pub(crate) fn sleepers(&self) -> usize {
        let len = |queue: &CachePadded<Queue>| queue.len.load(Ordering::Relaxed);
        self.queues.iter().map(len).sum()
    }

    /// Makes every waiter look again.
    pub(crate) fn wake_all(&self) {
        let mut wakers = Wakers::default();
        // Every lock is taken: a waiter that enters a list after this sees what the caller changed.
        for queue in &self.queues {
            let all = {
                let mut waiters = queue.list.lock();
                queue.len.store(0, Ordering::Relaxed);
                waiters.wakeups += waiters.list.len() as u64;
                waiters.list.drain()
            };
            wakers.wake(all);
        }
        wakers.finish();
    }

    /// The counters change meanwhile.
    pub(crate) fn fill_snapshot(&self, snapshot: &mut QueueSnapshot) {
        snapshot.wake_batch = self.batch();
        snapshot.wake_index = self.wake_index.load(Ordering::Relaxed) % WAIT_QUEUES;
        snapshot.ws_active = self.active();
        snapshot.completions = self.completions.load(Ordering::Relaxed);
        snapshot.wakeups = self.wakeups.load(Ordering::Relaxed);
        let len = |queue: &CachePadded<Queue>| queue.list.lock().list.len();
        snapshot.waiters = self.queues.iter().map(len).collect();
    }

    pub(crate) fn stats(&self) -> QueueStats {
        let mut stats = QueueStats::default();
        for queue in &self.queues {
            let waiters = queue.list.lock();
            stats.waits += waiters.waits;
            stats.wakeups += waiters.wakeups;
        }
        stats
    }
}
