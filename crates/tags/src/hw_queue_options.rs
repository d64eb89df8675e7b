//! The number of hardware queues of a set, and their kinds.

use crate::queue_kind::Kinds;

/// The number of hardware queues of a set, and their kinds; for
/// [`TagSetBuilder::hw_queues`](crate::TagSetBuilder::hw_queues), which also takes a bare number.
///
/// ```
/// use inflight_tags::{HwQueueOptions, QueueKind, TagSet};
/// let rings = HwQueueOptions::new(4).read(1).poll(1);
/// let set = TagSet::builder().hw_queues(rings).build(|_hwq, _tag| ())?;
/// let kinds: Vec<_> = (0..4).filter_map(|hwq| set.hw_queues().kind(hwq)).collect();
/// use QueueKind::{Default, Poll, Read};
/// assert_eq!(kinds, [Default, Default, Read, Poll]);
/// # Ok::<(), inflight_tags::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "options do nothing until given to a builder"]
pub struct HwQueueOptions {
    pub(crate) count: usize,
    pub(crate) most: Option<usize>,
    pub(crate) kinds: Kinds,
    pub(crate) shared_tags: bool,
}

impl HwQueueOptions {
    /// Makes options for `count` hardware queues, 1 to 65,536, all of the default kind, each with
    /// tags of its own.
    pub const fn new(count: usize) -> Self {
        Self {
            count,
            most: None,
            kinds: Kinds { read: 0, poll: 0 },
            shared_tags: false,
        }
    }

    /// Sets the largest number for [`set_hw_queues`](crate::TagSet::set_hw_queues), at least the
    /// first number. The default is twice the first number if that is two or more and this makes
    /// 65,536 tags at most; otherwise, and under `--cfg loom`, where each queue enlarges a model,
    /// it is the first number. Memory is laid out for all at once; the payloads are made when
    /// queues are added.
    pub const fn max(mut self, most: usize) -> Self {
        self.most = Some(most);
        self
    }

    /// Sets how many of them are for reads alone; by default none. Their numbers follow those of
    /// the default ones, and they are spread over the CPUs in the same way.
    /// [`AllocOptions::read`](crate::AllocOptions::read) asks for their tags.
    pub const fn read(mut self, n: usize) -> Self {
        self.kinds.read = n;
        self
    }

    /// Sets how many of them are for polled requests alone; by default none. They have the last
    /// numbers. [`AllocOptions::polled`](crate::AllocOptions::polled) asks for their tags. A
    /// request with such a tag completes where it is seen, as with
    /// [`Tag::into_polled_token`](crate::Tag::into_polled_token).
    pub const fn poll(mut self, n: usize) -> Self {
        self.kinds.poll = n;
        self
    }

    /// Sets whether all take their tags from one table of the set's depth; by default each has a
    /// table of its own. For devices whose queues share one limit.
    ///
    /// A tag's number is then unique in the whole set. Its hardware queue is that of the CPU (or
    /// the options) of the allocation. A tag that is freed on one hardware queue goes to a waiter
    /// on any. The build closure gets 0 for the hardware queue.
    ///
    /// ```
    /// # use inflight_tags::{AllocError, AllocOptions, HwQueueOptions, TagSet};
    /// let rings = HwQueueOptions::new(4).shared_tags(true);
    /// let set = TagSet::builder().hw_queues(rings).depth(1).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let tag = dev.try_alloc_with(AllocOptions::new().hw_queue(3))?;
    /// assert_eq!((tag.hw_queue(), set.capacity()), (3, 1));
    /// let other = dev.try_alloc_with(AllocOptions::new().hw_queue(0));
    /// assert_eq!(other.unwrap_err(), AllocError::Exhausted);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn shared_tags(mut self, shared: bool) -> Self {
        self.shared_tags = shared;
        self
    }
}

impl From<usize> for HwQueueOptions {
    fn from(count: usize) -> Self {
        Self::new(count)
    }
}
