//! Which tenants are active at a hardware queue: its tags are divided among them.

use super::{ShareAccounts, SharePolicy, account_of};
use crate::tag_layout::{TagMap, TagMapId};
use crate::tag_maps::TagMaps;
use inflight_sbitmap::tenancy::{Tenancy as _, TenantIndex};
use inflight_steering::TenantId;
use inflight_sync::atomic::Ordering;
use inflight_sync::panics::call_for_each;

impl ShareAccounts {
    /// M1: whether the tenant is active already, or there are no shares. If not, the caller sets it
    /// active.
    #[inline]
    pub(crate) fn is_active(&self, tenant: TenantIndex) -> bool {
        // Relaxed: a thread that reads it late takes the lock.
        self.policy == SharePolicy::None || self.account(tenant).active.load(Ordering::Relaxed)
    }

    /// Whether two or more tenants are active, so that tags are counted and limits hold.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        // Ordering: Acquire pairs with the Release in `set_active_locked`: a thread that counts a
        // tag comes after a check that found several tenants in the set, and so do later owners of
        // the tag. A thread that reads it late takes an uncounted tag, as before the change.
        self.active_tenants.load(Ordering::Acquire) > 1
    }

    /// M2. Returns whether this changed the tenant's state.
    pub(crate) fn set_active(&self, tenant: TenantIndex, on: bool) -> bool {
        let _lock = self.active_lock.lock();
        self.set_active_locked(tenant, on)
    }

    pub(super) fn set_active_locked(&self, tenant: TenantIndex, on: bool) -> bool {
        let account = self.account(tenant);
        if self.policy == SharePolicy::None || account.active.load(Ordering::Relaxed) == on {
            return false;
        }
        account.active.store(on, Ordering::Relaxed);
        let weight = account.weight.load(Ordering::Relaxed) as usize;
        // Relaxed: changed under the lock; the bitmap's fence orders what follows from it.
        if on {
            // Ordering: Release pairs with the Acquire in `is_shared`.
            self.active_tenants.fetch_add(1, Ordering::Release);
            self.weights.fetch_add(weight, Ordering::Relaxed);
            account.used.store(true, Ordering::Relaxed);
        } else {
            self.active_tenants.fetch_sub(1, Ordering::Relaxed);
            self.weights.fetch_sub(weight, Ordering::Relaxed);
        }
        true
    }

    pub(crate) fn set_weight(&self, tenant: TenantIndex, weight: u32) {
        let _lock = self.active_lock.lock();
        let account = self.account(tenant);
        let old = account.weight.swap(weight, Ordering::Relaxed) as usize;
        if account.active.load(Ordering::Relaxed) {
            self.weights.fetch_add(weight as usize, Ordering::Relaxed);
            self.weights.fetch_sub(old, Ordering::Relaxed);
        }
    }
}

impl TagMaps {
    /// The accounts, if tenants share the bits of the map at present. M1 comes before any try, so
    /// that others give way although this one may fail.
    #[inline]
    pub(crate) fn accounts_if_shared(
        &self,
        tag_map: TagMapId,
        tenant: TenantIndex,
    ) -> Option<&ShareAccounts> {
        if !self.gate.has_several_tenants() || tag_map.kind != TagMap::Normal {
            return None;
        }
        let accounts = self.accounts(tag_map.hw_queue);
        if !accounts.is_active(tenant) {
            self.set_active(tag_map.hw_queue, tenant);
        }
        accounts.is_shared().then_some(accounts)
    }

    #[cold]
    fn set_active(&self, hw_queue: usize, tenant: TenantIndex) {
        if self.accounts(hw_queue).set_active(tenant, true) {
            self.shares_changed(hw_queue);
        }
    }

    /// There is a second tenant. Nothing was counted before, so the first one becomes active in the
    /// hardware queues where it has something in use now.
    pub(crate) fn activate_first_tenant(&self) {
        call_for_each(0..self.layout.hw_queues, |hw_queue| {
            if self.bitmap(TagMapId::normal(hw_queue)).is_any_set() {
                self.set_active(hw_queue, account_of(TenantId::FIRST));
            }
        });
    }

    /// The tenant's last handle is gone. Returns the hardware queues whose shares have changed.
    pub(crate) fn set_inactive(&self, tenant: TenantIndex) -> Vec<usize> {
        let hw_queues = 0..self.layout.hw_queues;
        hw_queues
            .filter(|&n| self.accounts(n).set_active(tenant, false))
            .collect()
    }

    /// Clears the account of a number whose tenant is gone, so that no tenant inherits its weight.
    /// Returns whether the account has no tag any more.
    pub(crate) fn clear_account(&self, id: TenantId) -> bool {
        let accounts = || (0..self.layout.tables()).map(|n| self.accounts(n));
        if accounts().any(|accounts| accounts.nr_active(account_of(id)) > 0) {
            return false;
        }
        accounts().for_each(|accounts| accounts.set_weight(account_of(id), 1));
        true
    }

    /// In all hardware queues. Shares may grow.
    pub(crate) fn set_weight(&self, tenant: TenantIndex, weight: u32) {
        call_for_each(0..self.layout.hw_queues, |hw_queue| {
            self.accounts(hw_queue).set_weight(tenant, weight);
            self.shares_changed(hw_queue);
        });
    }

    /// M2, after the change, and M3: the shares or the depth have changed. Wakes waiters that may
    /// have a tag now.
    pub(crate) fn shares_changed(&self, hw_queue: usize) {
        let _freezers = self.gate.wake_at_end();
        self.bitmap(TagMapId::normal(hw_queue)).shares_changed();
    }
}
