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

impl Turnstile {
    /// Whether the caller is the one.
    fn enter(&self) -> bool {
        // Relaxed: it orders nothing. What collectors share lies behind the lock of the size, and
        // bits come by the map.
        let taken = &self.taken;
        let entered = taken.compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed);
        entered.is_ok()
    }

    fn leave(&self) {
        // Relaxed: as in `enter`.
        self.taken.store(false, Ordering::Relaxed);
        self.left.notify_all();
    }

    /// Those who wait to be let in look at the depth again.
    pub(super) fn look_again(&self) {
        self.left.notify_all();
    }
}

/// The bits of the one collector. What it has goes back unless it is taken out.
struct Collecting<'a> {
    queue: &'a Batched,
    bits: Vec<usize>,
}

impl<'a> Collecting<'a> {
    /// `None`: there are fewer than `n` bits by now.
    async fn begin(queue: &'a Batched, n: usize) -> Option<Self> {
        let turnstile = &queue.turnstile;
        let mut entered = false;
        let wait = || {
            entered = n <= queue.map.depth() && turnstile.enter();
            n <= queue.map.depth() && !entered
        };
        turnstile.left.listen_while(wait).await;
        if !entered {
            return None;
        }
        let this = Self {
            queue,
            bits: Vec::with_capacity(n),
        };
        // What a collector holds does not come back before it has the rest: no batch may wait for
        // those bits.
        this.wake_singly(true);
        Some(this)
    }

    /// Keeps a bit. It has no owner before all are delivered.
    fn keep(&mut self, bit: usize) {
        self.queue.map.set_owned(bit, false);
        self.bits.push(bit);
    }

    fn deliver(&mut self) -> Vec<usize> {
        for &bit in &self.bits {
            self.queue.map.set_owned(bit, true);
        }
        mem::take(&mut self.bits)
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
        let bits = self.deliver();
        let turnstile = &self.queue.turnstile;
        turnstile.leave();
        if !bits.is_empty() {
            // An error: a user has put one of them a second time, at the very moment it was taken.
            // What is back is back.
            let _ = self.queue.put_batch(&bits);
        }
    }
}

impl Batched {
    /// Takes `n` bits; the task waits until it has them all.
    pub(crate) async fn get_many(&self, n: usize) -> Result<Vec<usize>, GetManyError> {
        let collecting = Collecting::begin(self, n).await;
        let mut collecting = collecting.ok_or(GetManyError::TooMany)?;
        while collecting.bits.len() < n {
            let mut get = pin!(self.get());
            // A resize makes all waiters look again.
            let bit = poll_fn(|cx| {
                if n > self.map.depth() {
                    return Poll::Ready(Err(GetManyError::TooMany));
                }
                get.as_mut().poll(cx).map(Ok)
            });
            collecting.keep(bit.await?);
        }
        Ok(collecting.deliver())
    }
}
