//! Waiters that their owner keeps apart from the queue: of crates above.

use super::Turns;
use super::order::RequestSize;
use super::wait::{TurnsWaiter, Wait};
use crate::error::GetManyError;
use crate::request::{Outcome, ShareLimiter as _, TenantIndex};
use crate::store::Store;
use inflight_sync::atomic::{Ordering, fence};
use inflight_sync::time::Instant;
use inflight_sync::wait::Wakers;
use std::mem;
use std::task::{Context, Poll};

impl<S: Store> Turns<S> {
    /// Lends a waiter to its wait. Should `f` panic, the waiter has left the list.
    fn with<R>(&self, waiter: &mut TurnsWaiter, f: impl FnOnce(&mut Wait<'_, S>) -> R) -> R {
        let mut wait = Wait {
            turns: self,
            waiter,
        };
        let result = f(&mut wait);
        mem::forget(wait); // it keeps its place
        result
    }

    /// Waits as a task: for all it wants, or for the next part.
    pub(crate) fn poll_waiter(&self, waiter: &mut TurnsWaiter, cx: &Context<'_>) -> Poll<Outcome> {
        self.with(waiter, |wait| wait.poll(cx))
    }

    /// As `poll_waiter` for a thread. If it does not come in time the list is left.
    pub(crate) fn block_waiter(
        &self,
        waiter: &mut TurnsWaiter,
        deadline: Option<Instant>,
    ) -> Outcome {
        let outcome = self.with(waiter, |wait| wait.block(deadline));
        outcome.unwrap_or(Err(GetManyError::TimedOut))
    }

    /// What has been granted, if anything has, without a wait. It keeps its place.
    pub(crate) fn fetch_waiter(&self, waiter: &mut TurnsWaiter) -> Option<Outcome> {
        self.with(waiter, |wait| wait.fetch())
    }

    /// Leaves the list. What had been granted and not fetched goes back.
    pub(crate) fn leave_waiter(&self, waiter: &mut TurnsWaiter) {
        drop(Wait {
            turns: self,
            waiter,
        });
    }

    /// Serves whoever may be served by now.
    pub(crate) fn serve_all(&self) {
        // Ordering: M4, pairs with V2 in `Turns::serve`: either this sees that somebody waits,
        // or whoever has come to the list sees what lets it be served.
        fence(Ordering::SeqCst);
        if self.store.waiters() > 0 {
            self.serve_and_wake(self.wait_queue.lock(), Wakers::default());
        }
    }

    /// Takes an id past those who wait, if it is not one of them whose it is: they are all of
    /// tenants that may not be served, or stand behind one that has not fetched its part (F2), and
    /// none would be served before this one.
    pub(crate) fn try_get_past(&self, tenant: TenantIndex, large: bool) -> Option<usize> {
        let queue = self.wait_queue.lock();
        let waits = |size| queue.list.tenants.has(tenant, size);
        let comes_later = waits(RequestSize::Small) || (large && waits(RequestSize::Large));
        // Whoever may be served is about to be, by those the claim names.
        let next = queue.list.next(|tenant| self.rules.shares.may_take(tenant));
        let may = next.is_none() && !comes_later && !queue.closed;
        let id = may.then(|| self.store.take()).flatten();
        drop(queue);
        self.store.set_owned(id?);
        id
    }

    /// `try_get_past` for a small request, if there was nobody to be served a moment ago.
    pub(crate) fn try_get_held_up(&self, tenant: TenantIndex) -> Option<usize> {
        self.gate
            .is_held_up()
            .then(|| self.try_get_past(tenant, false))?
    }
}
