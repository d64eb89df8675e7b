//! A number for each tenant: in its tags, in its counters, and in the share accounts.
//!
//! A number may be reused when nothing is left of its tenant: no handle, and no tag.

use inflight_steering::TenantId;
use inflight_sync::Mutex;

/// How many numbers wait before a check whether they are free.
const ENOUGH_TO_LOOK: usize = if cfg!(loom) { 1 } else { 16 };

#[derive(Debug, Default)]
pub(crate) struct TenantIds(Mutex<IdTable>);

#[derive(Debug, Default)]
struct IdTable {
    /// How many numbers were ever taken.
    len: u32,
    free: Vec<TenantId>,
    /// Numbers whose tenant has no handle any more; it may have tags.
    left: Vec<TenantId>,
    /// The first tenant has left.
    first_left: bool,
}

/// A new tenant's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewTenantId {
    pub(crate) id: TenantId,
    /// Whether it is the set's first tenant ever.
    pub(crate) first: bool,
    /// Whether it makes two tenants exist at once, perhaps for the first time.
    pub(crate) second: bool,
}

impl TenantIds {
    /// A number for a new tenant. From time to time `clear` gets the numbers that were left, and
    /// returns those of which nothing is left, once everything kept for them is gone. `several` is
    /// called for any tenant but the first, before that tenant can do anything.
    ///
    /// Both are called under the lock, so that no tenant takes a number before it is clear.
    pub(crate) fn take(
        &self,
        clear: impl FnOnce(&[TenantId]) -> Vec<TenantId>,
        several: impl FnOnce(),
    ) -> NewTenantId {
        let mut state = self.0.lock();
        if state.free.is_empty() && state.left.len() >= ENOUGH_TO_LOOK.max(state.len as usize / 2) {
            let clear = clear(&state.left);
            state.left.retain(|id| !clear.contains(id));
            state.free = clear;
        }
        let first = state.len == 0;
        if !first {
            several();
        }
        let id = state.free.pop().unwrap_or_else(|| {
            let id = TenantId::new(state.len);
            state.len = id.get() + 1;
            id
        });
        NewTenantId {
            id,
            first,
            second: !first && !state.first_left,
        }
    }

    /// The last handle of its tenant is gone. `deactivate` is called under the lock, so that it is
    /// done before another tenant takes the number.
    pub(crate) fn leave<R>(&self, id: TenantId, first: bool, deactivate: impl FnOnce() -> R) -> R {
        let mut state = self.0.lock();
        let deactivated = deactivate();
        state.first_left |= first;
        // Other tenants may share the last number.
        if id < TenantId::LAST {
            state.left.push(id);
        }
        deactivated
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_when_they_are_clear_and_there_are_never_many_more_than_tenants() {
        let ids = TenantIds::default();
        let kept = ids.take(
            |_| unreachable!("nothing is left"),
            || unreachable!("alone"),
        );
        assert_eq!(
            (kept.id, kept.first, kept.second),
            (TenantId::FIRST, true, false)
        );
        let mut most = 0;
        for n in 0..10_000 {
            // Every tenth still has tags at the check, once.
            let mut several = false;
            let taken = ids.take(
                |left| {
                    let busy = |id: &&TenantId| left.len() > 20 && id.get() % 10 == n % 10;
                    left.iter().filter(|id| !busy(id)).copied().collect()
                },
                || several = true,
            );
            assert!(several && taken.second && !taken.first && taken.id != kept.id);
            most = most.max(taken.id.get());
            ids.leave(taken.id, false, || ());
        }
        assert!((15..64).contains(&most), "{most}");
        ids.leave(kept.id, true, || ());
        assert!(!ids.take(<[_]>::to_vec, || ()).second, "it is alone");
    }
}
