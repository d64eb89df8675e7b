//! How many tags each tenant got, without the first one's counting.
//!
//! Each slot counts how often it was given out, so the sum over all slots is that of all tenants.
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
