//! One hardware queue's accounts. Event names as in PROTOCOL-shares.md.

use super::IDLE_AFTER;
use super::SharePolicy;
use inflight_sbitmap::tenancy::{ShareLimiter, TenantIndex};
use inflight_sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use inflight_sync::time::Instant;
use inflight_sync::{CachePadded, Grown, Mutex};
use std::time::Duration;

/// The account of one tenant.
#[derive(Debug)]
pub(super) struct Account {
    /// The tags it has, of those that were taken while the hardware queue was shared.
    pub(super) nr_active: AtomicU32,
    /// Whether it counts when the tags are divided.
    pub(super) active: AtomicBool,
    /// Whether it has taken a tag since the last look for idle tenants.
    pub(super) used: AtomicBool,
    /// How many of its requests wait.
    pub(super) waits: AtomicU32,
    /// Its part under `SharePolicy::Weighted`. Written under the lock.
    pub(super) weight: AtomicU32,
}

impl Account {
    fn new() -> Self {
        Self {
            nr_active: AtomicU32::new(0),
            active: AtomicBool::new(false),
            used: AtomicBool::new(false),
            waits: AtomicU32::new(0),
            weight: AtomicU32::new(1),
        }
    }

    /// Whether it has no counted tag, and waits for none.
    pub(super) fn has_no_use(&self) -> bool {
        self.nr_active.load(Ordering::Relaxed) == 0 && self.waits.load(Ordering::Relaxed) == 0
    }
}

/// How many of a hardware queue's normal tags each tenant has, and how many it may have.
///
/// Accesses without a comment are Relaxed because the bitmap orders what follows from them: by its
/// fence between a change and the check for waiters (PROTOCOL-shares.md).
#[derive(Debug)]
pub(crate) struct ShareAccounts {
    pub(crate) policy: SharePolicy,
    /// How many tenants are active. Every allocation reads it; it is seldom written.
    pub(super) active_tenants: CachePadded<AtomicUsize>,
    /// The sum of their weights.
    pub(super) weights: AtomicUsize,
    /// How many tags are shared.
    depth: AtomicUsize,
    /// Whether a tenant was at its limit since the last look for idle ones.
    pub(super) limited: AtomicBool,
    pub(super) accounts: Grown<Account>,
    /// The account that counts a bit: the tenant index + 1, or 0. Written by the bit's owner.
    owners: Box<[AtomicU32]>,
    /// The lock for changes of which tenants are active; with the time of the last look for idle
    /// ones.
    pub(super) active_lock: Mutex<Instant>,
}

impl ShareAccounts {
    /// For bits below `max_depth`, of which `depth` are shared.
    pub(crate) fn new(policy: SharePolicy, depth: usize, max_depth: usize) -> Self {
        let owners = match policy {
            SharePolicy::None => 0,
            _ => max_depth,
        };
        Self {
            policy,
            active_tenants: CachePadded::new(AtomicUsize::new(0)),
            weights: AtomicUsize::new(0),
            depth: AtomicUsize::new(depth),
            limited: AtomicBool::new(false),
            accounts: Grown::new(),
            owners: (0..owners).map(|_| AtomicU32::new(0)).collect(),
            active_lock: Mutex::new(Instant::from_nanos(0)),
        }
    }

    /// The depth has changed.
    pub(crate) fn set_depth(&self, depth: usize) {
        // Relaxed: a concurrent reader may use the old value.
        self.depth.store(depth, Ordering::Relaxed);
    }

    pub(super) fn account(&self, tenant: TenantIndex) -> &Account {
        self.accounts.get_or_make(tenant as usize, Account::new)
    }

    /// How many tags the tenant may have. `None` if there is no limit.
    pub(crate) fn share(&self, tenant: TenantIndex) -> Option<usize> {
        let tenants = self.active_tenants.load(Ordering::Relaxed);
        // Relaxed: for a moment the share may be that of the old depth.
        let depth = self.depth.load(Ordering::Relaxed);
        if tenants < 2 || depth <= 1 || !self.is_active(tenant) {
            return None;
        }
        let weights = || {
            let own = self.account(tenant).weight.load(Ordering::Relaxed) as usize;
            (own, self.weights.load(Ordering::Relaxed))
        };
        self.policy.share(depth, tenants, weights)
    }

    /// The accounts of active tenants.
    pub(super) fn active_accounts(&self) -> impl Iterator<Item = (TenantIndex, &Account)> {
        let accounts = self.accounts.iter();
        let active = accounts.filter(|(_, account)| account.active.load(Ordering::Relaxed));
        active.map(|(tenant, account)| (tenant as TenantIndex, account))
    }

    pub(crate) fn nr_active(&self, tenant: TenantIndex) -> usize {
        self.account(tenant).nr_active.load(Ordering::Relaxed) as usize
    }

    /// C3 for several bits: one subtraction for each run of bits of one tenant.
    pub(crate) fn gives_all(&self, bits: &[usize]) {
        let (mut tenant, mut n) = (0, 0);
        let subtract = |tenant: TenantIndex, n| {
            if tenant != 0 {
                // Relaxed: as in `gives`.
                self.account(tenant - 1)
                    .nr_active
                    .fetch_sub(n, Ordering::Relaxed);
            }
        };
        for owner in bits.iter().filter_map(|&bit| self.owners.get(bit)) {
            let next = owner.load(Ordering::Relaxed);
            if next != tenant {
                subtract(tenant, n);
                (tenant, n) = (next, 0);
            }
            owner.store(0, Ordering::Relaxed);
            n += 1;
        }
        subtract(tenant, n);
    }

    /// A request of the tenant begins to wait, or ends its wait.
    pub(crate) fn waits(&self, tenant: TenantIndex, on: bool) {
        let waits = &self.account(tenant).waits;
        // Relaxed: a concurrent look for idle tenants finds out one look later.
        if on {
            waits.fetch_add(1, Ordering::Relaxed);
        } else {
            waits.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The bitmap's view of the accounts.
impl ShareLimiter for ShareAccounts {
    /// C1.
    fn may_take(&self, tenant: TenantIndex) -> bool {
        let may = self
            .share(tenant)
            .is_none_or(|share| self.nr_active(tenant) < share);
        if !may && !self.limited.load(Ordering::Relaxed) {
            self.limited.store(true, Ordering::Relaxed);
        }
        may
    }

    fn room(&self, tenant: TenantIndex) -> usize {
        let share = self.share(tenant);
        share.map_or(usize::MAX, |share| {
            share.saturating_sub(self.nr_active(tenant))
        })
    }

    /// C2: after the bit was taken.
    fn took(&self, tenant: TenantIndex, bit: usize) {
        let account = self.account(tenant);
        if !account.used.load(Ordering::Relaxed) {
            account.used.store(true, Ordering::Relaxed);
        }
        if !self.is_shared() {
            return;
        }
        account.nr_active.fetch_add(1, Ordering::Relaxed);
        // Relaxed: the bit's owners follow one another, by its put and its next get.
        self.owners[bit].store(tenant + 1, Ordering::Relaxed);
    }

    /// C3: before the bit is put, so that a waiter woken by it finds the account without it.
    fn gives(&self, bit: usize) {
        let Some(owner) = self.owners.get(bit) else {
            return; // there are no shares
        };
        let tenant = owner.load(Ordering::Relaxed);
        if tenant != 0 {
            owner.store(0, Ordering::Relaxed);
            let account = self.account(tenant - 1);
            // Relaxed: P2 of the put orders it before the look for waiters.
            account.nr_active.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The smallest share of any active tenant. `None` if there are no limits.
    fn least_share(&self) -> Option<usize> {
        // A change in progress calls this again when it is made.
        let _lock = self.active_lock.lock();
        let active = self.active_accounts();
        active.filter_map(|(tenant, _)| self.share(tenant)).min()
    }

    fn look_every(&self, tenant: TenantIndex) -> Option<Duration> {
        // Not only at its limit: others of the tenant may bring it there while this one sleeps.
        self.share(tenant).map(|_| IDLE_AFTER)
    }

    fn look_for_idle(&self, now: Instant) -> bool {
        self.find_idle(now)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn shared_by(policy: SharePolicy, depth: usize, users: u32) -> ShareAccounts {
        let accounts = ShareAccounts::new(policy, depth, depth);
        for tenant in 0..users {
            assert!(accounts.set_active(tenant, true));
            assert!(!accounts.set_active(tenant, true), "once");
        }
        accounts
    }

    /// The first tenants have never been here.
    #[test]
    fn the_least_share_of_some_tenants() {
        let accounts = ShareAccounts::new(SharePolicy::Weighted { min: 1 }, 64, 64);
        for (tenant, weight) in [(1, 63), (9, 1)] {
            accounts.set_weight(tenant, weight);
            assert!(accounts.set_active(tenant, true));
        }
        assert_eq!(
            [1, 9].map(|tenant| accounts.share(tenant)),
            [Some(63), Some(1)]
        );
        assert_eq!(accounts.least_share(), Some(1));
    }

    #[test]
    fn c29_the_table_of_shares() {
        let fair = SharePolicy::Fair { min: 4 };
        for (depth, users, share) in [
            (32, 10, Some(4)),
            (32, 8, Some(4)),
            (32, 2, Some(16)),
            (127, 40, Some(4)),
            (64, 3, Some(22)),
            (32, 1, None),
            (32, 0, None),
            (1, 5, None),
        ] {
            let accounts = shared_by(fair, depth, users);
            assert_eq!(accounts.share(0), share, "{depth} by {users}");
        }
        let idle = shared_by(fair, 32, 4);
        assert_eq!(idle.share(9), None, "no user, no limit");
    }

    #[test]
    fn g16_own_active_4_of_32_by_10_may_not() {
        let accounts = shared_by(SharePolicy::Fair { min: 4 }, 32, 10);
        for bit in 0..4 {
            assert!(accounts.may_take(3));
            accounts.took(3, bit);
        }
        assert!(!accounts.may_take(3) && accounts.may_take(2));
        accounts.gives(2);
        assert!(accounts.may_take(3));
        assert_eq!((accounts.nr_active(3), accounts.room(3)), (3, 1));
        accounts.gives(2);
        assert_eq!(accounts.nr_active(3), 3, "a bit leaves its account once");
    }
}
