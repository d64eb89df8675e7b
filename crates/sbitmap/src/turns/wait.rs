//! One waiter's stay, as a thread or as a task. Events G3 to G7 and A1 to A4.

use super::chosen::Chosen;
use super::line::Line;
use super::list::{Ids, Kind, Node, State, Ticket};
use super::{Turns, credits};
use crate::get_many::{GetManyError, Many};
use crate::store::Store;
use inflight_sync::time::Instant;
use inflight_sync::wait::{Notify, Teller};
use inflight_sync::{MutexGuard, Parker, thread};
use std::mem;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long a woken thread may take before the watcher no longer counts on it. Doubles for a
/// watcher that finds nothing, up to this times `WATCH_LONGEST`.
const WATCH: Duration = Duration::from_millis(10);
const WATCH_LONGEST: u32 = 32;

/// A wait for `want` ids that come together. Dropping it leaves the list and gives back whatever it
/// had been granted.
#[derive(Debug)]
pub(super) struct Wait<'a, S: Store> {
    turns: &'a Turns<S>,
    want: usize,
    ticket: Option<Ticket>,
    /// The last grant when the watcher looked last.
    seen: u32,
}

/// Ids from a node, which go back unless they are taken out: telling others may panic.
struct Held<'a, S: Store> {
    turns: &'a Turns<S>,
    ids: Ids,
}

impl<S: Store> Held<'_, S> {
    fn take(mut self) -> Ids {
        self.deliver();
        mem::replace(&mut self.ids, Ids::One(None))
    }

    fn deliver(&self) {
        for &id in self.ids.as_slice() {
            self.turns.store.deliver(id);
        }
    }
}

impl<S: Store> Drop for Held<'_, S> {
    fn drop(&mut self) {
        self.deliver();
        let ids = self.ids.as_slice();
        if !ids.is_empty() {
            // An error: a user has put one of them a second time, and that put was not told from
            // a good one. What is back is back.
            let _ = self.turns.put_batch(ids);
        }
    }
}

/// How a wait ended.
pub(super) type Outcome = Result<Ids, GetManyError>;

enum Look {
    Over(Outcome),
    Waiting {
        /// Whether this thread is the watcher.
        watches: bool,
    },
}

impl<'a, S: Store> Wait<'a, S> {
    pub(super) fn new(turns: &'a Turns<S>, want: usize) -> Self {
        Self {
            turns,
            want,
            ticket: None,
            seen: 0,
        }
    }

    pub(super) const fn is_in_list(&self) -> bool {
        self.ticket.is_some()
    }

    pub(super) const fn wants_nothing(&self) -> bool {
        self.want == 0
    }

    pub(super) const fn store(&self) -> &S {
        &self.turns.store
    }

    /// G3 to G6. `None`: the waiter is in the list and may sleep.
    fn join(&mut self, notify: Notify) -> Option<Outcome> {
        let turns = self.turns;
        // Tasks take no turns: their wake is cheap.
        let thread = matches!(notify, Notify::Thread(_));
        let in_turn = thread && self.want == 1;
        let turn = if in_turn { turns.turn() } else { None };
        let credits = match turn {
            Some(turn) => turn.credits - 1,
            None if in_turn => turns.rules.quantum - 1,
            None => 0,
        };
        // Before room is made for them. The depth may change: once more with the lock.
        if self.want > 1 && self.want > turns.store.depth() {
            return Some(Err(GetManyError::TooMany));
        }
        let ids = match self.want {
            1 => Ids::One(None),
            n => Ids::for_many(n),
        };
        let node = Node::new(notify, self.want, ids, credits);
        let mut chosen = Chosen::default();
        let mut line = turns.line.lock();
        if self.want > 1 && self.want > turns.store.depth() {
            drop(line);
            return Some(Err(GetManyError::TooMany));
        }
        // G3. Whoever has its turn goes on with it.
        let front = turn.is_some();
        let behind = !front && !line.list.is_empty();
        let ticket = if front {
            line.list.push_front(node)
        } else {
            line.list.push_back(node)
        };
        self.ticket = Some(ticket);
        self.seen = line.serial;
        if thread {
            line.set_watcher(ticket, front);
        }
        if behind && turns.store.is_settled() {
            // The head is who it was, and so is what puts know: whoever serves it serves me too.
            line.waits += 1;
            return None;
        }
        turns.serve(&mut line, Some(ticket), &mut chosen); // G5
        let waits = line.list.is_waiting(ticket);
        line.waits += u64::from(waits);
        if waits && !turns.store.is_settled() {
            drop(line);
            turns.store.settle(); // G4
            line = turns.line.lock();
            turns.serve(&mut line, Some(ticket), &mut chosen); // G5
        }
        if line.list.is_waiting(ticket) {
            turns.tell(line, chosen, Teller::default());
            return None;
        }
        Some(self.arrive(line, chosen))
    }

    /// A1 to A4: the wait is over. The next head is served, and whatever is foreign runs without
    /// the lock.
    fn arrive(&mut self, mut line: MutexGuard<'_, Line>, mut chosen: Chosen) -> Outcome {
        let turns = self.turns;
        let ticket = self.ticket.take().expect("it was in the list");
        let node = line.list.remove(ticket).expect("its owner fetches it once");
        if let State::Granted { serial, token } = node.state {
            if turns.rules.quantum > 1 && node.kind == Kind::Thread && self.want == 1 {
                credits::set(turns.number, serial, node.credits);
            }
            if line.return_token(token) {
                turns.serve(&mut line, None, &mut chosen); // A2 A3
            }
        }
        let held = Held {
            turns,
            ids: node.ids,
        };
        turns.tell(line, chosen, Teller::default());
        drop(node.notify);
        match node.state {
            State::Granted { .. } => Ok(held.take()),
            State::Waiting | State::Refused => Err(GetManyError::TooMany),
        }
    }

    /// Whether the wait is over; if not, a task is told by `waker` from now on.
    fn look(&mut self, ticket: Ticket, waker: Option<&Waker>) -> Look {
        let turns = self.turns;
        let mut line = turns.line.lock();
        let mut fresh = None;
        let told_by = |line: &Line, waker: &Waker| {
            let notify = line.list.peek(ticket).and_then(|node| node.notify.as_ref());
            matches!(notify, Some(Notify::Task(old)) if old.will_wake(waker))
        };
        if let Some(waker) =
            waker.filter(|waker| line.list.is_waiting(ticket) && !told_by(&line, waker))
        {
            // A waker may run anything when it is cloned or dropped: neither under the lock.
            drop(line);
            fresh = Some(Notify::Task(waker.clone()));
            line = turns.line.lock();
        }
        if !line.list.is_waiting(ticket) {
            let over = self.arrive(line, Chosen::default());
            return Look::Over(over);
        }
        if let (Some(_), Some(node)) = (&fresh, line.list.node(ticket)) {
            mem::swap(&mut node.notify, &mut fresh);
        }
        let watches = line.is_watcher(ticket);
        drop(line);
        drop(fresh);
        Look::Waiting { watches }
    }

    /// The watcher's look: a token that has been out since its last one is given up. Returns
    /// whether a token is out that may have been for a shorter time.
    fn watch(&mut self) -> bool {
        let turns = self.turns;
        let mut line = turns.line.lock();
        let is_out = turns.gate.is_closed();
        let stalled = is_out && line.serial == self.seen;
        self.seen = line.serial;
        if stalled && line.give_up_tokens() {
            turns.serve_and_tell(line, Chosen::default());
        }
        is_out && !stalled
    }

    /// Ends the wait whatever its state. A grant that came just in time is kept.
    fn leave(&mut self) -> Option<Outcome> {
        let turns = self.turns;
        let ticket = self.ticket?;
        let mut line = turns.line.lock();
        if !line.list.is_waiting(ticket) {
            return Some(self.arrive(line, Chosen::default()));
        }
        self.ticket = None;
        let node = line.list.remove(ticket).expect("it waits");
        let mut chosen = Chosen::default();
        if let Some(watcher) = line.replace_watcher(ticket) {
            chosen.push(Some(watcher));
        }
        turns.serve(&mut line, None, &mut chosen);
        // What a waiter for several had collected goes back when the next is served.
        let _collected = Held {
            turns,
            ids: node.ids,
        };
        turns.tell(line, chosen, Teller::default());
        drop(node.notify);
        None
    }

    /// Waits as a thread. `None`: the deadline has passed.
    fn block(&mut self, deadline: Option<Instant>) -> Option<Outcome> {
        let parker = Parker::current();
        let over = self.join(Notify::Thread(parker.unparker()));
        if over.is_some() {
            return over;
        }
        let clock = &self.turns.clock;
        let tokens = self.turns.rules.tokens != u32::MAX;
        let mut interval = WATCH;
        let mut watch_at = tokens.then(|| clock.now() + interval);
        loop {
            // G7.
            let until = deadline.into_iter().chain(watch_at).min();
            let passed = match until {
                Some(until) => !parker.park_until(clock, until),
                None => {
                    parker.park();
                    false
                }
            };
            if passed && deadline.is_some_and(|deadline| clock.now() >= deadline) {
                return self.leave();
            }
            match self.look(self.ticket?, None) {
                Look::Over(outcome) => return Some(outcome),
                Look::Waiting { watches } if watches && tokens => {
                    if passed {
                        interval = if self.watch() {
                            WATCH
                        } else {
                            (interval * 2).min(WATCH * WATCH_LONGEST)
                        };
                    }
                    if passed || watch_at.is_none() {
                        watch_at = Some(clock.now() + interval);
                    }
                }
                Look::Waiting { .. } => watch_at = None,
            }
        }
    }

    /// Waits as a task.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<Outcome> {
        let outcome = match self.ticket {
            None => self.join(Notify::Task(cx.waker().clone())),
            Some(ticket) => match self.look(ticket, Some(cx.waker())) {
                Look::Over(outcome) => Some(outcome),
                Look::Waiting { .. } => None,
            },
        };
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<S: Store> Drop for Wait<'_, S> {
    fn drop(&mut self) {
        if cfg!(loom) && thread::panicking() {
            // Why: a model that has failed says why. One more step would panic again, and abort.
            return;
        }
        if let Some(Ok(ids)) = self.leave() {
            drop(Held {
                turns: self.turns,
                ids,
            });
        }
    }
}

impl<S: Store> Turns<S> {
    pub(crate) fn get_blocking(&self) -> usize {
        self.get(None)
            .expect("a wait without deadline ends with an id")
    }

    /// Waits for one id; for ever without a deadline.
    pub(crate) fn get(&self, deadline: Option<Instant>) -> Option<usize> {
        let id = self.try_get().or_else(|| self.yield_in_turn());
        if id.is_some() {
            return id;
        }
        let outcome = Wait::new(self, 1).block(deadline)?;
        outcome.ok()?.as_slice().first().copied()
    }

    /// Gives the completer, should it share the CPU, a chance to put an id before this turn sleeps.
    fn yield_in_turn(&self) -> Option<usize> {
        for _ in 0..self.rules.yields {
            self.turn()?;
            thread::yield_now();
            let id = self.try_get();
            if id.is_some() {
                return id;
            }
        }
        None
    }

    /// Waits for `n` ids that come together.
    pub(crate) fn get_many(&self, n: usize, deadline: Option<Instant>) -> Many {
        if n == 0 {
            return Ok(Vec::new());
        }
        match Wait::new(self, n).block(deadline) {
            Some(outcome) => outcome.map(Ids::into_vec),
            None => Err(GetManyError::TimedOut),
        }
    }
}
