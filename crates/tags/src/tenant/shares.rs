//! One hardware queue's accounts. Event names as in PROTOCOL-shares.md.

use super::SharePolicy;
use inflight_sbitmap::tenancy::TenantIndex as Class;
use inflight_sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, CachePadded, Grown, Mutex};
use std::time::Duration;

/// A tenant that has used no tag for this long, as others look, is idle; found out within twice
/// the time.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// One tenant's.
#[derive(Debug)]
struct Account {
    /// The tags it has, of those that were taken while the hardware queue was shared.
    active: AtomicU32,
    /// It counts as a user.
    marked: AtomicBool,
    /// It has taken a tag since somebody looked.
    used: AtomicBool,
    /// How many of its requests wait.
    waits: AtomicU32,
    /// Its part under `SharePolicy::Weighted`. Written under the lock.
    weight: AtomicU32,
}

impl Account {
    fn new() -> Self {
        Self {
            active: AtomicU32::new(0),
            marked: AtomicBool::new(false),
            used: AtomicBool::new(false),
            waits: AtomicU32::new(0),
            weight: AtomicU32::new(1),
        }
    }

    /// It has no tag that counts, and waits for none.
    fn has_no_use(&self) -> bool {
        self.active.load(Ordering::Relaxed) == 0 && self.waits.load(Ordering::Relaxed) == 0
    }
}

/// What is changed with the lock only.
#[derive(Debug)]
struct IdleLook {
    /// When idle tenants were looked for last.
    looked_at: Instant,
}

/// Who has how many of a hardware queue's normal tags, and how many each may have.
///
/// An access that says nothing else is Relaxed because what follows from it is ordered by the
/// bitmap: by its fence between a change and the look for who waits (PROTOCOL-shares.md).
#[derive(Debug)]
pub(crate) struct ShareAccounts {
    policy: SharePolicy,
    /// How many tenants are marked. Read by every allocation, hardly ever written.
    users: CachePadded<AtomicUsize>,
    /// The sum of their weights.
    weights: AtomicUsize,
    /// How many tags are shared.
    depth: AtomicUsize,
    /// Somebody was at its limit since the last look for idle ones.
    limited: AtomicBool,
    accounts: Grown<Account>,
    /// Whose account a bit is on: its class + 1, or 0. Written by the bit's owner.
    owners: Box<[AtomicU32]>,
    marks: Mutex<IdleLook>,
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
            users: CachePadded::new(AtomicUsize::new(0)),
            weights: AtomicUsize::new(0),
            depth: AtomicUsize::new(depth),
            limited: AtomicBool::new(false),
            accounts: Grown::new(),
            owners: (0..owners).map(|_| AtomicU32::new(0)).collect(),
            marks: Mutex::new(IdleLook {
                looked_at: Instant::from_nanos(0),
            }),
        }
    }

    /// The depth has changed.
    pub(crate) fn set_depth(&self, depth: usize) {
        // Relaxed: whoever looks meanwhile counts by the last one.
        self.depth.store(depth, Ordering::Relaxed);
    }

    fn account(&self, class: Class) -> &Account {
        self.accounts.get_or_make(class as usize, Account::new)
    }

    /// M1: whether the class is a user already, or there are no shares. The caller marks it if not.
    #[inline]
    pub(crate) fn is_marked(&self, class: Class) -> bool {
        // Relaxed: one that reads it late takes the lock.
        self.policy == SharePolicy::None || self.account(class).marked.load(Ordering::Relaxed)
    }

    /// Whether two or more tenants are active, so that tags are counted and limits hold.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        // Ordering: Acquire pairs with the Release in `set_marked`: who counts a tag comes after a
        // look that found the set's `many` set, and so does whoever it gives the tag to. One that
        // reads it late takes a tag uncounted, as before the change.
        self.users.load(Ordering::Acquire) > 1
    }

    /// M2. Returns whether the class was not a user before.
    pub(crate) fn mark(&self, class: Class, on: bool) -> bool {
        let _marks = self.marks.lock();
        self.set_marked(class, on)
    }

    fn set_marked(&self, class: Class, on: bool) -> bool {
        let account = self.account(class);
        if self.policy == SharePolicy::None || account.marked.load(Ordering::Relaxed) == on {
            return false;
        }
        account.marked.store(on, Ordering::Relaxed);
        let weight = account.weight.load(Ordering::Relaxed) as usize;
        // Relaxed: changed under the lock; what follows from it is ordered by the line's fence.
        if on {
            // Ordering: Release pairs with the Acquire in `is_shared`.
            self.users.fetch_add(1, Ordering::Release);
            self.weights.fetch_add(weight, Ordering::Relaxed);
            account.used.store(true, Ordering::Relaxed);
        } else {
            self.users.fetch_sub(1, Ordering::Relaxed);
            self.weights.fetch_sub(weight, Ordering::Relaxed);
        }
        true
    }

    pub(crate) const fn policy(&self) -> SharePolicy {
        self.policy
    }

    pub(crate) fn set_weight(&self, class: Class, weight: u32) {
        let _marks = self.marks.lock();
        let account = self.account(class);
        let marked = account.marked.load(Ordering::Relaxed);
        let old = account.weight.swap(weight, Ordering::Relaxed) as usize;
        if marked {
            self.weights.fetch_add(weight as usize, Ordering::Relaxed);
            self.weights.fetch_sub(old, Ordering::Relaxed);
        }
    }

    /// How many tags the class may have. `None`: as many as there are.
    pub(crate) fn share(&self, class: Class) -> Option<usize> {
        let users = self.users.load(Ordering::Relaxed);
        // Relaxed: a share by the last depth, for a moment.
        let depth = self.depth.load(Ordering::Relaxed);
        if users < 2 || depth <= 1 || !self.is_marked(class) {
            return None;
        }
        match self.policy {
            SharePolicy::None => None,
            SharePolicy::Fair { min } => Some(depth.div_ceil(users).max(min)),
            SharePolicy::Weighted { min } => {
                let all = self.weights.load(Ordering::Relaxed).max(1);
                let own = self.account(class).weight.load(Ordering::Relaxed) as usize;
                // Why at least 1: a tenant of weight 0 would wait for ever.
                Some((depth * own).div_ceil(all).max(min).max(1))
            }
        }
    }

    /// The smallest share of any tenant that counts. `None`: there are no limits.
    pub(crate) fn least_share(&self) -> Option<usize> {
        // A change under way comes here again when it is made.
        let _marks = self.marks.lock();
        let accounts = self.accounts.iter().zip(0..);
        accounts
            .filter(|(account, _)| account.marked.load(Ordering::Relaxed))
            .filter_map(|(_, class)| self.share(class))
            .min()
    }

    pub(crate) fn active(&self, class: Class) -> usize {
        self.account(class).active.load(Ordering::Relaxed) as usize
    }

    /// C1.
    pub(crate) fn may_take(&self, class: Class) -> bool {
        let may = self
            .share(class)
            .is_none_or(|share| self.active(class) < share);
        if !may && !self.limited.load(Ordering::Relaxed) {
            self.limited.store(true, Ordering::Relaxed);
        }
        may
    }

    /// How many more the class may take now.
    pub(crate) fn room(&self, class: Class) -> usize {
        let share = self.share(class);
        share.map_or(usize::MAX, |share| share.saturating_sub(self.active(class)))
    }

    /// C2: after the bit was taken.
    pub(crate) fn took(&self, class: Class, bit: usize) {
        let account = self.account(class);
        if !account.used.load(Ordering::Relaxed) {
            account.used.store(true, Ordering::Relaxed);
        }
        if !self.is_shared() {
            return;
        }
        account.active.fetch_add(1, Ordering::Relaxed);
        // Relaxed: the bit's owners come one after another, by its put and its next get.
        self.owners[bit].store(class + 1, Ordering::Relaxed);
    }

    /// C3: before the bit is put, so that who is woken by it finds the account without it.
    pub(crate) fn gives(&self, bit: usize) {
        let Some(owner) = self.owners.get(bit) else {
            return; // there are no shares
        };
        let class = owner.load(Ordering::Relaxed);
        if class != 0 {
            owner.store(0, Ordering::Relaxed);
            let account = self.account(class - 1);
            // Relaxed: P2 of the put orders it before the look for waiters.
            account.active.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// C3 for several bits: one subtraction for each run of one tenant's.
    pub(crate) fn gives_all(&self, bits: &[usize]) {
        let (mut class, mut n) = (0, 0);
        let subtract = |class: Class, n| {
            if class != 0 {
                // Relaxed: as in `gives`.
                self.account(class - 1)
                    .active
                    .fetch_sub(n, Ordering::Relaxed);
            }
        };
        for owner in bits.iter().filter_map(|&bit| self.owners.get(bit)) {
            let next = owner.load(Ordering::Relaxed);
            if next != class {
                subtract(class, n);
                (class, n) = (next, 0);
            }
            owner.store(0, Ordering::Relaxed);
            n += 1;
        }
        subtract(class, n);
    }

    /// Whether somebody should look for idle tenants.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    /// A request of the class begins to wait, or ends it.
    pub(crate) fn waits(&self, class: Class, on: bool) {
        let waits = &self.account(class).waits;
        // Relaxed: whoever looks just then finds out one look later.
        if on {
            waits.fetch_add(1, Ordering::Relaxed);
        } else {
            waits.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Tenants that have no tag and wait for none are no users any more, whatever they used lately.
    /// Whether there were any.
    pub(crate) fn forget_idle(&self) -> bool {
        let _marks = self.marks.lock();
        let mut found = false;
        for (class, account) in self.accounts.iter().enumerate() {
            if account.has_no_use() {
                found |= self.set_marked(class as Class, false);
            }
        }
        found
    }

    /// I1 to I3: tenants that have used no tag since the last look, and wait for none, are no users
    /// any more. Returns how many.
    pub(crate) fn find_idle(&self, now: Instant) -> usize {
        let Some(mut marks) = self.marks.try_lock() else {
            return 0;
        };
        if now < marks.looked_at + IDLE_AFTER {
            return 0;
        }
        marks.looked_at = now;
        self.limited.store(false, Ordering::Relaxed);
        let mut idle = 0;
        for (class, account) in self.accounts.iter().enumerate() {
            let used = account.used.swap(false, Ordering::Relaxed);
            if !used && account.has_no_use() {
                idle += usize::from(self.set_marked(class as Class, false));
            }
        }
        idle
    }
}

/// What the bitmap knows of the accounts.
#[derive(Debug)]
pub(crate) struct Shares(pub(crate) Arc<ShareAccounts>);

impl inflight_sbitmap::tenancy::ShareLimiter for Shares {
    fn may_take(&self, class: Class) -> bool {
        self.0.may_take(class)
    }

    fn took(&self, class: Class, bit: usize) {
        self.0.took(class, bit);
    }

    fn gives(&self, bit: usize) {
        self.0.gives(bit);
    }

    fn least_share(&self) -> Option<usize> {
        self.0.least_share()
    }

    fn look_every(&self, class: Class) -> Option<Duration> {
        (!self.0.may_take(class)).then_some(IDLE_AFTER)
    }

    fn look_for_idle(&self, now: Instant) -> bool {
        self.0.find_idle(now) > 0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn shared_by(policy: SharePolicy, depth: usize, users: u32) -> ShareAccounts {
        let accounts = ShareAccounts::new(policy, depth, depth);
        for class in 0..users {
            assert!(accounts.mark(class, true));
            assert!(!accounts.mark(class, true), "once");
        }
        accounts
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
        let unmarked = shared_by(fair, 32, 4);
        assert_eq!(unmarked.share(9), None, "no user, no limit");
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
        assert_eq!((accounts.active(3), accounts.room(3)), (3, 1));
        accounts.gives(2);
        assert_eq!(accounts.active(3), 3, "a bit leaves its account once");
    }

    #[test]
    fn c32_weights_and_none() {
        let accounts = shared_by(SharePolicy::Weighted { min: 1 }, 60, 3);
        accounts.set_weight(0, 3);
        assert_eq!(
            [0, 1, 2].map(|class| accounts.share(class)),
            [36, 12, 12].map(Some)
        );
        let none = ShareAccounts::new(SharePolicy::None, 60, 60);
        assert!(!none.mark(0, true) && !none.mark(1, true));
        assert!(none.is_marked(0), "so nobody tries again");
        accounts.set_weight(1, 0);
        assert_eq!(accounts.share(1), Some(1), "not nothing");
        assert_eq!(none.share(0), None);
    }

    #[test]
    fn c28_a_tenant_that_used_none_for_a_while_is_idle() {
        let accounts = shared_by(SharePolicy::default(), 32, 3);
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        accounts.took(0, 0);
        assert_eq!(accounts.find_idle(at(1)), 0, "they were marked since");
        assert_eq!(accounts.find_idle(at(1)), 0, "not again so soon");
        accounts.took(1, 1);
        accounts.gives(1);
        assert_eq!(accounts.find_idle(at(2)), 1, "0 has a tag, 1 had one");
        assert_eq!(accounts.share(1), Some(16));
        assert_eq!(accounts.find_idle(at(3)), 1);
        assert_eq!((accounts.share(0), accounts.is_shared()), (None, false));
    }
}
