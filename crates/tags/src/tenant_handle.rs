//! A tenant of a set: the place tags are allocated from.

mod allocate;

use crate::error::{AllocError, WeightError};
use crate::grant::PendingTag;
use crate::handle::Handle;
use crate::options::AllocOptions;
use crate::stats::{Stripe, Striped, TenantStats};
use crate::tag::Tag;
use crate::tag_maps::{TagMap, TagMapId, TagMaps};
use crate::tenant::{SharePolicy, Taken, TenantInner, account_of};
use inflight_sbitmap::tenancy::{Tenancy as _, TenantIndex as Class};
use inflight_steering::TenantId;
use inflight_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, cpu};
use std::fmt;
use std::time::Duration;

/// A tenant of a [`TagSet`](crate::TagSet): a device, or whatever else submits requests under the
/// set's tags.
///
/// A cheap clone of one shared thing. Made by [`TagSet::add_tenant`](crate::TagSet::add_tenant).
///
/// # Which tag
///
/// A tag comes from the hardware queue that serves the calling CPU, unless
/// [`AllocOptions::hw_queue`] names one; another hardware queue's free tags are not looked at. A
/// caller that waits, waits at the hardware queue it came to. If it runs on a CPU of another one
/// when its turn has come, it takes a tag there if one is free, and frees the one it was woken for,
/// as its owner would: that counts towards the next wakeup there.
///
/// # Waiting
///
/// There are four ways to ask: `try_alloc` never waits, `alloc` is a future, `alloc_blocking` and
/// `alloc_timeout` put the thread to sleep; each has a form `_with` options. A thread or task that
/// holds the last tag itself and waits for another waits for ever; a `_timeout` form gives up.
/// Reserved tags have waiters of their own. Who waits while the set is frozen or quiesced waits on,
/// for the end of that first. Who waits at a hardware queue that turns
/// [inactive](crate::Cpus::offline) goes to the one that stands in for it, or, having named it,
/// gets [`InactiveHwQueue`](AllocError::InactiveHwQueue), when its turn comes: at the latest when
/// the queue is drained.
///
/// # Fairness
///
/// Threads and tasks wait in the same lines. Who is next is the set's
/// [`Admission`](crate::Admission); among tenants that wait it goes round, by their
/// [shares](crate::SharePolicy).
///
/// # Panics
///
/// An allocation that gives a tag back (it moved, or a freeze came in between) runs the wakers of
/// waiting tasks, as does dropping its future. If one panics, the panic comes out of the
/// call, after everybody who was to be woken is told; no tag is lost.
///
/// ```
/// use inflight_tags::{AllocOptions, TagSet};
/// let set = TagSet::builder().depth(4).build(|_, _| String::new())?;
/// let dev = set.add_tenant("nvme0n1")?;
/// let mut tag = dev.alloc_blocking()?;
/// tag.push_str("read 4096 bytes");
/// assert_eq!(dev.name(), "nvme0n1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tenant<T> {
    pub(crate) shared: Handle<T>,
    pub(crate) tenant: Arc<TenantInner>,
    /// Of all its handles. Here, for every allocation notes it.
    pub(crate) id: TenantId,
}

/// What a waiting form does next.
pub(crate) enum AllocStep<T> {
    Done(Result<Tag<T>, AllocError>),
    /// The gate is closed; why.
    WaitForThaw(AllocError),
    WaitForBit(TagMapId),
}

impl<T: Send + 'static> Tenant<T> {
    pub(crate) fn new(shared: Handle<T>, name: String) -> Self {
        let counters = Striped::new(shared.cpus);
        let Taken { id, first, .. } = shared.take_tenant_id();
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
        Self { shared, tenant, id }
    }

    /// The name it was added under.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// assert_eq!(set.add_tenant("nvme0n1")?.name(), "nvme0n1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.tenant.name
    }

    /// What this tenant counted. Of the set's first tenant it walks all slots: for tools, not for
    /// the fast path.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// drop(dev.alloc_blocking());
    /// assert_eq!(dev.stats().allocs, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> TenantStats {
        self.counted_so_far()
    }

    /// One try, and what to wait for if it failed. Who `waits` then is not let past those who wait
    /// already, if the policy says so.
    pub(crate) fn step(&self, options: AllocOptions, waits: bool) -> AllocStep<T> {
        loop {
            if let Err(error) = self.check(options) {
                return AllocStep::Done(Err(error));
            }
            // A look beforehand, so that a frozen set's bitmaps are left alone.
            match self.bitmaps().gate().state().refuses() {
                Some(AllocError::Closed) => return AllocStep::Done(Err(AllocError::Closed)),
                Some(why) => return AllocStep::WaitForThaw(why),
                None => {}
            }
            let target = self.target(options);
            if waits && !self.bitmaps().bitmap(target).admits_newcomer() {
                return AllocStep::WaitForBit(target);
            }
            let Some(bit) = self.bitmaps().try_get(target, self.class()) else {
                return AllocStep::WaitForBit(target);
            };
            if let Some(tag) = self.admit(bit) {
                return AllocStep::Done(Ok(tag));
            }
            // Refused: what has changed is seen above.
        }
    }

    /// After a sleep that ended with a bit: a tag, unless a freeze has begun.
    ///
    /// The thread may have moved. A bit of the hardware queue where it runs now is better; the one
    /// it was woken for is then put back, for the old bitmap a put like any other.
    pub(crate) fn woken(&self, options: AllocOptions, bit: PendingTag<'_>) -> Option<Tag<T>> {
        let here = self.target(options);
        if here == bit.target() {
            return self.admit(bit);
        }
        match bit.moved(here) {
            Ok(bit) => self.admit(bit),
            Err(bit) => match self.bitmaps().try_get(here, self.class()) {
                Some(near) => {
                    drop(bit);
                    self.admit(near)
                }
                None => self.admit(bit),
            },
        }
    }

    /// A2 and A3, or B1.
    pub(crate) fn admit(&self, bit: PendingTag<'_>) -> Option<Tag<T>> {
        let (target, bit) = bit.keep();
        let bitmap = self.bitmaps().bitmap(target);
        self.finish::<false>(bitmap, target, bit, |bitmaps| {
            bitmaps.admits(target.hw_queue)
        })
    }

    pub(crate) const fn class(&self) -> Class {
        account_of(self.id)
    }

    /// Its weight under [`SharePolicy::Weighted`](crate::SharePolicy::Weighted), in all hardware
    /// queues; 1 until this is called. With a weight of 0 the share is the least one, and at least
    /// one tag.
    ///
    /// # Errors
    ///
    /// [`WeightError::NotWeighted`] if the set has another policy, which looks at no weights.
    ///
    /// # Panics
    ///
    /// With a waiter's waker, when all hardware queues have the new weight.
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
        match self.bitmaps().accounts(0).policy() {
            SharePolicy::Weighted { .. } => self.bitmaps().set_weight(self.class(), weight),
            policy => return Err(WeightError::NotWeighted { weight, policy }),
        }
        Ok(())
    }

    /// How many tags of a hardware queue the tenant may have at once. `None`: as many as there are,
    /// for it is the only active tenant, or not active, or the set has no shares.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(8).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let _tag = dev.alloc_blocking().expect("all are free");
    /// assert_eq!(dev.share(0), None, "no other tenant is active");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn share(&self, hw_queue: usize) -> Option<usize> {
        let there = hw_queue < self.bitmaps().geometry().hw_queues;
        there.then(|| self.bitmaps().accounts(hw_queue).share(self.class()))?
    }

    /// How many of its tags count towards its share of a hardware queue: those that it took while
    /// other tenants were active.
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
        if hw_queue < self.bitmaps().geometry().hw_queues {
            self.bitmaps().accounts(hw_queue).active(self.class())
        } else {
            0
        }
    }

    /// Counts a refusal by its reason, if that is one that passes.
    pub(crate) fn refuse(&self, why: AllocError) -> AllocError {
        if why == AllocError::Exhausted && self.bitmaps().gate().is_shut_by_now() {
            return AllocError::Closed;
        }
        let counter: fn(&Stripe) -> &AtomicU64 = match why {
            AllocError::Exhausted => |stripe| &stripe.exhausted,
            AllocError::Frozen | AllocError::Quiesced => |stripe| &stripe.frozen,
            AllocError::TimedOut => |stripe| &stripe.timeouts,
            // A mistake of the caller.
            _ => return why,
        };
        self.tenant.counters.add(counter, 1);
        why
    }

    pub(crate) fn check(&self, options: AllocOptions) -> Result<(), AllocError> {
        let geometry = self.bitmaps().geometry();
        let hw_queues = self.bitmaps().size().hw_queues();
        if let Some(n) = options.named() {
            if n >= hw_queues {
                return Err(AllocError::NoSuchHwQueue {
                    hw_queue: options.hw_queue,
                });
            }
            if options.mapped && !self.shared.map.serves_any(n) {
                return Err(AllocError::Unmapped {
                    hw_queue: options.hw_queue,
                });
            }
            if self.bitmaps().stand_in(n) != n {
                return Err(AllocError::InactiveHwQueue {
                    hw_queue: options.hw_queue,
                });
            }
        }
        if options.reserved && geometry.reserved == 0 {
            return Err(AllocError::NoReserved);
        }
        Ok(())
    }

    /// The bitmap to take from, for options that have been checked.
    pub(crate) fn target(&self, options: AllocOptions) -> TagMapId {
        let hw_queue = match options.named() {
            Some(n) => n,
            None if self.bitmaps().geometry().hw_queues == 1 => 0,
            None => {
                let home = self.shared.map.hw_queue_of(options.kind, cpu::current());
                self.bitmaps().stand_in(home)
            }
        };
        TagMapId {
            hw_queue,
            kind: if options.reserved {
                TagMap::Reserved
            } else {
                TagMap::Normal
            },
        }
    }

    /// Calls the hook, if there is one, before each wait. Whether to try again first.
    pub(crate) fn before_wait(&self, target: TagMapId, asked: &mut bool) -> bool {
        *asked = !*asked && self.shared.before_wait.is_some();
        if let (true, Some(hook)) = (*asked, &self.shared.before_wait) {
            hook(target.hw_queue);
        }
        *asked
    }

    /// The allocation waits, perhaps not for the first time.
    pub(crate) fn begin_wait(&self, since: &mut Option<Instant>) {
        if since.is_none() {
            *since = Some(self.bitmaps().clock().now());
            self.tenant.counters.add(|c| &c.waits, 1);
        }
    }

    /// It is over, if it has waited.
    pub(crate) fn end_wait(&self, since: Option<Instant>) {
        if let Some(since) = since {
            let now = self.bitmaps().clock().now();
            let waited = now.as_nanos().saturating_sub(since.as_nanos());
            let longest = &self.tenant.longest_wait;
            // Relaxed: a statistic. Read first: it is seldom written, and its line stays with all.
            if waited > longest.load(Ordering::Relaxed) {
                longest.fetch_max(waited, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn bitmaps(&self) -> &TagMaps {
        &self.shared.bitmaps
    }
}

impl<T> Tenant<T> {
    /// Counts tags that it got. The first tenant's are what the others leave of the set's.
    #[inline]
    pub(crate) fn count_allocs(&self, n: u64) {
        if !self.tenant.first {
            self.tenant.counters.add_allocs(n);
        }
    }

    /// Allocations of the first tenant are true of no one moment while others allocate.
    pub(crate) fn counted_so_far(&self) -> TenantStats {
        let mut stats = self.tenant.counters.sum();
        let longest = self.tenant.longest_wait.load(Ordering::Relaxed);
        stats.longest_wait = Duration::from_nanos(longest);
        if self.tenant.first {
            let others = self.shared.others.lock().allocs();
            stats.allocs = self.shared.allocs_and_frees().0.saturating_sub(others);
        }
        stats
    }
}

impl<T> Drop for Tenant<T> {
    fn drop(&mut self) {
        // Ordering: AcqRel, so that the last one comes after what the others did: whoever looks
        // for tags that are left, to give away its number, sees theirs.
        if self.tenant.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            if !self.tenant.first {
                self.shared.others.lock().remove(&self.tenant);
            }
            self.shared.names.lock().remove(&self.tenant.name);
            let bitmaps = &self.shared.bitmaps;
            let unmark = || bitmaps.unmark(account_of(self.id));
            let unmarked = bitmaps
                .tenant_ids()
                .leave(self.id, self.tenant.first, unmark);
            // Last, for wakers may panic.
            bitmaps.each_of(unmarked, |hw_queue| bitmaps.shares_changed(hw_queue));
        }
    }
}

impl<T> Clone for Tenant<T> {
    fn clone(&self) -> Self {
        // Relaxed: there is a handle while this goes on.
        self.tenant.handles.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: self.shared.clone(),
            tenant: self.tenant.clone(),
            id: self.id,
        }
    }
}

impl<T> fmt::Debug for Tenant<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant")
            .field("name", &self.tenant.name)
            .field("stats", &self.counted_so_far())
            .finish_non_exhaustive()
    }
}
