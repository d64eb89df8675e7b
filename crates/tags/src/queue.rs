//! A tenant of a set: the place tags are allocated from.

use crate::bit::Bit;
use crate::bitmaps::{Bitmaps, Target};
use crate::error::AllocError;
use crate::options::AllocOptions;
use crate::set::{Shared, TagSet};
use crate::stats::{QueueStats, Striped};
use crate::tag::Tag;
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, cpu};
use std::fmt;
use std::time::Duration;

/// A tenant of a [`TagSet`]: a device, or whatever else submits requests under the set's tags.
///
/// A cheap clone of one shared thing. Made by [`TagSet::add_queue`].
///
/// # Which tag
///
/// A tag comes from the hardware queue that serves the calling CPU, unless
/// [`AllocOptions::hw_queue`] names one; another hardware queue's free tags are not looked at. A
/// caller that waits, waits at the hardware queue it came to. If it runs on a CPU of another one
/// when its turn has come, it takes a tag there if one is free, and frees the one it was woken for,
/// as its owner would: that counts towards the next wakeup there.
///
/// # Waiting
///
/// Each form exists three times: `try_alloc` never waits, `alloc` is a future, `alloc_blocking`
/// and `alloc_timeout` put the thread to sleep. Threads and tasks wait in the same order.
/// Reserved tags have waiters of their own. Who waits while the set is frozen waits on, for
/// the thaw first.
///
/// # Panics
///
/// An allocation that gives a tag back (it moved, or a freeze came in between) runs the wakers of
/// waiting tasks, as does dropping its future. If one panics, the panic comes out of the
/// call, after everybody who was to be woken is told; no tag is lost.
///
/// ```
/// use inflight_tags::{AllocOptions, TagSet};
/// let set = TagSet::builder().depth(4).build(|_, _| String::new())?;
/// let dev = set.add_queue("nvme0n1");
/// let mut tag = dev.alloc_blocking()?;
/// tag.push_str("read 4096 bytes");
/// assert_eq!(dev.name(), "nvme0n1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
    tenant: Arc<Tenant>,
}

#[derive(Debug)]
struct Tenant {
    name: String,
    counters: Striped,
}

/// What a waiting form does next.
enum Step<T> {
    Done(Result<Tag<T>, AllocError>),
    WaitForThaw,
    WaitForBit(Target),
}

impl<T: Send + 'static> Queue<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>, name: String) -> Self {
        let counters = Striped::new(shared.cpus);
        Self {
            shared,
            tenant: Arc::new(Tenant { name, counters }),
        }
    }

    /// The name it was added under.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// assert_eq!(set.add_queue("nvme0n1").name(), "nvme0n1");
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.tenant.name
    }

    /// The set it is a tenant of.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(7).build(|_, _| ())?;
    /// assert_eq!(set.add_queue("nvme0n1").set().depth(), 7);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn set(&self) -> TagSet<T> {
        TagSet::from_shared(self.shared.clone())
    }

    /// What this tenant counted.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let dev = set.add_queue("nvme0n1");
    /// drop(dev.alloc_blocking());
    /// assert_eq!(dev.stats().allocs, 1);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> QueueStats {
        self.tenant.counters.sum()
    }

    /// Takes a tag if one is free now.
    ///
    /// # Errors
    ///
    /// [`Exhausted`](AllocError::Exhausted) if none is, [`Frozen`](AllocError::Frozen) while
    /// somebody freezes the set, [`NoReserved`](AllocError::NoReserved) and
    /// [`NoSuchHwQueue`](AllocError::NoSuchHwQueue) if the options ask for what the set does not
    /// have.
    ///
    /// ```
    /// # use inflight_tags::{AllocError, AllocOptions, TagSet};
    /// # let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// # let dev = set.add_queue("nvme0n1");
    /// let tag = dev.try_alloc(AllocOptions::new())?;
    /// assert_eq!(dev.try_alloc(AllocOptions::new()).unwrap_err(), AllocError::Exhausted);
    /// drop(tag);
    /// assert!(dev.try_alloc(AllocOptions::new()).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_alloc(&self, options: AllocOptions) -> Result<Tag<T>, AllocError> {
        match self.step(options) {
            Step::Done(result) => result,
            Step::WaitForThaw => Err(self.frozen()),
            Step::WaitForBit(_) => Err(self.exhausted()),
        }
    }

    /// Takes as many normal tags as are free now, up to `n`, all from the calling CPU's hardware
    /// queue: a plug's worth. None while the set is frozen.
    ///
    /// [`try_alloc_batch_with`](Queue::try_alloc_batch_with) says why there is none.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(6).build(|_, _| ())?;
    /// let dev = set.add_queue("nvme0n1");
    /// let four = dev.try_alloc_batch(4);
    /// assert_eq!(four.len(), 4);
    /// assert_eq!(dev.try_alloc_batch(4).len(), 2, "as many as there are");
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use = "the tags are freed when they are dropped"]
    pub fn try_alloc_batch(&self, n: usize) -> Vec<Tag<T>> {
        self.try_alloc_batch_with(AllocOptions::new(), n)
            .unwrap_or_default()
    }

    /// Takes as many tags of the kind asked for as are free now, up to `n`, all from one hardware
    /// queue. At least one, unless `n` is 0.
    ///
    /// # Errors
    ///
    /// As [`try_alloc`](Queue::try_alloc).
    ///
    /// ```
    /// # use inflight_tags::{AllocError, AllocOptions, TagSet};
    /// let set = TagSet::builder().hw_queues(2).depth(6).build(|_, _| ())?;
    /// let dev = set.add_queue("nvme0n1");
    /// let ring = AllocOptions::new().hw_queue(1);
    /// let tags = dev.try_alloc_batch_with(ring, 8)?;
    /// assert_eq!(tags.len(), 6, "as many as there are");
    /// assert!(tags.iter().all(|tag| tag.hw_queue() == 1));
    /// assert_eq!(dev.try_alloc_batch_with(ring, 8).unwrap_err(), AllocError::Exhausted);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_alloc_batch_with(
        &self,
        options: AllocOptions,
        n: usize,
    ) -> Result<Vec<Tag<T>>, AllocError> {
        self.check(options)?;
        let bitmaps = self.bitmaps();
        // A look beforehand, as in `step`.
        if bitmaps.gate().is_closed() {
            return Err(self.frozen());
        }
        let batch = bitmaps.try_get_batch(self.target(options), n);
        if n > 0 && batch.len() == 0 {
            return Err(self.exhausted());
        }
        if !bitmaps.gate().admits() {
            let frozen = self.frozen();
            drop(batch);
            return Err(frozen);
        }
        self.tenant.counters.add(|c| &c.allocs, batch.len() as u64);
        Ok(batch.into_bits().map(|bit| self.tag(bit)).collect())
    }

    /// Takes a normal tag, waiting as a task until one is free.
    ///
    /// A dropped future loses neither a tag nor a wakeup.
    ///
    /// # Errors
    ///
    /// None today; the result has the same type as that of [`alloc_with`](Queue::alloc_with).
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let dev = set.add_queue("nvme0n1");
    /// inflight_sync::block_on(async {
    ///     let tag = dev.alloc().await?;
    ///     drop(tag);
    ///     Ok::<(), inflight_tags::AllocError>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn alloc(&self) -> Result<Tag<T>, AllocError> {
        self.alloc_with(AllocOptions::new()).await
    }

    /// Takes a tag of the kind asked for, waiting as a task until one is free.
    ///
    /// A dropped future loses neither a tag nor a wakeup.
    ///
    /// # Errors
    ///
    /// [`NoReserved`](AllocError::NoReserved) and [`NoSuchHwQueue`](AllocError::NoSuchHwQueue) if
    /// the options ask for what the set does not have.
    ///
    /// ```
    /// # use inflight_tags::{AllocError, AllocOptions, TagSet};
    /// let set = TagSet::builder().depth(4).reserved(1).build(|_, _| ())?;
    /// let dev = set.add_queue("nvme0n1");
    /// let tag = inflight_sync::block_on(dev.alloc_with(AllocOptions::new().reserved()))?;
    /// assert_eq!(tag.index(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn alloc_with(&self, options: AllocOptions) -> Result<Tag<T>, AllocError> {
        let mut waited = false;
        loop {
            match self.step(options) {
                Step::Done(result) => return result,
                Step::WaitForThaw => {
                    self.count_wait(&mut waited);
                    self.bitmaps().gate().thawed().await;
                }
                Step::WaitForBit(target) => {
                    self.count_wait(&mut waited);
                    let bit = self.bitmaps().get(target).await;
                    if let Some(tag) = self.woken(options, bit) {
                        return Ok(tag);
                    }
                }
            }
        }
    }

    /// Takes a normal tag, sleeping until one is free.
    ///
    /// # Errors
    ///
    /// None today; the result has the same type as that of
    /// [`alloc_blocking_with`](Queue::alloc_blocking_with).
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| 0u32)?;
    /// let mut tag = set.add_queue("nvme0n1").alloc_blocking()?;
    /// *tag += 1;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc_blocking(&self) -> Result<Tag<T>, AllocError> {
        self.alloc_blocking_with(AllocOptions::new())
    }

    /// Takes a tag of the kind asked for, sleeping until one is free.
    ///
    /// # Errors
    ///
    /// [`NoReserved`](AllocError::NoReserved) and [`NoSuchHwQueue`](AllocError::NoSuchHwQueue) if
    /// the options ask for what the set does not have.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().hw_queues(2).build(|_, _| ())?;
    /// let tag = set.add_queue("nvme0n1").alloc_blocking_with(AllocOptions::new().hw_queue(1))?;
    /// assert_eq!(tag.hw_queue(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc_blocking_with(&self, options: AllocOptions) -> Result<Tag<T>, AllocError> {
        self.alloc_sleeping(options, None)
    }

    /// Takes a normal tag, sleeping at most for `timeout`. Tries once if that is zero.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](AllocError::TimedOut) if the time was up first.
    ///
    /// ```
    /// # use inflight_tags::{AllocError, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let dev = set.add_queue("nvme0n1");
    /// let _held = dev.alloc_timeout(Duration::from_secs(1))?;
    /// let late = dev.alloc_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(late, AllocError::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc_timeout(&self, timeout: Duration) -> Result<Tag<T>, AllocError> {
        self.alloc_timeout_with(timeout, AllocOptions::new())
    }

    /// Takes a tag of the kind asked for, sleeping at most for `timeout`. Tries once if that is
    /// zero.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](AllocError::TimedOut) if the time was up first;
    /// [`NoReserved`](AllocError::NoReserved) and [`NoSuchHwQueue`](AllocError::NoSuchHwQueue) if
    /// the options ask for what the set does not have.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(2).reserved(1).build(|_, _| ())?;
    /// let dev = set.add_queue("nvme0n1");
    /// let tag = dev.alloc_timeout_with(Duration::from_secs(1), AllocOptions::new().reserved())?;
    /// assert_eq!(tag.index(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc_timeout_with(
        &self,
        timeout: Duration,
        options: AllocOptions,
    ) -> Result<Tag<T>, AllocError> {
        let clock = self.bitmaps().clock();
        self.alloc_sleeping(options, Some((clock, clock.now() + timeout)))
    }

    /// The waiting forms for threads.
    fn alloc_sleeping(
        &self,
        options: AllocOptions,
        until: Option<(&Clock, Instant)>,
    ) -> Result<Tag<T>, AllocError> {
        let mut waited = false;
        loop {
            let in_time = match self.step(options) {
                Step::Done(result) => return result,
                Step::WaitForThaw => {
                    self.count_wait(&mut waited);
                    self.bitmaps().gate().wait_thaw(until)
                }
                Step::WaitForBit(target) => {
                    self.count_wait(&mut waited);
                    let deadline = until.map(|(_, deadline)| deadline);
                    let bit = self.bitmaps().get_sleeping(target, deadline);
                    let in_time = bit.is_some();
                    if let Some(tag) = bit.and_then(|bit| self.woken(options, bit)) {
                        return Ok(tag);
                    }
                    in_time
                }
            };
            if !in_time {
                self.tenant.counters.add(|c| &c.timeouts, 1);
                return Err(AllocError::TimedOut);
            }
        }
    }

    /// One try, and what to wait for if it failed.
    fn step(&self, options: AllocOptions) -> Step<T> {
        if let Err(error) = self.check(options) {
            return Step::Done(Err(error));
        }
        // A look beforehand, so that a frozen set's bitmaps are left alone.
        if self.bitmaps().gate().is_closed() {
            return Step::WaitForThaw;
        }
        let target = self.target(options);
        match self.bitmaps().try_get(target) {
            None => Step::WaitForBit(target),
            Some(bit) => match self.admit(bit) {
                Some(tag) => Step::Done(Ok(tag)),
                None => Step::WaitForThaw,
            },
        }
    }

    /// After a sleep that ended with a bit: a tag, unless a freeze has begun.
    ///
    /// The thread may have moved. A bit of the hardware queue where it runs now is better; the one
    /// it was woken for is then put back, for the old bitmap a put like any other.
    fn woken(&self, options: AllocOptions, bit: Bit<'_>) -> Option<Tag<T>> {
        let here = self.target(options);
        if here != bit.target() {
            if let Some(near) = self.bitmaps().try_get(here) {
                drop(bit);
                return self.admit(near);
            }
        }
        self.admit(bit)
    }

    /// A2 and A3, or B1.
    fn admit(&self, bit: Bit<'_>) -> Option<Tag<T>> {
        if !self.bitmaps().gate().admits() {
            drop(bit);
            return None;
        }
        self.tenant.counters.add(|c| &c.allocs, 1);
        Some(self.tag(bit))
    }

    /// The tag of a bit that was admitted.
    fn tag(&self, bit: Bit<'_>) -> Tag<T> {
        let (hw_queue, tag) = bit.keep();
        let slot = self.shared.slot(hw_queue, tag);
        slot.record.grant();
        // SAFETY: the bit was in the caller's hand and was not given back, so the slot is the
        // caller's by A1: PROTOCOL.md, "One owner".
        unsafe { Tag::own(slot) }
    }

    fn frozen(&self) -> AllocError {
        self.tenant.counters.add(|c| &c.frozen, 1);
        AllocError::Frozen
    }

    fn exhausted(&self) -> AllocError {
        self.tenant.counters.add(|c| &c.exhausted, 1);
        AllocError::Exhausted
    }

    fn check(&self, options: AllocOptions) -> Result<(), AllocError> {
        let geometry = self.bitmaps().geometry();
        if options.hw_queue.is_some_and(|n| n >= geometry.hw_queues) {
            return Err(AllocError::NoSuchHwQueue);
        }
        if options.reserved && geometry.reserved == 0 {
            return Err(AllocError::NoReserved);
        }
        Ok(())
    }

    /// The bitmap to take from, for options that have been checked.
    fn target(&self, options: AllocOptions) -> Target {
        let hw_queue = match options.hw_queue {
            Some(n) => n,
            None if self.bitmaps().geometry().hw_queues == 1 => 0,
            None => self.shared.map.hw_queue_of(cpu::current()),
        };
        Target {
            hw_queue,
            reserved: options.reserved,
        }
    }

    fn count_wait(&self, waited: &mut bool) {
        if !std::mem::replace(waited, true) {
            self.tenant.counters.add(|c| &c.waits, 1);
        }
    }

    fn bitmaps(&self) -> &Bitmaps {
        &self.shared.bitmaps
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            tenant: self.tenant.clone(),
        }
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.tenant.name)
            .field("stats", &self.tenant.counters.sum())
            .finish_non_exhaustive()
    }
}
