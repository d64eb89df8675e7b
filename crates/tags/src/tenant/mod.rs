//! A tenant of a set, through which tags are allocated.

mod alloc_counts;
mod ids;

pub(crate) use alloc_counts::{Others, TenantInner};
pub(crate) use ids::{NewTenantId, TenantIds};

use crate::error::WeightError;
use crate::last_handle::Handle;
use crate::shares::{SharePolicy, account_of};
use crate::slot::Slot;
use crate::stats::{Striped, TenantStats};
use crate::tag_maps::TagMaps;
use inflight_sbitmap::tenancy::TenantIndex;
use inflight_steering::TenantId;
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use inflight_sync::panics::{FirstPanic, call_for_each};
use std::time::Duration;

/// A tenant of a [`TagSet`](crate::TagSet): a device, or another submitter of requests under the
/// set's tags.
///
/// A clone is cheap and refers to the same tenant. Made by
/// [`TagSet::add_tenant`](crate::TagSet::add_tenant).
///
/// # Which tag
///
/// A tag is one of the hardware queue that serves the calling CPU, unless
/// [`AllocOptions::hw_queue`](crate::AllocOptions::hw_queue) names another; free tags of other
/// hardware queues are not tried. A waiter waits at that hardware queue. If its turn comes while it
/// runs on a CPU of another one, it takes a tag there if one is free, and frees the tag for which
/// it was woken, as an owner would: that counts towards the next wakeup there.
///
/// # Waiting
///
/// There are four forms: `try_alloc` never waits, `alloc` is a future, the thread sleeps in
/// `alloc_blocking` and `alloc_timeout`; each has a form `_with` options. A thread or task that
/// holds the last tag and waits for another waits for ever; a `_timeout` form has a limit. Reserved
/// tags have waiters of their own. If the set is frozen or quiesced, waiters first wait for the end
/// of that. If the hardware queue of a waiter becomes [inactive](crate::Cpus::offline), the waiter
/// changes to the stand-in when its turn comes, at the latest when the queue is drained; if the
/// waiter named the queue, it gets [`InactiveHwQueue`](crate::AllocError::InactiveHwQueue) then.
///
/// # Fairness
///
/// Threads and tasks wait in the same wait queues. The set's [`Admission`](crate::Admission)
/// decides their order; waiting tenants are served round robin, by their
/// [shares](crate::SharePolicy).
///
/// # Panics
///
/// An allocation that gives a tag back (after a move to another CPU, or a freeze in between) runs
/// the wakers of waiting tasks, and so does dropping its future. One of shared tags runs those of
/// drains of hardware queues. If one panics, the call panics, after all chosen waiters are woken;
/// no tag is lost.
///
/// ```
/// use inflight_tags::TagSet;
/// let dev = TagSet::builder().build(|_, _| String::new())?.add_tenant("nvme0n1")?;
/// dev.alloc_blocking()?.push_str("read 4096 bytes");
/// assert_eq!((dev.name(), dev.set().in_use()), ("nvme0n1", 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tenant<T> {
    pub(crate) shared: Handle<T>,
    pub(crate) tenant: Arc<TenantInner>,
    /// The same for all its handles. Stored here because each allocation records it.
    pub(crate) id: TenantId,
}

impl<T: Send + 'static> Tenant<T> {
    pub(crate) fn new(shared: Handle<T>, name: String) -> Self {
        let counters = Striped::new(shared.cpus);
        let (NewTenantId { id, first, second }, told) = shared.take_tenant_id();
        let tenant = Arc::new(TenantInner {
            name,
            counters,
            first,
            handles: AtomicUsize::new(1),
            longest_wait: AtomicU64::new(0),
        });
        if !first {
            shared.others.lock().push(tenant.clone());
        }
        let this = Self { shared, tenant, id };
        // Wakers and callbacks run here. If one panics, the tenant goes.
        let mut panic = FirstPanic::default();
        panic.run(|| drop(told));
        if second {
            panic.run(|| this.bitmaps().activate_first_tenant());
        }
        panic.finish();
        this
    }

    /// Returns the tenant's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.tenant.name
    }

    pub(crate) const fn tenant_index(&self) -> TenantIndex {
        account_of(self.id)
    }

    /// Sets the tenant's weight under [`SharePolicy::Weighted`], in all hardware queues; 1 until
    /// this is called. With a weight of 0 the share is the least one, and at least one tag.
    ///
    /// # Errors
    ///
    /// [`WeightError::NotWeighted`] if the set has another policy, which uses no weights.
    ///
    /// # Panics
    ///
    /// Panics with a waiter's waker, when all hardware queues have the new weight.
    ///
    /// ```
    /// use inflight_tags::{AllocOptions, SharePolicy, TagSet};
    /// let policy = SharePolicy::Weighted { min: 1 };
    /// let set = TagSet::builder().depth(40).share(policy).build(|_, _| ())?;
    /// let (a, b) = (set.add_tenant("a")?, set.add_tenant("b")?);
    /// a.set_weight(3)?;
    /// let _tags = (a.try_alloc()?, b.try_alloc()?);
    /// assert_eq!((a.share(0), b.share(0)), (Some(30), Some(10)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_weight(&self, weight: u32) -> Result<(), WeightError> {
        match self.bitmaps().accounts(0).policy {
            SharePolicy::Weighted { .. } => self.bitmaps().set_weight(self.tenant_index(), weight),
            policy => return Err(WeightError::NotWeighted { weight, policy }),
        }
        Ok(())
    }

    /// Returns how many tags of a hardware queue the tenant may have at once. `None`: all of them,
    /// because it is the only active tenant, or not active, or the set has no shares.
    #[must_use]
    pub fn share(&self, hw_queue: usize) -> Option<usize> {
        let there = hw_queue < self.bitmaps().layout.hw_queues;
        there.then(|| self.bitmaps().accounts(hw_queue).share(self.tenant_index()))?
    }

    /// Returns the number of tags that the tenant holds or has in flight, in all hardware queues.
    /// Exact only while there are no allocations and frees. Reads all slots, as
    /// [`TagSet::in_use`](crate::TagSet::in_use).
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(8).build(|_, _| ())?;
    /// let (a, b) = (set.add_tenant("a")?, set.add_tenant("b")?);
    /// let _tags = (a.try_alloc()?, a.try_alloc()?, b.try_alloc()?);
    /// assert_eq!((a.in_use(), b.in_use(), set.in_use()), (2, 1, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn in_use(&self) -> usize {
        let own = |slot: &&Slot<T>| slot.record.is_tag() && slot.info.tenant() == self.id;
        self.shared.slots().filter(own).count()
    }

    /// Returns how many of its tags count towards its share of a hardware queue: those that it took
    /// while other tenants were active.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().depth(8).build(|_, _| ())?;
    /// let (a, b) = (set.add_tenant("a")?, set.add_tenant("b")?);
    /// let _alone = a.try_alloc()?;
    /// let _tags = (b.try_alloc()?, a.try_alloc()?);
    /// assert_eq!(a.counted(0), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn counted(&self, hw_queue: usize) -> usize {
        if hw_queue < self.bitmaps().layout.hw_queues {
            self.bitmaps()
                .accounts(hw_queue)
                .nr_active(self.tenant_index())
        } else {
            0
        }
    }

    pub(crate) fn bitmaps(&self) -> &TagMaps {
        &self.shared.bitmaps
    }
}

impl<T> Tenant<T> {
    /// Counts tags that the tenant got. The first tenant's are those of the set that no other has.
    #[inline]
    pub(crate) fn count_allocs(&self, n: u64) {
        if !self.tenant.first {
            self.tenant.counters.add_allocs(n);
        }
    }

    /// Returns the tenant's counters. For the set's first tenant it reads all slots: for tools, not
    /// for the fast path.
    #[must_use]
    pub fn stats(&self) -> TenantStats {
        let mut stats = self.tenant.counters.sum();
        let longest = self.tenant.longest_wait.load(Ordering::Relaxed);
        stats.longest_wait = Duration::from_nanos(longest);
        if self.tenant.first {
            // Before the others' counters, which are never behind the slots.
            let all = self.shared.allocs_and_frees().0;
            stats.allocs = self.shared.others.lock().count_first(all);
        }
        stats
    }
}

impl<T> Drop for Tenant<T> {
    fn drop(&mut self) {
        // Ordering: AcqRel, so that the last drop comes after what the other handles did: a thread
        // that looks for remaining tags, to reuse the number, sees theirs.
        if self.tenant.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            if !self.tenant.first {
                self.shared.others.lock().remove(&self.tenant);
            }
            self.shared.names.lock().remove(&self.tenant.name);
            let bitmaps = &self.shared.bitmaps;
            let deactivate = || bitmaps.set_inactive(account_of(self.id));
            let ids = &bitmaps.tenant_ids;
            let changed = ids.leave(self.id, self.tenant.first, deactivate);
            // Last, because wakers may panic.
            call_for_each(changed, |hw_queue| bitmaps.shares_changed(hw_queue));
        }
    }
}

impl<T> Clone for Tenant<T> {
    fn clone(&self) -> Self {
        // Relaxed: there is a handle meanwhile.
        self.tenant.handles.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: self.shared.clone(),
            tenant: self.tenant.clone(),
            id: self.id,
        }
    }
}

inflight_sync::debug_fields!([T] Tenant<T>: |this| name = this.tenant.name, stats = this.stats());
