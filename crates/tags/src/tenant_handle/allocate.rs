//! The ways to allocate: at once, as a future, with the thread asleep; one tag, or several.

use super::{AllocStep, Tenant};
use crate::alloc::{Alloc, AllocOwned};
use crate::error::AllocError;
use crate::options::AllocOptions;
use crate::queue_kind::QueueKind;
use crate::tag::Tag;
use inflight_sbitmap::GetError;
use inflight_sbitmap::tenancy::Request;
use inflight_sync::time::{Clock, Instant};
use std::time::Duration;

impl<T: Send + 'static> Tenant<T> {
    /// Takes a normal tag if one is free now.
    ///
    /// # Errors
    ///
    /// [`Exhausted`](AllocError::Exhausted) if none is, [`Frozen`](AllocError::Frozen) and
    /// [`Quiesced`](AllocError::Quiesced) while somebody freezes or quiesces the set,
    /// [`Closed`](AllocError::Closed).
    ///
    /// ```
    /// # use inflight_tags::{AllocError, TagSet};
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let tag = dev.try_alloc()?;
    /// assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Exhausted);
    /// drop(tag);
    /// assert!(dev.try_alloc().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_alloc(&self) -> Result<Tag<T>, AllocError> {
        match self.alloc_fast(QueueKind::Default) {
            Some(tag) => Ok(tag),
            None => self.try_alloc_slow(AllocOptions::new()),
        }
    }

    /// Takes a tag of the kind asked for if one is free now.
    ///
    /// # Errors
    ///
    /// As [`try_alloc`](Tenant::try_alloc); [`NoReserved`](AllocError::NoReserved),
    /// [`NoSuchHwQueue`](AllocError::NoSuchHwQueue), [`Unmapped`](AllocError::Unmapped) and
    /// [`InactiveHwQueue`](AllocError::InactiveHwQueue) if the options ask for what the set does
    /// not have, or not now.
    ///
    /// ```
    /// # use inflight_tags::{AllocError, AllocOptions, TagSet};
    /// let set = TagSet::builder().hw_queues(2).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// assert_eq!(dev.try_alloc_with(AllocOptions::new().hw_queue(1))?.hw_queue(), 1);
    /// let error = dev.try_alloc_with(AllocOptions::new().hw_queue(2)).unwrap_err();
    /// assert_eq!(error, AllocError::NoSuchHwQueue { hw_queue: 2 });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_alloc_with(&self, options: AllocOptions) -> Result<Tag<T>, AllocError> {
        if !options.reserved && options.named().is_none() {
            if let Some(tag) = self.alloc_fast(options.kind) {
                return Ok(tag);
            }
        }
        self.try_alloc_slow(options)
    }

    #[inline(never)]
    fn try_alloc_slow(&self, options: AllocOptions) -> Result<Tag<T>, AllocError> {
        match self.step(options, false) {
            AllocStep::Done(result) => result,
            AllocStep::WaitForThaw(why) => Err(self.refuse(why)),
            AllocStep::WaitForBit(_) => Err(self.refuse(AllocError::Exhausted)),
        }
    }

    /// Takes as many normal tags as are free now, up to `n`, all from the calling CPU's hardware
    /// queue: a plug's worth. None while the set is frozen or quiesced, or once it is closed.
    ///
    /// [`try_alloc_batch_with`](Tenant::try_alloc_batch_with) says why there is none.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(6).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let four = dev.try_alloc_batch(4);
    /// assert_eq!(four.len(), 4);
    /// assert_eq!(dev.try_alloc_batch(4).len(), 2, "as many as there are");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the tags are freed when they are dropped"]
    pub fn try_alloc_batch(&self, n: usize) -> Vec<Tag<T>> {
        self.try_alloc_batch_with(n, AllocOptions::new())
            .unwrap_or_default()
    }

    /// Takes as many tags of the kind asked for as are free now, up to `n`, all from one hardware
    /// queue. At least one, unless `n` is 0.
    ///
    /// # Errors
    ///
    /// As [`try_alloc`](Tenant::try_alloc).
    ///
    /// ```
    /// # use inflight_tags::{AllocError, AllocOptions, TagSet};
    /// let set = TagSet::builder().hw_queues(2).depth(6).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let ring = AllocOptions::new().hw_queue(1);
    /// let tags = dev.try_alloc_batch_with(8, ring)?;
    /// assert_eq!(tags.len(), 6, "as many as there are");
    /// assert!(tags.iter().all(|tag| tag.hw_queue() == 1));
    /// assert_eq!(dev.try_alloc_batch_with(8, ring).unwrap_err(), AllocError::Exhausted);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_alloc_batch_with(
        &self,
        n: usize,
        options: AllocOptions,
    ) -> Result<Vec<Tag<T>>, AllocError> {
        let mut tags = self.batch_fast(options, n);
        let left = n - tags.len();
        if left > 0 || n == 0 {
            match self.batch_slow(options, left) {
                Ok(more) => tags.extend(more),
                Err(why) if tags.is_empty() => return Err(self.refuse(why)),
                Err(_) => {} // fewer than were asked for: nothing is refused
            }
        }
        Ok(tags)
    }

    /// The long way. A refusal is not counted yet: some tags may be there.
    fn batch_slow(&self, options: AllocOptions, n: usize) -> Result<Vec<Tag<T>>, AllocError> {
        let bitmaps = self.bitmaps();
        loop {
            self.check(options)?;
            // A look beforehand, as in `step`.
            if let Some(why) = bitmaps.gate().state().refuses() {
                return Err(why);
            }
            let target = self.target(options);
            let batch = bitmaps.try_get_batch(target, n, self.class());
            if n > 0 && batch.len() == 0 {
                return Err(AllocError::Exhausted);
            }
            let slots = batch.bits().map(|bit| self.slot_of(target, bit));
            slots.for_each(|slot| self.note_hw_queue(target, slot));
            // One look for all of them.
            if !bitmaps.admits(target.hw_queue) {
                drop(batch);
                continue;
            }
            self.count_allocs(batch.len() as u64);
            let (bitmap, bits) = (bitmaps.bitmap(target), batch.keep());
            let slots = bits.into_iter().map(|bit| self.slot_of(target, bit));
            // SAFETY: the bits were taken for this call alone, and they were admitted.
            let tags = slots.map(|slot| unsafe { self.own(slot, bitmap) });
            return Ok(tags.collect());
        }
    }

    /// Takes a normal tag, waiting as a task until one is free.
    ///
    /// # Errors
    ///
    /// [`Closed`](AllocError::Closed) if the set is [closed](crate::TagSet::close).
    ///
    /// # Cancel safety
    ///
    /// A dropped future loses neither a tag nor a wakeup; the next call is the last in line.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// inflight_sync::block_on(async {
    ///     let tag = dev.alloc().await?;
    ///     drop(tag);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn alloc(&self) -> Alloc<'_, T> {
        self.alloc_with(AllocOptions::new())
    }

    /// Takes a tag of the kind asked for, waiting as a task until one is free.
    ///
    /// # Errors
    ///
    /// [`NoReserved`](AllocError::NoReserved), [`NoSuchHwQueue`](AllocError::NoSuchHwQueue),
    /// [`Unmapped`](AllocError::Unmapped) and [`InactiveHwQueue`](AllocError::InactiveHwQueue) if
    /// the options ask for what the set does not have, or not now; [`Closed`](AllocError::Closed).
    ///
    /// # Cancel safety
    ///
    /// As [`alloc`](Tenant::alloc).
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().depth(4).reserved(1).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let tag = inflight_sync::block_on(dev.alloc_with(AllocOptions::new().reserved()))?;
    /// assert_eq!(tag.index(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn alloc_with(&self, options: AllocOptions) -> Alloc<'_, T> {
        Alloc::new(self, options)
    }

    /// As [`alloc`](Tenant::alloc): a `'static` future with a share of the tenant, good for one
    /// tag after the other, which can also be [polled by hand](AllocOwned::poll_alloc).
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let tags = set.add_tenant("nvme0n1")?.alloc_owned();
    /// let task = std::thread::spawn(move || inflight_sync::block_on(tags).is_ok());
    /// assert!(task.join().unwrap());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc_owned(&self) -> AllocOwned<T> {
        self.alloc_owned_with(AllocOptions::new())
    }

    /// As [`alloc_owned`](Tenant::alloc_owned), for tags of the kind asked for.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().reserved(1).build(|_, _| ())?;
    /// let tags = set.add_tenant("nvme0n1")?.alloc_owned_with(AllocOptions::new().reserved());
    /// assert_eq!(inflight_sync::block_on(tags)?.index(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc_owned_with(&self, options: AllocOptions) -> AllocOwned<T> {
        AllocOwned::new(self.clone(), options)
    }

    /// Takes a normal tag, sleeping until one is free.
    ///
    /// # Errors
    ///
    /// [`Closed`](AllocError::Closed).
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| 0u32)?;
    /// let mut tag = set.add_tenant("nvme0n1")?.alloc_blocking()?;
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
    /// As [`alloc_with`](Tenant::alloc_with).
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().hw_queues(2).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let tag = dev.alloc_blocking_with(AllocOptions::new().hw_queue(1))?;
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
    /// [`TimedOut`](AllocError::TimedOut) if the time was up first; [`Closed`](AllocError::Closed).
    ///
    /// ```
    /// # use inflight_tags::{AllocError, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
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
    /// [`TimedOut`](AllocError::TimedOut) if the time was up first; as
    /// [`alloc_with`](Tenant::alloc_with).
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(2).reserved(1).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
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
        let mut since = None;
        let result = self.alloc_as_thread(options, until, &mut since);
        self.end_wait(since);
        result
    }

    fn alloc_as_thread(
        &self,
        options: AllocOptions,
        until: Option<(&Clock, Instant)>,
        since: &mut Option<Instant>,
    ) -> Result<Tag<T>, AllocError> {
        let mut asked = false;
        loop {
            let in_time = match self.step(options, true) {
                AllocStep::Done(result) => return result,
                AllocStep::WaitForThaw(_) => {
                    self.begin_wait(since);
                    self.bitmaps().gate().wait_thaw(until)
                }
                AllocStep::WaitForBit(target) => {
                    if self.before_wait(target, &mut asked) {
                        continue;
                    }
                    self.begin_wait(since);
                    let deadline = until.map(|(_, deadline)| deadline);
                    let wait = self.bitmaps().wait_for(target, Request::one(self.class()));
                    match wait.ending(self.bitmaps()).block_one(deadline) {
                        Ok(bit) => match self.woken(options, bit) {
                            Some(tag) => return Ok(tag),
                            None => true,
                        },
                        Err(GetError::TimedOut) => false,
                        Err(_) => return Err(AllocError::Closed),
                    }
                }
            };
            if !in_time {
                return Err(self.refuse(AllocError::TimedOut));
            }
        }
    }
}
