//! One wait, as a thread or as a task. Event names as in `PROTOCOL.md`.

use super::Batched;
use super::wait_queues::WaiterPos;
use crate::close;
use crate::error::GetManyError;
use crate::request::{Ids, Outcome, Request};
use crate::share_limiter::ShareLimiter as _;
use inflight_sync::Parker;
use inflight_sync::time::Instant;
use inflight_sync::wait::Notify;
use std::mem;
use std::task::{Context, Poll, Waker};

/// The core of all waiting: a waiter that is in a queue, or not.
///
/// Dropping it leaves the queue, and passes on a wake that it had received.
#[derive(Debug)]
pub(crate) struct WaitGuard<'a> {
    pub(super) queue: &'a Batched,
    pub(super) waiter: &'a mut BatchedWaiter,
}

/// The request, and the position in a queue.
#[derive(Debug)]
pub(crate) struct BatchedWaiter {
    pub(crate) request: Request,
    place: Option<WaiterPos>,
    /// The wait queue that it was woken from: until it has its bit, it may overtake waiters.
    woken: Option<usize>,
}

impl BatchedWaiter {
    pub(crate) const fn new(request: Request) -> Self {
        Self {
            request,
            place: None,
            woken: None,
        }
    }

    pub(crate) const fn is_in_list(&self) -> bool {
        self.place.is_some()
    }
}

/// A bit that is put back if waking another waiter on the way out panics.
struct BitGuard<'a> {
    queue: &'a Batched,
    bit: usize,
}

impl BitGuard<'_> {
    fn take(self) -> usize {
        let bit = self.bit;
        mem::forget(self);
        bit
    }
}

impl Drop for BitGuard<'_> {
    fn drop(&mut self) {
        self.queue.waits.gate.shares.gives(self.bit);
        let returned = self.queue.put(self.bit);
        debug_assert!(returned.is_ok(), "the bit was ours");
    }
}

/// A waiter.
enum Who<'a> {
    Thread(&'a Parker),
    Task(&'a Waker),
}

impl WaitGuard<'_> {
    /// Looks for a bit if this waiter may look; registers the waiter if there is none.
    ///
    /// `None`: the waiter is in a queue and may sleep.
    fn poll_once(&mut self, who: &Who<'_>) -> Option<Result<usize, GetManyError>> {
        let waits = &self.queue.waits;
        if let Some(place) = self.waiter.place {
            let waits_on = match who {
                // A thread sets how it is notified when it begins to block.
                Who::Thread(_) => waits.is_waiting(place),
                Who::Task(waker) => waits.set_notify(place, Notify::Task((*waker).clone())),
            };
            if waits_on {
                return None;
            }
            // Chosen: this look consumes the wake.
            self.waiter.place = None;
            self.waiter.woken = Some(place.queue);
            waits.leave(place);
        }
        if let Err(why) = self.check() {
            self.pass_on_wake();
            return Some(Err(why));
        }
        if self.is_privileged() || self.queue.admits() {
            if let Some(bit) = self.try_get() {
                return Some(Ok(bit));
            }
        }
        let notify = match who {
            Who::Thread(parker) => Notify::Thread(parker.unparker()),
            Who::Task(waker) => Notify::Task((*waker).clone()),
        };
        let wake_info = waits
            .gate
            .wake_info(self.waiter.request, self.queue.map.depth());
        let keeps = waits.gate.loser_keeps_queue();
        let kept = self.waiter.woken.filter(|_| keeps);
        self.waiter.place = Some(waits.register(notify, wake_info, kept));
        // If a close or a shrink has woken all of that list before, it is seen here through the
        // list's lock.
        if let Err(why) = self.check() {
            self.leave_list();
            self.pass_on_wake();
            return Some(Err(why));
        }
        // S3: a bit freed before the registration was seen is found here.
        if !self.is_privileged() && !self.queue.admits_waiter() {
            return None;
        }
        let held = BitGuard {
            queue: self.queue,
            bit: self.try_get()?,
        };
        self.leave_list();
        Some(Ok(held.take()))
    }

    /// Whether it can ever have what it asks for.
    fn check(&self) -> Result<(), GetManyError> {
        close::check(self.queue.is_closed())?;
        self.waiter.request.check(self.queue.map.depth())
    }

    /// Passes on the wake that it has received, if any: it takes no bit for it.
    fn pass_on_wake(&mut self) {
        if self.waiter.woken.take().is_some() {
            self.queue.waits.pass_on(1);
        }
    }

    const fn is_privileged(&self) -> bool {
        self.waiter.woken.is_some() || self.waiter.request.privileged
    }

    fn try_get(&self) -> Option<usize> {
        let (gate, tenant) = (&self.queue.waits.gate, self.waiter.request.tenant);
        if !gate.shares.may_take(tenant) {
            return None;
        }
        let bit = self.queue.map.try_get()?;
        gate.shares.took(tenant, bit);
        Some(bit)
    }

    /// Leaves the queue. A wake received meanwhile was meant for a bit that this waiter does not
    /// take, so it is passed on.
    pub(crate) fn leave_list(&mut self) {
        let chosen = self
            .waiter
            .place
            .take()
            .is_some_and(|place| self.queue.waits.leave(place));
        if chosen {
            self.queue.waits.pass_on(1);
        }
    }

    /// A timed waiter's last look: it uses a wake that came just in time.
    ///
    /// If a chosen waiter finds nothing, another caller has overtaken it and has yet to put.
    fn try_at_deadline(&mut self) -> Option<usize> {
        let place = self.waiter.place.take()?;
        if self.queue.waits.leave(place) {
            self.waiter.woken = Some(place.queue);
        }
        self.try_get()
    }

    /// Takes a bit without waiting, whoever waits. If it is in a queue, it leaves: it uses the wake
    /// that it has received, and the task that waited must ask again.
    pub(crate) fn fetch(&mut self) -> Option<Outcome> {
        if let Err(closed) = close::check(self.queue.is_closed()) {
            return Some(Err(closed));
        }
        let held = BitGuard {
            queue: self.queue,
            bit: self.try_get()?,
        };
        if let Some(place) = self.waiter.place.take() {
            match self.queue.waits.leave_untold(place) {
                Some(notify) => notify.notify(),
                None => self.waiter.woken = Some(place.queue),
            }
        }
        Some(Ok(Ids::one(held.take())))
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.leave_list();
    }
}

impl WaitGuard<'_> {
    /// Waits as a task.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<Outcome> {
        let outcome = self.poll_once(&Who::Task(cx.waker()));
        outcome.map_or(Poll::Pending, |bit| Poll::Ready(bit.map(Ids::one)))
    }

    /// Waits as a thread.
    pub(crate) fn block(&mut self, deadline: Option<Instant>) -> Outcome {
        let (parker, clock) = (Parker::current(), &self.queue.clock);
        if let Some(place) = self.waiter.place {
            // It may have waited as a task until now. The look finds out if it was chosen.
            self.queue
                .waits
                .set_notify(place, Notify::Thread(parker.unparker()));
        }
        let mut look_at = None;
        loop {
            if let Some(bit) = self.poll_once(&Who::Thread(&parker)) {
                return bit.map(Ids::one);
            }
            let gate = &self.queue.waits.gate;
            let every = gate.shares.look_every(self.waiter.request.tenant);
            look_at = every.map(|every| look_at.unwrap_or_else(|| clock.now() + every));
            let Some(until) = deadline.into_iter().chain(look_at).min() else {
                parker.park();
                continue;
            };
            if parker.park_until(clock, until) {
                continue;
            }
            if deadline.is_some_and(|deadline| clock.now() >= deadline) {
                let bit = self.try_at_deadline().ok_or(GetManyError::TimedOut);
                return bit.map(Ids::one);
            }
            look_at = None;
            let may_take = gate.shares.may_take(self.waiter.request.tenant);
            if !may_take && gate.shares.look_for_idle(clock.now()) {
                self.queue.shares_changed();
            }
        }
    }
}

/// Waiters that their owner keeps apart from the queue.
impl Batched {
    /// Lends a waiter. If the guard is forgotten, the waiter keeps its position.
    pub(crate) const fn wait<'a>(&'a self, waiter: &'a mut BatchedWaiter) -> WaitGuard<'a> {
        WaitGuard {
            queue: self,
            waiter,
        }
    }
}
