//! The kind of tag that an allocation asks for.

use crate::queue_kind::QueueKind;

/// The kind of tag that an allocation asks for: by default a normal one of the hardware queue that
/// serves the calling CPU.
///
/// ```
/// use inflight_tags::{AllocOptions, TagSet};
/// let set = TagSet::builder().hw_queues(2).depth(4).reserved(1).build(|_, _| ())?;
/// let dev = set.add_tenant("nvme0n1")?;
/// let tag = dev.try_alloc_with(AllocOptions::new().reserved().hw_queue(1))?;
/// assert_eq!((tag.hw_queue(), tag.index()), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "options do nothing until given to an allocation"]
pub struct AllocOptions {
    pub(crate) reserved: bool,
    /// `ANY`, or its number. Small, so that all options are passed in a register.
    pub(crate) hw_queue: u32,
    /// Whether it must serve a CPU.
    pub(crate) mapped: bool,
    pub(crate) kind: QueueKind,
}

/// Stands for the number of a hardware queue if none was named.
const ANY: u32 = u32::MAX;

/// There are far fewer hardware queues than `ANY`.
const fn shortened(hw_queue: usize) -> u32 {
    if hw_queue < ANY as usize {
        hw_queue as u32
    } else {
        ANY - 1
    }
}

impl Default for AllocOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl AllocOptions {
    /// Asks for a normal tag of the hardware queue that serves the calling CPU.
    pub const fn new() -> Self {
        Self {
            reserved: false,
            hw_queue: ANY,
            mapped: false,
            kind: QueueKind::Default,
        }
    }

    /// Asks for a [reserved](crate::TagSetBuilder::reserved) tag, and waits for reserved tags only:
    /// for requests that must be served when all normal tags are in use, such as an abort.
    pub const fn reserved(mut self) -> Self {
        self.reserved = true;
        self
    }

    /// Asks for a tag of hardware queue `n`, whatever the calling CPU. For engines in which a
    /// thread owns a ring and the ring owns a hardware queue.
    pub const fn hw_queue(mut self, n: usize) -> Self {
        self.hw_queue = shortened(n);
        self.mapped = false;
        self
    }

    /// Asks for a tag of hardware queue `n`, if `n` serves any CPU; else the error is
    /// [`Unmapped`](crate::AllocError::Unmapped). For requests that the threads of that queue's
    /// CPUs work on, for example a setup request to each queue: without such CPUs the request would
    /// never be served. Each allocation searches the map.
    ///
    /// With [`reserved`](Self::reserved) and a try form it is blk-mq's allocation for one hardware
    /// queue, which allows nothing else because a waiter might move. A waiter here stays with the
    /// queue that it named, so all forms may be used.
    ///
    /// ```
    /// use inflight_tags::{AllocError, AllocOptions, TagSet};
    /// use inflight_topology::Topology;
    /// let topo = Topology::synthetic("core:2")?;
    /// let set = TagSet::builder().hw_queues(3).topology(&topo).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// assert!(dev.try_alloc_with(AllocOptions::new().mapped_hw_queue(1)).is_ok());
    /// let refused = dev.try_alloc_with(AllocOptions::new().mapped_hw_queue(2)).unwrap_err();
    /// assert_eq!(refused, AllocError::Unmapped { hw_queue: 2 });
    /// assert!(dev.try_alloc_with(AllocOptions::new().hw_queue(2)).is_ok(), "a ring of its own");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn mapped_hw_queue(mut self, n: usize) -> Self {
        self.hw_queue = shortened(n);
        self.mapped = true;
        self
    }

    /// Asks for a tag for a read: of a [hardware queue for reads](crate::HwQueueOptions::read) near
    /// the caller, or of a default one if the set has none. Of this and [`polled`](Self::polled)
    /// the last call counts. Together with [`hw_queue`](Self::hw_queue) it has no effect. The
    /// [kind](crate::QueueKind) has an example.
    pub const fn read(mut self) -> Self {
        self.kind = QueueKind::Read;
        self
    }

    /// Asks for a tag for a request whose submitter polls for the completion: of a [hardware queue
    /// for polling](crate::HwQueueOptions::poll) near the caller, or of a default one if the set
    /// has none; then it is a request like any other. Together with [`hw_queue`](Self::hw_queue) it
    /// has no effect.
    pub const fn polled(mut self) -> Self {
        self.kind = QueueKind::Poll;
        self
    }

    /// Whether the options ask for a normal tag of the hardware queue that serves the CPU.
    #[inline]
    pub(crate) const fn is_normal_here(self) -> bool {
        !self.reserved && self.named().is_none()
    }

    /// Returns the hardware queue that was named.
    #[inline]
    pub(crate) const fn named(self) -> Option<usize> {
        match self.hw_queue {
            ANY => None,
            n => Some(n as usize),
        }
    }
}
