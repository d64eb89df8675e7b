//! Shares of tenants: who has how many tags, and how many of them each may have. The names of
//! events are those of PROTOCOL-shares.md.

mod accounts;
mod active_tenants;
mod policy;
mod reclaim_idle_shares;

pub(crate) use accounts::{ShareAccounts, Shares};
pub use policy::SharePolicy;

use inflight_sbitmap::tenancy::TenantIndex;
use inflight_steering::TenantId;
use std::time::Duration;

/// A tenant that has used no tag for this long, as others look, is idle; found out within twice
/// the time.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// So many tenants have a share account of their own; of more, some have one together.
const ACCOUNTS: u32 = if cfg!(loom) { 3 } else { 1024 };

/// The share account of a tenant.
pub(crate) const fn account_of(id: TenantId) -> TenantIndex {
    id.get() % ACCOUNTS
}
