//! One waiter's stay, as a thread or as a task. Event names as in `PROTOCOL.md`.

use super::Batched;
use super::wake::Place;
use crate::above::Request;
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
    seat: Seat,
}

/// What is asked for, and the place in a queue.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) request: Request,
    place: Option<Place>,
    /// It has slept: until it has its bit it may try whoever waits.
    woken: bool,
}

impl Seat {
    pub(crate) const fn new(request: Request) -> Self {
        Self {
            request,
            place: None,
            woken: false,
        }
    }

    pub(crate) const fn is_in_list(&self) -> bool {
        self.place.is_some()
    }
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
        self.queue.waits.entrance.gives(self.bit);
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
        if let Some(place) = self.seat.place {
            let waker = match who {
                Who::Thread(_) => None,
                Who::Task(waker) => Some(*waker),
            };
            if waits.still_waiting(place, waker) {
                return None;
            }
            // Chosen: this look consumes the wake.
            self.seat.place = None;
            self.seat.woken = true;
            waits.leave(place);
        }
        if self.is_privileged() || self.queue.admits() {
            if let Some(bit) = self.try_get() {
                return Some(bit);
            }
        }
        let notify = match who {
            Who::Thread(parker) => Notify::Thread(parker.unparker()),
            Who::Task(waker) => Notify::Task((*waker).clone()),
        };
        let mark = waits
            .entrance
            .mark(self.seat.request, self.queue.map.depth());
        self.seat.place = Some(waits.register(notify, mark));
        // S3: a bit that was freed before the registration was seen is seen here.
        if !self.is_privileged() && !self.queue.admits_in_line() {
            return None;
        }
        let held = Held {
            queue: self.queue,
            bit: self.try_get()?,
        };
        self.give_up();
        Some(held.take())
    }

    const fn is_privileged(&self) -> bool {
        self.seat.woken || self.seat.request.privileged
    }

    fn try_get(&self) -> Option<usize> {
        let (entrance, class) = (&self.queue.waits.entrance, self.seat.request.class);
        if !entrance.may_take(class) {
            return None;
        }
        let bit = self.queue.map.try_get()?;
        entrance.took(class, bit);
        Some(bit)
    }

    /// Leaves the queue. A wake that had been received meanwhile was meant for a bit that this
    /// waiter does not take, so somebody else gets it.
    fn give_up(&mut self) {
        let chosen = self
            .seat
            .place
            .take()
            .is_some_and(|place| self.queue.waits.leave(place));
        if chosen {
            self.queue.waits.pass_on(1);
        }
    }

    /// A timed waiter's last look: a wake that came just in time is used, not passed on.
    ///
    /// A chosen waiter that finds nothing has met an overtaker, whose put is still to come.
    fn last_look(&mut self) -> Option<usize> {
        self.seat.woken |= self.queue.waits.leave(self.seat.place.take()?);
        self.try_get()
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Stay<'_> {
    /// Waits as a thread. `None`: the deadline has passed.
    fn block(&mut self, until: Option<(&Clock, Instant)>) -> Option<usize> {
        let parker = Parker::current();
        loop {
            if let Some(bit) = self.look(&Who::Thread(&parker)) {
                return Some(bit);
            }
            match until {
                None => parker.park(),
                Some((clock, deadline)) => {
                    if !parker.park_until(clock, deadline) {
                        return self.last_look();
                    }
                }
            }
        }
    }
}

pub(crate) fn block(queue: &Batched) -> usize {
    let bit = queue.map.try_get();
    bit.unwrap_or_else(|| {
        let bit = Get::new(queue).0.block(None);
        bit.expect("a wait without deadline ends with a bit")
    })
}

pub(crate) fn block_until(queue: &Batched, clock: &Clock, deadline: Instant) -> Option<usize> {
    Get::new(queue).0.block(Some((clock, deadline)))
}

/// Stays that their owner keeps apart from the queue: of crates above.
impl Batched {
    /// Lends a seat to its stay. Should `f` panic, the queue has been left.
    fn with<R>(&self, seat: &mut Seat, f: impl FnOnce(&mut Stay<'_>) -> R) -> R {
        let nowhere = || Seat::new(Request::one(0));
        let mut stay = Stay {
            queue: self,
            seat: std::mem::replace(seat, nowhere()),
        };
        let result = f(&mut stay);
        *seat = std::mem::replace(&mut stay.seat, nowhere());
        result
    }

    pub(crate) fn poll_seat(&self, seat: &mut Seat, cx: &Context<'_>) -> Poll<usize> {
        let bit = self.with(seat, |stay| stay.look(&Who::Task(cx.waker())));
        bit.map_or(Poll::Pending, Poll::Ready)
    }

    pub(crate) fn block_seat(
        &self,
        seat: &mut Seat,
        until: Option<(&Clock, Instant)>,
    ) -> Option<usize> {
        self.with(seat, |stay| stay.block(until))
    }

    pub(crate) fn leave_seat(&self, seat: &mut Seat) {
        self.with(seat, |stay| stay.give_up());
    }
}

/// A task's wait for a bit.
#[derive(Debug)]
pub(crate) struct Get<'a>(Stay<'a>);

impl<'a> Get<'a> {
    pub(crate) fn new(queue: &'a Batched) -> Self {
        Self(Stay {
            queue,
            seat: Seat::new(Request::one(0)),
        })
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
