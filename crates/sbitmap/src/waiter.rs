//! One wait for bits of a queue in any mode, kept apart from the queue: all futures and blocking
//! calls are made of it.

use crate::batched::BatchedWaiter;
use crate::error::{GetError, GetManyError};
use crate::queue::{Inner, SbitmapQueue};
use crate::request::{Ids, Outcome, Request};
use crate::store::Store as _;
use crate::turns::TurnsWaiter;
use inflight_sync::time::Instant;
use std::mem;
use std::task::{Context, Poll};

/// A wait for bits of one queue. It must leave the queue before it is dropped.
#[derive(Debug)]
pub struct Waiter(ByMode);

#[derive(Debug)]
enum ByMode {
    Turns(TurnsWaiter),
    Batched(BatchedWaiter),
}

/// Calls the same method on the wait of a waiter, in any mode. If it panics, the waiter has left
/// the list.
macro_rules! on {
    ($queue:expr, $self:expr, $wait:ident => $call:expr) => {
        match (&$queue.inner, &mut $self.0) {
            (Inner::Batched(queue), ByMode::Batched(waiter)) => on!(queue, waiter => $wait, $call),
            (Inner::Shared(queue), ByMode::Turns(waiter)) => on!(queue, waiter => $wait, $call),
            (Inner::Local(queue) | Inner::Rseq(queue, _), ByMode::Turns(waiter)) => {
                on!(queue, waiter => $wait, $call)
            }
            _ => unreachable!("a waiter belongs to one queue"),
        }
    };
    ($queue:ident, $waiter:ident => $wait:ident, $call:expr) => {{
        let mut $wait = $queue.wait($waiter);
        let result = $call;
        mem::forget($wait); // it keeps its position
        result
    }};
}

impl Waiter {
    pub(crate) fn new(queue: &SbitmapQueue, request: Request) -> Self {
        Self(match queue.inner {
            Inner::Batched(_) => ByMode::Batched(BatchedWaiter::new(request)),
            _ => ByMode::Turns(TurnsWaiter::new(request)),
        })
    }

    /// Whether it has its place in a list: it waits, or has had a part and is to have more.
    #[must_use]
    pub const fn is_in_list(&self) -> bool {
        match &self.0 {
            ByMode::Turns(waiter) => waiter.is_in_list(),
            ByMode::Batched(waiter) => waiter.is_in_list(),
        }
    }

    /// A wait for one bit by a caller that has not tried: G1, and then as `poll`.
    pub(crate) fn poll_first(
        &mut self,
        queue: &SbitmapQueue,
        cx: &Context<'_>,
    ) -> Poll<Result<usize, GetError>> {
        if !self.is_in_list() {
            // A task has no turn, even if its thread has one.
            let bit = match &queue.inner {
                Inner::Batched(_) => None, // it tries if it may
                Inner::Shared(turns) => turns.store().try_get(),
                Inner::Local(turns) | Inner::Rseq(turns, _) => turns.store().try_get(),
            };
            if let Some(bit) = bit {
                return Poll::Ready(Ok(bit));
            }
            // A waiter that was ready before also waits for one bit.
            *self = Self::new(queue, Request::one(0));
        }
        self.poll_one(queue, cx)
    }

    /// Waits as a task for one bit.
    pub fn poll_one(
        &mut self,
        queue: &SbitmapQueue,
        cx: &Context<'_>,
    ) -> Poll<Result<usize, GetError>> {
        self.poll(queue, cx).map(one)
    }

    /// As `poll_one` for a thread, at most until the deadline; it then leaves the list.
    ///
    /// # Errors
    ///
    /// [`GetError::TimedOut`] and [`GetError::Closed`].
    pub fn block_one(
        &mut self,
        queue: &SbitmapQueue,
        deadline: Option<Instant>,
    ) -> Result<usize, GetError> {
        one(self.block(queue, deadline))
    }

    /// Waits as a task for the next part, which is pushed to `bits`. If the depth is below the
    /// request's [`least_depth`](Request::least_depth), pushes nothing and leaves the list.
    pub fn poll_part(
        &mut self,
        queue: &SbitmapQueue,
        cx: &Context<'_>,
        bits: &mut Vec<usize>,
    ) -> Poll<Result<(), GetError>> {
        self.poll(queue, cx).map(|outcome| part(outcome, bits))
    }

    /// As `poll_part` for a thread. The errors are those of `block_one`.
    pub fn block_part(
        &mut self,
        queue: &SbitmapQueue,
        deadline: Option<Instant>,
        bits: &mut Vec<usize>,
    ) -> Result<(), GetError> {
        part(self.block(queue, deadline), bits)
    }

    /// Pushes to `bits` what a waiter in the list can have without waiting: the part that was
    /// granted to it; with `Batched` any free bit. The waiter keeps its position; with `Batched` a
    /// waiter that gets a bit leaves, and must ask again.
    ///
    /// # Errors
    ///
    /// [`GetError::Closed`].
    pub fn fetch_part(
        &mut self,
        queue: &SbitmapQueue,
        bits: &mut Vec<usize>,
    ) -> Result<(), GetError> {
        let fetched = on!(queue, self, wait => wait.fetch());
        fetched.map_or(Ok(()), |outcome| part(outcome, bits))
    }

    /// Waits as a task: for all of the request, or for the next part.
    pub(crate) fn poll(&mut self, queue: &SbitmapQueue, cx: &Context<'_>) -> Poll<Outcome> {
        on!(queue, self, wait => wait.poll(cx))
    }

    /// As `poll` for a thread.
    pub(crate) fn block(&mut self, queue: &SbitmapQueue, deadline: Option<Instant>) -> Outcome {
        on!(queue, self, wait => wait.block(deadline))
    }

    /// Leaves the list. Bits granted and not fetched go to others.
    pub fn leave(&mut self, queue: &SbitmapQueue) {
        on!(queue, self, wait => wait.leave_list());
    }
}

/// The result of a wait for one.
fn one(outcome: Outcome) -> Result<usize, GetError> {
    outcome.map(Ids::only).map_err(GetManyError::of_one)
}

/// The result of a wait for a part, which is pushed to `bits`. Pushes nothing if the depth is too
/// small.
fn part(outcome: Outcome, bits: &mut Vec<usize>) -> Result<(), GetError> {
    match outcome {
        Ok(ids) => bits.extend_from_slice(ids.as_slice()),
        Err(GetManyError::TooMany { .. }) => {}
        Err(error) => return Err(error.of_one()),
    }
    Ok(())
}
