//! Counters that do not make the fast path write shared data.
//!
//! The slot, which its owner writes anyway, counts its allocations. A tenant counts its tags in a
//! [`PerCpuCounter`], by a plain addition if the system allows that. Rarer events are counted in
//! one padded line per CPU. Everything is Relaxed: a reader gets numbers that were true at some
//! moment of its reading, not all at the same one.

use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::percpu::{Backend, PerCpuCounter};
use inflight_sync::{CachePadded, cpu};
use std::time::Duration;

/// The counters of a set since it was built. See [`TagSet::stats`](crate::TagSet::stats).
///
/// ```
/// use inflight_tags::{AllocOptions, TagSet};
/// let set = TagSet::builder().depth(2).build(|_, _| ())?;
/// let dev = set.add_tenant("nvme0n1")?;
/// drop(dev.try_alloc()?);
/// let _held = dev.try_alloc()?;
/// let stats = set.stats();
/// assert_eq!((stats.allocs, stats.frees, stats.in_use), (2, 1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetStats {
    /// Tags given out, also those that a failed [join](crate::Split::join) took and gave back.
    pub allocs: u64,
    /// Tags freed.
    pub frees: u64,
    /// Tags held or in flight now: `allocs - frees`.
    pub in_use: usize,
    /// Tags in flight, read after `in_use`: while others allocate and free it may be the larger
    /// one.
    pub in_flight: usize,
    /// Waits for a free bit, over all bitmaps. Not the sum of [`TenantStats::waits`]: a
    /// [split](crate::Tenant::split) may wait once for several pieces, and a wait for a thaw is not
    /// among them.
    pub waits: u64,
    /// Waiters woken for a free bit, over all bitmaps; a split for each of its pieces. So this may
    /// be more than `waits`.
    pub wakeups: u64,
    /// Tokens that were refused.
    pub redeem_errors: u64,
    /// Of these, the completions that came after their request had timed out: the timeout is too
    /// short, or the device too slow.
    pub late_completions: u64,
}

/// The counters of a tenant since it was added. See [`Tenant::stats`](crate::Tenant::stats).
///
/// ```
/// use inflight_tags::{AllocOptions, TagSet};
/// let set = TagSet::builder().depth(1).build(|_, _| ())?;
/// let dev = set.add_tenant("nvme0n1")?;
/// let _held = dev.try_alloc()?;
/// let _refused = dev.try_alloc();
/// assert_eq!((dev.stats().allocs, dev.stats().exhausted), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantStats {
    /// Tags this tenant got, also those that a failed [join](crate::Split::join) took and gave
    /// back. For the set's first tenant it may be too low while others allocate; it never goes
    /// back.
    pub allocs: u64,
    /// Tries refused because all tags were in use, the share was used up, or others waited.
    pub exhausted: u64,
    /// Tries refused because the set was frozen or quiesced.
    pub frozen: u64,
    /// Allocations that had to wait for a tag or for the thaw. Each piece of a
    /// [split](crate::Tenant::split) is one.
    pub waits: u64,
    /// Waits that timed out.
    pub timeouts: u64,
    /// The longest wait for a tag or for the thaw that has ended, by the system's tick (1 to
    /// 10 ms): it may be too short by a tick, and is never too long while ticks come in time.
    pub longest_wait: Duration,
}

/// One CPU's share of a tenant's rarer counters.
#[derive(Debug, Default)]
pub(crate) struct Stripe {
    /// Tags whose addition to the counter was refused.
    allocs: AtomicU64,
    pub(crate) exhausted: AtomicU64,
    pub(crate) frozen: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) timeouts: AtomicU64,
}

/// A tenant's counters.
#[derive(Debug)]
pub(crate) struct Striped {
    allocs: PerCpuCounter,
    stripes: Box<[CachePadded<Stripe>]>,
}

/// More than this many CPUs share stripes: 32 KiB per tenant are enough.
const MAX_STRIPES: usize = 256;

impl Striped {
    pub(crate) fn new(cpus: usize) -> Self {
        let stripes = cpus.next_power_of_two().min(MAX_STRIPES);
        Self {
            allocs: PerCpuCounter::new(Backend::best(), cpus),
            stripes: (0..stripes).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Counts tags.
    #[inline]
    pub(crate) fn add_allocs(&self, n: u64) {
        if !self.allocs.add(n) {
            self.add(|stripe| &stripe.allocs, n);
        }
    }

    /// Adds `n` to one counter in the calling CPU's stripe.
    #[inline]
    pub(crate) fn add(&self, counter: impl FnOnce(&Stripe) -> &AtomicU64, n: u64) {
        // A power of two, so that the mask is a remainder.
        let stripe = &self.stripes[cpu::current() & (self.stripes.len() - 1)];
        counter(stripe).fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn sum(&self) -> TenantStats {
        let sum = |counter: fn(&Stripe) -> &AtomicU64| {
            self.stripes
                .iter()
                .map(|stripe| counter(stripe).load(Ordering::Relaxed))
                .sum::<u64>()
        };
        TenantStats {
            allocs: self.allocs.sum() + sum(|s| &s.allocs),
            exhausted: sum(|s| &s.exhausted),
            frozen: sum(|s| &s.frozen),
            waits: sum(|s| &s.waits),
            timeouts: sum(|s| &s.timeouts),
            longest_wait: Duration::ZERO,
        }
    }
}
