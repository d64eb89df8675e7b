//! The forms of an allocation: at once, as a future, as a sleeping thread.

mod after_wake;
mod batch;
mod before_wait;
mod choose_tag_map;
mod fast_path;
mod future;
mod make_tag;
mod options;
mod slow_path;

pub(crate) use before_wait::WaitRecord;
pub use future::{Alloc, AllocOwned};
pub use options::AllocOptions;

use crate::error::AllocError;
use crate::queue_kind::QueueKind;
use crate::tag::Tag;
use crate::tenant::Tenant;
use slow_path::Waiting;
use std::time::Duration;

impl<T: Send + 'static> Tenant<T> {
    /// Takes a normal tag if one is free now.
    ///
    /// # Errors
    ///
    /// [`Exhausted`](AllocError::Exhausted) if no tag is free, [`Frozen`](AllocError::Frozen) and
    /// [`Quiesced`](AllocError::Quiesced) while the set is frozen or quiesced,
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
        if options.is_normal_here() {
            if let Some(tag) = self.alloc_fast(options.kind) {
                return Ok(tag);
            }
        }
        self.try_alloc_slow(options)
    }

    /// Takes a normal tag; the task waits until one is free.
    ///
    /// # Errors
    ///
    /// [`Closed`](AllocError::Closed) if the set is [closed](crate::TagSet::close).
    ///
    /// # Cancel safety
    ///
    /// A dropped future loses neither a tag nor a wakeup; the next call waits behind all others.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// # use inflight_tags::AllocOptions;
    /// let set = TagSet::builder().depth(4).reserved(1).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// inflight_sync::block_on(async {
    ///     let first = dev.alloc_with(AllocOptions::new().reserved()).await?;
    ///     assert_eq!((first.index(), dev.alloc().await?.index() > 0), (0, true));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn alloc(&self) -> Alloc<'_, T> {
        self.alloc_with(AllocOptions::new())
    }

    /// Takes a tag of the kind asked for; the task waits until one is free. Its cancel safety is
    /// that of [`alloc`](Tenant::alloc).
    ///
    /// # Errors
    ///
    /// As [`try_alloc_with`](Tenant::try_alloc_with) if the options ask for what the set does not
    /// have, or not now; [`Closed`](AllocError::Closed).
    pub const fn alloc_with(&self, options: AllocOptions) -> Alloc<'_, T> {
        let wait = Waiting::new(options);
        Alloc { tenant: self, wait }
    }

    /// Takes a tag as [`alloc`](Tenant::alloc), by a `'static` future that owns a handle of the
    /// tenant. The future can be used for one tag after the other, and [polled by
    /// hand](AllocOwned::poll_alloc).
    pub fn alloc_owned(&self) -> AllocOwned<T> {
        self.alloc_owned_with(AllocOptions::new())
    }

    /// Takes a tag as [`alloc_owned`](Tenant::alloc_owned), of the kind asked for.
    pub fn alloc_owned_with(&self, options: AllocOptions) -> AllocOwned<T> {
        let (tenant, wait) = (self.clone(), Waiting::new(options));
        AllocOwned { tenant, wait }
    }

    /// Takes a normal tag; the thread sleeps until one is free. The errors are those of
    /// [`alloc`](Tenant::alloc).
    pub fn alloc_blocking(&self) -> Result<Tag<T>, AllocError> {
        self.alloc_blocking_with(AllocOptions::new())
    }

    /// Takes a tag of the kind asked for; the thread sleeps until one is free. The errors are those
    /// of [`alloc_with`](Tenant::alloc_with).
    pub fn alloc_blocking_with(&self, options: AllocOptions) -> Result<Tag<T>, AllocError> {
        Waiting::new(options).block(self, None)
    }

    /// Takes a normal tag; the thread sleeps at most `timeout`. A timeout of zero makes one
    /// attempt.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](AllocError::TimedOut) if the time passed first; [`Closed`](AllocError::Closed).
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

    /// Takes a tag of the kind asked for; the thread sleeps at most `timeout`. A timeout of zero
    /// makes one attempt, which if it fails counts as a wait. The errors are those of
    /// [`alloc_with`](Tenant::alloc_with); also [`TimedOut`](AllocError::TimedOut).
    pub fn alloc_timeout_with(
        &self,
        timeout: Duration,
        options: AllocOptions,
    ) -> Result<Tag<T>, AllocError> {
        let deadline = self.bitmaps().clock.now() + timeout;
        Waiting::new(options).block(self, Some(deadline))
    }
}
