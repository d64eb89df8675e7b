//! Getting several bits together: one collector at a time, so that two collectors never wait for
//! each other's bits.

use super::Batched;
use super::wait::BatchedWaiter;
use super::wake_batch::Sizing;
use crate::close;
use crate::error::GetManyError;
use crate::request::Request;
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::panics::FirstPanic;
use inflight_sync::wait::Event;
use std::future::poll_fn;
use std::mem;

/// Lets one collector in.
#[derive(Debug, Default)]
pub(super) struct CollectorLock {
    taken: AtomicBool,
    left: Event,
}

impl CollectorLock {
    /// Whether the caller got the lock.
    fn enter(&self) -> bool {
        // Relaxed: it orders nothing. The lock of the size protects what collectors share, and the
        // map publishes the bits.
        let taken = &self.taken;
        let entered = taken.compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed);
        entered.is_ok()
    }

    fn leave(&self) {
        // Relaxed: as in `enter`.
        self.taken.store(false, Ordering::Relaxed);
        self.left.notify_all();
    }

    /// Makes the callers that wait for the lock check the depth again.
    pub(super) fn wake_all(&self) {
        self.left.notify_all();
    }
}

/// The bits of the collector. Unless they are taken out, they are put back.
struct Collecting<'a> {
    queue: &'a Batched,
    bits: Vec<usize>,
    /// Whether it still holds the lock.
    inside: bool,
}

impl<'a> Collecting<'a> {
    async fn begin(queue: &'a Batched, n: usize) -> Result<Self, GetManyError> {
        let collector = &queue.collector;
        // Made when it enters: it leaves also if the drop of its own waker panics then.
        let mut entered = Ok(None);
        let wait = || {
            let enter = || collector.enter().then(|| Self::inside(queue, n));
            entered = queue.can_have(n).map(|()| enter());
            matches!(entered, Ok(None))
        };
        collector.left.listen_while(wait).await;
        let this = entered?.expect("the wait has ended, so it has entered");
        this.queue.set_collecting(true);
        Ok(this)
    }

    /// For a caller that has just entered.
    fn inside(queue: &'a Batched, n: usize) -> Self {
        Self {
            queue,
            bits: Vec::with_capacity(n),
            inside: true,
        }
    }

    /// Keeps a bit. It has no owner until all are there.
    fn push(&mut self, bit: usize) {
        self.queue.map.set_granted(bit, true);
        self.bits.push(bit);
    }

    fn take_owned(&mut self) -> Vec<usize> {
        for &bit in &self.bits {
            self.queue.map.set_granted(bit, false);
        }
        mem::take(&mut self.bits)
    }
}

impl Collecting<'_> {
    /// Lets the next collector in, also if a waker panics; the bits are then still here.
    fn leave(&mut self) {
        if mem::take(&mut self.inside) {
            let mut panic = FirstPanic::default();
            panic.run(|| self.queue.set_collecting(false));
            panic.run(|| self.queue.collector.leave());
            panic.finish();
        }
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        let mut panic = FirstPanic::default();
        panic.run(|| self.leave());
        let bits = self.take_owned();
        if !bits.is_empty() {
            // An error: a user has put one of them a second time just when it was taken. The others
            // are back.
            let _ = panic.run(|| self.queue.put_batch(&bits));
        }
        panic.finish();
    }
}

impl Batched {
    /// A waiter begins to keep bits while it waits for more, or ends. It puts none before it has
    /// all, so no batch may wait for those bits.
    pub(crate) fn set_collecting(&self, begins: bool) {
        let change = |sizing: &mut Sizing| match begins {
            true => sizing.collectors += 1,
            false => sizing.collectors -= 1,
        };
        if self.set_sizing(change) {
            self.waits.wake_all();
        }
    }

    /// Returns whether a caller can ever have `n` bits.
    fn can_have(&self, n: usize) -> Result<(), GetManyError> {
        close::check(self.is_closed())?;
        Request::together(n).check(self.map.depth())
    }

    /// Takes `n` bits; the task waits until it has all.
    pub(crate) async fn get_many(&self, n: usize) -> Result<Vec<usize>, GetManyError> {
        let mut collecting = Collecting::begin(self, n).await?;
        while collecting.bits.len() < n {
            // One bit, with a least depth of `n`: a shrink then also refuses a waiter that is
            // registering.
            let request = Request {
                least_depth: n,
                ..Request::one(0)
            };
            let mut waiter = BatchedWaiter::new(request);
            let mut wait = self.wait(&mut waiter);
            let bit = poll_fn(|cx| wait.poll(cx)).await?;
            collecting.push(bit.only());
        }
        collecting.leave();
        Ok(collecting.take_owned())
    }
}
