//! Detecting idle tenants, and giving their shares to the others.

use super::accounts::Account;
use super::{IDLE_AFTER, ShareAccounts};
use crate::set::TagSet;
use crate::tag_layout::TagMapId;
use crate::tag_maps::TagMaps;
use inflight_sync::atomic::Ordering;
use inflight_sync::panics::call_for_each;
use inflight_sync::time::Instant;

impl ShareAccounts {
    /// Whether it is useful to look for idle tenants.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    /// I1 to I3: tenants that have used no tag since the last look, and wait for none, become
    /// inactive. Returns whether there were any.
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

    /// Tenants that have no tag and wait for none become inactive, whatever they used recently.
    /// Returns whether there were any. The tags of a tenant that is active alone are not counted:
    /// `any_in_use` says whether there are any.
    pub(super) fn forget_idle(&self, any_in_use: impl FnOnce() -> bool) -> bool {
        let _lock = self.active_lock.lock();
        (self.is_shared() || !any_in_use()) && self.set_inactive_if(Account::has_no_use)
    }

    /// Under the lock. Returns whether there were any.
    fn set_inactive_if(&self, is_idle: impl Fn(&Account) -> bool) -> bool {
        let idle = self.active_accounts();
        let idle: Vec<_> = idle.filter(|(_, account)| is_idle(account)).collect();
        for (tenant, _) in &idle {
            self.set_active_locked(*tenant, false);
        }
        !idle.is_empty()
    }
}

impl TagMaps {
    /// A tenant is at its limit: another one may have become idle.
    pub(crate) fn look_for_idle(&self, hw_queue: usize) {
        if self.accounts(hw_queue).find_idle(self.clock.now()) {
            self.shares_changed(hw_queue);
        }
    }
}

impl<T: Send + 'static> TagSet<T> {
    /// Gives the shares of idle tenants to the others at once. A tenant is idle in a hardware queue
    /// if it is active there, has no tag and waits for none. Tags that it took while no other
    /// tenant was active do not count. Returns in how many hardware queues there was one. Such a
    /// tenant becomes active again with its next allocation.
    ///
    /// Without this call, other tenants that are at their limit detect an idle one: their waiting
    /// threads look every second, and each call that allocates, begins to wait or frees looks too.
    /// Tasks have no timer. If only tasks wait, and nothing completes, they wait until one of these
    /// calls happens. An engine that uses only tasks calls this from its own timer.
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
    // A caller may ignore the number.
    #[allow(clippy::must_use_candidate)]
    pub fn reclaim_idle_shares(&self) -> usize {
        let bitmaps = &self.shared.bitmaps;
        let tables = 0..bitmaps.layout.tables();
        let idle = tables.filter(|&n| {
            let any_in_use = || bitmaps.bitmap(TagMapId::normal(n)).is_any_set();
            bitmaps.accounts(n).forget_idle(any_in_use)
        });
        let idle: Vec<usize> = idle.collect();
        let n = idle.len();
        call_for_each(idle, |hw_queue| bitmaps.shares_changed(hw_queue));
        n
    }
}
