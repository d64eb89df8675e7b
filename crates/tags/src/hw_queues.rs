//! A set's hardware queues, and their CPUs.

use crate::queue_kind::QueueKind;
use crate::set::TagSet;

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
    pub(crate) set: &'a TagSet<T>,
}

impl<T: Send + 'static> TagSet<T> {
    /// Returns the set's hardware queues.
    #[must_use]
    pub const fn hw_queues(&self) -> HwQueues<'_, T> {
        HwQueues { set: self }
    }
}

// A set has at least one.
#[allow(clippy::len_without_is_empty)]
impl<T: Send + 'static> HwQueues<'_, T> {
    /// Returns the number of hardware queues.
    #[must_use]
    pub fn len(&self) -> usize {
        self.set.shared.bitmaps.size.hw_queues()
    }

    /// Returns the hardware queue that serves a CPU, for any number: that of requests that are no
    /// [reads](crate::AllocOptions::read) and not [polled](crate::AllocOptions::polled). While it
    /// is [inactive](crate::Cpus::offline), its stand-in.
    #[must_use]
    pub fn of_cpu(&self, cpu: usize) -> usize {
        self.for_kind(QueueKind::Default, cpu)
    }

    /// Returns the hardware queue that serves a CPU's requests of a kind: a default one, if the set
    /// has none of that kind; its stand-in while it is [inactive](crate::Cpus::offline).
    #[must_use]
    pub fn for_kind(&self, kind: QueueKind, cpu: usize) -> usize {
        let mapped = self.set.shared.cpu_map.hw_queue_of(kind, cpu);
        self.set.shared.bitmaps.stand_in(mapped)
    }

    /// Returns the kind of a hardware queue; `None` if the set does not have it.
    #[must_use]
    pub fn kind(&self, hw_queue: usize) -> Option<QueueKind> {
        (hw_queue < self.len()).then(|| self.set.shared.bitmaps.kind_of(hw_queue))
    }

    /// Returns whether a hardware queue gives out tags: `false` if all its CPUs are
    /// [offline](crate::Cpus::offline), or if there is none of that number.
    #[must_use]
    pub fn is_active(&self, hw_queue: usize) -> bool {
        hw_queue < self.len() && self.set.shared.bitmaps.stand_in(hw_queue) == hw_queue
    }

    /// Returns hardware queue and index of a [unique tag](crate::Tag::unique); `None` if the set
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
        let layout = self.set.shared.bitmaps.layout;
        let extra = layout.depth..layout.stride();
        let there = tag < self.set.depth() || extra.contains(&tag);
        (hw_queue < self.len() && there).then_some((hw_queue, tag))
    }
}

inflight_sync::debug_fields!([T: Send + 'static] HwQueues<'_, T>: |this|
    len = this.len(), active = (0..this.len()).filter(|&n| this.is_active(n)).collect::<Vec<_>>());
