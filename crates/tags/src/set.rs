//! The set: hardware queues, slots, and the way from a token back to its tag.

use crate::error::{FreezeError, RedeemError, TenantError};
use crate::freeze::{Freeze, FrozenGuard};
use crate::handle::Handle;
use crate::in_flight::InFlight;
use crate::shared::Shared;
use crate::slot::Record;
use crate::stats::SetStats;
use crate::tag::Tag;
use crate::tenant_handle::Tenant;
use inflight_sync::atomic::Ordering;
use inflight_sync::time::Clock;
use std::collections::btree_map::Entry;
use std::fmt;
use std::time::Duration;

/// A set of tags, shared by its tenants: how many requests may be in flight, and the data of each.
///
/// A cheap clone of one shared thing. A set of `n` hardware queues of depth `d` has `n * d` slots,
/// each with a `T` that is made once. A [`Tenant`] allocates; the set redeems, looks at what is in
/// flight, and freezes.
///
/// When the last handle (set or tenant) is dropped, tags that are held stay valid. Tags that are in
/// flight then have nobody to redeem them, and their slots are leaked on purpose: a device may
/// still work on their buffers. So an engine redeems, or [freezes](TagSet::freeze_blocking), before
/// it lets go of the last handle.
///
/// The idea is the tag set of blk-mq.
///
/// ```
/// use inflight_tags::{AllocOptions, TagSet};
///
/// struct Req { off: u64, buf: Vec<u8> }
/// let set = TagSet::builder()
///     .hw_queues(4)
///     .depth(256)
///     .reserved(8)
///     .build(|_hwq, _tag| Req { off: 0, buf: vec![0; 4096] })?;
/// let dev = set.add_tenant("nvme0n1")?;
///
/// let mut tag = dev.try_alloc()?;
/// tag.off = 4096;
/// tag.buf[0] = 1;
/// let token: u64 = tag.into_token(); // the ring's user data; the tag is now in flight
/// let tag = set.redeem(token)?;
/// assert_eq!((tag.off, tag.buf[0]), (4096, 1));
/// drop(tag); // frees it, wakes the right waiter
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TagSet<T> {
    pub(crate) shared: Handle<T>,
}

impl<T: Send + 'static> TagSet<T> {
    pub(crate) const fn from_shared(shared: Handle<T>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Shared<T> {
        &self.shared
    }

    /// Adds a tenant: a device, say. The name is for people and metrics, and a tenant's own as long
    /// as it has a handle.
    ///
    /// # Errors
    ///
    /// [`TenantError::NameTaken`] if another tenant of the set has the name,
    /// [`TenantError::Closed`].
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let (a, b) = (set.add_tenant("nvme0n1")?, set.add_tenant("nvme0n2")?);
    /// assert!(set.add_tenant("nvme0n1").is_err());
    /// # let _ = (a, b);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_tenant(&self, name: impl Into<String>) -> Result<Tenant<T>, TenantError> {
        let name = name.into();
        if self.is_closed() {
            return Err(TenantError::Closed);
        }
        match self.shared.names.lock().entry(name.clone()) {
            Entry::Occupied(_) => return Err(TenantError::NameTaken { name }),
            Entry::Vacant(entry) => entry.insert(None),
        };
        let tenant = Tenant::new(self.shared.clone(), name.clone());
        self.shared.names.lock().insert(name, Some(tenant.id));
        Ok(tenant)
    }

    /// Gives the tag of a completed request back to its owner.
    ///
    /// Of any number of threads that redeem one token, exactly one gets the tag. What was written
    /// to the slot before [`into_token`](Tag::into_token) is visible to it.
    ///
    /// # Errors
    ///
    /// Nothing is changed by a token that is refused:
    /// [`NotInFlight`](RedeemError::NotInFlight) if it has been redeemed,
    /// [`Stale`](RedeemError::Stale) if its slot has been freed since or its generation is damaged,
    /// [`TimedOut`](RedeemError::TimedOut) if it was marked, [`Foreign`](RedeemError::Foreign)
    /// if another set made it (sure unless more than 64 sets lived in the process at once),
    /// [`OutOfRange`](RedeemError::OutOfRange) if it names no slot.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, RedeemError, TagSet};
    /// let set = TagSet::builder().depth(4).build(|_, _| 0u32)?;
    /// let other = TagSet::builder().depth(4).build(|_, _| 0u32)?;
    /// let mut tag = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// *tag = 7;
    /// let token = tag.into_token();
    /// let refused = other.redeem(token).unwrap_err();
    /// assert_eq!(refused, RedeemError::Foreign { token: token.into() });
    /// assert_eq!(*set.redeem(token)?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn redeem(&self, token: u64) -> Result<Tag<T>, RedeemError> {
        self.shared.claim(token, Record::redeem)
    }

    /// Gives the tag of a request that was [marked as timed out](InFlight::mark_timed_out) to
    /// whoever handles the timeout: exactly once.
    ///
    /// # Errors
    ///
    /// As [`redeem`](TagSet::redeem); [`NotTimedOut`](RedeemError::NotTimedOut) if the tag is in
    /// flight and not marked, [`NotInFlight`](RedeemError::NotInFlight) if it has been taken.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, RedeemError, TagSet};
    /// let set = TagSet::builder().depth(4).build(|_, _| ())?;
    /// let token = set.add_tenant("nvme0n1")?.try_alloc()?.into_token();
    /// assert!(matches!(set.redeem_timed_out(token), Err(RedeemError::NotTimedOut { .. })));
    /// set.for_each_in_flight(|t| { t.mark_timed_out(); });
    /// let tag = set.redeem_timed_out(token)?;
    /// let late = set.redeem(token).unwrap_err(); // the completion
    /// assert_eq!(late, RedeemError::TimedOut { token: token.into() });
    /// # drop(tag);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn redeem_timed_out(&self, token: u64) -> Result<Tag<T>, RedeemError> {
        self.shared.redeem_timed_out(token)
    }

    /// Shows `f` each tag in flight, also while tags complete and others are put in flight: every
    /// tag that is in flight all the while is shown once, others may be or not. `f` may call
    /// anything of the set.
    ///
    /// Looks at each slot there may be ([`max_depth`](crate::TagSetBuilder::max_depth) of each of
    /// [`HwQueueOptions::max`](crate::HwQueueOptions::max) queues) and stops nobody. Tags that are
    /// held are passed over.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// use inflight_tags::Clock;
    /// use std::time::Duration;
    /// let clock = Clock::manual();
    /// let set = TagSet::builder().depth(4).clock(clock.clone()).build(|_, _| ())?;
    /// let token = set.add_tenant("nvme0n1")?.try_alloc()?.into_token();
    /// clock.advance(Duration::from_secs(31));
    /// let limit = Duration::from_secs(30);
    /// set.for_each_in_flight(|t| if t.age() > limit { t.mark_timed_out(); });
    /// assert!(set.redeem_timed_out(token).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_each_in_flight(&self, f: impl FnMut(&InFlight<'_>)) {
        self.shared.for_each_in_flight(f);
    }

    /// Freezes the set if no tag is in use now. Others may find the set frozen for the moment the
    /// look takes.
    ///
    /// # Errors
    ///
    /// [`FreezeError::InUse`].
    ///
    /// ```
    /// # use inflight_tags::{FreezeError, TagSet};
    /// let set = TagSet::builder().depth(4).build(|_, _| ())?;
    /// let held = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// assert_eq!(set.try_freeze().unwrap_err(), FreezeError::InUse);
    /// drop(held);
    /// assert!(set.try_freeze().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_freeze(&self) -> Result<FrozenGuard, FreezeError> {
        FrozenGuard::close(&self.shared.bitmaps).drained_now()
    }

    /// Freezes the set: no tag is given out from the future's first poll on, and it is ready when
    /// none is held or in flight. Freezes nest; the last guard's drop thaws.
    ///
    /// While the set is frozen, or somebody waits for it to be, the try forms of a [`Tenant`]
    /// return [`Frozen`](crate::AllocError::Frozen) and the waiting forms wait for the thaw.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the freeze: the set is as it was.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(4).build(|_, _| ())?;
    /// let frozen = inflight_sync::block_on(set.freeze());
    /// assert!(set.is_frozen());
    /// # drop(frozen);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    pub fn freeze(&self) -> Freeze {
        Freeze::new(&self.shared.bitmaps)
    }

    /// As [`freeze`](TagSet::freeze), sleeping.
    ///
    /// A thread that holds a tag itself, or is the one that redeems, waits for itself here, for
    /// ever: it looks like a slow device. Who is not sure takes
    /// [`freeze_timeout`](TagSet::freeze_timeout), or [`try_freeze`](TagSet::try_freeze).
    ///
    /// ```
    /// # use inflight_tags::{AllocError, TagSet};
    /// let set = TagSet::builder().depth(4).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let frozen = set.freeze_blocking();
    /// assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Frozen);
    /// drop(frozen);
    /// assert!(dev.try_alloc().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn freeze_blocking(&self) -> FrozenGuard {
        FrozenGuard::close(&self.shared.bitmaps).wait_drained()
    }

    /// As [`freeze`](TagSet::freeze), sleeping at most for `timeout`; after that the set is as it
    /// was.
    ///
    /// # Errors
    ///
    /// [`FreezeError::TimedOut`].
    ///
    /// ```
    /// # use inflight_tags::{FreezeError, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(4).build(|_, _| ())?;
    /// let held = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// let short = Duration::from_millis(1);
    /// assert_eq!(set.freeze_timeout(short).unwrap_err(), FreezeError::TimedOut);
    /// assert!(!set.is_frozen());
    /// drop(held);
    /// assert!(set.freeze_timeout(Duration::from_secs(1)).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn freeze_timeout(&self, timeout: Duration) -> Result<FrozenGuard, FreezeError> {
        let clock = self.shared.bitmaps.clock();
        let deadline = clock.now() + timeout;
        FrozenGuard::close(&self.shared.bitmaps).wait_drained_until(clock, deadline)
    }

    /// Closes the set, for good: no tag is given out any more, and none is waited for. Who waits
    /// for one, and who asks later, gets [`Closed`](crate::AllocError::Closed), also behind a
    /// freeze. Tags that are held can be put in flight, what is in flight can be redeemed, and
    /// [`freeze`](TagSet::freeze) waits until nothing is left: the shutdown of an engine.
    ///
    /// An allocation that runs at the same time may still succeed.
    ///
    /// # Panics
    ///
    /// With the first panic of a waiting task's waker, after all who wait are told.
    ///
    /// ```
    /// # use inflight_tags::{AllocError, TagSet};
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let token = dev.alloc_blocking()?.into_token();
    /// let waiter = std::thread::spawn({
    ///     let dev = dev.clone();
    ///     move || dev.alloc_blocking().map(drop)
    /// });
    /// set.close();
    /// assert_eq!(waiter.join().unwrap(), Err(AllocError::Closed));
    /// drop(set.redeem(token)?); // it completes all the same
    /// let _idle = set.freeze_blocking();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.shared.bitmaps.close_all();
    }

    /// Whether the set was [closed](TagSet::close).
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// assert!(!TagSet::builder().build(|_, _| ())?.is_closed());
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.bitmaps.gate().state().is_shut()
    }

    /// Gives the shares of idle tenants to the others at once: of those that have no tag of a
    /// hardware queue that counts, and wait for none. Returns in how many hardware queues there
    /// was one. Such a tenant counts again with its next allocation.
    ///
    /// Without this call an idle tenant is found out by others who are at their limit: by threads
    /// that wait, which look every second, and by whoever allocates, comes to wait or frees. Tasks
    /// have no timer: if nothing but tasks waits, beside an idle tenant's tags, and nobody
    /// completes anything, they wait until one of these happens. An engine of tasks alone calls
    /// this from its own timer.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(8).build(|_, _| ())?;
    /// let (a, b) = (set.add_tenant("a")?, set.add_tenant("b")?);
    /// drop(b.try_alloc()?); // active, and done for now
    /// assert_eq!(a.try_alloc_batch(8).len(), 4, "its share");
    /// set.reclaim_idle_shares();
    /// assert_eq!(a.try_alloc_batch(8).len(), 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // Why: it acts, and who only wants that may ignore how many there were.
    #[allow(clippy::must_use_candidate)]
    pub fn reclaim_idle_shares(&self) -> usize {
        self.shared.bitmaps.reclaim_idle()
    }

    /// Whether the set is frozen, or somebody waits for it to be.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let frozen = set.freeze_blocking();
    /// assert!(set.is_frozen());
    /// drop(frozen);
    /// assert!(!set.is_frozen());
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.shared.bitmaps.gate().state().is_frozen()
    }

    /// How many tags are held or in flight. Exact only while nobody allocates or frees. Walks all
    /// slots: a counter would burden every allocation.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let _held = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// assert_eq!(set.in_use(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.in_use()
    }

    /// How many tags are in flight, those marked as timed out included. Exact only while nobody
    /// submits or completes. Walks all slots; [`any_in_flight`](TagSet::any_in_flight) stops at the
    /// first.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let tag = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// assert_eq!(set.in_flight(), 0, "held is not in flight");
    /// let token = tag.into_token();
    /// assert_eq!(set.in_flight(), 1);
    /// # set.redeem(token)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let mut count = 0;
        self.shared.for_each_in_flight(|_| count += 1);
        count
    }

    /// Whether a tag is in flight, marked ones included. Looks no further than the first.
    ///
    /// The idea is the in-flight test of blk-mq.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let tag = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// assert!(!set.any_in_flight(), "held is not in flight");
    /// let token = tag.into_token();
    /// assert!(set.any_in_flight());
    /// # set.redeem(token)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn any_in_flight(&self) -> bool {
        self.shared.any_in_flight()
    }

    /// How many tags are held: in use, but not in flight. Walks all slots, twice.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// let _held = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// assert_eq!(set.held(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn held(&self) -> usize {
        self.in_use().saturating_sub(self.in_flight())
    }

    /// The counters. Walks all slots; for tools, not for the fast path.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// assert_eq!(set.stats().allocs, 0);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> SetStats {
        let (allocs, frees) = self.shared.allocs_and_frees();
        let (mut waits, mut wakeups) = (0, 0);
        for target in self.shared.bitmaps.targets() {
            let stats = self.shared.bitmaps.bitmap(target).stats();
            waits += stats.waits;
            wakeups += stats.wakeups;
        }
        SetStats {
            allocs,
            frees,
            in_use: self.in_use(),
            in_flight: self.in_flight(),
            waits,
            wakeups,
            redeem_errors: self.shared.redeem_errors.load(Ordering::Relaxed),
            late_completions: self.shared.late_completions.load(Ordering::Relaxed),
        }
    }

    /// The clock that ages, timeouts and waits go by: the builder's, or the system's.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let token = set.add_tenant("nvme0n1")?.try_alloc()?.into_token();
    /// let next = set.expire(|_| unreachable!("30 seconds are not over")).expect("one request");
    /// let wait: Duration = next - set.clock().now(); // for a timer, or a ring's timeout
    /// assert!(wait <= Duration::from_secs(30));
    /// # drop(set.redeem(token)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.shared.bitmaps.clock()
    }

    /// The number of tags of each hardware queue, reserved ones included; of all hardware queues
    /// together, if they [share](crate::HwQueueOptions::shared_tags) them.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// assert_eq!(TagSet::builder().depth(9).build(|_, _| ())?.depth(), 9);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn depth(&self) -> usize {
        self.shared.bitmaps.size().depth()
    }

    /// The number of reserved tags of each hardware queue.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// assert_eq!(TagSet::builder().build(|_, _| ())?.reserved(), 0);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn reserved(&self) -> usize {
        self.shared.bitmaps.geometry().reserved
    }

    /// The number of tags of all hardware queues.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// assert_eq!(TagSet::builder().hw_queues(2).depth(8).build(|_, _| ())?.capacity(), 16);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    #[must_use]
    pub fn capacity(&self) -> usize {
        let (geometry, size) = (self.shared.bitmaps.geometry(), self.shared.bitmaps.size());
        geometry.tables_of(size.hw_queues()) * (size.depth() + geometry.extra)
    }
}

impl<T: Send + 'static> Tenant<T> {
    /// The set it is a tenant of.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(7).build(|_, _| ())?;
    /// assert_eq!(set.add_tenant("nvme0n1")?.set().depth(), 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn set(&self) -> TagSet<T> {
        TagSet::from_shared(self.shared.clone())
    }
}

impl<T> Clone for TagSet<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<T> fmt::Debug for TagSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagSet")
            .field("hw_queues", &self.shared.bitmaps.size().hw_queues())
            .field("depth", &self.shared.bitmaps.size().depth())
            .field("limits", &self.shared.bitmaps.geometry())
            .field("in_use", &self.shared.in_use())
            .field("gate", &self.shared.bitmaps.gate().state())
            .finish_non_exhaustive()
    }
}
