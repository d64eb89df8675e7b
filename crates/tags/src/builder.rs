//! How a set is made.

use crate::bitmaps::{Bitmaps, Geometry};
use crate::error::BuildError;
use crate::map::{CpuMap, row_of_neighbours};
use crate::set::{Shared, TagSet};
use crate::slot::Slot;
use crate::token::MAX_SLOTS;
use inflight_sync::Arc;
use inflight_sync::time::Clock;
use inflight_topology::Topology;
use std::fmt;
use std::marker::PhantomData;

/// The largest depth of a hardware queue, as in blk-mq.
const MAX_DEPTH: usize = 10_240;
/// A unique tag has 16 bits for the hardware queue.
const MAX_HW_QUEUES: usize = 1 << 16;
/// The usual depth of a device that does not say.
const DEFAULT_DEPTH: usize = 128;

/// Describes a [`TagSet`] before it is built. Made by [`TagSet::builder`].
///
/// ```
/// use inflight_sync::time::Clock;
/// use inflight_tags::TagSet;
/// use inflight_topology::Topology;
///
/// let topo = Topology::synthetic("cache:2 core:4")?;
/// let set = TagSet::builder()
///     .hw_queues(4)
///     .depth(256)
///     .reserved(8)
///     .topology(&topo)
///     .clock(Clock::system())
///     .build(|_hwq, _tag| vec![0u8; 64])?;
/// assert_eq!(set.capacity(), 1024);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct TagSetBuilder<T> {
    geometry: Geometry,
    /// The CPUs of the topology, if one was given.
    row: Option<Vec<usize>>,
    clock: Clock,
    ages: bool,
    payload: PhantomData<fn() -> T>,
}

impl<T> TagSetBuilder<T> {
    pub(crate) fn new() -> Self {
        Self {
            geometry: Geometry {
                hw_queues: 1,
                depth: DEFAULT_DEPTH,
                reserved: 0,
            },
            row: None,
            clock: Clock::system(),
            ages: true,
            payload: PhantomData,
        }
    }

    /// The number of hardware queues, 1 to 65,536; by default 1. Each has tags of its own.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// assert_eq!(TagSet::builder().hw_queues(3).build(|_, _| ())?.hw_queues(), 3);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    pub fn hw_queues(mut self, n: usize) -> Self {
        self.geometry.hw_queues = n;
        self
    }

    /// The number of tags of each hardware queue, reserved ones included, 1 to 10,240; by default
    /// 128.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// assert_eq!(TagSet::builder().depth(32).build(|_, _| ())?.depth(), 32);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    pub fn depth(mut self, depth: usize) -> Self {
        self.geometry.depth = depth;
        self
    }

    /// How many of the tags of each hardware queue are reserved, below the depth; by default none.
    /// They have the numbers from 0 and are given only to who asks for one.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// assert_eq!(TagSet::builder().depth(32).reserved(2).build(|_, _| ())?.reserved(), 2);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    pub fn reserved(mut self, n: usize) -> Self {
        self.geometry.reserved = n;
        self
    }

    /// Spreads the hardware queues over the CPUs of `topology`: groups of neighbours (same core,
    /// same cache, same node) whose sizes differ by at most one. A CPU the topology does not have,
    /// or every CPU if none is given, is served by hardware queue `cpu % hw_queues`.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// use inflight_topology::Topology;
    /// let topo = Topology::synthetic("numa:2 core:2 smt:2")?; // node 0 has CPUs 0, 1, 4 and 5
    /// let set = TagSet::builder().hw_queues(2).topology(&topo).build(|_, _| ())?;
    /// assert!([0, 1, 4, 5].iter().all(|&cpu| set.hw_queue_of(cpu) == 0));
    /// assert!([2, 3, 6, 7].iter().all(|&cpu| set.hw_queue_of(cpu) == 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn topology(mut self, topology: &Topology) -> Self {
        self.row = Some(row_of_neighbours(topology));
        self
    }

    /// The clock of timeouts and ages; by default the system's.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// use inflight_sync::time::Clock;
    /// let clock = Clock::manual(); // moved by hand
    /// let set = TagSet::builder().clock(clock).build(|_, _| ())?;
    /// # let _ = set;
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Whether tags remember when they were put in flight; by default they do. It costs one
    /// reading of the clock (some 20 ns) in each [`into_token`](crate::Tag::into_token); without
    /// it every [`age`](crate::InFlight::age) is zero.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().ages(false).build(|_, _| ())?;
    /// let token = set.add_queue("nvme0n1").try_alloc(AllocOptions::new())?.into_token();
    /// set.for_each_in_flight(|t| assert_eq!(t.age(), Duration::ZERO));
    /// # set.redeem(token)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ages(mut self, keep: bool) -> Self {
        self.ages = keep;
        self
    }

    /// Builds the set. `payload` makes the data of each slot, given its hardware queue and tag
    /// number, once and now.
    ///
    /// # Errors
    ///
    /// A [`BuildError`] that says which number is outside its range.
    ///
    /// ```
    /// # use inflight_tags::{BuildError, TagSet};
    /// let set = TagSet::builder().hw_queues(2).depth(2).build(|hwq, tag| (hwq, tag))?;
    /// let tag = set.add_queue("nvme0n1").alloc_blocking().expect("all are free");
    /// assert_eq!(*tag, (tag.hw_queue(), tag.index()));
    ///
    /// let refused = TagSet::builder().depth(0).build(|_, _| ()).unwrap_err();
    /// assert_eq!(refused, BuildError::Depth { depth: 0 });
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    pub fn build<F>(self, payload: F) -> Result<TagSet<T>, BuildError>
    where
        F: Fn(usize, usize) -> T + Send + Sync + 'static,
        T: Send + 'static,
    {
        let geometry = self.geometry;
        check(geometry)?;
        let bitmaps = Arc::new(Bitmaps::new(geometry, self.clock, self.ages));
        let slot = |flat: usize| {
            let (hw_queue, tag) = (flat / geometry.depth, flat % geometry.depth);
            Arc::new(Slot::new(
                bitmaps.clone(),
                hw_queue,
                tag,
                payload(hw_queue, tag),
            ))
        };
        let slots = (0..geometry.tags()).map(slot).collect();
        let map = match self.row {
            Some(row) => CpuMap::by_row(row, geometry.hw_queues),
            None => CpuMap::modulo(geometry.hw_queues),
        };
        Ok(TagSet::from_shared(Arc::new(Shared::new(
            bitmaps, slots, map,
        ))))
    }
}

fn check(geometry: Geometry) -> Result<(), BuildError> {
    let Geometry {
        hw_queues,
        depth,
        reserved,
    } = geometry;
    if !(1..=MAX_HW_QUEUES).contains(&hw_queues) {
        return Err(BuildError::HwQueues { hw_queues });
    }
    if !(1..=MAX_DEPTH).contains(&depth) {
        return Err(BuildError::Depth { depth });
    }
    if reserved >= depth {
        return Err(BuildError::Reserved { reserved, depth });
    }
    if geometry.tags() > MAX_SLOTS {
        return Err(BuildError::TooLarge {
            tags: geometry.tags(),
        });
    }
    Ok(())
}

impl<T> fmt::Debug for TagSetBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagSetBuilder")
            .field("geometry", &self.geometry)
            .field("topology", &self.row.is_some())
            .field("ages", &self.ages)
            .finish_non_exhaustive()
    }
}
