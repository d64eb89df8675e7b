//! The sequence machine: who waits for which flush, and what comes next. Events go in, actions come
//! out; it does no IO, waits for nothing and reads no clock.
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod explore;
mod list;
mod mutation;
mod request;

use crate::Counters;
use inflight_sync::time::Instant;
use list::{List, Place, Requests};
use mutation::{Mutant, Mutation};

pub use list::Id;
pub use request::{Caps, Deferral, Flags, FlagsError, Step, Steps, steps};

/// What is to be done, in this order, after the lock around the machine is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action<E> {
    /// Start the request's data, before other data that waits to be started.
    Dispatch(Id),
    /// The request has ended: tell its owner, who [releases](Machine::release) it.
    Complete(Id, Result<(), E>),
    /// Flush the device, and say so by [`flush_done`](Machine::flush_done).
    IssueFlush {
        /// The generation it serves.
        generation: u64,
        /// Its first request. It has nothing else in flight while it waits, so a device with one
        /// tag uses this request's.
        first: Id,
    },
}

/// What leaving did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the flush of a running generation may be nobody's business now"]
pub enum Left {
    /// The request waited for a flush that is not issued yet.
    BeforeIssue,
    /// The request waited for the flush in flight, which may have other waiters.
    Running,
    /// The request does not wait for a flush: its data is under way, or it has ended.
    NotWaiting,
}

/// The state machine of the module's page. `E` is what a failed step says.
///
/// All methods take the time, from any clock that does not run backwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine<E> {
    caps: Caps,
    deferral: Deferral,
    /// It sees every write of the device, so it knows when there is nothing to flush.
    exclusive: bool,
    /// The generation that new waiters join.
    open: u64,
    running: Option<u64>,
    /// By the parity of the generation.
    waiting: [List; 2],
    /// Sequences whose data is under way.
    data_in_flight: u32,
    requests: Requests,
    /// Writes completed so far, and how many of them came before the start of the running flush
    /// and of the last one that succeeded.
    writes: u64,
    writes_at_issue: u64,
    writes_flushed: Option<u64>,
    issued_at: Instant,
    counters: Counters,
    mutant: Mutant,
    error: std::marker::PhantomData<E>,
}

impl<E: Copy> Machine<E> {
    /// A machine for a device.
    #[must_use]
    pub fn new(caps: Caps, deferral: Deferral) -> Self {
        Self {
            caps,
            deferral,
            exclusive: false,
            open: 0,
            running: None,
            waiting: [List::new(), List::new()],
            data_in_flight: 0,
            requests: Requests::new(),
            writes: 0,
            writes_at_issue: 0,
            writes_flushed: None,
            issued_at: Instant::default(),
            counters: Counters::default(),
            mutant: Mutant::default(),
            error: std::marker::PhantomData,
        }
    }

    /// Whether every write of the device goes through this machine. Then a flush that is asked for
    /// alone ends at once if no write has completed since the last successful flush was issued.
    #[must_use]
    pub const fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// What the device can do.
    #[must_use]
    pub const fn caps(&self) -> Caps {
        self.caps
    }

    /// What was done so far.
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
        let id = self.requests.insert(left);
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

    /// Tells that the data of a dispatched request has ended.
    pub fn data_done(
        &mut self,
        now: Instant,
        id: Id,
        result: Result<(), E>,
        actions: &mut Vec<Action<E>>,
    ) {
        let Place::Data { sequenced } = self.requests.get(id).place else {
            debug_assert!(false, "no data of this request is under way");
            return;
        };
        self.data_in_flight -= u32::from(sequenced);
        let entry = self.requests.get_mut(id);
        entry.left.advance();
        match result {
            Err(error) => {
                self.counters.failed_before += u64::from(entry.left.has(Step::Post));
                self.complete(id, Err(error), actions);
            }
            Ok(()) => {
                self.writes += 1;
                self.advance(now, id, actions);
            }
        }
        if !self.mutant.is(Mutation::NoIssueAfterData) {
            self.try_issue(now, actions);
        }
    }

    /// Tells that a durable write has failed, which a system may have told of the loss of others'
    /// data. It counts as a flush that has failed. [`data_done`](Machine::data_done) follows.
    pub fn durable_write_failed(&mut self) {
        self.counters.errors += 1;
        self.writes_flushed = None;
    }

    /// Tells that the flush of a generation has ended. Nothing happens if that generation's flush
    /// is not in flight.
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
        self.running = None;
        self.counters.flush_time.record(now - self.issued_at);
        match result {
            Ok(()) if self.mutant.is(Mutation::CleanAtEnd) => {
                self.writes_flushed = Some(self.writes);
            }
            Ok(()) => self.writes_flushed = Some(self.writes_at_issue),
            Err(_) => {
                self.counters.errors += 1;
                self.writes_flushed = None;
            }
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
        if !self.mutant.is(Mutation::NoIssueAfterFlush) {
            self.try_issue(now, actions);
        }
    }

    /// Issues a flush that somebody has waited for too long. Call it when
    /// [`next_deadline`](Machine::next_deadline) has come; more often does no harm.
    pub fn tick(&mut self, now: Instant, actions: &mut Vec<Action<E>>) {
        self.try_issue(now, actions);
    }

    /// When [`tick`](Machine::tick) would issue a flush, if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let Deferral::Bounded(limit) = self.deferral else {
            return None;
        };
        let list = self.list(self.open);
        (self.running.is_none() && !list.is_empty()).then(|| list.oldest + limit)
    }

    /// Takes a request out of the list in which it waits for a flush. It has ended then, without an
    /// action; its owner releases it.
    pub fn leave(&mut self, id: Id) -> Left {
        let Place::Waiting(generation) = self.requests.get(id).place else {
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

    /// Tells that the running flush was never carried out, since nobody waits for it any more.
    ///
    /// # Panics
    ///
    /// If somebody does.
    pub fn withdraw(&mut self, now: Instant, generation: u64, actions: &mut Vec<Action<E>>) {
        assert!(self.list(generation).is_empty(), "somebody waits for it");
        if self.running == Some(generation) {
            self.running = None;
            self.counters.withdrawn += 1;
            self.try_issue(now, actions);
        }
    }

    /// The first request that waits for the flush in flight.
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

    /// Whether there is nothing that a flush could make durable, as far as this machine sees.
    fn is_clean(&self) -> bool {
        self.exclusive && self.writes_flushed == Some(self.writes)
    }

    /// How many flushes the request needs behind the one that it waits for.
    fn flushes_behind(&self, id: Id) -> u64 {
        let left = self.requests.get(id).left;
        u64::from(left.has(Step::Post) && left.next() != Some(Step::Post))
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
            None => self.complete(id, Ok(()), actions),
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
        self.requests.get_mut(id).place = Place::Data { sequenced };
        actions.push(Action::Dispatch(id));
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
        self.writes_at_issue = self.writes;
        self.counters.issued += 1;
        self.counters.merged += u64::from(list.len);
        self.counters.max_merged = self.counters.max_merged.max(list.len.into());
        actions.push(Action::IssueFlush { generation, first });
    }
}
