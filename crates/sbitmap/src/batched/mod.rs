//! [`Fairness::Batched`](crate::Fairness::Batched): the bitmap with the kernel's kind of waiting.

mod many;
mod newcomer_gate;
mod policy;
mod wait;
mod wake;

pub(crate) use wait::BatchedWaiter;

use crate::bitmap::Sbitmap;
use crate::error::{PutError, ResizeError};
use crate::fairness::BatchedOptions;
use crate::mask::BitMask;
use crate::request::{NewcomerPolicy, ShareLimiter};
use crate::snapshot::{QueueSnapshot, QueueStats};
use inflight_sync::Mutex;
use inflight_sync::time::Clock;
use newcomer_gate::NewcomerGate;
use std::panic::{self, AssertUnwindSafe};
use wake::{WakeQueues, wake_batch};

#[derive(Debug)]
pub(crate) struct Batched {
    map: Sbitmap,
    waits: WakeQueues,
    /// What the wake batch is made from. Its lock makes a change and the new batch one step.
    sizing: Mutex<Sizing>,
    collector: many::CollectorLock,
    clock: Clock,
}

/// The least number of bits that any waiter sees in use before it sleeps decides the wake batch.
#[derive(Clone, Copy, Debug)]
struct Sizing {
    depth: usize,
    /// The fewest bits that a user is kept to.
    least_share: usize,
    /// Whether somebody keeps bits while it waits for more.
    collecting: bool,
}

impl Sizing {
    const NO_LIMIT: usize = usize::MAX;

    fn wake_batch(self) -> u32 {
        if self.collecting {
            return 1;
        }
        wake_batch(self.depth.min(self.least_share))
    }
}

impl Batched {
    pub(crate) fn new(
        map: Sbitmap,
        options: BatchedOptions,
        newcomers: Option<NewcomerPolicy>,
        shares: Option<Box<dyn ShareLimiter>>,
        clock: Clock,
    ) -> Self {
        let gate = NewcomerGate::new(newcomers, shares);
        let sizing = Sizing {
            depth: map.depth(),
            least_share: options.least_share.unwrap_or(Sizing::NO_LIMIT),
            collecting: false,
        };
        Self {
            map,
            waits: WakeQueues::new(sizing.wake_batch(), options.wake_policy, gate),
            sizing: Mutex::new(sizing),
            collector: many::CollectorLock::default(),
            clock,
        }
    }

    pub(crate) const fn store(&self) -> &Sbitmap {
        &self.map
    }

    /// Changes what the wake batch is made from, and makes all waiters look again.
    fn resized<E>(&self, change: impl FnOnce(&mut Sizing) -> Result<(), E>) -> Result<(), E> {
        {
            let mut sizing = self.sizing.lock();
            change(&mut sizing)?;
            self.waits.set_batch(sizing.wake_batch());
        }
        // New bits are free without a put, and a batch that became larger may never be complete.
        self.waits.wake_all();
        Ok(())
    }

    pub(crate) fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        let change = |sizing: &mut Sizing| {
            self.map.resize(depth)?;
            sizing.depth = depth;
            Ok(())
        };
        // A waker that panics must not keep the news from those who wait to collect: they may want
        // too many now.
        let resized = panic::catch_unwind(AssertUnwindSafe(|| self.resized(change)));
        self.collector.look_again();
        resized.unwrap_or_else(|panic| panic::resume_unwind(panic))
    }

    /// `least` is asked under the lock, so that of two who change shares at once the last one to
    /// come here sees both changes (H15).
    pub(crate) fn set_least_share(&self, least: impl FnOnce() -> Option<usize>) {
        let _: Result<(), ResizeError> = self.resized(|sizing| {
            sizing.least_share = least().unwrap_or(Sizing::NO_LIMIT);
            Ok(())
        });
    }

    /// As `set_least_share`, to what the shares say.
    pub(crate) fn shares_changed(&self) {
        self.set_least_share(|| self.waits.gate.shares.least_share());
    }

    #[inline]
    pub(crate) fn try_get(&self) -> Option<usize> {
        if self.is_closed() {
            return None;
        }
        self.map.try_get()
    }

    pub(crate) fn try_get_batch(&self, n: usize, bits: &mut Vec<usize>) -> usize {
        self.map
            .try_get_batch(if self.is_closed() { 0 } else { n }, bits)
    }

    pub(crate) fn try_get_mask(&self, n: usize) -> BitMask {
        self.map.take_mask(if self.is_closed() { 0 } else { n })
    }

    pub(crate) fn try_get_shallow(&self, limit: usize) -> Option<usize> {
        if self.is_closed() {
            return None;
        }
        self.map.try_get_shallow(limit)
    }

    /// Nobody gets a bit from now on, and all who wait are told so.
    pub(crate) fn close(&self) {
        self.waits.gate.close();
        let told = panic::catch_unwind(AssertUnwindSafe(|| self.waits.wake_all()));
        self.collector.look_again();
        told.unwrap_or_else(|panic| panic::resume_unwind(panic));
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.waits.gate.is_closed()
    }

    /// P2 to P5.
    #[inline]
    fn freed(&self, n: usize) {
        self.waits.freed(n, || {
            self.map.depth() - self.map.weight().min(self.map.depth())
        });
    }

    /// E1: whether a newcomer may try past those who wait.
    #[inline]
    pub(crate) fn admits(&self) -> bool {
        self.waits.gate.admits(|| self.waits.active())
    }

    /// E2: the same for a newcomer that is in a list by now. Only those who sleep count, and
    /// unless as many bits are in use as make a batch, nobody might come to wake it.
    fn admits_waiter(&self) -> bool {
        let others = || self.waits.sleepers().saturating_sub(1);
        self.waits.gate.admits(others) || self.map.weight() < self.waits.batch() as usize
    }

    /// Hands on a wake that was worth `n` bits.
    pub(crate) fn pass_on(&self, n: usize) {
        if self.waits.gate.is_per_tag() {
            self.waits.pass_on(n);
        }
    }

    pub(crate) fn put(&self, bit: usize) -> Result<(), PutError> {
        self.map.put(bit)?;
        self.freed(1);
        Ok(())
    }

    pub(crate) fn put_batch(&self, bits: &[usize]) -> Result<(), PutError> {
        self.finish_put(self.map.put_runs(bits))
    }

    pub(crate) fn put_mask(&self, bits: BitMask) -> Result<(), PutError> {
        self.finish_put(self.map.put_mask_counted(bits))
    }

    fn finish_put<T>(&self, (freed, result): (usize, T)) -> T {
        if freed > 0 {
            self.freed(freed);
        }
        result
    }

    pub(crate) fn wake_all(&self) {
        self.waits.wake_all();
    }

    pub(crate) fn stats(&self) -> QueueStats {
        self.waits.stats()
    }

    pub(crate) fn look_at(&self, snapshot: &mut QueueSnapshot) {
        self.waits.look_at(snapshot);
        let least = self.sizing.lock().least_share;
        snapshot.least_share = (least != Sizing::NO_LIMIT).then_some(least);
    }
}
