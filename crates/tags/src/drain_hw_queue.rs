//! Draining an inactive hardware queue: D2 and D3 of [`hotplug`](crate::hotplug).

use crate::active_queues::SERIAL;
use crate::error::DrainError;
use crate::freeze::UnusedPass;
use crate::hw_queues::HwQueues;
use crate::set::TagSet;
use crate::shared::Shared;
use inflight_sync::time::Instant;
use inflight_sync::wait::WaiterKey;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A drain of a hardware queue that has begun.
pub(crate) struct HwQueueDrain {
    hw_queue: usize,
    /// The word of the queue that serves for it, at the beginning.
    word: u64,
    pass: UnusedPass,
}

impl<T> Shared<T> {
    /// D2.
    fn begin_drain(&self, hw_queue: usize) -> Result<HwQueueDrain, DrainError> {
        if hw_queue >= self.bitmaps.size.hw_queues() {
            return Err(DrainError::NoSuchHwQueue { hw_queue });
        }
        let word = self.bitmaps.active_queues.word(hw_queue);
        if word % SERIAL == hw_queue as u64 {
            return Err(DrainError::Active { hw_queue });
        }
        // The thread that did D1 may not have reached its D2 yet.
        self.bitmaps.gate.publish();
        Ok(HwQueueDrain {
            hw_queue,
            word,
            pass: UnusedPass::of_hw_queue(&self.bitmaps, hw_queue),
        })
    }

    /// D3: whether it has ended.
    fn end_drain(&self, drain: &mut HwQueueDrain) -> Option<Result<(), DrainError>> {
        let hw_queue = drain.hw_queue;
        if self.bitmaps.active_queues.word(hw_queue) / SERIAL != drain.word / SERIAL {
            let there = hw_queue < self.bitmaps.size.hw_queues();
            let why = if there {
                DrainError::Active { hw_queue }
            } else {
                DrainError::NoSuchHwQueue { hw_queue }
            };
            return Some(Err(why));
        }
        // The bit first: its hardware queue was written before A2, and stays until its put.
        let counts = |table, tag| {
            !self.bitmaps.layout.shared_tags || self.slot(table, tag).hw_queue() == hw_queue
        };
        let busy = drain.pass.is_busy_with(&self.bitmaps, counts);
        (!busy).then_some(Ok(()))
    }

    /// D3 for a thread, at most until the deadline.
    fn drain_hw_queue(&self, hw_queue: usize, deadline: Option<Instant>) -> Result<(), DrainError> {
        let mut drain = self.begin_drain(hw_queue)?;
        let mut end = None;
        let drained = &self.bitmaps.gate.drained;
        self.bitmaps.wait_while(drained, deadline, || {
            end = self.end_drain(&mut drain);
            end.is_none()
        });
        end.unwrap_or(Err(DrainError::TimedOut { hw_queue }))
    }
}

impl<T: Send + 'static> HwQueues<'_, T> {
    /// Checks that no tag of an inactive hardware queue is held or in flight now.
    ///
    /// # Errors
    ///
    /// [`InUse`](DrainError::InUse) if a tag is in use; the errors of [`drain`](HwQueues::drain).
    pub fn try_drain(&self, hw_queue: usize) -> Result<(), DrainError> {
        let shared = &self.set.shared;
        let mut drain = shared.begin_drain(hw_queue)?;
        let end = shared.end_drain(&mut drain);
        end.unwrap_or(Err(DrainError::InUse { hw_queue }))
    }

    /// Waits until no tag of an inactive hardware queue is held or in flight: its ring can then be
    /// closed. Writes of the last owners are visible. The future may be dropped at any time.
    ///
    /// Its requests must be completed meanwhile. Tags that a [`Split`](crate::Split) has collected
    /// there count as held.
    ///
    /// # Errors
    ///
    /// [`Active`](DrainError::Active) if the hardware queue is active, or becomes active
    /// [again](crate::Cpus::online) before it was drained;
    /// [`NoSuchHwQueue`](DrainError::NoSuchHwQueue).
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, DrainError, TagSet};
    /// # use std::time::Duration;
    /// # let topo = inflight_topology::Topology::synthetic("core:2")?;
    /// let set = TagSet::builder().hw_queues(2).topology(&topo).build(|_, _| ())?;
    /// let held = set.add_tenant("sda")?.try_alloc_with(AllocOptions::new().hw_queue(1))?;
    /// assert_eq!(set.hw_queues().try_drain(1), Err(DrainError::Active { hw_queue: 1 }));
    /// assert_eq!(set.cpus().offline(1), [1]);
    /// let short = Duration::from_millis(1);
    /// let late = DrainError::TimedOut { hw_queue: 1 };
    /// assert_eq!(set.hw_queues().drain_timeout(1, short), Err(late));
    /// drop(held);
    /// set.hw_queues().drain_blocking(1)?;
    /// inflight_sync::block_on(set.hw_queues().drain(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, hw_queue: usize) -> DrainHwQueue<T> {
        DrainHwQueue {
            set: self.set.clone(),
            hw_queue,
            drain: None,
            key: None,
        }
    }

    /// Waits as [`drain`](HwQueues::drain); the thread sleeps. The errors are the same.
    ///
    /// A thread that holds a tag of the hardware queue waits for itself, for ever.
    pub fn drain_blocking(&self, hw_queue: usize) -> Result<(), DrainError> {
        self.set.shared.drain_hw_queue(hw_queue, None)
    }

    /// Waits as [`drain`](HwQueues::drain); the thread sleeps at most `timeout`. The hardware queue
    /// stays inactive. The errors are the same; also [`TimedOut`](DrainError::TimedOut).
    pub fn drain_timeout(&self, hw_queue: usize, timeout: Duration) -> Result<(), DrainError> {
        let shared = &self.set.shared;
        let deadline = shared.bitmaps.clock.now() + timeout;
        shared.drain_hw_queue(hw_queue, Some(deadline))
    }
}

/// The future of [`HwQueues::drain`](crate::HwQueues::drain). `'static`; may be dropped at any
/// time.
#[must_use = "futures do nothing unless polled"]
pub struct DrainHwQueue<T: Send + 'static> {
    set: TagSet<T>,
    hw_queue: usize,
    /// Set once it has begun.
    drain: Option<HwQueueDrain>,
    key: Option<WaiterKey>,
}

impl<T: Send + 'static> Future for DrainHwQueue<T> {
    type Output = Result<(), DrainError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = &this.set.shared;
        let drain = match &mut this.drain {
            Some(drain) => drain,
            none => none.insert(shared.begin_drain(this.hw_queue)?),
        };
        let mut end = None;
        let drained = &shared.bitmaps.gate.drained;
        ready!(drained.poll_while(&mut this.key, cx, || {
            end = shared.end_drain(drain);
            end.is_none()
        }));
        this.drain = None;
        Poll::Ready(end.expect("the wait ends when `end` is set"))
    }
}

impl<T: Send + 'static> Drop for DrainHwQueue<T> {
    fn drop(&mut self) {
        let drained = &self.set.shared.bitmaps.gate.drained;
        drained.leave(&mut self.key);
    }
}

inflight_sync::debug_fields!([T: Send + 'static] DrainHwQueue<T>: |this|
    hw_queue = this.hw_queue, begun = this.drain.is_some());
