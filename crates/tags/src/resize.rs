//! What may change while a set is in use: how deep it is, and how many hardware queues it has.
//!
//! ```text
//! growth: R1 make the slots    R2 heavy fence    R3 the bitmaps' depth
//! ```
//!
//! PROTOCOL-freeze.md has the proof.

use crate::error::ResizeError;
use crate::freeze::{Freeze, FrozenGuard};
use crate::set::TagSet;
use crate::shared::Shared;
use crate::size::Making;
use crate::tag_maps::{TagMap, TagMapId, TagMaps};
use inflight_sync::atomic::Ordering;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

impl<T> Shared<T> {
    /// Makes the slots that are still to be made of `depth` tags in these tables, and of those
    /// beyond the depth. Under the lock.
    fn make_slots(&self, tables: std::ops::Range<usize>, depth: usize) {
        let geometry = self.bitmaps.geometry();
        for table in tables {
            for tag in (0..depth).chain(geometry.depth..geometry.stride()) {
                let slot = self.slot(table, tag);
                if slot.record.is_absent() {
                    let making = Making::begin(self.bitmaps.size());
                    let payload = (self.payload)(table, tag);
                    drop(making);
                    slot.make(payload);
                }
            }
        }
    }

    fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        let bitmaps: &TagMaps = &self.bitmaps;
        let (geometry, size) = (bitmaps.geometry(), bitmaps.size());
        let (least, most) = (geometry.reserved + 1, geometry.depth);
        if !(least..=most).contains(&depth) {
            return Err(ResizeError::Depth { depth, least, most });
        }
        let _change = size.change();
        // R1.
        self.make_slots(0..geometry.tables_of(size.hw_queues()), depth);
        // R2.
        bitmaps.gate().publish();
        // Relaxed: a statistic. Before R3, whose wakers may panic.
        size.depth.store(depth, Ordering::Relaxed);
        // R3.
        bitmaps.each_of(0..geometry.tables(), |hw_queue| {
            let normal = depth - geometry.reserved;
            bitmaps.accounts(hw_queue).set_depth(normal);
            let kind = TagMap::Normal;
            let bitmap = bitmaps.bitmap(TagMapId { hw_queue, kind });
            let resized = bitmap.resize(normal);
            debug_assert!(resized.is_ok(), "the limits are the bitmap's own");
            bitmaps.shares_changed(hw_queue);
        });
        Ok(())
    }

    /// Whether a change to so many is to be made.
    fn check_hw_queues(&self, n: usize) -> Result<bool, ResizeError> {
        let most = self.bitmaps.geometry().hw_queues;
        if !(1..=most).contains(&n) {
            return Err(ResizeError::HwQueues { hw_queues: n, most });
        }
        let size = self.bitmaps.size();
        if n == size.hw_queues() {
            return Ok(false);
        }
        // Before anybody waits for requests.
        size.not_while_making();
        Ok(true)
    }

    /// Under a freeze, which comes before the lock, so that nobody who changes something else
    /// waits for requests.
    fn set_hw_queues(&self, n: usize, frozen: FrozenGuard) {
        let bitmaps = &self.bitmaps;
        let (geometry, size) = (bitmaps.geometry(), bitmaps.size());
        let _change = size.change();
        // First what can panic: the set is then as it was.
        self.make_slots(0..geometry.tables_of(n), size.depth());
        self.map.set_hw_queues(n);
        bitmaps.set_users(&self.map.users(geometry.shared));
        // Relaxed: the thaw publishes it.
        size.hw_queues.store(n, Ordering::Relaxed);
        self.look_who_serves();
        drop(frozen);
    }
}

/// The future of [`TagSet::set_hw_queues`], `'static`.
///
/// ```
/// use inflight_tags::{SetHwQueues, TagSet};
/// let set = TagSet::builder().build(|_, _| ())?;
/// let change: SetHwQueues<()> = set.set_hw_queues(2);
/// assert!(inflight_sync::block_on(change).is_err(), "the builder was told of 1");
/// # Ok::<(), inflight_tags::BuildError>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct SetHwQueues<T: Send + 'static> {
    set: TagSet<T>,
    n: usize,
    /// Once it has begun.
    freeze: Option<Freeze>,
}

impl<T: Send + 'static> Future for SetHwQueues<T> {
    type Output = Result<(), ResizeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = this.set.shared();
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

impl<T: Send + 'static> fmt::Debug for SetHwQueues<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetHwQueues")
            .field("n", &self.n)
            .field("freeze", &self.freeze)
            .finish_non_exhaustive()
    }
}

impl<T: Send + 'static> TagSet<T> {
    /// Changes the depth of every hardware queue, while the set is in use: between
    /// `reserved + 1` and the builder's [`max_depth`](crate::TagSetBuilder::max_depth).
    ///
    /// Down succeeds with tags out: those above the new depth stay valid, and vanish when they are
    /// freed. Up makes the new slots by the build closure, and gives the new tags to waiters. A
    /// slot is made once: a second growth finds it as its last owner left it.
    ///
    /// # Errors
    ///
    /// [`ResizeError::Depth`] if it is outside these limits; nothing is changed.
    ///
    /// # Panics
    ///
    /// With the build closure, and in it, for it must not change its own set; the depth is then
    /// unchanged. With a waiter's waker, when all hardware queues have the new depth.
    ///
    /// The idea is `nr_requests` of blk-mq, which may grow to what was allocated at first.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().depth(2).max_depth(8).build(|_, tag| tag)?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let two = dev.try_alloc_batch(8);
    /// assert_eq!(two.len(), 2);
    /// set.resize(8)?;
    /// assert_eq!(dev.try_alloc_batch(8).len(), 6);
    /// set.resize(1)?; // tag 1 is still held
    /// drop(two);
    /// assert_eq!((set.depth(), dev.try_alloc_batch(8).len()), (1, 1));
    /// assert!(set.resize(9).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        self.shared().resize(depth)
    }

    /// Changes the number of hardware queues: from 1 to the builder's
    /// [`max`](crate::HwQueueOptions::max).
    ///
    /// [Freezes](TagSet::freeze) the set for the change: waits until no tag is held or in
    /// flight, so a caller that holds one waits for itself, for ever, and requests that never
    /// complete need [`expired`](TagSet::expired);
    /// [`set_hw_queues_timeout`](TagSet::set_hw_queues_timeout) gives up. If there are `n` already
    /// it waits for nobody, and changes nothing. CPUs are spread over the new number as by the
    /// builder. Of each [kind](crate::QueueKind) there are as many as the builder was told;
    /// if they are too few, one default one comes first, then those for polling, then those for
    /// reads. Submitters that wait go to the hardware queue that serves them then; those that named
    /// one that is gone get [`NoSuchHwQueue`](crate::AllocError::NoSuchHwQueue). Tokens of hardware
    /// queues that are gone are [`Stale`](crate::RedeemError::Stale).
    ///
    /// # Errors
    ///
    /// [`ResizeError::HwQueues`] if there cannot be so many; nothing is changed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the set as it was.
    ///
    /// # Panics
    ///
    /// With the build closure, and in it, for it must not change its own set; the set is then as it
    /// was.
    ///
    /// The idea is blk-mq's update of the number of hardware queues.
    ///
    /// ```
    /// # use inflight_tags::{HwQueueOptions, TagSet};
    /// let rings = HwQueueOptions::new(1).max(4);
    /// let set = TagSet::builder().hw_queues(rings).depth(2).build(|hwq, _| hwq)?;
    /// inflight_sync::block_on(set.set_hw_queues(4))?;
    /// assert_eq!(set.hw_queues().len(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_hw_queues(&self, n: usize) -> SetHwQueues<T> {
        SetHwQueues {
            set: self.clone(),
            n,
            freeze: None,
        }
    }

    /// As [`set_hw_queues`](TagSet::set_hw_queues), if no tag is held or in flight now.
    ///
    /// # Errors
    ///
    /// As [`set_hw_queues`](TagSet::set_hw_queues); [`ResizeError::InUse`].
    ///
    /// # Panics
    ///
    /// As [`set_hw_queues`](TagSet::set_hw_queues).
    ///
    /// ```
    /// # use inflight_tags::{HwQueueOptions, ResizeError, TagSet};
    /// let set = TagSet::builder().hw_queues(HwQueueOptions::new(1).max(2)).build(|_, _| ())?;
    /// let held = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// assert_eq!(set.try_set_hw_queues(2), Err(ResizeError::InUse));
    /// drop(held);
    /// assert_eq!(set.try_set_hw_queues(2), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_set_hw_queues(&self, n: usize) -> Result<(), ResizeError> {
        if self.shared().check_hw_queues(n)? {
            self.shared().set_hw_queues(n, self.try_freeze()?);
        }
        Ok(())
    }

    /// As [`set_hw_queues`](TagSet::set_hw_queues), sleeping.
    ///
    /// # Errors
    ///
    /// As [`set_hw_queues`](TagSet::set_hw_queues).
    ///
    /// # Panics
    ///
    /// As [`set_hw_queues`](TagSet::set_hw_queues).
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, HwQueueOptions, TagSet};
    /// let rings = HwQueueOptions::new(1).max(4);
    /// let set = TagSet::builder().hw_queues(rings).depth(2).build(|hwq, _| hwq)?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// set.set_hw_queues_blocking(4)?;
    /// assert_eq!(*dev.try_alloc_with(AllocOptions::new().hw_queue(3))?, 3);
    /// set.set_hw_queues_blocking(1)?;
    /// assert!(dev.try_alloc_with(AllocOptions::new().hw_queue(3)).is_err());
    /// assert!(set.set_hw_queues_blocking(5).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_hw_queues_blocking(&self, n: usize) -> Result<(), ResizeError> {
        if self.shared().check_hw_queues(n)? {
            self.shared().set_hw_queues(n, self.freeze_blocking());
        }
        Ok(())
    }

    /// As [`set_hw_queues`](TagSet::set_hw_queues), sleeping at most for `timeout`; after that the
    /// set is as it was.
    ///
    /// # Errors
    ///
    /// As [`set_hw_queues`](TagSet::set_hw_queues); [`ResizeError::TimedOut`].
    ///
    /// # Panics
    ///
    /// As [`set_hw_queues`](TagSet::set_hw_queues).
    ///
    /// ```
    /// # use inflight_tags::{HwQueueOptions, ResizeError, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().hw_queues(HwQueueOptions::new(1).max(2)).build(|_, _| ())?;
    /// let held = set.add_tenant("nvme0n1")?.alloc_blocking()?;
    /// let short = Duration::from_millis(1);
    /// assert_eq!(set.set_hw_queues_timeout(2, short), Err(ResizeError::TimedOut));
    /// drop(held);
    /// assert_eq!(set.set_hw_queues_timeout(2, short), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_hw_queues_timeout(&self, n: usize, timeout: Duration) -> Result<(), ResizeError> {
        if self.shared().check_hw_queues(n)? {
            self.shared()
                .set_hw_queues(n, self.freeze_timeout(timeout)?);
        }
        Ok(())
    }
}
