//! Several bits together: one collector at a time, so that no two half-fed ones wait for each
//! other.

use super::Batched;
use crate::error::ResizeError;
use crate::get_many::GetManyError;
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::wait::Event;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::task::Poll;

/// Lets one collector in.
#[derive(Debug, Default)]
pub(super) struct Turnstile {
    taken: AtomicBool,
    left: Event,
}

/// The bits of the one collector. What it has goes back unless it is taken out.
struct Collecting<'a> {
    queue: &'a Batched,
    bits: Vec<usize>,
}

impl<'a> Collecting<'a> {
    async fn begin(queue: &'a Batched, n: usize) -> Self {
        let turnstile = &queue.turnstile;
        // Ordering: Acquire pairs with the Release in `drop`.
        let taken = || turnstile.taken.swap(true, Ordering::Acquire);
        turnstile.left.listen_while(taken).await;
        let this = Self {
            queue,
            bits: Vec::with_capacity(n),
        };
        // What a collector holds does not come back before it has the rest: no batch may wait for
        // those bits.
        this.wake_singly(true);
        this
    }

    fn wake_singly(&self, on: bool) {
        let _: Result<(), ResizeError> = self.queue.resized(|sizing| {
            sizing.collecting = on;
            Ok(())
        });
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        self.wake_singly(false);
        let bits = mem::take(&mut self.bits);
        let turnstile = &self.queue.turnstile;
        // Ordering: Release pairs with the Acquire in `begin`.
        turnstile.taken.store(false, Ordering::Release);
        turnstile.left.notify_all();
        if !bits.is_empty() {
            let returned = self.queue.put_batch(&bits);
            debug_assert!(returned.is_ok(), "the bits were ours");
        }
    }
}

impl Batched {
    /// Takes `n` bits; the task waits until it has them all.
    pub(crate) async fn get_many(&self, n: usize) -> Result<Vec<usize>, GetManyError> {
        if n > self.map.depth() {
            return Err(GetManyError::TooMany);
        }
        let mut collecting = Collecting::begin(self, n).await;
        while collecting.bits.len() < n {
            let mut get = pin!(self.get());
            // A resize makes all waiters look again.
            let bit = poll_fn(|cx| {
                if n > self.map.depth() {
                    return Poll::Ready(Err(GetManyError::TooMany));
                }
                get.as_mut().poll(cx).map(Ok)
            });
            collecting.bits.push(bit.await?);
        }
        Ok(mem::take(&mut collecting.bits))
    }
}
