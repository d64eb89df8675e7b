//! The state that all handles and tags of a set share.

use crate::cpu_map::CpuMap;
use crate::slot::Slot;
use crate::tag_maps::TagMaps;
use crate::tenant::{NewTenantId, Others};
use crate::token::SlotId;
use inflight_steering::{Leftover, TenantId};
use inflight_sync::atomic::AtomicU64;
use inflight_sync::time::Timer;
use inflight_sync::{Arc, CachePadded, Mutex, Weak, cpu};
use inflight_topology::Topology;
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::NonNull;
use std::time::Duration;

/// The default of [`TagSetBuilder::timeout`](crate::TagSetBuilder::timeout).
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A subscriber to changes of the set.
pub(crate) trait SetSubscriber: Send + Sync {
    /// Uses this topology from now on. One call at a time. The result is run outside all locks.
    fn refresh(&self, topology: &Topology) -> Leftover;

    /// These tenants are gone, and so are their tags.
    fn forget(&self, tenants: &[TenantId]);
}

/// See [`TagSetBuilder::before_wait`](crate::TagSetBuilder::before_wait).
pub(crate) type BeforeWait = Box<dyn Fn(usize) + Send + Sync>;

/// The state that all handles and tags of a set share.
pub(crate) struct Shared<T> {
    /// The slot id in tokens of the first slot.
    pub(crate) first_slot: SlotId,
    pub(crate) slots: Box<[CachePadded<Slot<T>>]>,
    /// Makes payloads.
    pub(crate) payload: Box<dyn Fn(usize, usize) -> T + Send + Sync>,
    /// The timeout of requests that set none.
    pub(crate) timeout: Duration,
    /// Called before a submitter waits.
    pub(crate) before_wait: Option<BeforeWait>,
    pub(crate) cpu_map: CpuMap,
    /// The number of CPUs: the size of each tenant's counters.
    pub(crate) cpus: usize,
    pub(crate) others: Mutex<Others>,
    /// The names of its tenants, with their numbers once they have one.
    pub(crate) names: Mutex<BTreeMap<String, Option<TenantId>>>,
    /// The subscribers to changes of the set.
    subscribers: Mutex<Vec<Weak<dyn SetSubscriber>>>,
    /// Tokens refused. On another cache line than what every allocation and completion reads.
    pub(crate) redeem_errors: CachePadded<AtomicU64>,
    /// Completions after their request's timeout.
    pub(crate) late_completions: AtomicU64,
    /// Wakes tasks that wait for timeouts.
    pub(crate) timer: Timer,
    /// Dropped last, because the slots point to them.
    pub(crate) bitmaps: Arc<TagMaps>,
}

impl<T> Shared<T> {
    pub(crate) fn new(
        bitmaps: Arc<TagMaps>,
        slots: Box<[CachePadded<Slot<T>>]>,
        payload: Box<dyn Fn(usize, usize) -> T + Send + Sync>,
        cpu_map: CpuMap,
    ) -> Self {
        Self {
            first_slot: SlotId::new(bitmaps.set_id.number(), 0),
            slots,
            payload,
            timeout: DEFAULT_TIMEOUT,
            before_wait: None,
            cpu_map,
            cpus: cpu::online(),
            others: Mutex::default(),
            names: Mutex::default(),
            subscribers: Mutex::new(Vec::new()),
            redeem_errors: CachePadded::new(AtomicU64::new(0)),
            late_completions: AtomicU64::new(0),
            timer: Timer::new(bitmaps.clock.clone()),
            bitmaps,
        }
    }

    /// The function to free the set, see [`Setup`](crate::tag_maps::Setup).
    ///
    /// # Safety
    ///
    /// `this` is a leaked box of this type, which is not used any more.
    pub(crate) unsafe fn free(this: NonNull<()>) {
        // SAFETY: by the contract.
        drop(unsafe { Box::from_raw(this.cast::<Self>().as_ptr()) });
    }

    #[inline]
    pub(crate) fn slot(&self, hw_queue: usize, tag: usize) -> &Slot<T> {
        &self.slots[self.bitmaps.layout.flat(hw_queue, tag)]
    }

    /// All slots that can be tags.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot<T>> {
        self.slots.iter().map(|slot| &**slot)
    }

    /// How many tags were allocated and freed so far.
    pub(crate) fn allocs_and_frees(&self) -> (u64, u64) {
        let counts = self.slots().map(|slot| slot.record.allocs_and_frees());
        counts.fold((0, 0), |sum, slot| (sum.0 + slot.0, sum.1 + slot.1))
    }

    /// The tags held or in flight. A bit that a refused submitter has not yet put back is not one.
    pub(crate) fn in_use(&self) -> usize {
        self.slots().filter(|slot| slot.record.is_tag()).count()
    }

    pub(crate) fn add_subscriber(&self, subscriber: Weak<dyn SetSubscriber>) {
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        subscribers.push(subscriber);
    }

    /// The present subscribers. Each may be the last handle of its own: drop them outside all
    /// locks.
    pub(crate) fn subscribers(&self) -> Vec<Arc<dyn SetSubscriber>> {
        let subscribers = self.subscribers.lock();
        subscribers.iter().filter_map(Weak::upgrade).collect()
    }

    /// A number for a new tenant, and subscribers that the caller drops when it has the tenant:
    /// each may be the last handle of its own.
    pub(crate) fn take_tenant_id(&self) -> (NewTenantId, Vec<Arc<dyn SetSubscriber>>) {
        let mut told = Vec::new();
        let bitmaps = &self.bitmaps;
        let first_time = !bitmaps.gate.has_several_tenants();
        let clear = |left: &[TenantId]| {
            // A tenant that has left allocates no more tags, and what its handles did comes before.
            // A Relaxed load sees whether a tag has ended: a late value only makes the number free
            // later.
            let mut clear: BTreeSet<TenantId> = left.iter().copied().collect();
            for slot in self.slots().filter(|slot| slot.record.is_tag()) {
                clear.remove(&slot.info.tenant());
            }
            clear.retain(|&id| bitmaps.clear_account(id));
            let clear: Vec<TenantId> = clear.into_iter().collect();
            let policies = &bitmaps.policies;
            clear.iter().for_each(|&id| policies.set_own(id, None));
            told = self.subscribers();
            told.iter().for_each(|subscriber| subscriber.forget(&clear));
            clear
        };
        let mut taken = bitmaps
            .tenant_ids
            .take(clear, || bitmaps.gate.set_several_tenants());
        taken.second &= first_time;
        (taken, told)
    }
}
