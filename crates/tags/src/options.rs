//! What kind of tag is wanted.

/// What kind of tag an allocation asks for: by default a normal one of the hardware queue that
/// serves the calling CPU.
///
/// ```
/// use inflight_tags::{AllocOptions, TagSet};
/// let set = TagSet::builder().hw_queues(2).depth(4).reserved(1).build(|_, _| ())?;
/// let dev = set.add_queue("nvme0n1");
/// let tag = dev.try_alloc(AllocOptions::new().reserved().hw_queue(1))?;
/// assert_eq!((tag.hw_queue(), tag.index()), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "options do nothing until given to an allocation"]
pub struct AllocOptions {
    pub(crate) reserved: bool,
    pub(crate) hw_queue: Option<usize>,
}

impl AllocOptions {
    /// A normal tag, near the caller.
    ///
    /// ```
    /// use inflight_tags::AllocOptions;
    /// assert_eq!(AllocOptions::new(), AllocOptions::default());
    /// ```
    pub const fn new() -> Self {
        Self {
            reserved: false,
            hw_queue: None,
        }
    }

    /// Asks for a reserved tag. Reserved tags are for requests that must go on when all normal
    /// tags are in use, such as an abort or a flush; the set's
    /// [`reserved`](crate::TagSetBuilder::reserved) says how many there are. A caller that asks
    /// for one waits for reserved tags only.
    ///
    /// ```
    /// use inflight_tags::{AllocError, AllocOptions, TagSet};
    /// let set = TagSet::builder().depth(4).build(|_, _| ())?;
    /// let dev = set.add_queue("nvme0n1");
    /// let refused = dev.try_alloc(AllocOptions::new().reserved()).unwrap_err();
    /// assert_eq!(refused, AllocError::NoReserved);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn reserved(mut self) -> Self {
        self.reserved = true;
        self
    }

    /// Asks for a tag of hardware queue `n`, wherever the caller runs. For engines in which a
    /// thread owns a ring and the ring owns a hardware queue.
    ///
    /// ```
    /// use inflight_tags::{AllocError, AllocOptions, TagSet};
    /// let set = TagSet::builder().hw_queues(2).depth(4).build(|_, _| ())?;
    /// let dev = set.add_queue("nvme0n1");
    /// assert_eq!(dev.try_alloc(AllocOptions::new().hw_queue(1))?.hw_queue(), 1);
    /// let refused = dev.try_alloc(AllocOptions::new().hw_queue(2)).unwrap_err();
    /// assert_eq!(refused, AllocError::NoSuchHwQueue);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn hw_queue(mut self, n: usize) -> Self {
        self.hw_queue = Some(n);
        self
    }
}
