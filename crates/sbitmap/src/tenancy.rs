//! For crates that give their users an order of service of their own, above a queue: who waits in
//! which list, and which tenants may be served.
//!
//! Not for general use, and not covered by the promises about versions. `inflight-tags` is made
//! with it: the mechanism is here, the policy there.

pub use crate::newcomer_policy::{Force, NewcomerPolicy};
pub use crate::request::Request;
pub use crate::rules::{Rules, Users};
pub use crate::share_limiter::{ShareLimiter, TenantIndex};
pub use crate::waiter::Waiter;

use crate::error::{BuildError, GetError};
use crate::queue::{Inner, SbitmapQueue, on};
use crate::queue_builder::SbitmapQueueBuilder;
use crate::store::Store as _;
use crate::waiter;
use inflight_sync::time::Instant;
use std::task::{Context, Poll};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::SbitmapQueue {}
    impl Sealed for super::SbitmapQueueBuilder {}
}

/// A builder that takes rules from above.
pub trait BuildWithRules: sealed::Sealed {
    /// Makes the queue.
    ///
    /// # Errors
    ///
    /// As [`SbitmapQueueBuilder::build`].
    fn build_with_rules(self, rules: Rules) -> Result<SbitmapQueue, BuildError>;
}

impl BuildWithRules for SbitmapQueueBuilder {
    fn build_with_rules(self, rules: Rules) -> Result<SbitmapQueue, BuildError> {
        self.build_with(rules)
    }
}

/// What a queue offers to a crate above.
pub trait Tenancy: sealed::Sealed {
    /// [`put`](SbitmapQueue::put) where nobody can be waiting for it and it takes a few
    /// instructions: to be inlined. It runs no waker. `false`: nothing has happened, and `put`
    /// knows more.
    #[must_use = "a bit that was not put is still the caller's"]
    fn put_fast(&self, bit: usize) -> bool;

    /// A wait to come for what is asked for, kept apart from the queue: whoever drops it calls
    /// [`leave`](Tenancy::leave) first. With `Batched` bits come one by one.
    #[must_use]
    fn waiter(&self, request: Request) -> Waiter;

    /// Waits as a task for one bit.
    fn poll_one(&self, waiter: &mut Waiter, cx: &Context<'_>) -> Poll<Result<usize, GetError>>;

    /// As `poll_one` for a thread, at most until the deadline; the list is left then.
    ///
    /// # Errors
    ///
    /// [`GetError::TimedOut`] and [`GetError::Closed`].
    fn block_one(&self, waiter: &mut Waiter, deadline: Option<Instant>) -> Result<usize, GetError>;

    /// Waits as a task for the next part, which is pushed to `bits`.
    fn poll_part(
        &self,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        bits: &mut Vec<usize>,
    ) -> Poll<Result<(), GetError>>;

    /// As `poll_part` for a thread.
    ///
    /// # Errors
    ///
    /// As [`block_one`](Tenancy::block_one).
    fn block_part(
        &self,
        waiter: &mut Waiter,
        deadline: Option<Instant>,
        bits: &mut Vec<usize>,
    ) -> Result<(), GetError>;

    /// What a waiter in the list can have without waiting, which is pushed to `bits`: the part that
    /// it has been granted; with `Batched` any free bit. It keeps its place; with `Batched` one
    /// that gets a bit leaves, and is told to ask anew.
    ///
    /// # Errors
    ///
    /// [`GetError::Closed`].
    fn fetch_part(&self, waiter: &mut Waiter, bits: &mut Vec<usize>) -> Result<(), GetError>;

    /// Leaves the list. What had been granted and not fetched goes to others.
    fn leave(&self, waiter: &mut Waiter);

    /// Serves whoever may be served by now, after the [`ShareLimiter`] have changed.
    fn shares_changed(&self);

    /// The first bit in use from `from` on: for one pass over all, a word at a time, by somebody
    /// who waits at each bit until it is free.
    #[must_use]
    fn next_set(&self, from: usize) -> Option<usize>;

    /// So many CPUs use it from now on: each may keep a larger or smaller part of the free bits.
    fn set_users(&self, cpus: usize);

    /// Whether a newcomer that could wait may try first: the [`NewcomerPolicy`]'s word.
    #[must_use]
    fn admits_newcomer(&self) -> bool;

    /// `try_get` for a tenant that may take one, also while others wait that cannot be served:
    /// their tenants may not, or the one before them has not fetched its part.
    ///
    /// A large request does not pass one of its tenant. The caller tells the [`ShareLimiter`] of
    /// the bit.
    #[must_use = "a bit that is dropped is never given back"]
    fn try_get_past(&self, tenant: TenantIndex, large: bool) -> Option<usize>;

    /// [`try_get_past`](Tenancy::try_get_past) for a small request after `try_get` found nothing:
    /// one load, unless nobody who waits can be served. By a hint, so it may miss a moment.
    #[must_use = "a bit that is dropped is never given back"]
    fn try_get_held_up(&self, tenant: TenantIndex) -> Option<usize>;

    /// Hands on a wake whose receiver does not take the `n` bits that it was counted for.
    fn pass_on(&self, n: usize);
}

impl Tenancy for SbitmapQueue {
    #[inline(always)]
    fn put_fast(&self, bit: usize) -> bool {
        self.put_fast(bit)
    }

    fn waiter(&self, request: Request) -> Waiter {
        Waiter::new(self, request)
    }

    fn poll_one(&self, waiter: &mut Waiter, cx: &Context<'_>) -> Poll<Result<usize, GetError>> {
        waiter.poll(self, cx).map(waiter::one)
    }

    fn block_one(&self, waiter: &mut Waiter, deadline: Option<Instant>) -> Result<usize, GetError> {
        waiter::one(waiter.block(self, deadline))
    }

    fn poll_part(
        &self,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        bits: &mut Vec<usize>,
    ) -> Poll<Result<(), GetError>> {
        waiter
            .poll(self, cx)
            .map(|outcome| waiter::part(outcome, bits))
    }

    fn block_part(
        &self,
        waiter: &mut Waiter,
        deadline: Option<Instant>,
        bits: &mut Vec<usize>,
    ) -> Result<(), GetError> {
        waiter::part(waiter.block(self, deadline), bits)
    }

    fn fetch_part(&self, waiter: &mut Waiter, bits: &mut Vec<usize>) -> Result<(), GetError> {
        let outcome = waiter.fetch(self);
        outcome.map_or(Ok(()), |outcome| waiter::part(outcome, bits))
    }

    fn leave(&self, waiter: &mut Waiter) {
        waiter.leave(self);
    }

    fn shares_changed(&self) {
        match &self.inner {
            Inner::Batched(queue) => queue.shares_changed(),
            Inner::Shared(queue) => queue.serve_all(),
            Inner::Local(queue) | Inner::Rseq(queue, _) => queue.serve_all(),
        }
    }

    fn next_set(&self, from: usize) -> Option<usize> {
        on!(self, queue => queue.store().next_set(from))
    }

    fn set_users(&self, cpus: usize) {
        if let Inner::Local(queue) | Inner::Rseq(queue, _) = &self.inner {
            queue.store().set_users(cpus);
        }
    }

    #[inline]
    fn admits_newcomer(&self) -> bool {
        match &self.inner {
            Inner::Batched(queue) => queue.admits(),
            _ => true,
        }
    }

    fn try_get_past(&self, tenant: TenantIndex, large: bool) -> Option<usize> {
        match &self.inner {
            Inner::Batched(queue) => queue.try_get(),
            Inner::Shared(queue) => queue.try_get_past(tenant, large),
            Inner::Local(queue) | Inner::Rseq(queue, _) => queue.try_get_past(tenant, large),
        }
    }

    fn try_get_held_up(&self, tenant: TenantIndex) -> Option<usize> {
        match &self.inner {
            Inner::Batched(_) => None,
            Inner::Shared(queue) => queue.try_get_held_up(tenant),
            Inner::Local(queue) | Inner::Rseq(queue, _) => queue.try_get_held_up(tenant),
        }
    }

    fn pass_on(&self, n: usize) {
        if let Inner::Batched(queue) = &self.inner {
            queue.pass_on(n);
        }
    }
}
