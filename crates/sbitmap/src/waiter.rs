//! One wait for bits of a queue, whatever its mode, kept apart from the queue: what all futures and
//! blocking calls are made of.

use crate::batched::BatchedWaiter;
use crate::error::{GetError, GetManyError};
use crate::queue::{Inner, SbitmapQueue};
use crate::request::{Ids, Outcome, Request};
use crate::store::Store as _;
use crate::turns::TurnsWaiter;
use inflight_sync::time::Instant;
use std::task::{Context, Poll};

/// A wait for bits of one queue. Whoever drops it leaves the queue first.
#[derive(Debug)]
pub struct Waiter(ByMode);

#[derive(Debug)]
enum ByMode {
    Turns(TurnsWaiter),
    Batched(BatchedWaiter),
}

/// Calls the same on the queue and its waiter, whatever their mode.
macro_rules! on {
    ($queue:expr, $self:expr, $inner:ident, $waiter:ident => $call:expr) => {
        match (&$queue.inner, &mut $self.0) {
            (Inner::Batched($inner), ByMode::Batched($waiter)) => $call,
            (Inner::Shared($inner), ByMode::Turns($waiter)) => $call,
            (Inner::Local($inner) | Inner::Rseq($inner, _), ByMode::Turns($waiter)) => $call,
            _ => unreachable!("a waiter belongs to one queue"),
        }
    };
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

    /// A wait for one bit by somebody who has not tried: G1, and then as `poll`.
    pub(crate) fn poll_first(
        &mut self,
        queue: &SbitmapQueue,
        cx: &Context<'_>,
    ) -> Poll<Result<usize, GetError>> {
        if !self.is_in_list() {
            // A task has no turn, whatever its thread has.
            let bit = match &queue.inner {
                Inner::Batched(_) => None, // it tries if it may
                Inner::Shared(turns) => turns.store().try_get(),
                Inner::Local(turns) | Inner::Rseq(turns, _) => turns.store().try_get(),
            };
            if let Some(bit) = bit {
                return Poll::Ready(Ok(bit));
            }
            // Also one that was ready before waits for one.
            *self = Self::new(queue, Request::one(0));
        }
        self.poll(queue, cx).map(one)
    }

    /// Waits as a task: for all that is asked for, or for the next part.
    pub(crate) fn poll(&mut self, queue: &SbitmapQueue, cx: &Context<'_>) -> Poll<Outcome> {
        on!(queue, self, inner, waiter => inner.poll_waiter(waiter, cx))
    }

    /// As `poll` for a thread.
    pub(crate) fn block(&mut self, queue: &SbitmapQueue, deadline: Option<Instant>) -> Outcome {
        on!(queue, self, inner, waiter => inner.block_waiter(waiter, deadline))
    }

    /// What can be had without waiting by one that is in a list: a part that has been granted, or
    /// where bits come one by one any bit that is free.
    pub(crate) fn fetch(&mut self, queue: &SbitmapQueue) -> Option<Outcome> {
        on!(queue, self, inner, waiter => inner.fetch_waiter(waiter))
    }

    pub(crate) fn leave(&mut self, queue: &SbitmapQueue) {
        on!(queue, self, inner, waiter => inner.leave_waiter(waiter));
    }
}

/// Of a wait for one.
pub(crate) fn one(outcome: Outcome) -> Result<usize, GetError> {
    outcome.map(Ids::only).map_err(GetManyError::of_one)
}

/// Of a wait for a part, which is pushed to `bits`.
pub(crate) fn part(outcome: Outcome, bits: &mut Vec<usize>) -> Result<(), GetError> {
    let ids = outcome.map_err(GetManyError::of_one)?;
    bits.extend_from_slice(ids.as_slice());
    Ok(())
}
