//! When a tenant is idle, so that its share comes back to the others.

use super::ShareAccounts;
use super::accounts::Account;
use inflight_sync::atomic::Ordering;
use inflight_sync::time::Instant;
use std::time::Duration;

/// A tenant that has used no tag for this long, as others look, is idle; found out within twice
/// the time.
pub(super) const IDLE_AFTER: Duration = Duration::from_secs(1);

impl ShareAccounts {
    /// Whether somebody should look for idle tenants.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    /// I1 to I3: tenants that have used no tag since the last look, and wait for none, are not
    /// active any more. Whether there were any.
    pub(crate) fn find_idle(&self, now: Instant) -> bool {
        let Some(mut last) = self.active_lock.try_lock() else {
            return false;
        };
        if now < *last + IDLE_AFTER {
            return false;
        }
        *last = now;
        self.limited.store(false, Ordering::Relaxed);
        self.set_inactive_if(|account| {
            let used = account.used.swap(false, Ordering::Relaxed);
            !used && account.has_no_use()
        })
    }

    /// Tenants that have no tag and wait for none are not active any more, whatever they used
    /// lately. Whether there were any.
    pub(super) fn forget_idle(&self) -> bool {
        let _lock = self.active_lock.lock();
        self.set_inactive_if(Account::has_no_use)
    }

    /// Under the lock. Whether there were any.
    fn set_inactive_if(&self, is_idle: impl Fn(&Account) -> bool) -> bool {
        let idle = self.accounts.iter().zip(0..);
        let idle = idle.filter(|(account, _)| is_idle(account));
        idle.fold(false, |found, (_, tenant)| {
            self.set_active_locked(tenant, false) || found
        })
    }
}
