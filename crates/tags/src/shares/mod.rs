//! Shares of tenants: how many tags each has, and how many it may have. The names of events are
//! those of PROTOCOL-shares.md.

mod accounts;
mod active_tenants;
mod policy;
mod reclaim_idle_shares;

pub(crate) use accounts::ShareAccounts;
pub use policy::SharePolicy;

use inflight_sbitmap::tenancy::TenantIndex;
use inflight_steering::TenantId;
use std::time::Duration;

/// How long a tenant must use no tag to be idle, as others see it; detected within twice the time.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// How many tenants have their own share account; if there are more, some share one.
const ACCOUNTS: u32 = if cfg!(loom) { 3 } else { 1024 };

/// The share account of a tenant.
pub(crate) const fn account_of(id: TenantId) -> TenantIndex {
    id.get() % ACCOUNTS
}
