//! The wait queues, and who is woken when.
//!
//! Several lists, each with a lock of its own, so that sleepers do not fight for one. A wake is
//! decided by two counters: `completions` counts freed bits while somebody waits, `wakeups` follows
//! it in steps of a batch. Whoever moves `wakeups` owns one batch of wakes and hands it to the
//! queues in turn, going on to the next queue until the batch is used up. `PROTOCOL.md` has the
//! proof.

use super::newcomer_gate::NewcomerGate;
use super::policy::{QueueOrder, WAIT_QUEUES};
use crate::snapshot::{QueueSnapshot, QueueStats};
use crate::wake_policy::WakePolicy;
use inflight_sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use inflight_sync::wait::{Notify, WaitList, WaiterKey, Wakers};
use inflight_sync::{CachePadded, Mutex};

/// Where the counters begin. In models they wrap at once.
const COUNT_FROM: u32 = if cfg!(loom) { u32::MAX - 1 } else { 0 };

/// The most waiters one batch wakes.
const WAKE_BATCH_MAX: usize = 8;

/// A batch is at most an eighth of the bits: a waiter sleeps only while all bits open to it are in
/// use, so at least `depth` counted puts follow, and one of them completes a batch.
pub(crate) fn wake_batch(depth: usize) -> u32 {
    (depth / 8).clamp(1, WAKE_BATCH_MAX) as u32
}

#[derive(Debug)]
pub(crate) struct WakeQueues {
    /// Waiters that have registered and not yet left; more than the lists hold while woken ones
    /// are on their way. Written by waiters.
    active: CachePadded<AtomicUsize>,
    /// Bits freed while `active` was not 0. Wraps.
    completions: CachePadded<AtomicU32>,
    /// Follows `completions` in steps of `batch`. Wraps.
    wakeups: AtomicU32,
    /// Which queue is served next; only its low bits count.
    wake_index: AtomicUsize,
    /// Which queue the next waiter joins; only its low bits count.
    wait_index: AtomicUsize,
    /// How many freed bits make a batch. Written by [`set_batch`](WakeQueues::set_batch).
    batch: AtomicU32,
    policy: WakePolicy,
    pub(super) gate: NewcomerGate,
    queues: [CachePadded<Queue>; WAIT_QUEUES],
}

#[derive(Debug, Default)]
struct Queue {
    /// Length of the list; written under its lock, read without it.
    len: AtomicUsize,
    list: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    list: WaitList,
    waits: u64,
    wakeups: u64,
}

/// A waiter's place in one of the queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaiterPos {
    pub(super) queue: usize,
    key: WaiterKey,
}

impl WakeQueues {
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
            queues: std::array::from_fn(|_| CachePadded::default()),
        }
    }

    /// S1 and S2: the waiter is counted and in a list before it looks at the bits again.
    pub(crate) fn register(
        &self,
        notify: Notify,
        wake_info: u64,
        kept: Option<usize>,
    ) -> WaiterPos {
        // Relaxed: the fence below orders both counts before the second look.
        self.active.fetch_add(1, Ordering::Relaxed);
        // Relaxed: which queue is a matter of balance.
        let next = || self.wait_index.fetch_add(1, Ordering::Relaxed) % WAIT_QUEUES;
        let queue = kept.unwrap_or_else(next);
        let mut waiters = self.queues[queue].list.lock();
        let key = waiters.list.push_back_with(notify, wake_info);
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

    /// Whether the waiter is still in its list; if so, it is told by `notify` from now on.
    pub(crate) fn set_notify(&self, place: WaiterPos, notify: Notify) -> bool {
        let list = &self.queues[place.queue].list;
        // A waker may run anything when it is dropped, so that does not happen under the lock.
        let replaced = list.lock().list.replace(place.key, notify);
        replaced.is_ok()
    }

    /// S5: leaves. Returns whether the waiter had been chosen by a wake.
    pub(crate) fn leave(&self, place: WaiterPos) -> bool {
        self.leave_untold(place).is_none()
    }

    /// S5: leaves. Returns how it would have been told. `None`: it had been chosen by a wake.
    pub(crate) fn leave_untold(&self, place: WaiterPos) -> Option<Notify> {
        let queue = &self.queues[place.queue];
        let mut waiters = queue.list.lock();
        let left = waiters.list.remove(place.key);
        queue.len.store(waiters.list.len(), Ordering::Relaxed);
        drop(waiters);
        // Relaxed: too high a count makes a put look in vain, nothing else.
        self.active.fetch_sub(1, Ordering::Relaxed);
        left
    }

    /// P2 to P5: `n` bits have been freed.
    pub(crate) fn freed(&self, n: usize, free: impl Fn() -> usize) {
        // Ordering: P2, pairs with the fence in `register` (S2).
        fence(Ordering::SeqCst);
        if self.active.load(Ordering::Relaxed) == 0 {
            return;
        }
        let n = u32::try_from(n).expect("a map has at most 2^24 bits");
        // Ordering: AcqRel pairs with itself in the puts counted before. Whoever takes over another
        // put's count also takes over the duty to find a waiter that only its fence (P2) has seen.
        let completions = self
            .completions
            .fetch_add(n, Ordering::AcqRel)
            .wrapping_add(n);
        // Relaxed: the exchange decides, and whoever counts last sees the full sum.
        let mut wakeups = self.wakeups.load(Ordering::Relaxed);
        // Relaxed: a put that reads the old size after a change has also freed its bit before the
        // waiters looked again, or its fence comes after theirs and it reads the new one. Read
        // once, so that test and step agree.
        let batch = self.batch.load(Ordering::Relaxed);
        // `completions` is what this call has seen, so `wakeups` may be ahead of it: the difference
        // is taken as a signed number. A surplus of several batches is handed out at once.
        let owed = |wakeups| completions.wrapping_sub(wakeups) as i32;
        let mut wakers = Wakers::default();
        while owed(wakeups) >= batch as i32 {
            let next = wakeups.wrapping_add(batch);
            match self.wakeups.compare_exchange_weak(
                wakeups,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    self.gate.batch_is_due(batch, &free);
                    self.distribute(batch as usize, &mut wakers);
                    wakeups = next;
                }
                Err(now) => wakeups = now,
            }
        }
        wakers.finish();
    }

    /// Hands on one wake that its receiver does not need: the bit it announced may still be free.
    ///
    /// No fence of its own: the receiver learnt of the wake under its list's lock, so the putter's
    /// fence (P2) happens before this.
    ///
    /// `n` bits of it, if it was worth several.
    pub(crate) fn pass_on(&self, n: usize) {
        let mut wakers = Wakers::default();
        self.distribute(n.min(WAKE_BATCH_MAX), &mut wakers);
        wakers.finish();
    }

    /// Another size of batch. The caller makes all waiters look again afterwards: with a larger
    /// one, what is counted so far may never complete a batch.
    pub(crate) fn set_batch(&self, batch: u32) {
        // Relaxed: see `freed`.
        self.batch.store(batch, Ordering::Relaxed);
    }

    /// Wakes waiters worth `n` bits, longest wait first within a queue, queues by the policy. What
    /// a queue cannot use up goes on to the next.
    fn distribute(&self, n: usize, wakers: &mut Wakers) {
        // Relaxed, as the store below: racing wakers may serve one queue twice in a row.
        let mut order = QueueOrder::new(self.policy, self.wake_index.load(Ordering::Relaxed));
        let mut chosen = WakeBatch::default();
        // Relaxed: the fence before `distribute` makes a registered waiter's count visible.
        let len = |queue: usize| self.queues[queue].len.load(Ordering::Relaxed);
        let mut worth = 0;
        while worth < n {
            let Some(index) = order.next(len) else { break };
            if len(index) == 0 {
                continue;
            }
            let queue = &self.queues[index];
            let mut waiters = queue.list.lock();
            // D6: the walk and the removal are one step, under one lock.
            while worth < n {
                let wanted = |wake_info| self.gate.may_wake(wake_info);
                let Some((notify, wake_info)) = waiters.list.pop_first(wanted) else {
                    break;
                };
                waiters.wakeups += 1;
                worth += self.gate.worth(wake_info);
                chosen.push(notify);
            }
            queue.len.store(waiters.list.len(), Ordering::Relaxed);
        }
        self.wake_index.store(order.next_queue(), Ordering::Relaxed);
        wakers.wake(chosen.waiters.into_iter().flatten());
    }

    pub(crate) fn batch(&self) -> u32 {
        self.batch.load(Ordering::Relaxed)
    }

    /// How many have registered and not left. More than sleep, while woken ones are on their way.
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
        // Every lock is taken: a waiter that comes to a list after us sees what the caller changed.
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

    /// Counts go on meanwhile.
    pub(crate) fn look_at(&self, snapshot: &mut QueueSnapshot) {
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

/// Waiters taken out of their lists and not yet told.
#[derive(Default)]
struct WakeBatch {
    waiters: [Option<Notify>; WAKE_BATCH_MAX],
    len: usize,
}

impl WakeBatch {
    fn push(&mut self, notify: Notify) {
        self.waiters[self.len] = Some(notify);
        self.len += 1;
    }
}
