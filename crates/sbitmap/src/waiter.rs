//! One wait for bits of a queue, whatever its mode, kept apart from the queue: what all futures and
//! blocking calls are made of.

use crate::batched::BatchedWaiter;
use crate::error::{GetError, GetManyError};
use crate::queue::{Inner, SbitmapQueue};
use crate::request::Request;
use crate::turns::{self, Ids};
use inflight_sync::time::Instant;
use std::task::{Context, Poll};

/// A wait for bits of one queue. Whoever drops it leaves the queue first.
#[derive(Debug)]
pub struct Waiter(At);

#[derive(Debug)]
enum At {
    Turns(turns::TurnsWaiter),
    Batched(BatchedWaiter),
}

/// Calls the same on either store.
macro_rules! on_turns {
    ($queue:expr, $inner:ident => $call:expr) => {
        match &$queue.inner {
            Inner::Shared($inner) => $call,
            Inner::Local($inner) | Inner::Rseq($inner, _) => $call,
            Inner::Batched(_) => unreachable!("a waiter belongs to one queue"),
        }
    };
}

impl Waiter {
    pub(crate) fn new(queue: &SbitmapQueue, request: Request) -> Self {
        Self(match queue.inner {
            Inner::Batched(_) => At::Batched(BatchedWaiter::new(request)),
            _ => At::Turns(turns::TurnsWaiter::new(request)),
        })
    }

    /// Whether it has its place in a list: it waits, or has had a part and is to have more.
    #[must_use]
    pub const fn is_in_list(&self) -> bool {
        match &self.0 {
            At::Turns(waiter) => waiter.is_in_list(),
            At::Batched(waiter) => waiter.is_in_list(),
        }
    }

    /// A wait for one bit by somebody who has not tried: G1, and then as `poll_one`.
    pub(crate) fn poll_first(
        &mut self,
        queue: &SbitmapQueue,
        cx: &Context<'_>,
    ) -> Poll<Result<usize, GetError>> {
        if let At::Turns(waiter) = &mut self.0 {
            if !waiter.is_in_list() {
                // A task has no turn, whatever its thread has.
                if let Some(bit) = on_turns!(queue, turns => turns.try_get_newcomer()) {
                    return Poll::Ready(Ok(bit));
                }
                // Also one that was ready before waits for one.
                *waiter = turns::TurnsWaiter::new(Request::one(0));
            }
        }
        self.poll_one(queue, cx)
    }

    pub(crate) fn poll_one(
        &mut self,
        queue: &SbitmapQueue,
        cx: &Context<'_>,
    ) -> Poll<Result<usize, GetError>> {
        match (&queue.inner, &mut self.0) {
            (Inner::Batched(queue), At::Batched(waiter)) => queue.poll_waiter(waiter, cx),
            (_, At::Turns(waiter)) => {
                let outcome = on_turns!(queue, turns => turns.poll_waiter(waiter, cx));
                outcome.map(|outcome| outcome.map(Ids::only).map_err(GetManyError::of_one))
            }
            _ => unreachable!("a waiter belongs to one queue"),
        }
    }

    pub(crate) fn block_one(
        &mut self,
        queue: &SbitmapQueue,
        deadline: Option<Instant>,
    ) -> Result<usize, GetError> {
        match (&queue.inner, &mut self.0) {
            (Inner::Batched(batched), At::Batched(waiter)) => {
                batched.block_waiter(waiter, &queue.clock, deadline)
            }
            (_, At::Turns(waiter)) => {
                let outcome = on_turns!(queue, turns => turns.block_waiter(waiter, deadline));
                outcome.map(Ids::only).map_err(GetManyError::of_one)
            }
            _ => unreachable!("a waiter belongs to one queue"),
        }
    }

    pub(crate) fn poll_part(
        &mut self,
        queue: &SbitmapQueue,
        cx: &Context<'_>,
        bits: &mut Vec<usize>,
    ) -> Poll<Result<(), GetError>> {
        match &mut self.0 {
            At::Batched(_) => self
                .poll_one(queue, cx)
                .map(|bit| bit.map(|bit| bits.push(bit))),
            At::Turns(waiter) => {
                let outcome = on_turns!(queue, turns => turns.poll_waiter(waiter, cx));
                let keep = |ids: Ids| bits.extend(ids.into_vec());
                outcome.map(|outcome| outcome.map(keep).map_err(GetManyError::of_one))
            }
        }
    }

    pub(crate) fn block_part(
        &mut self,
        queue: &SbitmapQueue,
        deadline: Option<Instant>,
        bits: &mut Vec<usize>,
    ) -> Result<(), GetError> {
        match &mut self.0 {
            At::Batched(_) => self.block_one(queue, deadline).map(|bit| bits.push(bit)),
            At::Turns(waiter) => {
                let outcome = on_turns!(queue, turns => turns.block_waiter(waiter, deadline));
                let keep = |ids: Ids| bits.extend(ids.into_vec());
                outcome.map(keep).map_err(GetManyError::of_one)
            }
        }
    }

    /// What can be had without waiting by one that is in a list: a part that has been granted, or
    /// where bits come one by one any bit that is free.
    pub(crate) fn fetch_part(
        &mut self,
        queue: &SbitmapQueue,
        bits: &mut Vec<usize>,
    ) -> Result<(), GetError> {
        match (&queue.inner, &mut self.0) {
            (Inner::Batched(queue), At::Batched(waiter)) => {
                bits.extend(queue.fetch_waiter(waiter));
                Ok(())
            }
            (_, At::Turns(waiter)) => {
                let outcome = on_turns!(queue, turns => turns.fetch_waiter(waiter)).transpose();
                let keep = |ids: Option<Ids>| bits.extend(ids.into_iter().flat_map(Ids::into_vec));
                outcome.map(keep).map_err(GetManyError::of_one)
            }
            _ => unreachable!("a waiter belongs to one queue"),
        }
    }

    /// For several bits together, not in parts: of a queue that does not serve batches.
    pub(crate) fn poll_all(
        &mut self,
        queue: &SbitmapQueue,
        cx: &Context<'_>,
    ) -> Poll<Result<Vec<usize>, GetManyError>> {
        let At::Turns(waiter) = &mut self.0 else {
            unreachable!("batches are collected by a future of their own")
        };
        let outcome = on_turns!(queue, turns => turns.poll_waiter(waiter, cx));
        outcome.map(|outcome| outcome.map(Ids::into_vec))
    }

    /// As `poll_all` for a thread.
    pub(crate) fn block_all(
        &mut self,
        queue: &SbitmapQueue,
        deadline: Option<Instant>,
    ) -> Result<Vec<usize>, GetManyError> {
        let At::Turns(waiter) = &mut self.0 else {
            unreachable!("batches are collected by a future of their own")
        };
        let outcome = on_turns!(queue, turns => turns.block_waiter(waiter, deadline));
        outcome.map(Ids::into_vec)
    }

    pub(crate) fn leave(&mut self, queue: &SbitmapQueue) {
        match (&queue.inner, &mut self.0) {
            (Inner::Batched(queue), At::Batched(waiter)) => queue.leave_waiter(waiter),
            (_, At::Turns(waiter)) => on_turns!(queue, turns => turns.leave_waiter(waiter)),
            _ => unreachable!("a waiter belongs to one queue"),
        }
    }
}
