//! A set's hardware queues: which serves whom, and how one is drained.

use crate::draining::DrainHwQueue;
use crate::error::DrainError;
use crate::queue_kind::QueueKind;
use crate::set::TagSet;
use std::fmt;
use std::time::Duration;

/// The hardware queues of a set; from [`TagSet::hw_queues`].
///
/// ```
/// # use inflight_tags::TagSet;
/// let set = TagSet::builder().hw_queues(4).build(|_, _| ())?;
/// let rings = set.hw_queues();
/// assert_eq!((rings.len(), rings.of_cpu(6)), (4, 2));
/// # Ok::<(), inflight_tags::BuildError>(())
/// ```
#[derive(Clone, Copy)]
pub struct HwQueues<'a, T: Send + 'static> {
    set: &'a TagSet<T>,
}

impl<T: Send + 'static> TagSet<T> {
    /// The set's hardware queues.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// assert_eq!(TagSet::builder().hw_queues(4).build(|_, _| ())?.hw_queues().len(), 4);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub const fn hw_queues(&self) -> HwQueues<'_, T> {
        HwQueues { set: self }
    }
}

// Why: a set has at least one.
#[allow(clippy::len_without_is_empty)]
impl<T: Send + 'static> HwQueues<'_, T> {
    /// How many there are.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// assert_eq!(TagSet::builder().build(|_, _| ())?.hw_queues().len(), 1);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.set.shared().bitmaps.size().hw_queues()
    }

    /// The one that serves a CPU, for any number: that of requests that are no
    /// [reads](crate::AllocOptions::read) and not [polled](crate::AllocOptions::polled). The one
    /// that stands in for it while it is [inactive](crate::Cpus::offline).
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().hw_queues(4).build(|_, _| ())?;
    /// assert_eq!(set.hw_queues().of_cpu(6), 2);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn of_cpu(&self, cpu: usize) -> usize {
        self.for_kind(QueueKind::Default, cpu)
    }

    /// The one that serves a CPU's requests of a kind: a default one, if the set has none of that
    /// kind; the one that stands in for it while it is [inactive](crate::Cpus::offline).
    ///
    /// ```
    /// use inflight_tags::{HwQueueOptions, QueueKind, TagSet};
    /// let rings = HwQueueOptions::new(5).poll(2);
    /// let set = TagSet::builder().hw_queues(rings).build(|_, _| ())?;
    /// let rings = set.hw_queues();
    /// assert_eq!(rings.for_kind(QueueKind::Poll, 1), 4);
    /// assert_eq!(rings.for_kind(QueueKind::Read, 1), rings.of_cpu(1));
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn for_kind(&self, kind: QueueKind, cpu: usize) -> usize {
        let home = self.set.shared().map.hw_queue_of(kind, cpu);
        self.set.shared().bitmaps.stand_in(home)
    }

    /// What one is for; `None` if the set does not have it.
    ///
    /// ```
    /// use inflight_tags::{HwQueueOptions, QueueKind, TagSet};
    /// let set = TagSet::builder().hw_queues(HwQueueOptions::new(2).read(1)).build(|_, _| ())?;
    /// assert_eq!(set.hw_queues().kind(0), Some(QueueKind::Default));
    /// assert_eq!(set.hw_queues().kind(1), Some(QueueKind::Read));
    /// assert_eq!(set.hw_queues().kind(2), None);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn kind(&self, hw_queue: usize) -> Option<QueueKind> {
        (hw_queue < self.len()).then(|| self.set.shared().bitmaps.kind_of(hw_queue))
    }

    /// Whether one gives out tags; not if all its CPUs are [offline](crate::Cpus::offline), or if
    /// there is none of that number.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().hw_queues(2).build(|_, _| ())?;
    /// assert!(set.hw_queues().is_active(1) && !set.hw_queues().is_active(2));
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn is_active(&self, hw_queue: usize) -> bool {
        hw_queue < self.len() && self.set.shared().bitmaps.stand_in(hw_queue) == hw_queue
    }

    /// The hardware queue and index behind a [unique tag](crate::Tag::unique); `None` if the set
    /// has no such tag now.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().hw_queues(4).depth(18).build(|_, _| ())?;
    /// assert_eq!(set.hw_queues().place_of_unique(0x0003_0011), Some((3, 17)));
    /// assert_eq!(set.hw_queues().place_of_unique(0x0003_0012), None);
    /// assert_eq!(set.hw_queues().place_of_unique(0x0004_0000), None);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn place_of_unique(&self, unique: u32) -> Option<(usize, usize)> {
        let (hw_queue, tag) = ((unique >> 16) as usize, (unique & 0xffff) as usize);
        let geometry = self.set.shared().bitmaps.geometry();
        let extra = geometry.depth..geometry.stride();
        let there = tag < self.set.depth() || extra.contains(&tag);
        (hw_queue < self.len() && there).then_some((hw_queue, tag))
    }

    /// Whether no tag of an inactive hardware queue is held or in flight now.
    ///
    /// # Errors
    ///
    /// [`InUse`](DrainError::InUse) if there is one; as [`drain`](HwQueues::drain).
    ///
    /// ```
    /// # use inflight_tags::{DrainError, TagSet};
    /// # let topo = inflight_topology::Topology::synthetic("core:2")?;
    /// let set = TagSet::builder().hw_queues(2).topology(&topo).build(|_, _| ())?;
    /// assert_eq!(set.hw_queues().try_drain(1), Err(DrainError::Active { hw_queue: 1 }));
    /// set.cpus().offline(1);
    /// assert_eq!(set.hw_queues().try_drain(1), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_drain(&self, hw_queue: usize) -> Result<(), DrainError> {
        self.set.shared().try_drain(hw_queue)
    }

    /// Waits until no tag of an inactive hardware queue is held or in flight: its ring can then be
    /// closed. What the last owners wrote is visible. May be dropped at any time.
    ///
    /// Somebody has to complete its requests meanwhile. What a [`Split`](crate::Split) has
    /// collected there counts as held.
    ///
    /// # Errors
    ///
    /// [`Active`](DrainError::Active) if it serves, or does so [again](crate::Cpus::online) before
    /// it was drained; [`NoSuchHwQueue`](DrainError::NoSuchHwQueue).
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// # let topo = inflight_topology::Topology::synthetic("core:2")?;
    /// let set = TagSet::builder().hw_queues(2).topology(&topo).build(|_, _| ())?;
    /// assert_eq!(set.cpus().offline(1), [1]);
    /// inflight_sync::block_on(set.hw_queues().drain(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, hw_queue: usize) -> DrainHwQueue<T> {
        DrainHwQueue::new(self.set.clone(), hw_queue)
    }

    /// As [`drain`](HwQueues::drain), sleeping.
    ///
    /// A thread that holds a tag of it waits for itself, for ever.
    ///
    /// # Errors
    ///
    /// As [`drain`](HwQueues::drain).
    ///
    /// ```
    /// # use inflight_tags::{DrainError, TagSet};
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let none = DrainError::NoSuchHwQueue { hw_queue: 1 };
    /// assert_eq!(set.hw_queues().drain_blocking(1), Err(none));
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    pub fn drain_blocking(&self, hw_queue: usize) -> Result<(), DrainError> {
        self.set.shared().drain_blocking(hw_queue)
    }

    /// As [`drain`](HwQueues::drain), sleeping at most for `timeout`. The hardware queue stays
    /// inactive.
    ///
    /// # Errors
    ///
    /// As [`drain`](HwQueues::drain); [`TimedOut`](DrainError::TimedOut).
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, DrainError, TagSet};
    /// # use std::time::Duration;
    /// # let topo = inflight_topology::Topology::synthetic("core:2")?;
    /// let set = TagSet::builder().hw_queues(2).topology(&topo).build(|_, _| ())?;
    /// let held = set.add_tenant("sda")?.try_alloc_with(AllocOptions::new().hw_queue(1))?;
    /// set.cpus().offline(1);
    /// let short = Duration::from_millis(1);
    /// let late = DrainError::TimedOut { hw_queue: 1 };
    /// assert_eq!(set.hw_queues().drain_timeout(1, short), Err(late));
    /// drop(held);
    /// assert_eq!(set.hw_queues().drain_timeout(1, short), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain_timeout(&self, hw_queue: usize, timeout: Duration) -> Result<(), DrainError> {
        self.set.shared().drain_timeout(hw_queue, timeout)
    }
}

impl<T: Send + 'static> fmt::Debug for HwQueues<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let active: Vec<usize> = (0..self.len()).filter(|&n| self.is_active(n)).collect();
        f.debug_struct("HwQueues")
            .field("len", &self.len())
            .field("active", &active)
            .finish_non_exhaustive()
    }
}

/// How many hardware queues a set has, and what they are for; for
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
    pub(crate) read: usize,
    pub(crate) poll: usize,
    pub(crate) shared_tags: bool,
}

impl HwQueueOptions {
    /// `count` of them, 1 to 65,536, all for everything, each with tags of its own.
    ///
    /// ```
    /// use inflight_tags::HwQueueOptions;
    /// assert_eq!(HwQueueOptions::new(4), 4.into());
    /// ```
    pub const fn new(count: usize) -> Self {
        Self {
            count,
            most: None,
            read: 0,
            poll: 0,
            shared_tags: false,
        }
    }

    /// How many there may [be](TagSet::set_hw_queues), and at least the number at first. By
    /// default twice that if it is two or more and this makes 65,536 tags at most, else that
    /// (always that under `--cfg loom`, where each costs a model). Memory is laid out for all at
    /// once; the payloads are made when they come.
    ///
    /// ```
    /// # use inflight_tags::{HwQueueOptions, TagSet};
    /// let rings = HwQueueOptions::new(2).max(8);
    /// let set = TagSet::builder().hw_queues(rings).build(|_, _| ())?;
    /// set.set_hw_queues_blocking(8)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn max(mut self, most: usize) -> Self {
        self.most = Some(most);
        self
    }

    /// How many of them are for reads alone; by default none. They come after the default ones and
    /// are spread over the CPUs like these. [`AllocOptions::read`](crate::AllocOptions::read) asks
    /// for their tags.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, HwQueueOptions, TagSet};
    /// let set = TagSet::builder().hw_queues(HwQueueOptions::new(2).read(1)).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// assert_eq!(dev.try_alloc_with(AllocOptions::new().read())?.hw_queue(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn read(mut self, n: usize) -> Self {
        self.read = n;
        self
    }

    /// How many of them are for polled requests alone; by default none. They are the last ones.
    /// [`AllocOptions::polled`](crate::AllocOptions::polled) asks for their tags. What is submitted
    /// under one of these completes where it is seen, as by
    /// [`Tag::into_polled_token`](crate::Tag::into_polled_token).
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, HwQueueOptions, TagSet};
    /// let set = TagSet::builder().hw_queues(HwQueueOptions::new(2).poll(1)).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// assert_eq!(dev.try_alloc_with(AllocOptions::new().polled())?.hw_queue(), 1);
    /// assert_eq!(dev.try_alloc()?.hw_queue(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn poll(mut self, n: usize) -> Self {
        self.poll = n;
        self
    }

    /// All take their tags from one table of the set's depth; by default each has a table of its
    /// own. For devices whose queues share one limit.
    ///
    /// A tag's number is then unique in the whole set, its hardware queue is that of the CPU (or
    /// the options) it was asked for on, and a tag that is freed on one hardware queue goes to a
    /// waiter on any. The build closure gets 0 for the hardware queue.
    ///
    /// The idea is the host-wide tags of blk-mq.
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
