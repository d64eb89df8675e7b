//! The rules of a crate above for its tenants' shares.

use inflight_sync::Arc;
use inflight_sync::time::Instant;
use std::fmt::Debug;
use std::time::Duration;

/// The number of a tenant of a queue, whose waiters have lists of their own.
pub type TenantIndex = u32;

/// Decides which tenants may be served. Called with the queue's lock held, so it must not call the
/// queue.
pub trait ShareLimiter: Debug + Send + Sync {
    /// Returns whether the tenant may take one more bit now.
    ///
    /// The queue skips a tenant that may not. A caller that makes this true for a waiting tenant
    /// calls `shares_changed` afterwards; a put need not, because the queue asks again before it.
    /// With `Batched` a caller that begins a limit calls `shares_changed` too: waiters that sleep
    /// do not notice the limit otherwise.
    fn may_take(&self, tenant: TenantIndex) -> bool;

    /// Returns how many more bits the tenant may take now. A request whose bits come together
    /// begins if that is enough, or if as many bits are free. Then it gets all of them, although
    /// the tenant [may not](ShareLimiter::may_take) take some.
    fn room(&self, tenant: TenantIndex) -> usize {
        let _ = tenant;
        usize::MAX
    }

    /// Records that the tenant has taken this bit, which is not kept for another waiter.
    fn took(&self, tenant: TenantIndex, bit: usize);

    /// Records that the bit is about to be put without having been handed out.
    fn gives(&self, bit: usize);

    /// Returns the smallest share of any active tenant, from which `Batched` computes its wake
    /// batch. `None` if there are no limits.
    fn least_share(&self) -> Option<usize> {
        None
    }

    /// Returns how often a sleeping thread of this tenant calls
    /// [`look_for_idle`](ShareLimiter::look_for_idle) if it may not take a bit at that time. `None`
    /// if it just waits for a put, which wakes it.
    fn look_every(&self, tenant: TenantIndex) -> Option<Duration> {
        let _ = tenant;
        None
    }

    /// Finds tenants that have not used their share for a while. Returns whether there were any:
    /// then the others may take more, and the caller serves them.
    fn look_for_idle(&self, now: Instant) -> bool {
        let _ = now;
        false
    }
}

/// `None` means that no tenant is limited to a share.
impl ShareLimiter for Option<Arc<dyn ShareLimiter>> {
    fn may_take(&self, tenant: TenantIndex) -> bool {
        self.as_ref().is_none_or(|shares| shares.may_take(tenant))
    }

    fn room(&self, tenant: TenantIndex) -> usize {
        self.as_ref()
            .map_or(usize::MAX, |shares| shares.room(tenant))
    }

    fn took(&self, tenant: TenantIndex, bit: usize) {
        if let Some(shares) = self {
            shares.took(tenant, bit);
        }
    }

    fn gives(&self, bit: usize) {
        if let Some(shares) = self {
            shares.gives(bit);
        }
    }

    fn least_share(&self) -> Option<usize> {
        self.as_ref()?.least_share()
    }

    fn look_every(&self, tenant: TenantIndex) -> Option<Duration> {
        self.as_ref()?.look_every(tenant)
    }

    fn look_for_idle(&self, now: Instant) -> bool {
        self.as_ref()
            .is_some_and(|shares| shares.look_for_idle(now))
    }
}
