//! The bitmaps of all hardware queues: everything of a set except its payloads.

use crate::active_queues::ActiveQueues;
use crate::admission::Admission;
use crate::expirers::Expirers;
use crate::freeze::FreezeGate;
use crate::queue_kind::{Kinds, QueueKind};
use crate::set_id::SetId;
use crate::shares::{ShareAccounts, SharePolicy};
use crate::size::Size;
use crate::tag_layout::{TagLayout, TagMap, TagMapId};
use crate::teardown::Teardown;
use crate::tenant::TenantIds;
use inflight_sbitmap::tenancy::{Rules, Tenancy as _, Users};
use inflight_sbitmap::{BatchedOptions, Engine, Fairness, SbitmapQueue};
use inflight_steering::Policies;
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicPtr, Ordering};
use inflight_sync::time::{Clock, Instant, Ticks};
use inflight_sync::wait::Event;
use std::ptr::NonNull;
use std::time::Duration;

/// The bitmaps of one hardware queue.
#[derive(Debug)]
struct HwQueue {
    normal: SbitmapQueue,
    /// If the set has reserved tags. Boxed, as the next field: most sets have none.
    reserved: Option<Box<SbitmapQueue>>,
    /// If the set has tags beyond the depth. These have no waiters.
    extra: Option<Box<SbitmapQueue>>,
    /// How many of the normal ones each tenant has.
    accounts: Arc<ShareAccounts>,
}

/// The bitmaps of all hardware queues, and the gate before them.
#[derive(Debug)]
pub(crate) struct TagMaps {
    pub(crate) layout: TagLayout,
    pub(crate) size: Size,
    pub(crate) active_queues: ActiveQueues,
    /// By table.
    hw_queues: Box<[HwQueue]>,
    pub(crate) gate: FreezeGate,
    pub(crate) teardown: Teardown,
    /// The set, whatever its payload, for the thread that frees it. Written once, when it is made.
    owner: AtomicPtr<()>,
    free: Option<unsafe fn(NonNull<()>)>,
    pub(crate) set_id: SetId,
    pub(crate) clock: Clock,
    /// The same clock, by the tick.
    pub(crate) ticks: Ticks,
    /// Whether tags are stamped when they are issued.
    keeps_ages: bool,
    pub(crate) expirers: Expirers,
    pub(crate) admission: Admission,
    kinds: Kinds,
    pub(crate) policies: Policies,
    pub(crate) tenant_ids: TenantIds,
}

/// The set that the bitmaps belong to.
pub(crate) struct Owner {
    set: Option<NonNull<()>>,
    free: Option<unsafe fn(NonNull<()>)>,
}

impl Owner {
    /// Frees the set.
    ///
    /// # Safety
    ///
    /// The set lives, nothing uses it any more, and no other caller frees it.
    pub(crate) unsafe fn free(&self) {
        if let (Some(set), Some(free)) = (self.set, self.free) {
            // SAFETY: by the contract; `free` is the set's, see `Setup`.
            unsafe { free(set) }
        }
    }
}

/// The builder's settings for the bitmaps, apart from their layout.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    pub(crate) admission: Admission,
    pub(crate) engine: Engine,
    pub(crate) share: SharePolicy,
    pub(crate) kinds: Kinds,
    /// The initial depth, if it is not the largest; and the initial number of hardware queues.
    pub(crate) depth: Option<usize>,
    pub(crate) hw_queues: Option<usize>,
    /// The CPUs that each hardware queue serves, if that is known.
    pub(crate) users: Vec<Users>,
    /// Frees the set that will be [the owner](TagMaps::set_owner).
    pub(crate) free: Option<unsafe fn(NonNull<()>)>,
}

impl TagMaps {
    /// `layout` has been checked.
    pub(crate) fn new(layout: TagLayout, clock: Clock, keeps_ages: bool, setup: Setup) -> Self {
        let (fairness, engine) = match setup.admission.wake_policy() {
            None => (Fairness::fair(), setup.engine),
            Some(policy) => (
                BatchedOptions::new().wake_policy(policy).into(),
                Engine::Shared,
            ),
        };
        let depth = setup.depth.unwrap_or(layout.depth);
        let hw_queues = setup.hw_queues.unwrap_or(layout.hw_queues);
        let bitmap = |n: usize, depth, max_depth, shares| {
            SbitmapQueue::builder(depth)
                .max_depth(max_depth)
                .fairness(fairness)
                .engine(engine)
                .trusted(true) // Each bit has one owner, whose drop puts it, once.
                .clock(clock.clone())
                .build_with_rules(Rules {
                    shares,
                    newcomers: setup.admission.newcomers(),
                    users: setup.users.get(n).copied(),
                })
                .expect("a depth of at most 10,240 is legal")
        };
        let hw_queue = |n| {
            let (normal, most) = (depth - layout.reserved, layout.depth - layout.reserved);
            let (reserved, extra) = (layout.reserved, layout.extra);
            let accounts = Arc::new(ShareAccounts::new(setup.share, normal, most));
            HwQueue {
                normal: bitmap(n, normal, most, Some(accounts.clone())),
                reserved: (reserved > 0).then(|| Box::new(bitmap(n, reserved, reserved, None))),
                extra: (extra > 0).then(|| Box::new(bitmap(n, extra, extra, None))),
                accounts,
            }
        };
        Self {
            layout,
            size: Size::new(hw_queues, depth),
            active_queues: ActiveQueues::new(layout.hw_queues),
            hw_queues: (0..layout.tables()).map(hw_queue).collect(),
            gate: FreezeGate::default(),
            teardown: Teardown::new(),
            owner: AtomicPtr::new(std::ptr::null_mut()),
            free: setup.free,
            set_id: SetId::new(),
            ticks: clock.ticks(),
            keeps_ages,
            expirers: Expirers::new(),
            clock: clock.clone(),
            admission: setup.admission,
            kinds: setup.kinds,
            policies: Policies::new(),
            tenant_ids: TenantIds::default(),
        }
    }

    /// The kind of an existing hardware queue.
    pub(crate) fn kind_of(&self, hw_queue: usize) -> QueueKind {
        self.kinds.of(hw_queue, self.size.hw_queues())
    }

    pub(crate) fn set_owner(&self, owner: NonNull<()>) {
        // Relaxed: the set is not shared yet.
        self.owner.store(owner.as_ptr(), Ordering::Relaxed);
    }

    /// The set that the bitmaps belong to.
    ///
    /// # Safety
    ///
    /// `this` lives.
    pub(crate) unsafe fn owner(this: *const Self) -> Owner {
        // SAFETY: by the contract.
        let this = unsafe { &*this };
        Owner {
            // Relaxed: see `set_owner`.
            set: NonNull::new(this.owner.load(Ordering::Relaxed)),
            free: this.free,
        }
    }

    /// The count of ended tags. A pointer, because the memory may be freed while the caller is in
    /// it.
    ///
    /// # Safety
    ///
    /// `this` lives.
    #[inline]
    pub(crate) const unsafe fn teardown(this: *const Self) -> *const Teardown {
        // SAFETY: by the contract.
        unsafe { &raw const (*this).teardown }
    }

    /// The stamp of a tag that is issued now, if the set keeps ages: at most a tick after that
    /// moment, and not before it while ticks come in time.
    #[inline]
    pub(crate) fn stamp(&self) -> Option<Instant> {
        self.keeps_ages.then(|| self.ticks.now())
    }

    /// The time that stamps are compared with.
    pub(crate) fn age_time(&self) -> Option<Instant> {
        self.keeps_ages.then(|| self.clock.now())
    }

    /// A request has got this timeout. Without ages nothing expires.
    pub(crate) fn note_timeout(&self, timeout: Duration) {
        if self.keeps_ages {
            self.expirers.note(timeout);
        }
    }

    /// Sleeps on an event of the gate while `condition` holds, at most until the deadline. Returns
    /// whether the condition ended.
    pub(crate) fn wait_while(
        &self,
        event: &Event,
        deadline: Option<Instant>,
        condition: impl FnMut() -> bool,
    ) -> bool {
        match deadline {
            None => {
                event.wait_while(condition);
                true
            }
            Some(deadline) => event.wait_while_until(&self.clock, deadline, condition),
        }
    }

    /// B2 for a thread, at most until the deadline. Returns whether the set was thawed.
    pub(crate) fn wait_thaw(&self, deadline: Option<Instant>) -> bool {
        self.wait_while(&self.gate.thawed, deadline, || self.gate.is_stopped())
    }

    /// Called only for a kind that the set has tags of.
    #[inline]
    pub(crate) fn bitmap(&self, tag_map: TagMapId) -> &SbitmapQueue {
        let hw_queue = self.table_of(tag_map.hw_queue);
        let bitmap = match tag_map.kind {
            TagMap::Normal => return &hw_queue.normal,
            TagMap::Reserved => &hw_queue.reserved,
            TagMap::Extra => &hw_queue.extra,
        };
        bitmap.as_ref().expect("the set has tags of this kind")
    }

    #[inline]
    fn table_of(&self, hw_queue: usize) -> &HwQueue {
        &self.hw_queues[self.layout.table(hw_queue)]
    }

    /// The normal bitmap of hardware queue 0.
    #[inline]
    pub(crate) fn first(&self) -> &SbitmapQueue {
        &self.hw_queues[0].normal
    }

    /// Returns how many bits of a hardware queue's normal bitmap each tenant has.
    #[inline]
    pub(crate) fn accounts(&self, hw_queue: usize) -> &ShareAccounts {
        &self.table_of(hw_queue).accounts
    }

    /// Sets how many CPUs each hardware queue serves.
    pub(crate) fn set_users(&self, users: &[Users]) {
        for tag_map in self.layout.tag_map_ids() {
            let users = users[tag_map.hw_queue];
            self.bitmap(tag_map).set_users(users.count);
        }
    }
}
