//! One request in the machine, as a future.
//!
//! The owner of a request carries out its steps: the flush that it is chosen for and its own data.
//! The lock is held for the machine's steps only; waiters are woken after it is released.

use super::FlushDomain;
use super::tick::Ticker;
use crate::error::DeviceError;
use crate::machine::{Action, Flags, FlagsError, Id, Left, Machine};
use inflight_sync::time::Instant;
use inflight_sync::wait::{Notify, notify_each};
use std::future::{Future, poll_fn};
use std::io;
use std::task::{Context, Poll};

/// The next step of the owner of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// Carry out the flush of this generation.
    Lead(u64),
    /// Write its data.
    Data,
    /// Nothing.
    Ended(Result<(), DeviceError>),
}

/// One request's place in the domain, by the index of its id.
#[derive(Debug, Default)]
struct Waiter {
    next: Option<Next>,
    /// It has begun to carry out the flush in `next`.
    leads: bool,
    /// The waiter to wake when `next` is set.
    notify: Option<Notify>,
}

/// The data under the domain's lock.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) machine: Machine<DeviceError>,
    waiters: Vec<Waiter>,
    pub(super) poisoned: Option<DeviceError>,
    /// The time when the next `tick` was due after the last event.
    deadline: Option<Instant>,
    /// The thread that calls `tick`, if there is one.
    pub(super) ticker: Option<Ticker>,
}

impl Core {
    pub(super) fn new(machine: Machine<DeviceError>) -> Self {
        Self {
            machine,
            waiters: Vec::new(),
            poisoned: None,
            deadline: None,
            ticker: None,
        }
    }

    /// Notes the next step of each request; returns the waiters to wake.
    pub(super) fn apply(&mut self, actions: Vec<Action<DeviceError>>) -> Vec<Notify> {
        let mut told = Vec::new();
        for action in actions {
            told.extend(match action {
                Action::Dispatch(id) => self.set(id, Next::Data),
                Action::Complete(id, result) => self.set(id, Next::Ended(result)),
                Action::IssueFlush { generation, first } => self.set(first, Next::Lead(generation)),
            });
        }
        told.extend(self.late_ticker());
        told.extend(self.late_waiters());
        told
    }

    /// Returns the waiters that sleep without a deadline although a flush was delayed for them:
    /// threads that joined while another flush was in flight.
    fn late_waiters(&mut self) -> Vec<Notify> {
        let deadline = self.machine.next_deadline();
        if std::mem::replace(&mut self.deadline, deadline) == deadline || deadline.is_none() {
            return Vec::new();
        }
        let late: Vec<Id> = self.machine.waiting_for_issue().collect();
        let notify = |id: Id| self.waiter(id).notify.take();
        late.into_iter().filter_map(notify).collect()
    }

    fn set(&mut self, id: Id, next: Next) -> Option<Notify> {
        let waiter = self.waiter(id);
        (waiter.next, waiter.leads) = (Some(next), false);
        waiter.notify.take()
    }

    fn waiter(&mut self, id: Id) -> &mut Waiter {
        if self.waiters.len() <= id.index() {
            self.waiters.resize_with(id.index() + 1, Waiter::default);
        }
        &mut self.waiters[id.index()]
    }

    /// The flush of a generation has ended.
    fn flush_done(
        &mut self,
        now: Instant,
        generation: u64,
        result: Result<(), DeviceError>,
        actions: &mut Vec<Action<DeviceError>>,
    ) {
        self.poisoned = self.poisoned.or(result.err());
        self.machine.flush_done(now, generation, result, actions);
    }

    /// The data of a request has ended. A durable write is a flush, too.
    fn data_done(
        &mut self,
        now: Instant,
        id: Id,
        result: Result<(), DeviceError>,
        actions: &mut Vec<Action<DeviceError>>,
    ) {
        self.waiter(id).next = None;
        if self.machine.may_be_told(id) {
            self.poisoned = self.poisoned.or(result.err());
        }
        self.machine.data_done(now, id, result, actions);
    }

    /// Removes the request, whatever its state.
    fn leave(&mut self, now: Instant, id: Id) -> (Vec<Notify>, Option<Notify>) {
        let mut actions = Vec::new();
        let mut chosen = None;
        let Waiter { next, leads, .. } = *self.waiter(id);
        match (self.machine.leave(id), next) {
            (Left::Running, Some(Next::Lead(generation))) if leads => {
                // Nobody learns how this flush ends, and the system may report a loss to it alone:
                // the next flush would succeed without the lost data. So it counts as failed.
                let unheard = Err(DeviceError::UNHEARD);
                self.flush_done(now, generation, unheard, &mut actions);
            }
            (Left::Running, Some(Next::Lead(generation))) => {
                // Invariant: a flush in flight has a leader, or it is withdrawn.
                match self.machine.first_waiting(generation) {
                    Some(heir) => chosen = self.set(heir, Next::Lead(generation)),
                    None => self.machine.withdraw(now, generation, &mut actions),
                }
            }
            (Left::NotWaiting, Some(Next::Data)) => {
                let given_up = if self.machine.may_be_told(id) {
                    // As with a flush: nobody learns what the system reports to it.
                    DeviceError::UNHEARD
                } else {
                    io::ErrorKind::Interrupted.into()
                };
                self.data_done(now, id, Err(given_up), &mut actions);
            }
            _ => {}
        }
        let mut told = self.apply(actions);
        told.extend(chosen);
        self.machine.release(id);
        let waiter = self.waiter(id);
        waiter.next = None;
        (told, waiter.notify.take())
    }
}

/// A submitted request. Dropping it removes it: a flush that it was chosen to carry out passes to
/// another waiter for it; one that it has begun counts as failed, and so does its data.
#[derive(Debug)]
pub(super) struct Request {
    domain: FlushDomain,
    id: Id,
}

impl Request {
    /// Submits a request to the domain.
    pub(super) fn submit(domain: &FlushDomain, flags: Flags) -> Result<Self, FlagsError> {
        let (id, told) = domain.change_untold(|core, now, actions| {
            let id = core.machine.submit(now, flags, actions)?;
            // The last request with this number may have left a step.
            *core.waiter(id) = Waiter::default();
            Ok(id)
        });
        // Made before others are told: if a waker panics, its drop takes the request back.
        let request = id.map(|id| Self {
            domain: domain.clone(),
            id,
        });
        notify_each(told);
        request
    }

    pub(super) const fn domain(&self) -> &FlushDomain {
        &self.domain
    }

    /// Waits for the next step.
    async fn next(&self) -> Next {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&self, cx: &Context<'_>) -> Poll<Next> {
        // Cloning and dropping a waker may run anything, so not under the lock.
        let notify = Notify::Task(cx.waker().clone());
        let mut core = self.domain.inner.core.lock();
        let waiter = core.waiter(self.id);
        let (polled, outdated) = match waiter.next {
            Some(next) => {
                waiter.leads = matches!(next, Next::Lead(_));
                (Poll::Ready(next), Some(notify))
            }
            None => (Poll::Pending, waiter.notify.replace(notify)),
        };
        drop(core);
        drop(outdated);
        polled
    }

    /// Returns the result of the request, without waiting.
    pub(super) fn ended(&self) -> Option<Result<(), DeviceError>> {
        match self.domain.inner.core.lock().waiter(self.id).next {
            Some(Next::Ended(result)) => Some(result),
            _ => None,
        }
    }

    /// Returns whether its data is to be started now.
    pub(super) fn may_start(&self) -> bool {
        let next = self.domain.inner.core.lock().waiter(self.id).next;
        matches!(next, Some(Next::Data))
    }

    /// Waits for the flushes that are due, carrying out those that it is chosen for, up to its data
    /// or its end. Returns which of the two.
    pub(super) async fn proceed<F>(
        &self,
        lead: &mut impl FnMut() -> F,
    ) -> Option<Result<(), DeviceError>>
    where
        F: Future<Output = io::Result<()>>,
    {
        loop {
            match self.next().await {
                Next::Data => return None,
                Next::Ended(result) => return Some(result),
                Next::Lead(generation) => {
                    let result = lead().await;
                    self.flush_done(generation, result.map_err(|e| DeviceError::from(&e)));
                }
            }
        }
    }

    fn flush_done(&self, generation: u64, result: Result<(), DeviceError>) {
        self.domain.change(|core, now, actions| {
            // Its own next step is among the actions.
            core.waiter(self.id).next = None;
            core.flush_done(now, generation, result, actions);
        });
    }

    /// Records that its owner begins to write its data durably.
    pub(super) fn begin_durable_write(&self) {
        self.domain.inner.core.lock().machine.data_begun(self.id);
    }

    /// Reports the result of its data.
    pub(super) fn data_done(&self, result: Result<(), DeviceError>) {
        self.domain
            .change(|core, now, actions| core.data_done(now, self.id, result, actions));
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let now = self.domain.inner.clock.now();
        let (told, own) = self.domain.inner.core.lock().leave(now, self.id);
        drop(own);
        notify_each(told);
    }
}
