//! Overtaking the waiters: by a thread in its turn, and by a tenant while no waiter can be served.
//! All other newcomers have to wait (`newcomer_policy.rs`).

use super::{Turns, turn};
use crate::mask::BitMask;
use crate::newcomer_policy::must_wait;
use crate::share_limiter::TenantIndex;
use crate::store::Store;

impl<S: Store> Turns<S> {
    /// G1 and G2.
    #[inline]
    pub(crate) fn try_get(&self) -> Option<usize> {
        let id = self.store.try_get();
        if id.is_some() || !must_wait(self.store.waiters()) {
            return id;
        }
        self.take_in_turn()
    }

    /// G2: takes an id past the waiters, if the calling thread has its turn.
    #[cold]
    #[inline(never)]
    fn take_in_turn(&self) -> Option<usize> {
        let turn = self.turn()?;
        let id = self.store.take()?;
        self.store.set_owned(id);
        turn::set(self.number, turn.serial, turn.credits - 1);
        Some(id)
    }

    /// The calling thread's turn, if it has one and it is not over.
    pub(super) fn turn(&self) -> Option<turn::Turn> {
        let age = |turn: &turn::Turn| self.unlocked.grants().wrapping_sub(turn.serial);
        turn::of(self.number).filter(|turn| age(turn) < self.rules.life)
    }

    pub(crate) fn try_get_mask(&self, n: usize) -> BitMask {
        self.store.try_get_mask(n)
    }

    pub(crate) fn try_get_shallow(&self, limit: usize) -> Option<usize> {
        self.store.try_get_shallow(limit)
    }

    pub(crate) fn try_get_batch(&self, n: usize, ids: &mut Vec<usize>) -> usize {
        let got = self.store.try_get_batch(n, ids);
        if got > 0 || !must_wait(self.store.waiters()) {
            return got;
        }
        let before = ids.len();
        ids.extend(std::iter::from_fn(|| self.take_in_turn()).take(n));
        ids.len() - before
    }

    /// Takes an id past the waiters, if none of them could take it: all are of tenants that may not
    /// be served, or passed over or behind such a one (F2), and none would be served before this
    /// caller.
    pub(crate) fn try_get_past(&self, tenant: TenantIndex, large: bool) -> Option<usize> {
        let queue = self.wait_queue.lock();
        let waits = |large| queue.list.tenants.has(tenant, large);
        let comes_later = waits(false) || (large && waits(true));
        // A waiter that may be served will be served soon, by the threads that the claim names.
        let next = self.next(&queue);
        let may = next.is_none() && !comes_later && !queue.closed;
        let id = may.then(|| self.store.take()).flatten();
        drop(queue);
        self.store.set_owned(id?);
        id
    }

    /// `try_get_past` for a small request, if there was no waiter to serve a moment ago.
    pub(crate) fn try_get_held_up(&self, tenant: TenantIndex) -> Option<usize> {
        self.unlocked
            .is_held_up()
            .then(|| self.try_get_past(tenant, false))?
    }
}
