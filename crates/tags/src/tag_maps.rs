//! The bitmaps of all hardware queues: everything of a set but its payloads.

use crate::active_queues::ActiveQueues;
use crate::admission::Admission;
use crate::freeze_gate::FreezeGate;
use crate::queue_kind::{Kinds, QueueKind};
use crate::set_id::SetId;
use crate::size::Size;
use crate::teardown::Teardown;
use crate::tenant::TenantIds;
use crate::tenant::{ShareAccounts, SharePolicy, Shares};
use inflight_sbitmap::tenancy::{BuildWithRules as _, Rules, Tenancy as _, Users};
use inflight_sbitmap::{BatchedOptions, Engine, Fairness, SbitmapQueue};
use inflight_steering::{Policies, first_of};
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicPtr, Ordering};
use inflight_sync::time::{Clock, Instant, Ticks};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

/// How many hardware queues, and how many tags each: at most. `Size` has the present numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) hw_queues: usize,
    /// Tags per hardware queue, reserved ones included.
    pub(crate) depth: usize,
    /// One table of tags for all hardware queues.
    pub(crate) shared: bool,
    /// Tags 0..reserved of each hardware queue.
    pub(crate) reserved: usize,
    /// Tags depth..depth + extra of each hardware queue: for
    /// [`Admission::ElasticOvercommit`](crate::Admission).
    pub(crate) extra: usize,
}

impl Geometry {
    pub(crate) const fn tags(self) -> usize {
        self.tables() * self.stride()
    }

    /// How many tables of tags there are, each with its bitmaps.
    pub(crate) const fn tables(self) -> usize {
        self.tables_of(self.hw_queues)
    }

    /// How many tables `hw_queues` have.
    pub(crate) const fn tables_of(self, hw_queues: usize) -> usize {
        if self.shared { 1 } else { hw_queues }
    }

    /// The table of a hardware queue.
    #[inline]
    pub(crate) const fn table(self, hw_queue: usize) -> usize {
        if self.shared { 0 } else { hw_queue }
    }

    /// The ids of a hardware queue.
    #[inline]
    pub(crate) const fn stride(self) -> usize {
        self.depth + self.extra
    }

    #[inline]
    pub(crate) const fn flat(self, hw_queue: usize, tag: usize) -> usize {
        self.table(hw_queue) * self.stride() + tag
    }
}

/// The bitmaps of a hardware queue, in the order of their tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagMap {
    Reserved,
    Normal,
    /// Beyond the depth.
    Extra,
}

/// One of the bitmaps of one hardware queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TagMapId {
    pub(crate) hw_queue: usize,
    pub(crate) kind: TagMap,
}

/// The bitmaps of one hardware queue.
#[derive(Debug)]
struct HwQueue {
    normal: SbitmapQueue,
    /// If the set has reserved tags. Boxed, as the other one: most sets have none.
    reserved: Option<Box<SbitmapQueue>>,
    /// If the set has tags beyond the depth. Nobody waits for these.
    extra: Option<Box<SbitmapQueue>>,
    /// Who has how many of the normal ones.
    accounts: Arc<ShareAccounts>,
}

/// The bitmaps of all hardware queues, and the gate before them.
#[derive(Debug)]
pub(crate) struct TagMaps {
    geometry: Geometry,
    size: Size,
    active_queues: ActiveQueues,
    /// By table.
    hw_queues: Box<[HwQueue]>,
    gate: FreezeGate,
    teardown: Teardown,
    /// The set, whatever its payload: for the one who frees it. Written once, when it is made.
    owner: AtomicPtr<()>,
    free: Option<unsafe fn(NonNull<()>)>,
    set_id: SetId,
    clock: Clock,
    /// Of the clock, if the set keeps ages.
    stamps: Option<Ticks>,
    admission: Admission,
    kinds: Kinds,
    policies: Policies,
    tenant_ids: TenantIds,
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
    /// It lives, nobody uses it any more, and nobody else frees it.
    pub(crate) unsafe fn free(&self) {
        if let (Some(set), Some(free)) = (self.set, self.free) {
            // SAFETY: by the contract; `free` is the set's, see `Setup`.
            unsafe { free(set) }
        }
    }
}

/// What the builder says of the bitmaps, beside their geometry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    pub(crate) admission: Admission,
    pub(crate) engine: Engine,
    pub(crate) share: SharePolicy,
    pub(crate) kinds: Kinds,
    /// The depth at first, if not the largest; and the number of hardware queues.
    pub(crate) depth: Option<usize>,
    pub(crate) hw_queues: Option<usize>,
    /// The CPUs that each hardware queue serves, if that is known.
    pub(crate) users: Vec<Users>,
    /// Frees the set that will be [the owner](TagMaps::set_owner).
    pub(crate) free: Option<unsafe fn(NonNull<()>)>,
}

impl TagMaps {
    /// `geometry` has been checked.
    pub(crate) fn new(geometry: Geometry, clock: Clock, keep_ages: bool, setup: Setup) -> Self {
        let (fairness, engine) = match setup.admission.wake_policy() {
            None => (Fairness::fair(), setup.engine),
            Some(policy) => (
                BatchedOptions::new().wake_policy(policy).into(),
                Engine::Shared,
            ),
        };
        let depth = setup.depth.unwrap_or(geometry.depth);
        let hw_queues = setup.hw_queues.unwrap_or(geometry.hw_queues);
        let bitmap = |n: usize, depth, max_depth, shares| {
            SbitmapQueue::builder(depth)
                .max_depth(max_depth)
                .fairness(fairness)
                .engine(engine)
                .trusted(true) // Why: each bit has one owner, whose drop puts it, once.
                .clock(clock.clone())
                .build_with_rules(Rules {
                    shares,
                    newcomers: setup.admission.newcomers(),
                    users: setup.users.get(n).copied(),
                })
                .expect("a depth of at most 10,240 is legal")
        };
        let hw_queue = |n| {
            let (normal, most) = (
                depth - geometry.reserved,
                geometry.depth - geometry.reserved,
            );
            let (reserved, extra) = (geometry.reserved, geometry.extra);
            let accounts = Arc::new(ShareAccounts::new(setup.share, normal, most));
            HwQueue {
                normal: bitmap(n, normal, most, Some(Box::new(Shares(accounts.clone())))),
                reserved: (reserved > 0).then(|| Box::new(bitmap(n, reserved, reserved, None))),
                extra: (extra > 0).then(|| Box::new(bitmap(n, extra, extra, None))),
                accounts,
            }
        };
        Self {
            geometry,
            size: Size::new(hw_queues, depth),
            active_queues: ActiveQueues::new(geometry.hw_queues),
            hw_queues: (0..geometry.tables()).map(hw_queue).collect(),
            gate: FreezeGate::new(),
            teardown: Teardown::new(),
            owner: AtomicPtr::new(std::ptr::null_mut()),
            free: setup.free,
            set_id: SetId::new(),
            stamps: keep_ages.then(|| clock.ticks()),
            clock: clock.clone(),
            admission: setup.admission,
            kinds: setup.kinds,
            policies: Policies::new(),
            tenant_ids: TenantIds::new(),
        }
    }

    #[inline]
    pub(crate) const fn admission(&self) -> Admission {
        self.admission
    }

    #[inline]
    pub(crate) const fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    pub(crate) const fn size(&self) -> &Size {
        &self.size
    }

    /// What a hardware queue that is there is for.
    pub(crate) fn kind_of(&self, hw_queue: usize) -> QueueKind {
        self.kinds.of(hw_queue, self.size.hw_queues())
    }

    pub(crate) const fn active_queues(&self) -> &ActiveQueues {
        &self.active_queues
    }

    /// The hardware queue itself, or the one that stands in for it while it is inactive.
    #[inline]
    pub(crate) fn stand_in(&self, hw_queue: usize) -> usize {
        if self.gate.state().is_short() {
            self.active_queues.stand_in(hw_queue)
        } else {
            hw_queue
        }
    }

    /// A2 and A3, after A1, with A4 and D4: whether bits of the hardware queue may become tags.
    pub(crate) fn admits(&self, hw_queue: usize) -> bool {
        let state = self.gate.state_after_get();
        if state.is_short() {
            if self.active_queues.stand_in(hw_queue) != hw_queue {
                return false;
            }
            // D5: who drains may have taken the bit for another hardware queue's.
            if self.geometry.shared {
                self.gate.drained().notify_all();
            }
        }
        state.refuses().is_none() && hw_queue < self.size.hw_queues()
    }

    #[inline]
    pub(crate) const fn gate(&self) -> &FreezeGate {
        &self.gate
    }

    pub(crate) fn set_owner(&self, owner: NonNull<()>) {
        // Relaxed: the set is not shared yet.
        self.owner.store(owner.as_ptr(), Ordering::Relaxed);
    }

    /// The set they belong to.
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

    /// The count of ended tags. A pointer: the memory may go while the caller is in it.
    ///
    /// # Safety
    ///
    /// `this` lives.
    #[inline]
    pub(crate) const unsafe fn teardown(this: *const Self) -> *const Teardown {
        // SAFETY: by the contract.
        unsafe { &raw const (*this).teardown }
    }

    /// K3.
    pub(crate) fn close(&self) -> u64 {
        self.teardown.close()
    }

    /// K5.
    pub(crate) fn settle(&self, given_out: u64, ended: u64) -> bool {
        self.teardown.settle(given_out, ended)
    }

    #[inline]
    pub(crate) const fn set_id(&self) -> u8 {
        self.set_id.number()
    }

    #[inline]
    pub(crate) const fn policies(&self) -> &Policies {
        &self.policies
    }

    pub(crate) const fn tenant_ids(&self) -> &TenantIds {
        &self.tenant_ids
    }

    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The stamp of a tag that is issued now, if the set keeps ages: not before that moment, and at
    /// most a tick after it.
    #[inline]
    pub(crate) fn stamp(&self) -> Option<Instant> {
        self.stamps.as_ref().map(Ticks::now)
    }

    /// The time that stamps are compared with.
    pub(crate) fn age_time(&self) -> Option<Instant> {
        self.stamps.as_ref().map(|_| self.clock.now())
    }

    /// A kind is asked for only where the set has tags of it.
    #[inline]
    pub(crate) fn bitmap(&self, target: TagMapId) -> &SbitmapQueue {
        let hw_queue = self.table_of(target.hw_queue);
        let bitmap = match target.kind {
            TagMap::Normal => return &hw_queue.normal,
            TagMap::Reserved => &hw_queue.reserved,
            TagMap::Extra => &hw_queue.extra,
        };
        bitmap.as_ref().expect("the set has tags of this kind")
    }

    #[inline]
    fn table_of(&self, hw_queue: usize) -> &HwQueue {
        &self.hw_queues[self.geometry.table(hw_queue)]
    }

    /// The normal bitmap of hardware queue 0.
    #[inline]
    pub(crate) fn first(&self) -> &SbitmapQueue {
        &self.hw_queues[0].normal
    }

    /// Who has how many bits of a hardware queue's normal bitmap.
    #[inline]
    pub(crate) fn accounts(&self, hw_queue: usize) -> &ShareAccounts {
        &self.table_of(hw_queue).accounts
    }

    /// So many CPUs each hardware queue serves from now on.
    pub(crate) fn set_users(&self, users: &[Users]) {
        for target in self.targets() {
            let users = users[target.hw_queue];
            self.bitmap(target).set_users(users.count);
        }
    }

    /// Where the bits of a bitmap begin among the tags of its hardware queue.
    const fn first_tag(&self, target: TagMapId) -> usize {
        match target.kind {
            TagMap::Reserved => 0,
            TagMap::Normal => self.geometry.reserved,
            TagMap::Extra => self.geometry.depth,
        }
    }

    #[inline]
    pub(crate) const fn tag_of(&self, target: TagMapId, bit: usize) -> usize {
        self.first_tag(target) + bit
    }

    /// The inverse of [`tag_of`](Self::tag_of).
    #[inline]
    pub(crate) const fn bit_of(&self, hw_queue: usize, tag: usize) -> (TagMapId, usize) {
        let kind = if tag < self.geometry.reserved {
            TagMap::Reserved
        } else if tag < self.geometry.depth {
            TagMap::Normal
        } else {
            TagMap::Extra
        };
        let target = TagMapId { hw_queue, kind };
        (target, tag - self.first_tag(target))
    }

    /// All bitmaps, each table's in the order in which its tags are numbered.
    pub(crate) fn targets(&self) -> impl Iterator<Item = TagMapId> + use<> {
        let geometry = self.geometry;
        let kinds = [TagMap::Reserved, TagMap::Normal, TagMap::Extra];
        (0..geometry.tables())
            .flat_map(move |hw_queue| kinds.map(|kind| TagMapId { hw_queue, kind }))
            .filter(move |target| match target.kind {
                TagMap::Reserved => geometry.reserved > 0,
                TagMap::Normal => true,
                TagMap::Extra => geometry.extra > 0,
            })
    }

    /// Nobody gets a bit from now on; the first panic of a waker comes out when all are told.
    pub(crate) fn close_all(&self) {
        self.gate.shut();
        let close = |target| catch_unwind(AssertUnwindSafe(|| self.bitmap(target).close()));
        let closed = first_of(self.targets().map(close));
        closed.unwrap_or_else(|panic| resume_unwind(panic));
    }
}
