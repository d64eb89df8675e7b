//! How many tags each tenant got, without the first one's counting.
//!
//! Each slot knows how often it was given out, so the sum over all slots is what all tenants got.
//! Every tenant but the first counts its own; the rest is the first one's. So a set with one tenant
//! counts nothing beside its slots.

use crate::stats::Striped;
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicU64, AtomicUsize};

/// What the handles of a tenant share.
#[derive(Debug)]
pub(crate) struct TenantInner {
    pub(crate) name: String,
    pub(crate) counters: Striped,
    /// The set's first tenant does not count its tags: see `Others`.
    pub(crate) first: bool,
    /// How many handles there are.
    pub(crate) handles: AtomicUsize,
    /// In nanoseconds, of the waits that have ended.
    pub(crate) longest_wait: AtomicU64,
}

/// The tenants but the first, for what these leave to it.
#[derive(Debug, Default)]
pub(crate) struct Others {
    there: Vec<Arc<TenantInner>>,
    /// Tags of those that are gone.
    gone: u64,
}

impl Others {
    pub(crate) fn push(&mut self, tenant: Arc<TenantInner>) {
        self.there.push(tenant);
    }

    /// Its last handle is gone, so it counts no more.
    pub(crate) fn remove(&mut self, tenant: &Arc<TenantInner>) {
        self.there.retain(|other| !Arc::ptr_eq(other, tenant));
        self.gone += tenant.counters.sum().allocs;
    }

    pub(crate) fn allocs(&self) -> u64 {
        let there = self.there.iter().map(|other| other.counters.sum().allocs);
        self.gone + there.sum::<u64>()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::{TagSet, Tenant};

    fn alloc(queue: &Tenant<()>, n: usize) {
        for _ in 0..n {
            drop(queue.try_alloc().unwrap());
        }
    }

    #[test]
    fn each_tenant_has_its_own_count_whoever_comes_and_goes() {
        for hw_queues in [1, 2] {
            let set = TagSet::builder().hw_queues(hw_queues).depth(64);
            let set = set.build(|_, _| ()).unwrap();
            let first = set.add_tenant("first").unwrap();
            alloc(&first, 3);
            let second = set.add_tenant("second").unwrap();
            alloc(&second, 5);
            alloc(&first, 2);
            drop(second.try_alloc_batch(4));
            assert_eq!((first.stats().allocs, second.stats().allocs), (5, 9));
            let clone = second.clone();
            drop(second);
            assert_eq!(clone.stats().allocs, 9);
            drop(clone);
            alloc(&first, 1);
            assert_eq!(first.stats().allocs, 6, "what is gone was not its own");
            let third = set.add_tenant("third").unwrap();
            alloc(&third, 7);
            drop(first);
            let fourth = set.add_tenant("fourth").unwrap();
            alloc(&fourth, 1);
            assert_eq!((third.stats().allocs, fourth.stats().allocs), (7, 1));
            assert_eq!(set.stats().allocs, 6 + 9 + 7 + 1);
        }
    }

    #[test]
    fn one_after_another_they_do_not_inherit() {
        let set = TagSet::builder().depth(4).build(|_, _| ()).unwrap();
        let first = set.add_tenant("first").unwrap();
        alloc(&first, 3);
        let held = first.try_alloc().unwrap();
        drop(first);
        let second = set.add_tenant("second").unwrap();
        assert_eq!(second.stats().allocs, 0);
        alloc(&second, 2);
        drop(held);
        assert_eq!(second.stats().allocs, 2);
    }
}
