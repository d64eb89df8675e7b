//! The rules of a crate above in use: whether its [`NewcomerPolicy`] admits newcomers now, and what
//! a wake is worth. By default every newcomer is admitted, and a wake is worth one bit.

use crate::newcomer_policy::{Force, NewcomerPolicy};
use crate::request::Request;
use crate::share_limiter::{ShareLimiter, TenantIndex};
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicBool, Ordering};

/// The rules, and whether bits are plentiful at the moment.
#[derive(Debug)]
pub(super) struct NewcomerGate {
    newcomers: Option<NewcomerPolicy>,
    pub(super) shares: Option<Arc<dyn ShareLimiter>>,
    /// Whether bits were plentiful at the last batch.
    plenty: AtomicBool,
}

impl NewcomerGate {
    pub(super) fn new(
        newcomers: Option<NewcomerPolicy>,
        shares: Option<Arc<dyn ShareLimiter>>,
    ) -> Self {
        Self {
            newcomers,
            shares,
            // At first all bits are free.
            plenty: AtomicBool::new(newcomers.is_some_and(|n| n.force != Force::Never)),
        }
    }

    /// E1: returns whether a newcomer that sees this many waiters may try.
    #[inline]
    pub(super) fn admits(&self, waiters: impl FnOnce() -> usize) -> bool {
        let policy = self.newcomers.as_ref();
        policy.is_none_or(|policy| self.is_plenty() || waiters() <= policy.threshold)
    }

    /// E2: the same for a newcomer that is in a list already. Only sleeping waiters count. If fewer
    /// bits are in use than make a batch, the newcomer is admitted, because no put might wake it.
    pub(super) fn admits_waiter(
        &self,
        sleepers: impl FnOnce() -> usize,
        in_use: impl FnOnce() -> usize,
        batch: u32,
    ) -> bool {
        self.admits(|| sleepers().saturating_sub(1)) || in_use() < batch as usize
    }

    #[inline]
    fn is_plenty(&self) -> bool {
        // Relaxed: a hint; a newcomer that is refused checks again when it is in a list.
        self.plenty.load(Ordering::Relaxed)
    }

    /// Whether a woken waiter that found nothing waits again in the same queue. Kernels send it to
    /// the next queue; keeping the queue is part of the rules about newcomers.
    pub(super) const fn loser_keeps_queue(&self) -> bool {
        self.newcomers.is_some()
    }

    /// E3: a batch of `batch` wakes is due while `free()` bits are free.
    pub(super) fn batch_is_due(&self, batch: u32, free: impl FnOnce() -> usize) {
        let Some(newcomers) = &self.newcomers else {
            return;
        };
        let (was, batch) = (self.is_plenty(), batch as usize);
        let is = match newcomers.force {
            Force::Never => false,
            // Waiters are woken one by one.
            _ if batch == 1 => false,
            Force::AsPosted => free() >= 2 * batch,
            Force::Hysteresis => {
                let free = free();
                free > 2 * batch || (was && free > batch)
            }
        };
        if is != was {
            // Relaxed: if batches race, the last store wins; it was true a moment ago.
            self.plenty.store(is, Ordering::Relaxed);
        }
    }

    /// The data stored beside a waiter in its list.
    pub(super) fn wake_info(&self, request: Request, depth: usize) -> u64 {
        let most = u32::try_from(depth).unwrap_or(u32::MAX).max(1);
        u64::from(request.tenant) << 32 | u64::from(request.weight.clamp(1, most))
    }

    /// Whether a waiter with this data can use a wake.
    pub(super) fn may_wake(&self, wake_info: u64) -> bool {
        self.shares.may_take((wake_info >> 32) as TenantIndex)
    }

    /// Whether a wake may be worth more than one bit.
    pub(super) fn is_per_tag(&self) -> bool {
        self.newcomers
            .as_ref()
            .is_some_and(|newcomers| newcomers.per_tag)
    }

    /// How many of a batch's bits the wake of a waiter with this data is worth.
    pub(super) fn worth(&self, wake_info: u64) -> usize {
        match &self.newcomers {
            Some(newcomers) if newcomers.per_tag => wake_info as u32 as usize,
            _ => 1,
        }
    }
}
