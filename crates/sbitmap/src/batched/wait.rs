//! One waiter's stay, as a thread or as a task. Event names as in `PROTOCOL.md`.

use super::Batched;
use super::wake::Place;
use inflight_sync::Parker;
use inflight_sync::time::{Clock, Instant};
use inflight_sync::wait::Notify;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The common core of all waiting: a waiter that is in a queue, or not.
///
/// Dropping it leaves the queue; a wake that it had received is passed on.
#[derive(Debug)]
struct Stay<'a> {
    queue: &'a Batched,
    place: Option<Place>,
}

/// A bit that goes back if the wake of somebody else, who is told on the way out, panics.
struct Held<'a> {
    queue: &'a Batched,
    bit: usize,
}

impl Held<'_> {
    fn take(self) -> usize {
        let bit = self.bit;
        std::mem::forget(self);
        bit
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let returned = self.queue.put(self.bit);
        debug_assert!(returned.is_ok(), "the bit was ours");
    }
}

/// Who waits.
enum Who<'a> {
    Thread(&'a Parker),
    Task(&'a Waker),
}

impl Stay<'_> {
    /// Looks for a bit if it is this waiter's turn to look; registers it if there is none.
    ///
    /// `None`: the waiter is in a queue and may sleep.
    fn look(&mut self, who: &Who<'_>) -> Option<usize> {
        let waits = &self.queue.waits;
        if let Some(place) = self.place {
            let waker = match who {
                Who::Thread(_) => None,
                Who::Task(waker) => Some(*waker),
            };
            if waits.still_waiting(place, waker) {
                return None;
            }
            // Chosen: this look consumes the wake.
            self.place = None;
            waits.leave(place);
        }
        if let Some(bit) = self.queue.map.try_get() {
            return Some(bit);
        }
        self.place = Some(waits.register(match who {
            Who::Thread(parker) => Notify::Thread(parker.unparker()),
            Who::Task(waker) => Notify::Task((*waker).clone()),
        }));
        // S3: a bit that was freed before the registration was seen is seen here.
        let held = Held {
            queue: self.queue,
            bit: self.queue.map.try_get()?,
        };
        self.give_up();
        Some(held.take())
    }

    /// Leaves the queue. A wake that had been received meanwhile was meant for a bit that this
    /// waiter does not take, so somebody else gets it.
    fn give_up(&mut self) {
        let chosen = self
            .place
            .take()
            .is_some_and(|place| self.queue.waits.leave(place));
        if chosen {
            self.queue.waits.pass_on();
        }
    }

    /// A timed waiter's last look: a wake that came just in time is used, not passed on.
    ///
    /// A chosen waiter that finds nothing has met an overtaker, whose put is still to come.
    fn last_look(&mut self) -> Option<usize> {
        self.queue.waits.leave(self.place.take()?);
        self.queue.map.try_get()
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

pub(crate) fn block(queue: &Batched) -> usize {
    if let Some(bit) = queue.map.try_get() {
        return bit;
    }
    let parker = Parker::current();
    let mut stay = Stay { queue, place: None };
    loop {
        if let Some(bit) = stay.look(&Who::Thread(&parker)) {
            return bit;
        }
        parker.park();
    }
}

pub(crate) fn block_until(queue: &Batched, clock: &Clock, deadline: Instant) -> Option<usize> {
    let parker = Parker::current();
    let mut stay = Stay { queue, place: None };
    loop {
        if let Some(bit) = stay.look(&Who::Thread(&parker)) {
            return Some(bit);
        }
        if !parker.park_until(clock, deadline) {
            return stay.last_look();
        }
    }
}

/// A task's wait for a bit.
#[derive(Debug)]
pub(crate) struct Get<'a>(Stay<'a>);

impl<'a> Get<'a> {
    pub(crate) fn new(queue: &'a Batched) -> Self {
        Self(Stay { queue, place: None })
    }
}

impl Future for Get<'_> {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        match self.0.look(&Who::Task(cx.waker())) {
            Some(bit) => Poll::Ready(bit),
            None => Poll::Pending,
        }
    }
}
