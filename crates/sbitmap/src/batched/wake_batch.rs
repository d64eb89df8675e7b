//! How many waiters a put wakes: a batch for each batch of freed bits.
//!
//! `completions` counts the bits freed while waiters exist, and `wakeups` follows it in steps of a
//! batch. The thread that advances `wakeups` owns one batch of wakes. `PROTOCOL.md` has the proof.

use super::queue_order::QueueOrder;
use super::wait_queues::WaitQueues;
use crate::wake_set::WakeSet;
use inflight_sync::atomic::{Ordering, fence};
use inflight_sync::wait::Wakers;

/// The most waiters one batch wakes.
const WAKE_BATCH_MAX: usize = 8;

/// The inputs of the wake batch: the least number of bits that any waiter sees in use before it
/// sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizing {
    pub(super) depth: usize,
    /// The fewest bits that a user is limited to.
    pub(super) least_share: usize,
    /// How many waiters keep bits while they wait for more.
    pub(super) collectors: usize,
}

impl Sizing {
    pub(super) const NO_LIMIT: usize = usize::MAX;

    pub(super) fn wake_batch(self) -> u32 {
        if self.collectors > 0 {
            return 1;
        }
        wake_batch(self.depth.min(self.least_share))
    }
}

/// A batch is at most an eighth of the bits. A waiter sleeps only while all bits open to it are in
/// use, so at least `depth` counted puts follow, and one of them completes a batch.
fn wake_batch(depth: usize) -> u32 {
    (depth / 8).clamp(1, WAKE_BATCH_MAX) as u32
}

impl WaitQueues {
    /// P2 to P5: `n` bits have been freed.
    pub(crate) fn freed(&self, n: usize, free: impl Fn() -> usize) {
        // Ordering: P2, pairs with the fence in `register` (S2).
        fence(Ordering::SeqCst);
        if self.active.load(Ordering::Relaxed) == 0 {
            return;
        }
        let n = u32::try_from(n).expect("a map has at most 2^24 bits");
        // Ordering: AcqRel, pairs with itself in the puts counted before. A put that takes over
        // another put's count also takes over the duty to find a waiter that only that put's fence
        // (P2) has seen.
        let completions = self
            .completions
            .fetch_add(n, Ordering::AcqRel)
            .wrapping_add(n);
        // Relaxed: the exchange decides, and the last put to count sees the full sum.
        let mut wakeups = self.wakeups.load(Ordering::Relaxed);
        // Relaxed: a put that reads the old size after a change has freed its bit before the
        // waiters looked again, or its fence comes after theirs and it reads the new one. Read
        // once, so that test and step agree.
        let batch = self.batch.load(Ordering::Relaxed);
        // `completions` is what this call has seen, so `wakeups` may be ahead: the difference is
        // signed. A surplus of several batches is distributed at once.
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

    /// Passes on one wake that its receiver does not need: the bit that it announced may still be
    /// free.
    ///
    /// It needs no fence: the receiver learnt of the wake under its list's lock, so the putter's
    /// fence (P2) happens before this.
    ///
    /// `n` bits of it, if it was worth several.
    pub(crate) fn pass_on(&self, n: usize) {
        let mut wakers = Wakers::default();
        self.distribute(n.min(WAKE_BATCH_MAX), &mut wakers);
        wakers.finish();
    }

    /// Changes the size of a batch. The caller then makes all waiters look again: with a larger
    /// size, the present count may never complete a batch.
    pub(crate) fn set_batch(&self, batch: u32) {
        // Relaxed: see `freed`.
        self.batch.store(batch, Ordering::Relaxed);
    }

    /// Wakes waiters worth `n` bits: the longest wait first within a queue, the queues by the
    /// policy. What one queue cannot use goes to the next.
    fn distribute(&self, n: usize, wakers: &mut Wakers) {
        // Relaxed, as the store below: racing wakers may serve one queue twice in a row.
        let mut order = QueueOrder::new(self.policy, self.wake_index.load(Ordering::Relaxed));
        let mut chosen = WakeSet::<WAKE_BATCH_MAX>::default();
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
        wakers.wake(chosen.drain());
    }
}
