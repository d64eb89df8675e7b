//! The bitmaps of all hardware queues: everything of a set but its payloads.

use crate::freeze::Gate;
use crate::set_id::SetId;
use inflight_sbitmap::{Fairness, SbitmapQueue};
use inflight_sync::time::{Clock, Instant};

/// How many hardware queues, and how many tags each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) hw_queues: usize,
    /// Tags per hardware queue, reserved ones included.
    pub(crate) depth: usize,
    /// Tags 0..reserved of each hardware queue.
    pub(crate) reserved: usize,
}

impl Geometry {
    pub(crate) const fn tags(self) -> usize {
        self.hw_queues * self.depth
    }

    #[inline]
    pub(crate) const fn flat(self, hw_queue: usize, tag: usize) -> usize {
        hw_queue * self.depth + tag
    }
}

/// One of the two bitmaps of one hardware queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) hw_queue: usize,
    pub(crate) reserved: bool,
}

/// The bitmaps of one hardware queue.
#[derive(Debug)]
struct HwQueue {
    normal: SbitmapQueue,
    /// If the set has reserved tags.
    reserved: Option<SbitmapQueue>,
}

/// The bitmaps of all hardware queues, and the gate before them.
#[derive(Debug)]
pub(crate) struct Bitmaps {
    geometry: Geometry,
    hw_queues: Box<[HwQueue]>,
    gate: Gate,
    set_id: SetId,
    clock: Clock,
    keep_ages: bool,
}

impl Bitmaps {
    /// `geometry` has been checked.
    pub(crate) fn new(geometry: Geometry, clock: Clock, keep_ages: bool) -> Self {
        let bitmap = |depth| {
            SbitmapQueue::builder(depth)
                .fairness(Fairness::Batched)
                .trusted(true) // Why: each bit has one owner, whose drop puts it, once.
                .clock(clock.clone())
                .build()
                .expect("a depth of at most 10,240 is legal")
        };
        let hw_queue = |_| HwQueue {
            normal: bitmap(geometry.depth - geometry.reserved),
            reserved: (geometry.reserved > 0).then(|| bitmap(geometry.reserved)),
        };
        Self {
            geometry,
            hw_queues: (0..geometry.hw_queues).map(hw_queue).collect(),
            gate: Gate::new(),
            set_id: SetId::new(),
            clock: clock.clone(),
            keep_ages,
        }
    }

    #[inline]
    pub(crate) const fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    pub(crate) const fn gate(&self) -> &Gate {
        &self.gate
    }

    #[inline]
    pub(crate) const fn set_id(&self) -> u8 {
        self.set_id.number()
    }

    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time for a tag that is issued now, if the set keeps ages.
    #[inline]
    pub(crate) fn issue_time(&self) -> Option<Instant> {
        self.keep_ages.then(|| self.clock.now())
    }

    /// A target with `reserved` is asked for only where the set has reserved tags.
    #[inline]
    pub(crate) fn bitmap(&self, target: Target) -> &SbitmapQueue {
        let hw_queue = &self.hw_queues[target.hw_queue];
        if target.reserved {
            hw_queue
                .reserved
                .as_ref()
                .expect("the options were checked")
        } else {
            &hw_queue.normal
        }
    }

    /// Where the bits of a bitmap begin among the tags of its hardware queue.
    const fn first_tag(&self, target: Target) -> usize {
        if target.reserved {
            0
        } else {
            self.geometry.reserved
        }
    }

    #[inline]
    pub(crate) const fn tag_of(&self, target: Target, bit: usize) -> usize {
        self.first_tag(target) + bit
    }

    /// The inverse of [`tag_of`](Self::tag_of).
    #[inline]
    pub(crate) const fn bit_of(&self, hw_queue: usize, tag: usize) -> (Target, usize) {
        let target = Target {
            hw_queue,
            reserved: tag < self.geometry.reserved,
        };
        (target, tag - self.first_tag(target))
    }

    /// All bitmaps, each hardware queue's reserved one first, as its tags are numbered.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> + use<> {
        let has_reserved = self.geometry.reserved > 0;
        (0..self.geometry.hw_queues)
            .flat_map(|hw_queue| [true, false].map(|reserved| Target { hw_queue, reserved }))
            .filter(move |target| has_reserved || !target.reserved)
    }

    pub(crate) fn any_in_use(&self) -> bool {
        self.targets()
            .any(|target| self.bitmap(target).is_any_set())
    }

    /// Calls `f` with the hardware queue and number of each bit that is set.
    pub(crate) fn for_each_set(&self, mut f: impl FnMut(usize, usize)) {
        for target in self.targets() {
            self.bitmap(target).for_each_set(0, |bit| {
                f(target.hw_queue, self.tag_of(target, bit));
                true
            });
        }
    }
}
