//! Changing the number of hardware queues, under a freeze.
//!
//! ```text
//! Q1 freeze    Q2 make slots    Q3 CPU map, number of hardware queues    Q4 thaw
//! ```
//!
//! A waiter in the bitmap of a queue that is removed gets a bit while the set is drained, puts it
//! back, waits for the thaw and starts again. PROTOCOL-freeze.md has the proof.

use crate::error::{FreezeError, ResizeError};
use crate::freeze::{Freeze, FrozenGuard};
use crate::set::TagSet;
use crate::shared::Shared;
use inflight_sync::atomic::Ordering;
use inflight_sync::panics::FirstPanic;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

impl<T> Shared<T> {
    /// Returns whether the number changes, or an error.
    fn check_hw_queues(&self, n: usize) -> Result<bool, ResizeError> {
        let most = self.bitmaps.layout.hw_queues;
        if !(1..=most).contains(&n) {
            return Err(ResizeError::HwQueues { hw_queues: n, most });
        }
        let size = &self.bitmaps.size;
        if n == size.hw_queues() {
            return Ok(false);
        }
        // Before the wait for requests.
        size.refuse_in_build_closure();
        Ok(true)
    }

    /// Under a freeze that begins before the lock is taken, so that a caller that changes something
    /// else does not wait for requests.
    fn set_hw_queues(&self, n: usize, frozen: FrozenGuard) {
        let bitmaps = &self.bitmaps;
        let (layout, size) = (bitmaps.layout, &bitmaps.size);
        let change = size.change();
        // What can panic comes first: the set is then unchanged.
        self.make_slots(0..layout.tables_of(n), size.depth());
        self.cpu_map.set_hw_queues(n);
        bitmaps.set_users(&self.cpu_map.users(layout.shared_tags));
        // Relaxed: the thaw publishes it.
        size.hw_queues.store(n, Ordering::Relaxed);
        let returned = self.update_active_queues();
        drop(change); // What follows runs wakers.
        let mut panic = FirstPanic::default();
        panic.run(|| drop(frozen));
        panic.run(|| self.tell_drains(returned));
        panic.finish();
    }
}

/// The future of [`TagSet::set_hw_queues`], `'static`.
#[must_use = "futures do nothing unless polled"]
pub struct SetHwQueues<T: Send + 'static> {
    set: TagSet<T>,
    n: usize,
    /// `Some` once the freeze has begun.
    freeze: Option<Freeze>,
}

impl<T: Send + 'static> Future for SetHwQueues<T> {
    type Output = Result<(), ResizeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = &this.set.shared;
        let freeze = match &mut this.freeze {
            Some(freeze) => freeze,
            None if !shared.check_hw_queues(this.n)? => return Poll::Ready(Ok(())),
            none => none.insert(Freeze::new(&shared.bitmaps)),
        };
        let frozen = ready!(Pin::new(freeze).poll(cx));
        this.freeze = None;
        shared.set_hw_queues(this.n, frozen);
        Poll::Ready(Ok(()))
    }
}

inflight_sync::debug_fields!([T: Send + 'static] SetHwQueues<T>: |this|
    n = this.n, freeze = this.freeze);

impl<T: Send + 'static> TagSet<T> {
    /// Changes the number of hardware queues: from 1 to the builder's
    /// [`max`](crate::HwQueueOptions::max).
    ///
    /// [Freezes](TagSet::freeze) the set for the change: waits until no tag is held or in flight.
    /// So a caller that holds a tag waits for itself, for ever, and requests that never complete
    /// need [`expired`](TagSet::expired); [`set_hw_queues_timeout`](TagSet::set_hw_queues_timeout)
    /// has a limit. If there are `n` already, the call does not wait, and changes nothing. CPUs are
    /// spread over the new number by the rule of the builder. Of each [kind](crate::QueueKind)
    /// there are as many as in the builder; if `n` is too small, the order is one default queue,
    /// then those for polling, then those for reads. Waiting submitters go to the hardware queue
    /// that serves them after the change; those that named a removed one get
    /// [`NoSuchHwQueue`](crate::AllocError::NoSuchHwQueue). Tokens of removed hardware queues are
    /// [`Stale`](crate::RedeemError::Stale).
    ///
    /// # Errors
    ///
    /// [`ResizeError::HwQueues`] if `n` is outside these limits; the set is unchanged.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the set as it was.
    ///
    /// # Panics
    ///
    /// Panics with the build closure, and in a build closure of the same set, which must not change
    /// it. The set is then as it was.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, HwQueueOptions, ResizeError, TagSet};
    /// use std::time::Duration;
    /// let rings = HwQueueOptions::new(1).max(4);
    /// let set = TagSet::builder().hw_queues(rings).depth(2).build(|hwq, _| hwq)?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// inflight_sync::block_on(set.set_hw_queues(2))?;
    /// set.set_hw_queues_blocking(4)?;
    /// let held = dev.try_alloc_with(AllocOptions::new().hw_queue(3))?;
    /// assert_eq!(*held, 3);
    /// assert_eq!(set.try_set_hw_queues(1), Err(ResizeError::InUse));
    /// let short = Duration::from_millis(1);
    /// assert_eq!(set.set_hw_queues_timeout(1, short), Err(ResizeError::TimedOut));
    /// drop(held);
    /// set.set_hw_queues_blocking(1)?;
    /// assert!(dev.try_alloc_with(AllocOptions::new().hw_queue(3)).is_err());
    /// assert!(set.set_hw_queues_blocking(5).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_hw_queues(&self, n: usize) -> SetHwQueues<T> {
        SetHwQueues {
            set: self.clone(),
            n,
            freeze: None,
        }
    }

    /// Changes the number as [`set_hw_queues`](TagSet::set_hw_queues), if no tag is held or in
    /// flight now. Errors and panics are the same; also [`ResizeError::InUse`].
    pub fn try_set_hw_queues(&self, n: usize) -> Result<(), ResizeError> {
        self.set_hw_queues_under(n, || self.try_freeze())
    }

    /// Changes the number as [`set_hw_queues`](TagSet::set_hw_queues); the thread sleeps. Errors
    /// and panics are the same.
    pub fn set_hw_queues_blocking(&self, n: usize) -> Result<(), ResizeError> {
        self.set_hw_queues_under(n, || Ok(self.freeze_blocking()))
    }

    /// Changes the number as [`set_hw_queues`](TagSet::set_hw_queues); the thread sleeps at most
    /// `timeout`. After a timeout the set is as it was. Errors and panics are the same; also
    /// [`ResizeError::TimedOut`].
    pub fn set_hw_queues_timeout(&self, n: usize, timeout: Duration) -> Result<(), ResizeError> {
        self.set_hw_queues_under(n, || self.freeze_timeout(timeout))
    }

    fn set_hw_queues_under(
        &self,
        n: usize,
        freeze: impl FnOnce() -> Result<FrozenGuard, FreezeError>,
    ) -> Result<(), ResizeError> {
        if self.shared.check_hw_queues(n)? {
            self.shared.set_hw_queues(n, freeze()?);
        }
        Ok(())
    }
}
