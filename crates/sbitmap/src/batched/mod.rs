//! [`Fairness::Batched`](crate::Fairness::Batched): the bitmap with waiting as in the kernel.

mod close;
mod get_many;
mod newcomer_gate;
mod queue_order;
mod resize;
mod wait;
mod wait_queues;
mod wake_batch;

pub use queue_order::WakePolicy;
pub(crate) use wait::BatchedWaiter;

use crate::bitmap::Sbitmap;
use crate::error::PutError;
use crate::fairness::BatchedOptions;
use crate::mask::BitMask;
use crate::newcomer_policy::NewcomerPolicy;
use crate::share_limiter::ShareLimiter;
use crate::snapshot::{QueueSnapshot, QueueStats};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex};
use newcomer_gate::NewcomerGate;
use wait_queues::WaitQueues;
use wake_batch::Sizing;

#[derive(Debug)]
pub(crate) struct Batched {
    map: Sbitmap,
    waits: WaitQueues,
    /// The inputs of the wake batch. Its lock makes a change and the new batch one step.
    sizing: Mutex<Sizing>,
    collector: get_many::CollectorLock,
    clock: Clock,
}

impl Batched {
    pub(crate) fn new(
        map: Sbitmap,
        options: BatchedOptions,
        newcomers: Option<NewcomerPolicy>,
        shares: Option<Arc<dyn ShareLimiter>>,
        clock: Clock,
    ) -> Self {
        let gate = NewcomerGate::new(newcomers, shares);
        let sizing = Sizing {
            depth: map.depth(),
            least_share: options.least_share.unwrap_or(Sizing::NO_LIMIT),
            collectors: 0,
        };
        Self {
            map,
            waits: WaitQueues::new(sizing.wake_batch(), options.wake_policy, gate),
            sizing: Mutex::new(sizing),
            collector: get_many::CollectorLock::default(),
            clock,
        }
    }

    /// The map, unless the queue is closed.
    #[inline]
    fn open(&self) -> Option<&Sbitmap> {
        (!self.is_closed()).then_some(&self.map)
    }

    pub(crate) const fn map(&self) -> &Sbitmap {
        &self.map
    }

    #[inline]
    pub(crate) fn try_get(&self) -> Option<usize> {
        self.open()?.try_get()
    }

    pub(crate) fn try_get_batch(&self, n: usize, bits: &mut Vec<usize>) -> usize {
        self.open().map_or(0, |map| map.try_get_batch(n, bits))
    }

    pub(crate) fn try_get_mask(&self, n: usize) -> BitMask {
        self.open().map_or(BitMask::EMPTY, |map| map.take_mask(n))
    }

    pub(crate) fn try_get_shallow(&self, limit: usize) -> Option<usize> {
        self.open()?.try_get_shallow(limit)
    }

    /// P2 to P5.
    #[inline]
    fn freed(&self, n: usize) {
        self.waits.freed(n, || {
            self.map.depth() - self.map.weight().min(self.map.depth())
        });
    }

    /// E1: returns whether a newcomer may try to overtake the waiters.
    #[inline]
    pub(crate) fn admits(&self) -> bool {
        self.waits.gate.admits(|| self.waits.active())
    }

    /// E2: the same for a newcomer that is in a list already.
    fn admits_waiter(&self) -> bool {
        let (sleepers, in_use) = (|| self.waits.sleepers(), || self.map.weight());
        let batch = self.waits.batch();
        self.waits.gate.admits_waiter(sleepers, in_use, batch)
    }

    /// Passes on a wake that was worth `n` bits.
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

    pub(crate) fn fill_snapshot(&self, snapshot: &mut QueueSnapshot) {
        self.waits.fill_snapshot(snapshot);
        let least = self.sizing.lock().least_share;
        snapshot.least_share = (least != Sizing::NO_LIMIT).then_some(least);
    }
}
