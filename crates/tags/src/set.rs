//! The set: hardware queues, slots, and redeeming tokens.

use crate::error::{NAME_LIMIT, RedeemError, TenantError};
use crate::in_flight::InFlight;
use crate::last_handle::Handle;
use crate::slot::Slot;
use crate::stats::SetStats;
use crate::tag::Tag;
use crate::tenant::Tenant;
use inflight_sync::atomic::Ordering;
use inflight_sync::time::Clock;
use std::collections::btree_map::Entry;

/// A set of tags, shared by its tenants: a limit on the requests in flight, and the data of each.
///
/// A clone is cheap and refers to the same set. A set of `n` hardware queues of depth `d` has `n *
/// d` slots, each with a `T` that is made once. A [`Tenant`] allocates; the set redeems, visits the
/// tags in flight, and freezes.
///
/// When the last handle (set or tenant) is dropped, tags that are held stay valid. Tags in flight
/// can then no longer be redeemed, and their slots are leaked on purpose: a device may still work
/// on their buffers. So an engine redeems, or [freezes](TagSet::freeze_blocking), before it drops
/// the last handle.
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
    /// Adds a tenant, for example a device. The name is for people and metrics, and belongs to the
    /// tenant while the tenant has a handle. It has 1 to 8,192 bytes. The [dump](Self::dump) shows
    /// its first 256 characters, with control characters escaped; metrics have it as it is.
    ///
    /// # Errors
    ///
    /// [`TenantError::NameTaken`] if another tenant of the set has the name,
    /// [`TenantError::EmptyName`], [`TenantError::NameTooLong`], [`TenantError::Closed`].
    ///
    /// # Panics
    ///
    /// The tags of the first tenant begin to be shared when a second one comes. If the waker of a
    /// waiting task panics then, so does the call, and the set has no such tenant.
    pub fn add_tenant(&self, name: impl Into<String>) -> Result<Tenant<T>, TenantError> {
        let name = name.into();
        if self.is_closed() {
            return Err(TenantError::Closed);
        }
        match name.len() {
            0 => return Err(TenantError::EmptyName),
            1..=NAME_LIMIT => {}
            bytes => return Err(TenantError::NameTooLong { bytes }),
        }
        match self.shared.names.lock().entry(name.clone()) {
            Entry::Occupied(_) => return Err(TenantError::NameTaken { name }),
            Entry::Vacant(entry) => entry.insert(None),
        };
        let tenant = Tenant::new(self.shared.clone(), name.clone());
        self.shared.names.lock().insert(name, Some(tenant.id));
        Ok(tenant)
    }

    /// Returns the tag of a completed request.
    ///
    /// If several threads redeem one token, exactly one gets the tag. What was written to the slot
    /// before [`into_token`](Tag::into_token) is visible to that thread.
    ///
    /// # Errors
    ///
    /// A refused token changes nothing: [`NotInFlight`](RedeemError::NotInFlight) if it has been
    /// redeemed, [`Stale`](RedeemError::Stale) if its slot has been freed since or its generation
    /// is damaged, [`TimedOut`](RedeemError::TimedOut) if it was marked,
    /// [`Foreign`](RedeemError::Foreign) if another set made it (certain unless more than 64 sets
    /// existed in the process at once), [`OutOfRange`](RedeemError::OutOfRange) if it names no
    /// slot.
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
        self.shared.redeem(token)
    }

    /// Returns the tag of a request that was [marked as timed out](InFlight::mark_timed_out), to
    /// the handler of the timeout: exactly once.
    ///
    /// # Errors
    ///
    /// The errors of [`redeem`](TagSet::redeem); [`NotTimedOut`](RedeemError::NotTimedOut) if the
    /// tag is in flight and not marked, [`NotInFlight`](RedeemError::NotInFlight) if it has been
    /// taken.
    ///
    /// [`for_each_in_flight`](TagSet::for_each_in_flight) has an example.
    pub fn redeem_timed_out(&self, token: u64) -> Result<Tag<T>, RedeemError> {
        self.shared.redeem_timed_out(token)
    }

    /// Calls `f` with each tag in flight, also while tags complete and others are put in flight. A
    /// tag that is in flight all the while is visited once; others may be visited or not. `f` may
    /// call any method of the set.
    ///
    /// Reads each slot there may be ([`max_depth`](crate::TagSetBuilder::max_depth) of each of
    /// [`HwQueueOptions::max`](crate::HwQueueOptions::max) queues) and delays no caller. Tags that
    /// are held are skipped.
    ///
    /// ```
    /// # use inflight_tags::{RedeemError, TagSet};
    /// use inflight_tags::Clock;
    /// use std::time::Duration;
    /// let clock = Clock::manual();
    /// let set = TagSet::builder().depth(4).clock(clock.clone()).build(|_, _| ())?;
    /// let token = set.add_tenant("nvme0n1")?.try_alloc()?.into_token();
    /// assert!(matches!(set.redeem_timed_out(token), Err(RedeemError::NotTimedOut { .. })));
    /// clock.advance(Duration::from_secs(31));
    /// let limit = Duration::from_secs(30);
    /// set.for_each_in_flight(|t| if t.age() > limit { t.mark_timed_out(); });
    /// let tag = set.redeem_timed_out(token)?;
    /// let late = set.redeem(token).unwrap_err(); // the completion
    /// assert_eq!(late, RedeemError::TimedOut { token: token.into() });
    /// # drop(tag);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_each_in_flight(&self, f: impl FnMut(&InFlight<'_>)) {
        self.shared.for_each_in_flight(f);
    }

    /// Returns the number of tags that are held or in flight. Exact only while there are no
    /// allocations and frees. Reads all slots, because a counter would slow down each allocation.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.in_use()
    }

    /// Returns the number of tags in flight, those marked as timed out included. Exact only while
    /// there are no submissions and completions. Reads all slots;
    /// [`any_in_flight`](TagSet::any_in_flight) stops at the first.
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
        self.slots_in_flight().count()
    }

    /// Returns whether a tag is in flight, marked ones included. Stops at the first.
    ///
    /// The idea is the in-flight test of blk-mq.
    #[must_use]
    pub fn any_in_flight(&self) -> bool {
        self.slots_in_flight().next().is_some()
    }

    fn slots_in_flight(&self) -> impl Iterator<Item = &Slot<T>> {
        let slots = self.shared.slots();
        slots.filter(|slot| slot.record.observe().phase.is_in_flight())
    }

    /// Returns the number of tags that are held: in use, but not in flight. Exact only while there
    /// are no allocations, submissions and frees. Reads all slots.
    #[must_use]
    pub fn held(&self) -> usize {
        let is_in_flight = |slot: &Slot<T>| slot.record.observe().phase.is_in_flight();
        let tags = self.shared.slots().filter(|slot| slot.record.is_tag());
        tags.filter(|slot| !is_in_flight(slot)).count()
    }

    /// Returns the counters. Reads all slots; for tools, not for the fast path.
    #[must_use]
    pub fn stats(&self) -> SetStats {
        let (allocs, frees) = self.shared.allocs_and_frees();
        let (mut waits, mut wakeups) = (0, 0);
        for tag_map in self.shared.bitmaps.layout.tag_map_ids() {
            let stats = self.shared.bitmaps.bitmap(tag_map).stats();
            waits += stats.waits;
            wakeups += stats.wakeups;
        }
        SetStats {
            allocs,
            frees,
            in_use: (allocs - frees) as usize,
            in_flight: self.in_flight(),
            waits,
            wakeups,
            redeem_errors: self.shared.redeem_errors.load(Ordering::Relaxed),
            late_completions: self.shared.late_completions.load(Ordering::Relaxed),
        }
    }

    /// Returns the clock of ages, timeouts and waits: the builder's, or the system's.
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
        &self.shared.bitmaps.clock
    }

    /// Returns the number of tags of each hardware queue, reserved ones included; of all hardware
    /// queues together, if they [share](crate::HwQueueOptions::shared_tags) them.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.shared.bitmaps.size.depth()
    }

    /// Returns the number of reserved tags of each hardware queue.
    #[must_use]
    pub fn reserved(&self) -> usize {
        self.shared.bitmaps.layout.reserved
    }

    /// Returns the number of tags of all hardware queues.
    #[must_use]
    pub fn capacity(&self) -> usize {
        let (layout, size) = (self.shared.bitmaps.layout, &self.shared.bitmaps.size);
        layout.tables_of(size.hw_queues()) * (size.depth() + layout.extra)
    }
}

impl<T: Send + 'static> Tenant<T> {
    /// Returns the set of this tenant.
    #[must_use]
    pub fn set(&self) -> TagSet<T> {
        let shared = self.shared.clone();
        TagSet { shared }
    }
}

impl<T> Clone for TagSet<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

inflight_sync::debug_fields!([T] TagSet<T>: |this|
    hw_queues = this.shared.bitmaps.size.hw_queues(), depth = this.shared.bitmaps.size.depth(),
    limits = this.shared.bitmaps.layout, in_use = this.shared.in_use(),
    gate = this.shared.bitmaps.gate.state());
