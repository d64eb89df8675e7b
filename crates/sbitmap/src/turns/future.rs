//! The futures' halves of waiting in turns.

use super::Turns;
use super::wait::Wait;
use crate::get_many::Many;
use crate::store::Store;
use std::task::{Context, Poll};

/// A task's wait for one id.
#[derive(Debug)]
pub(crate) struct WaitOne<'a, S: Store>(Wait<'a, S>);

impl<'a, S: Store> WaitOne<'a, S> {
    pub(crate) fn new(turns: &'a Turns<S>) -> Self {
        Self(Wait::new(turns, 1))
    }

    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<usize> {
        if !self.0.stay.is_in_list() {
            // G1. A task has no turn, whatever its thread has.
            if let Some(id) = self.0.store().try_get() {
                return Poll::Ready(id);
            }
            // Also one that was ready before waits for one.
            self.0.stay.request.want = 1;
        }
        self.0.poll(cx).map(|outcome| {
            let ids = outcome.expect("a wait for one id is not refused");
            ids.as_slice()[0]
        })
    }
}

/// A task's wait for several ids.
#[derive(Debug)]
pub(crate) struct WaitMany<'a, S: Store>(Wait<'a, S>);

impl<'a, S: Store> WaitMany<'a, S> {
    pub(crate) fn new(turns: &'a Turns<S>, n: usize) -> Self {
        Self(Wait::new(turns, n))
    }

    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<Many> {
        if self.0.wants_nothing() {
            return Poll::Ready(Ok(Vec::new()));
        }
        let outcome = self.0.poll(cx);
        outcome.map(|outcome| outcome.map(super::list::Ids::into_vec))
    }
}
