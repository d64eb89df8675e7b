//! How many tags each tenant got, without counting those of the first one.
//!
//! Each slot counts its allocations, so the sum over all slots is that of all tenants. Every tenant
//! but the first counts its own; the rest belongs to the first. So a set with one tenant counts
//! only in its slots.

use crate::stats::Striped;
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicU64, AtomicUsize};

/// The state that the handles of a tenant share.
#[derive(Debug)]
pub(crate) struct TenantInner {
    pub(crate) name: String,
    pub(crate) counters: Striped,
    /// Whether it is the set's first tenant, which does not count its tags: see `Others`.
    pub(crate) first: bool,
    /// How many handles there are.
    pub(crate) handles: AtomicUsize,
    /// The longest wait that has ended, in nanoseconds.
    pub(crate) longest_wait: AtomicU64,
}

/// All tenants except the first. The first tenant's tags are those that these do not have.
#[derive(Debug, Default)]
pub(crate) struct Others {
    there: Vec<Arc<TenantInner>>,
    /// Tags of tenants that are gone.
    gone: u64,
    /// The most tags that the first tenant was known to have got.
    first: u64,
}

impl Others {
    pub(crate) fn push(&mut self, tenant: Arc<TenantInner>) {
        self.there.push(tenant);
    }

    /// The tenant's last handle is gone, so it counts no more.
    pub(crate) fn remove(&mut self, tenant: &Arc<TenantInner>) {
        self.there.retain(|other| !Arc::ptr_eq(other, tenant));
        self.gone += tenant.counters.sum().allocs;
    }

    /// The tags that the first tenant got, of `all` in the slots, which was read before. While
    /// others allocate, those that they get meanwhile are missing; so the most that was known
    /// counts.
    pub(crate) fn count_first(&mut self, all: u64) -> u64 {
        let there = self.there.iter().map(|other| other.counters.sum().allocs);
        let others = self.gone + there.sum::<u64>();
        self.first = self.first.max(all.saturating_sub(others));
        self.first
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::TagSet;

    /// Slots that were read before the others' last tags, as while others allocate.
    #[test]
    fn the_first_tenants_count_never_goes_back() {
        let set = TagSet::builder().build(|_, _| ()).unwrap();
        let (first, second) = (
            set.add_tenant("first").unwrap(),
            set.add_tenant("second").unwrap(),
        );
        drop((first.try_alloc_batch(3), second.try_alloc_batch(5)));
        let mut others = first.shared.others.lock();
        assert_eq!(others.count_first(6), 1, "two of the second's are missing");
        assert_eq!(others.count_first(8), 3);
        assert_eq!(others.count_first(7), 3);
    }
}
