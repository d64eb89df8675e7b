//! Which tenants may be served: what a crate above says.

use inflight_sync::time::Instant;
use std::fmt::Debug;
use std::time::Duration;

/// Which tenant of a queue: its waiters have lists of their own.
pub type TenantIndex = u32;

/// Which tenants may be served. Asked with the queue's lock held, so it must not call the queue.
pub trait ShareLimiter: Debug + Send + Sync {
    /// Whether the tenant may take one more bit now.
    ///
    /// A tenant that may not is passed over. Whoever makes this true for a tenant that waits (other
    /// than by a put, before which it is looked at anew) calls
    /// `shares_changed` afterwards.
    fn may_take(&self, tenant: TenantIndex) -> bool;

    /// The tenant has taken this bit, which waits for nobody else.
    fn took(&self, tenant: TenantIndex, bit: usize);

    /// The bit is about to be put without having been handed out.
    fn gives(&self, bit: usize);

    /// The smallest share of any tenant that counts: what `Batched` makes its wake batch from.
    /// `None`: there are no limits.
    fn least_share(&self) -> Option<usize> {
        None
    }

    /// How often a thread of this tenant that sleeps now is to [look](ShareLimiter::look_for_idle).
    /// `None`: it waits for a put, which wakes it.
    fn look_every(&self, tenant: TenantIndex) -> Option<Duration> {
        let _ = tenant;
        None
    }

    /// Finds tenants that have not used their share for a while. Whether there were any: then the
    /// others may take more, and the caller sees to it that they are served.
    fn look_for_idle(&self, now: Instant) -> bool {
        let _ = now;
        false
    }
}

/// `None`: nobody is kept to a share.
impl ShareLimiter for Option<Box<dyn ShareLimiter>> {
    fn may_take(&self, tenant: TenantIndex) -> bool {
        self.as_ref().is_none_or(|shares| shares.may_take(tenant))
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
