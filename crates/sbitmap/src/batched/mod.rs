//! [`Fairness::Batched`](crate::Fairness::Batched): the bitmap with the kernel's kind of waiting.

mod wait;
mod wake;

pub(crate) use wait::Get;
pub(crate) use wake::WakeState;

use crate::bitmap::Sbitmap;
use crate::error::PutError;
use crate::snapshot::QueueStats;
use inflight_sync::time::{Clock, Instant};
use wake::{WakeQueues, wake_batch};

#[derive(Debug)]
pub(crate) struct Batched {
    pub(crate) map: Sbitmap,
    waits: WakeQueues,
}

impl Batched {
    pub(crate) fn new(map: Sbitmap) -> Self {
        let waits = WakeQueues::new(wake_batch(map.depth()));
        Self { map, waits }
    }

    pub(crate) fn get_blocking(&self) -> usize {
        wait::block(self)
    }

    pub(crate) fn get_deadline(&self, clock: &Clock, deadline: Instant) -> Option<usize> {
        wait::block_until(self, clock, deadline)
    }

    pub(crate) fn get(&self) -> Get<'_> {
        Get::new(self)
    }

    pub(crate) fn put(&self, bit: usize) -> Result<(), PutError> {
        self.map.put(bit)?;
        self.waits.freed(1);
        Ok(())
    }

    pub(crate) fn put_batch(&self, bits: &[usize]) -> Result<(), PutError> {
        let (freed, result) = self.map.put_runs(bits);
        if freed > 0 {
            self.waits.freed(freed);
        }
        result
    }

    pub(crate) fn wake_all(&self) {
        self.waits.wake_all();
    }

    pub(crate) fn stats(&self) -> QueueStats {
        let state = self.waits.state();
        QueueStats {
            waits: state.total_waits,
            wakeups: state.total_wakeups,
        }
    }

    pub(crate) fn state(&self) -> WakeState {
        self.waits.state()
    }
}
