//! For crates above a queue that give their users their own order of service: the lists of waiters,
//! and the tenants that may be served.
//!
//! Not for general use, and without a promise of stability. `inflight-tags` uses it: the mechanism
//! is here, the policy there.

pub use crate::newcomer_policy::{Force, NewcomerPolicy};
pub use crate::request::Request;
pub use crate::rules::{Rules, Users};
pub use crate::share_limiter::{ShareLimiter, TenantIndex};
pub use crate::waiter::Waiter;

use crate::error::ResizeError;
use crate::queue::{Inner, SbitmapQueue, on, on_bits};

mod sealed {
    pub trait Queue {
        fn queue(&self) -> &super::SbitmapQueue;
    }

    impl Queue for super::SbitmapQueue {
        #[inline(always)]
        fn queue(&self) -> &super::SbitmapQueue {
            self
        }
    }
}

/// What a queue offers to a crate above.
pub trait Tenancy: sealed::Queue {
    /// The short case of [`put`](SbitmapQueue::put), without waiters, to be inlined. It runs no
    /// waker. `false` if nothing has happened; the caller then calls `put`.
    #[must_use = "a bit that was not put is still the caller's"]
    #[inline(always)]
    fn put_fast(&self, bit: usize) -> bool {
        self.queue().put_fast(bit)
    }

    /// A future wait for the request, kept apart from the queue: before it is dropped,
    /// [`leave`](Waiter::leave) must be called. With `Batched` bits come one by one.
    #[must_use]
    fn waiter(&self, request: Request) -> Waiter {
        Waiter::new(self.queue(), request)
    }

    /// Sets the depth, as [`SbitmapQueue::resize`] does, and tells no waiter:
    /// [`depth_changed`](Tenancy::depth_changed) has to follow, after all locks of the caller.
    fn set_depth(&self, depth: usize) -> Result<(), ResizeError> {
        on!(self.queue(), queue => queue.set_depth(depth))
    }

    /// Tells the waiters that the depth has changed.
    fn depth_changed(&self) {
        on!(self.queue(), queue => queue.depth_changed());
    }

    /// Serves the waiters that may be served now, after the [`ShareLimiter`] has changed.
    fn shares_changed(&self) {
        match &self.queue().inner {
            Inner::Batched(queue) => queue.shares_changed(),
            Inner::Shared(queue) => queue.serve_all(),
            Inner::Local(queue) | Inner::Rseq(queue, _) => queue.serve_all(),
        }
    }

    /// Returns the first bit in use from `from` on. For one pass over all bits, a word at a time,
    /// by a caller that waits at each bit until it is free.
    #[must_use]
    fn next_set(&self, from: usize) -> Option<usize> {
        on_bits!(self.queue(), bits => bits.next_set(from))
    }

    /// Sets the number of CPUs that use the queue, which decides how many of the free bits each may
    /// keep.
    fn set_users(&self, cpus: usize) {
        if let Inner::Local(queue) | Inner::Rseq(queue, _) = &self.queue().inner {
            queue.store().set_users(cpus);
        }
    }

    /// Returns whether the [`NewcomerPolicy`] lets a newcomer that could wait try first.
    #[must_use]
    #[inline]
    fn admits_newcomer(&self) -> bool {
        match &self.queue().inner {
            Inner::Batched(queue) => queue.admits(),
            _ => true,
        }
    }

    /// Takes a bit for a tenant that may take one, also while others wait that cannot be served:
    /// their tenants may not take one, or the waiter before them has not fetched its part.
    ///
    /// A large request does not overtake another one of its tenant. The caller records the bit in
    /// the [`ShareLimiter`].
    #[must_use = "a bit that is dropped is never given back"]
    fn try_get_past(&self, tenant: TenantIndex, large: bool) -> Option<usize> {
        match &self.queue().inner {
            Inner::Batched(queue) => queue.try_get(),
            Inner::Shared(queue) => queue.try_get_past(tenant, large),
            Inner::Local(queue) | Inner::Rseq(queue, _) => queue.try_get_past(tenant, large),
        }
    }

    /// As [`try_get_past`](Tenancy::try_get_past) for a small request after `try_get` found
    /// nothing: one load, unless no waiter can be served. The load reads a hint, so the call may
    /// fail needlessly.
    #[must_use = "a bit that is dropped is never given back"]
    fn try_get_held_up(&self, tenant: TenantIndex) -> Option<usize> {
        match &self.queue().inner {
            Inner::Batched(_) => None,
            Inner::Shared(queue) => queue.try_get_held_up(tenant),
            Inner::Local(queue) | Inner::Rseq(queue, _) => queue.try_get_held_up(tenant),
        }
    }

    /// A waiter begins to keep bits while it waits for more, one by one; or it has ended.
    ///
    /// # Panics
    ///
    /// Panics with the first panic of a waiter's waker, after all are woken.
    fn set_collecting(&self, begins: bool) {
        if let Inner::Batched(queue) = &self.queue().inner {
            queue.set_collecting(begins);
        }
    }

    /// Passes on a wake whose receiver does not take the `n` bits that it was worth.
    fn pass_on(&self, n: usize) {
        if let Inner::Batched(queue) = &self.queue().inner {
            queue.pass_on(n);
        }
    }
}

impl Tenancy for SbitmapQueue {}
