//! The sequence machine: which requests wait for which flush, and the next step of each. Events go
//! in, actions come out; it does no IO, waits for nothing and reads no clock.
//!
//! Requests that need a flush join the *open* generation. Issuing its flush makes it the *running*
//! one and opens the next. So a flush in flight never serves a request that came after it was
//! issued, and all that came between two issues share one. There are two lists, one for each of the
//! two generations that can have members.
//!
//! [`FlushDomain`](crate::FlushDomain) drives it under one lock; a simulator drives it in virtual
//! time. `PROTOCOL.md` has the events and the proof.
//!
//! ```
//! use inflight_flush::machine::{Action, Machine};
//! use inflight_flush::{Caps, Deferral, Flags};
//! use inflight_sync::time::Instant;
//!
//! let now = Instant::default();
//! let mut machine: Machine<()> = Machine::new(Caps::volatile(), Deferral::Off);
//! let mut actions = Vec::new();
//! let first = machine.submit(now, Flags::flush(), &mut actions)?;
//! let Action::IssueFlush { generation, .. } = actions.remove(0) else { panic!() };
//! let second = machine.submit(now, Flags::flush(), &mut actions)?; // not served by that flush
//! let third = machine.submit(now, Flags::flush(), &mut actions)?; // shares the next one
//! assert!(actions.is_empty());
//! machine.flush_done(now, generation, Ok(()), &mut actions);
//! assert_eq!(actions[0], Action::Complete(first, Ok(())));
//! let Action::IssueFlush { generation, .. } = actions[1] else { panic!() };
//! actions.clear();
//! machine.flush_done(now, generation, Ok(()), &mut actions);
//! assert_eq!(actions, [Action::Complete(second, Ok(())), Action::Complete(third, Ok(()))]);
//! # Ok::<(), inflight_flush::FlagsError>(())
//! ```

mod calls;
#[cfg(all(test, not(any(loom, shuttle))))]
mod explore;
mod list;
mod mutation;
mod request;

use crate::Counters;
use calls::{Calls, Owner};
use inflight_sync::time::Instant;
use list::{List, Place, Requests};
use mutation::{Mutant, Mutation};

pub use list::Id;
pub use request::{Caps, Deferral, Flags, FlagsError, Step, Steps, steps};

/// An action of the caller's, in this order, after the lock around the machine is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action<E> {
    /// Start the request's data, before other data that waits to be started.
    Dispatch(Id),
    /// The request has ended: report it to its owner, which [releases](Machine::release) it.
    Complete(Id, Result<(), E>),
    /// Flush the device, and report the end by [`flush_done`](Machine::flush_done).
    IssueFlush {
        /// The generation it serves.
        generation: u64,
        /// Its first request. It has nothing else in flight while it waits, so a device with one
        /// tag uses this request's.
        first: Id,
    },
}

/// The state of a request that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a running flush without waiters has to be withdrawn"]
pub enum Left {
    /// The request waited for a flush that is not issued yet.
    BeforeIssue,
    /// The request waited for the flush in flight, which may have other waiters.
    Running,
    /// The request does not wait for a flush: its data is under way, or it has ended.
    NotWaiting,
}

/// The state machine of the module's page. `E` is the error of a failed step.
///
/// All methods take the time, from any clock that does not run backwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine<E> {
    caps: Caps,
    deferral: Deferral,
    /// It sees every write of the device, so it knows when there is nothing to flush.
    exclusive: bool,
    /// The system reports a loss only to one call.
    tells_once: bool,
    /// The generation that new waiters join.
    open: u64,
    running: Option<u64>,
    /// By the parity of the generation.
    waiting: [List; 2],
    /// Sequences whose data is under way.
    data_in_flight: u32,
    requests: Requests,
    /// Writes completed so far; how many of them came before the running flush was issued; and how
    /// many before the last successful one was.
    writes: u64,
    writes_at_issue: u64,
    writes_flushed: Option<u64>,
    issued_at: Instant,
    /// The number of the running flush, until it has ended at the device.
    flush_call: Option<u64>,
    /// How many calls had failed when it was issued.
    failed_at_issue: u64,
    calls: Calls,
    last_error: Option<E>,
    counters: Counters,
    mutant: Mutant,
}

impl<E: Copy> Machine<E> {
    /// Makes a machine for a device.
    #[must_use]
    pub fn new(caps: Caps, deferral: Deferral) -> Self {
        Self {
            caps,
            deferral,
            exclusive: false,
            tells_once: false,
            open: 0,
            running: None,
            waiting: [List::new(), List::new()],
            data_in_flight: 0,
            requests: Requests::new(),
            writes: 0,
            writes_at_issue: 0,
            writes_flushed: None,
            issued_at: Instant::default(),
            flush_call: None,
            failed_at_issue: 0,
            calls: Calls::default(),
            last_error: None,
            counters: Counters::default(),
            mutant: Mutant::default(),
        }
    }

    /// Sets whether every write of the device uses this machine. Then a flush that is asked for
    /// alone ends at once if no write has ended, well or not, since the last successful flush was
    /// issued.
    #[must_use]
    pub const fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    pub(crate) const fn is_exclusive(&self) -> bool {
        self.exclusive
    }

    /// Sets whether the device is a file behind a system's cache. The system reports a loss once:
    /// to a flush or to a durable write, whichever is first. Then a success is reported when the
    /// calls of the same time have ended, and a failed durable write counts as a failed flush.
    #[must_use]
    pub const fn tells_once(mut self, tells_once: bool) -> Self {
        self.tells_once = tells_once;
        self
    }

    /// Returns what the device can do.
    #[must_use]
    pub const fn caps(&self) -> Caps {
        self.caps
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes a request. It ends with [`Action::Complete`], which may be among the actions already.
    ///
    /// # Errors
    ///
    /// If the request asks for something that does not exist.
    pub fn submit(
        &mut self,
        now: Instant,
        flags: Flags,
        actions: &mut Vec<Action<E>>,
    ) -> Result<Id, FlagsError> {
        let left = steps(flags, self.caps)?;
        let id = self.requests.insert(left, flags.fua);
        if left.has(Step::Pre) {
            let kind = if flags.data {
                &mut self.counters.requested_pre
            } else {
                &mut self.counters.requested_empty
            };
            *kind += 1;
        }
        self.counters.requested_post += u64::from(left.has(Step::Post));
        let sequenced = left.has(Step::Pre) || left.has(Step::Post);
        if !sequenced && flags.data {
            self.dispatch(id, false, actions);
        } else if !flags.data && left.has(Step::Pre) && self.is_clean() {
            self.counters.elided += 1;
            self.complete(id, Ok(()), actions);
        } else {
            self.advance(now, id, actions);
            self.try_issue(now, actions);
        }
        Ok(id)
    }

    /// Records that the data of a dispatched request begins now. Needed if it is a durable write of
    /// a device that [reports a loss once](Machine::tells_once).
    pub fn data_begun(&mut self, id: Id) {
        let failed = self.counters.errors;
        let durable = self.caps.native_fua && self.caps.volatile_cache && self.tells_once;
        let entry = self.requests.get_mut(id);
        if let Place::Data { call, .. } = &mut entry.place {
            if durable && entry.fua && call.is_none() {
                entry.failed_before = failed;
                *call = Some(self.calls.begin());
            }
        }
    }

    /// Returns whether a durable write of the request has begun to which a loss may be reported.
    #[must_use]
    pub fn may_be_told(&self, id: Id) -> bool {
        matches!(
            self.requests.get(id).place,
            Place::Data { call: Some(_), .. }
        )
    }

    /// Records that the data of a dispatched request has ended, or was given up.
    ///
    /// If a loss [is reported once](Machine::tells_once), a durable write that has begun and failed
    /// counts as a failed flush, because it may have got the report of the loss of other data. A
    /// successful one ends when all calls that were under way at the same time have ended, and
    /// fails if a call has failed since it began.
    pub fn data_done(
        &mut self,
        now: Instant,
        id: Id,
        result: Result<(), E>,
        actions: &mut Vec<Action<E>>,
    ) {
        let Place::Data { sequenced, call } = self.requests.get(id).place else {
            debug_assert!(false, "no data of this request is under way");
            return;
        };
        self.data_in_flight -= u32::from(sequenced);
        // Data that failed or was given up, too: some of it, or all, may be on the device.
        self.writes += 1;
        let entry = self.requests.get_mut(id);
        entry.left.advance();
        if let Some(call) = call {
            entry.place = Place::Held;
            self.calls.end(call, result.ok().map(|()| Owner::Write(id)));
        }
        match result {
            Err(error) => {
                if call.is_some() {
                    self.call_failed(error);
                }
                self.counters.failed_before += self.flushes_left(id);
                self.complete(id, Err(error), actions);
            }
            Ok(()) => {
                if call.is_none() {
                    self.advance(now, id, actions);
                }
            }
        }
        self.report(now, actions);
        if !self.mutant.is(Mutation::NoIssueAfterData) {
            self.try_issue(now, actions);
        }
    }

    /// Records that the flush of a generation has ended. Does nothing if that generation's flush is
    /// not in flight.
    ///
    /// If a loss [is reported once](Machine::tells_once), a successful flush is reported when all
    /// durable writes that were under way at the same time have ended, and fails if one has failed
    /// since it was issued.
    pub fn flush_done(
        &mut self,
        now: Instant,
        generation: u64,
        result: Result<(), E>,
        actions: &mut Vec<Action<E>>,
    ) {
        if self.running != Some(generation) {
            return;
        }
        let Some(call) = self.flush_call.take() else {
            return;
        };
        self.counters.flush_time.record(now - self.issued_at);
        self.calls
            .end(call, result.ok().map(|()| Owner::Flush(generation)));
        if let Err(error) = result {
            self.call_failed(error);
            self.end_flush(now, generation, Err(error), actions);
        }
        self.report(now, actions);
        if !self.mutant.is(Mutation::NoIssueAfterFlush) {
            self.try_issue(now, actions);
        }
    }

    /// Issues a flush for which a request has waited too long. Call it when
    /// [`next_deadline`](Machine::next_deadline) has come; more calls do no harm.
    pub fn tick(&mut self, now: Instant, actions: &mut Vec<Action<E>>) {
        self.try_issue(now, actions);
    }

    /// Returns when [`tick`](Machine::tick) would issue a flush, if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let Deferral::Bounded(limit) = self.deferral else {
            return None;
        };
        let list = self.list(self.open);
        (self.running.is_none() && !list.is_empty()).then(|| list.oldest + limit)
    }

    /// Removes a request from the list in which it waits for a flush. The request has ended then,
    /// without an action; its owner releases it.
    pub fn leave(&mut self, id: Id) -> Left {
        let Place::Waiting(generation) = self.requests.get(id).place else {
            if self.requests.get(id).place == Place::Held {
                self.calls.forget(id);
                self.requests.get_mut(id).place = Place::Ended;
            }
            return Left::NotWaiting;
        };
        self.unlink(generation, id);
        self.requests.get_mut(id).place = Place::Ended;
        self.counters.cancelled += self.flushes_behind(id);
        if self.running == Some(generation) {
            return Left::Running;
        }
        self.counters.cancelled += 1;
        Left::BeforeIssue
    }

    /// Records that the running flush was never carried out, because no request waits for it any
    /// more.
    ///
    /// # Panics
    ///
    /// If a request waits for it.
    pub fn withdraw(&mut self, now: Instant, generation: u64, actions: &mut Vec<Action<E>>) {
        assert!(
            self.list(generation).is_empty(),
            "a request waits for the flush of generation {generation}"
        );
        if self.running != Some(generation) {
            return;
        }
        // One that has ended is reported.
        let Some(call) = self.flush_call.take() else {
            return;
        };
        self.running = None;
        self.calls.end(call, None);
        self.counters.withdrawn += 1;
        self.report(now, actions);
        self.try_issue(now, actions);
    }

    /// Returns the first request that waits for the flush in flight.
    #[must_use]
    pub fn first_waiting(&self, generation: u64) -> Option<Id> {
        (self.running == Some(generation))
            .then(|| self.list(generation).first())
            .flatten()
    }

    /// Forgets a request that has ended. Its id may name another one from now on.
    pub fn release(&mut self, id: Id) {
        self.requests.release(id);
    }

    /// The requests that wait for a flush that is not issued yet.
    pub(crate) fn waiting_for_issue(&self) -> impl Iterator<Item = Id> + '_ {
        self.requests.iter(self.list(self.open))
    }

    /// Returns whether a flush or a durable write is under way. Another one that succeeds is
    /// reported when that has ended.
    #[must_use]
    pub fn calls_are_under_way(&self) -> bool {
        self.calls.are_under_way()
    }

    /// Whether there is nothing that a flush could make durable, as far as this machine sees.
    fn is_clean(&self) -> bool {
        self.exclusive && self.writes_flushed == Some(self.writes)
    }

    /// How many flushes the request needs behind the one that it waits for.
    fn flushes_behind(&self, id: Id) -> u64 {
        let left = self.requests.get(id).left;
        u64::from(left.has(Step::Post) && left.next() != Some(Step::Post))
    }

    /// Flushes that the request has not got yet.
    fn flushes_left(&self, id: Id) -> u64 {
        u64::from(self.requests.get(id).left.has(Step::Post))
    }

    /// A call of the device has failed: what it was to make durable may be lost, and so may be what
    /// others have written.
    fn call_failed(&mut self, error: E) {
        self.counters.errors += 1;
        self.last_error = Some(error);
        self.writes_flushed = None;
    }

    /// The last failure, if more calls have failed than had before.
    fn failed_since(&self, before: u64) -> Result<(), E> {
        match self.last_error {
            Some(error) if self.counters.errors > before => Err(error),
            _ => Ok(()),
        }
    }

    /// Reports the successes that have waited for the calls beside them.
    fn report(&mut self, now: Instant, actions: &mut Vec<Action<E>>) {
        while let Some(owner) = self.calls.next_confirmed(self.mutant) {
            match owner {
                Owner::Write(id) => self.advance(now, id, actions),
                Owner::Flush(generation) => {
                    let mut result = self.failed_since(self.failed_at_issue);
                    if self.mutant.is(Mutation::FlushIgnoresFailures) {
                        result = Ok(());
                    }
                    self.end_flush(now, generation, result, actions);
                }
            }
        }
    }

    /// Ends a flush, and brings the requests that it serves to their next step.
    fn end_flush(
        &mut self,
        now: Instant,
        generation: u64,
        result: Result<(), E>,
        actions: &mut Vec<Action<E>>,
    ) {
        debug_assert!(self.running == Some(generation));
        self.running = None;
        match result {
            Ok(()) if self.mutant.is(Mutation::CleanAtEnd) => {
                self.writes_flushed = Some(self.writes);
            }
            Ok(()) => self.writes_flushed = Some(self.writes_at_issue),
            Err(_) => self.writes_flushed = None,
        }
        while let Some(id) = self.list(generation).first() {
            self.unlink(generation, id);
            let joined = self.requests.get(id).joined;
            self.counters.wait_time.record(now - joined);
            match result {
                Err(error) => {
                    self.counters.failed_before += self.flushes_behind(id);
                    self.complete(id, Err(error), actions);
                }
                Ok(()) => {
                    self.requests.get_mut(id).left.advance();
                    self.advance(now, id, actions);
                }
            }
        }
    }

    fn list(&self, generation: u64) -> &List {
        &self.waiting[(generation & 1) as usize]
    }

    fn unlink(&mut self, generation: u64, id: Id) {
        let list = &mut self.waiting[(generation & 1) as usize];
        self.requests.unlink(list, id);
    }

    /// Brings the request to its next step.
    fn advance(&mut self, now: Instant, id: Id, actions: &mut Vec<Action<E>>) {
        match self.requests.get(id).left.next() {
            Some(Step::Data) => self.dispatch(id, true, actions),
            None => self.succeed(id, actions),
            Some(Step::Pre | Step::Post) => {
                self.counters.joined_behind_running += u64::from(self.running.is_some());
                let generation = match self.running {
                    Some(running) if self.mutant.is(Mutation::JoinRunning) => running,
                    _ => self.open,
                };
                self.requests.get_mut(id).place = Place::Waiting(generation);
                let list = &mut self.waiting[(generation & 1) as usize];
                self.requests.push_back(list, id, now);
            }
        }
    }

    fn dispatch(&mut self, id: Id, sequenced: bool, actions: &mut Vec<Action<E>>) {
        self.data_in_flight += u32::from(sequenced);
        self.counters.data_dispatched += 1;
        let failed = self.counters.errors;
        let entry = self.requests.get_mut(id);
        let call = None;
        entry.place = Place::Data { sequenced, call };
        entry.failed_before = failed;
        actions.push(Action::Dispatch(id));
    }

    /// All steps have succeeded. If the data was to be durable, its loss may have been reported to
    /// another call.
    fn succeed(&mut self, id: Id, actions: &mut Vec<Action<E>>) {
        let entry = self.requests.get(id);
        let result =
            if entry.fua && self.tells_once && !self.mutant.is(Mutation::DataIgnoresFailures) {
                self.failed_since(entry.failed_before)
            } else {
                Ok(())
            };
        self.complete(id, result, actions);
    }

    fn complete(&mut self, id: Id, result: Result<(), E>, actions: &mut Vec<Action<E>>) {
        self.requests.get_mut(id).place = Place::Ended;
        actions.push(Action::Complete(id, result));
    }

    fn try_issue(&mut self, now: Instant, actions: &mut Vec<Action<E>>) {
        let list = *self.list(self.open);
        let Some(first) = list.first() else { return };
        if self.running.is_some() && !self.mutant.is(Mutation::IssueTwice) {
            return;
        }
        match self.deferral {
            Deferral::Bounded(limit) if self.data_in_flight > 0 => {
                if now < list.oldest + limit {
                    self.counters.deferred_by_data += 1;
                    return;
                }
                self.counters.forced_by_timeout += 1;
            }
            Deferral::Bounded(_) | Deferral::Off => {}
        }
        let generation = self.open;
        self.running = Some(generation);
        self.open += 1;
        self.issued_at = now;
        self.flush_call = Some(self.calls.begin());
        self.failed_at_issue = self.counters.errors;
        self.writes_at_issue = self.writes;
        self.counters.issued += 1;
        self.counters.merged += u64::from(list.len);
        self.counters.max_merged = self.counters.max_merged.max(list.len.into());
        actions.push(Action::IssueFlush { generation, first });
    }
}
