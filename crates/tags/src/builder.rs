//! The builder of a set.

use crate::admission::Admission;
use crate::cpu_groups::CpuNodes;
use crate::cpu_map::CpuMap;
use crate::error::BuildError;
use crate::hw_queue_options::HwQueueOptions;
use crate::last_handle::Handle;
use crate::queue_kind::Kinds;
use crate::set::TagSet;
use crate::shared::{BeforeWait, DEFAULT_TIMEOUT, Shared};
use crate::shares::SharePolicy;
use crate::slot::Slot;
use crate::tag_layout::TagLayout;
use crate::tag_maps::{Setup, TagMaps};
use crate::token::MAX_SLOTS;
use inflight_sbitmap::Engine;
use inflight_steering::SteeringPolicy;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, CachePadded};
use inflight_topology::Topology;
use std::marker::PhantomData;
use std::time::Duration;

/// The largest depth of a hardware queue, as in blk-mq.
const MAX_DEPTH: usize = 10_240;
/// A unique tag has 16 bits for the hardware queue.
const MAX_HW_QUEUES: usize = 1 << 16;
/// The usual depth for a device that states none.
const DEFAULT_DEPTH: usize = 128;

/// The builder of a [`TagSet`], made by [`TagSet::builder`].
///
/// ```
/// use inflight_tags::{Clock, Engine, SharePolicy, TagSet};
/// use inflight_topology::Topology;
/// use std::time::Duration;
///
/// let topo = Topology::synthetic("cache:2 core:4")?;
/// let set = TagSet::builder().hw_queues(4).depth(256).reserved(8).topology(&topo)
///     .clock(Clock::system()).timeout(Duration::from_secs(5))
///     .engine(Engine::Shared).share(SharePolicy::None)
///     .build(|_hwq, _tag| vec![0u8; 64])?;
/// assert_eq!(set.capacity(), 1024);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct TagSetBuilder<T> {
    layout: TagLayout,
    /// The CPUs of the topology, if one was given.
    nodes: Option<CpuNodes>,
    clock: Clock,
    ages: bool,
    max_depth: Option<usize>,
    hw_queues: HwQueueOptions,
    timeout: Option<Duration>,
    before_wait: Option<BeforeWait>,
    setup: Setup,
    steering: Option<SteeringPolicy>,
    payload: PhantomData<fn() -> T>,
}

impl<T: Send + 'static> TagSet<T> {
    /// Returns the builder of a new set.
    pub fn builder() -> TagSetBuilder<T> {
        TagSetBuilder {
            layout: TagLayout {
                hw_queues: 1,
                depth: DEFAULT_DEPTH,
                reserved: 0,
                extra: 0,
                shared_tags: false,
            },
            nodes: None,
            clock: Clock::system(),
            ages: true,
            max_depth: None,
            hw_queues: HwQueueOptions::new(1),
            timeout: None,
            before_wait: None,
            setup: Setup::default(),
            steering: None,
            payload: PhantomData,
        }
    }
}

impl<T> TagSetBuilder<T> {
    /// Sets the hardware queues: a number of them, 1 to 65,536, by default 1, each with tags of its
    /// own; or [options](HwQueueOptions) with their kinds, their largest number, and whether they
    /// share their tags.
    pub fn hw_queues(mut self, hw_queues: impl Into<HwQueueOptions>) -> Self {
        self.hw_queues = hw_queues.into();
        self
    }

    /// Sets the number of tags of each hardware queue, reserved ones included, 1 to 10,240; by
    /// default 128.
    pub fn depth(mut self, depth: usize) -> Self {
        self.layout.depth = depth;
        self
    }

    /// Sets how long a request may be in flight before it [expires](TagSet::expire); by default 30
    /// seconds. A set built with [`ages(false)`](Self::ages) refuses it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the largest depth to which the set can be [resized](TagSet::resize), from the depth to
    /// 10,240; by default the depth. Its memory is laid out at once; the payloads are made when the
    /// set grows.
    pub fn max_depth(mut self, depth: usize) -> Self {
        self.max_depth = Some(depth);
        self
    }

    /// Sets a hook that is called with the submitter's hardware queue before the submitter waits
    /// for a tag or for a thaw. The hook submits what was collected and reaps completions, because
    /// otherwise nothing might complete. It may free tags; the submitter tries again before it
    /// waits.
    ///
    /// The hook runs on the submitter's thread, or in its task's poll, so it should not block. The
    /// try forms do not call it. It may use the set. A wait for a tag of the set within the hook
    /// does not call the hook again, so nobody submits what was collected before that wait: use
    /// the try forms there.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// use std::sync::{Arc, Mutex};
    /// let held = Arc::new(Mutex::new(Vec::new()));
    /// let set = TagSet::builder().depth(1).before_wait({
    ///     let held = held.clone();
    ///     move |_hwq| held.lock().unwrap().clear() // frees the tag
    /// });
    /// let dev = set.build(|_, _| ())?.add_tenant("nvme0n1")?;
    /// held.lock().unwrap().push(dev.alloc_blocking()?);
    /// let tag = dev.alloc_blocking()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn before_wait(mut self, hook: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.before_wait = Some(Box::new(hook));
        self
    }

    /// Sets how many of the tags of each hardware queue are reserved; by default none. They are
    /// part of the depth, have the numbers from 0, and go only to callers that ask for a reserved
    /// tag.
    pub fn reserved(mut self, n: usize) -> Self {
        self.layout.reserved = n;
        self
    }

    /// Spreads the hardware queues over the CPUs of `topology`. Without a topology, they are spread
    /// round robin: hardware queue `n % hw_queues` serves CPU `n`.
    ///
    /// With more hardware queues than memory nodes, each node has queues of its own, in proportion
    /// to its CPUs. The groups of CPUs within a node are neighbours (same core, same cache) and
    /// differ by at most one CPU. With fewer hardware queues, the nodes go to the queues round
    /// robin. CPUs that cannot be used now, but may be later, are placed after the others. A CPU
    /// that the topology does not have goes to the first hardware queue. With more queues than CPUs
    /// the last ones serve no CPU, and only
    /// [`AllocOptions::hw_queue`](crate::AllocOptions::hw_queue) reaches them.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// use inflight_topology::Topology;
    /// let topo = Topology::synthetic("numa:2 core:2 smt:2")?; // node 0 has CPUs 0, 1, 4 and 5
    /// let set = TagSet::builder().hw_queues(2).topology(&topo).build(|_, _| ())?;
    /// assert!([0, 1, 4, 5].iter().all(|&cpu| set.hw_queues().of_cpu(cpu) == 0));
    /// assert!([2, 3, 6, 7].iter().all(|&cpu| set.hw_queues().of_cpu(cpu) == 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn topology(mut self, topology: &Topology) -> Self {
        self.nodes = Some(CpuNodes::new(topology));
        self
    }

    /// Sets the clock of timeouts and ages; by default the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets where completions run; by default [`SameCache`](crate::Steering::SameCache). Each
    /// request keeps the policy of the moment of its submission.
    /// [`TagSet::set_steering`](crate::TagSet::set_steering) changes the policy later. The policy
    /// has no effect until the set has [`Completions`](crate::Completions).
    pub fn steering(mut self, policy: impl Into<SteeringPolicy>) -> Self {
        self.steering = Some(policy.into());
        self
    }

    /// Sets whether tags note the time when they are put in flight; by default they do. It costs a
    /// reading of the system's last tick (some 3 ns; without a tick, a reading of the clock) in
    /// each [`into_token`](crate::Tag::into_token). With `false` each [`age`](crate::InFlight::age)
    /// is zero, and **no request expires**: not by the set's timeout, and not by its own
    /// ([`set_timeout`](crate::Tag::set_timeout) has no effect). A [`timeout`](Self::timeout) of
    /// the builder is refused then.
    ///
    /// ```
    /// # use inflight_tags::{BuildError, TagSet};
    /// use std::time::Duration;
    /// let timeout = Duration::from_secs(5);
    /// let refused = TagSet::builder().ages(false).timeout(timeout).build(|_, _| ());
    /// assert_eq!(refused.unwrap_err(), BuildError::TimeoutNeedsAges { timeout });
    /// ```
    pub fn ages(mut self, keep: bool) -> Self {
        self.ages = keep;
        self
    }

    /// Sets the order of callers when tags are short; by default [`Admission::WholeIo`].
    pub fn admission(mut self, policy: Admission) -> Self {
        self.layout.extra = match policy {
            Admission::ElasticOvercommit { max_extra, .. } => max_extra,
            _ => 0,
        };
        self.setup.admission = policy;
        self
    }

    /// Sets what keeps the bits; by default [`Engine::Auto`]. Policies other than
    /// [`Admission::WholeIo`] need [`Engine::Shared`], and refuse [`Engine::Local`].
    pub fn engine(mut self, engine: Engine) -> Self {
        self.setup.engine = engine;
        self
    }

    /// Sets how tenants share the tags; by default equally.
    pub fn share(mut self, policy: SharePolicy) -> Self {
        self.setup.share = policy;
        self
    }

    /// Builds the set. `payload`, the build closure, makes the data of each slot, given its
    /// hardware queue and tag number, once: now, or when the set [grows](TagSet::resize) or
    /// [gets](TagSet::set_hw_queues) hardware queues, on the thread that calls these. It may use
    /// the set, but not change its size or its CPUs.
    ///
    /// # Errors
    ///
    /// A [`BuildError`] that names the number outside its range, or the two options that do not go
    /// together.
    ///
    /// # Panics
    ///
    /// Panics with the build closure; the payloads that it had made are leaked.
    ///
    /// ```
    /// # use inflight_tags::{BuildError, TagSet};
    /// let set = TagSet::builder().hw_queues(2).depth(2).build(|hwq, tag| (hwq, tag))?;
    /// let dev = set.add_tenant("nvme0n1").expect("a new name");
    /// let tag = dev.alloc_blocking().expect("all are free");
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
        let (hw_queues, kinds) = (self.hw_queues.count, self.hw_queues.kinds);
        let depth = self.layout.depth;
        let mut layout = TagLayout {
            hw_queues,
            shared_tags: self.hw_queues.shared_tags,
            ..self.layout
        };
        check(layout)?;
        let Kinds { read, poll } = kinds;
        if read.saturating_add(poll) >= hw_queues {
            return Err(BuildError::Kinds {
                read,
                poll,
                hw_queues,
            });
        }
        if self.setup.engine == Engine::Local && self.setup.admission != Admission::WholeIo {
            return Err(BuildError::BatchedNeedsShared);
        }
        if let (false, Some(timeout)) = (self.ages, self.timeout) {
            return Err(BuildError::TimeoutNeedsAges { timeout });
        }
        layout.depth = self.max_depth.unwrap_or(depth);
        if !(depth..=MAX_DEPTH).contains(&layout.depth) {
            return Err(BuildError::MaxDepth {
                max_depth: layout.depth,
                depth,
            });
        }
        layout.hw_queues = match self.hw_queues.most {
            Some(most) if (hw_queues..=MAX_HW_QUEUES).contains(&most) => most,
            Some(max_hw_queues) => {
                return Err(BuildError::MaxHwQueues {
                    max_hw_queues,
                    hw_queues,
                });
            }
            None => default_max_hw_queues(layout),
        };
        check(layout)?;
        let tables = layout.tables_of(hw_queues);
        let map = CpuMap::new(self.nodes, kinds, hw_queues, layout.hw_queues);
        let setup = Setup {
            depth: Some(depth),
            hw_queues: Some(hw_queues),
            users: map.users(layout.shared_tags),
            kinds,
            free: Some(Shared::<T>::free),
            ..self.setup
        };
        let bitmaps = Arc::new(TagMaps::new(layout, self.clock, self.ages, setup));
        if let Some(policy) = self.steering {
            bitmaps.policies.set(policy);
        }
        let slot = |flat: usize| {
            let (table, tag) = (flat / layout.stride(), flat % layout.stride());
            let slot = Slot::new(&bitmaps, table, tag);
            // Tags beyond the layout's depth are made at the beginning.
            if table < tables && (tag < depth || tag >= layout.depth) {
                slot.make(payload(table, tag));
            }
            CachePadded::new(slot)
        };
        let slots = (0..layout.tags()).map(slot).collect();
        let mut shared = Shared::new(bitmaps.clone(), slots, Box::new(payload), map);
        shared.timeout = self.timeout.unwrap_or(DEFAULT_TIMEOUT);
        shared.before_wait = self.before_wait;
        let shared = Handle::new(shared);
        Ok(TagSet { shared })
    }
}

/// Memory for more tags than this is reserved only if the user sets a larger number.
const MAX_SLOTS_UNASKED: usize = 1 << 16;

/// The default room to grow. `layout` has the most tags per hardware queue.
fn default_max_hw_queues(layout: TagLayout) -> usize {
    let first = layout.hw_queues;
    let twice = TagLayout {
        hw_queues: 2 * first,
        ..layout
    };
    if cfg!(loom) || first == 1 || check(twice).is_err() || twice.tags() > MAX_SLOTS_UNASKED {
        first
    } else {
        twice.hw_queues
    }
}

fn check(layout: TagLayout) -> Result<(), BuildError> {
    let (hw_queues, depth) = (layout.hw_queues, layout.depth);
    let (reserved, extra) = (layout.reserved, layout.extra);
    if !(1..=MAX_HW_QUEUES).contains(&hw_queues) {
        return Err(BuildError::HwQueues { hw_queues });
    }
    if !(1..=MAX_DEPTH).contains(&depth) {
        return Err(BuildError::Depth { depth });
    }
    if reserved >= depth {
        return Err(BuildError::Reserved { reserved, depth });
    }
    if extra > MAX_DEPTH {
        return Err(BuildError::Extra { extra });
    }
    if layout.tags() > MAX_SLOTS {
        return Err(BuildError::TooLarge {
            tags: layout.tags(),
        });
    }
    Ok(())
}

inflight_sync::debug_fields!([T] TagSetBuilder<T>: |this|
    layout = this.layout, topology = this.nodes.is_some(), ages = this.ages);
