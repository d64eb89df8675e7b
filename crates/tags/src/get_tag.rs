//! Taking a bit from a bitmap, within the tenant's share.

use crate::pending_tag::{PendingTag, PendingTags};
use crate::shares::ShareAccounts;
use crate::tag_layout::TagMapId;
use crate::tag_maps::TagMaps;
use inflight_sbitmap::tenancy::{ShareLimiter as _, Tenancy as _, TenantIndex};

impl TagMaps {
    /// A1 if a bit is free now and the tenant may have it.
    #[inline]
    pub(crate) fn try_get(&self, tag_map: TagMapId, tenant: TenantIndex) -> Option<PendingTag<'_>> {
        let bitmap = self.bitmap(tag_map);
        let bit = match self.accounts_if_shared(tag_map, tenant) {
            None => bitmap
                .try_get()
                .or_else(|| bitmap.try_get_held_up(tenant))?,
            Some(accounts) => self.try_get_shared(tag_map, tenant, accounts)?,
        };
        Some(self.pending_tag(tag_map, bit))
    }

    #[cold]
    #[inline(never)]
    fn try_get_shared(
        &self,
        tag_map: TagMapId,
        tenant: TenantIndex,
        accounts: &ShareAccounts,
    ) -> Option<usize> {
        let bitmap = self.bitmap(tag_map);
        if !accounts.may_take(tenant) {
            self.look_for_idle(tag_map.hw_queue);
            if !accounts.may_take(tenant) {
                return None;
            }
        }
        let bit = bitmap
            .try_get()
            .or_else(|| bitmap.try_get_past(tenant, false))?;
        accounts.took(tenant, bit);
        Some(bit)
    }

    /// A1 for up to `n` bits, each a separate request.
    pub(crate) fn try_get_batch(
        &self,
        tag_map: TagMapId,
        n: usize,
        tenant: TenantIndex,
    ) -> PendingTags<'_> {
        self.try_get_some(tag_map, n, tenant, false)
    }

    /// A1 for all `n` bits of a large request at once, or none.
    pub(crate) fn try_get_all(
        &self,
        tag_map: TagMapId,
        n: usize,
        tenant: TenantIndex,
    ) -> Option<Vec<usize>> {
        let batch = self.try_get_some(tag_map, n, tenant, true);
        (batch.len() == n).then(|| batch.into_bits())
    }

    fn try_get_some(
        &self,
        tag_map: TagMapId,
        n: usize,
        tenant: TenantIndex,
        large: bool,
    ) -> PendingTags<'_> {
        let shared = self.accounts_if_shared(tag_map, tenant);
        let n = shared.map_or(n, |accounts| n.min(accounts.room(tenant)));
        let bitmap = self.bitmap(tag_map);
        let mut bits = Vec::new();
        if n > 0 {
            bitmap.try_get_batch(n, &mut bits);
        }
        // A single bit would be of no use to a large request for several.
        if bits.is_empty() && (n == 1 || !large) {
            let past = || match shared {
                Some(_) => bitmap.try_get_past(tenant, large),
                None if large => None,
                None => bitmap.try_get_held_up(tenant),
            };
            bits.extend(std::iter::from_fn(past).take(n));
        }
        if let Some(accounts) = shared {
            bits.iter().for_each(|&bit| accounts.took(tenant, bit));
        }
        self.pending_tags(tag_map, bits)
    }
}
