//! One wait, as a thread or as a task. Events G3 to G7 and A1 to A4.

use super::list::{Node, NodeKey, WaiterState, is_thread};
use super::stall_watchdog::{WATCH, WATCH_LONGEST};
use super::wait_queue::WaitQueue;
use super::wake::WakeSet;
use super::{Turns, turn};
use crate::close;
use crate::error::GetManyError;
use crate::request::{Ids, Outcome, Request};
use crate::share_limiter::ShareLimiter as _;
use crate::store::Store;
use inflight_sync::time::Instant;
use inflight_sync::wait::{Notify, Wakers};
use inflight_sync::{MutexGuard, Parker, thread};
use std::mem;
use std::task::{Context, Poll, Waker};

/// The request, and the position in the list.
#[derive(Debug)]
pub(crate) struct TurnsWaiter {
    /// The part of the request that is still wanted.
    pub(super) request: Request,
    place: Option<NodeKey>,
    /// The last grant at the watchdog's last check.
    seen: u32,
}

impl TurnsWaiter {
    pub(crate) const fn new(request: Request) -> Self {
        Self {
            request,
            place: None,
            seen: 0,
        }
    }

    pub(crate) const fn is_in_list(&self) -> bool {
        self.place.is_some()
    }
}

/// A wait in the list of one queue. Dropping it leaves the list and puts back the ids granted to
/// it.
#[derive(Debug)]
pub(crate) struct Wait<'a, S: Store> {
    pub(super) turns: &'a Turns<S>,
    pub(super) waiter: &'a mut TurnsWaiter,
}

/// Ids from a node, which are put back unless they are taken out: waking others may panic.
struct UnfetchedIds<'a, S: Store> {
    turns: &'a Turns<S>,
    ids: Ids,
}

impl<S: Store> UnfetchedIds<'_, S> {
    fn take(mut self) -> Ids {
        self.set_owned();
        mem::replace(&mut self.ids, Ids::One(None))
    }

    fn set_owned(&self) {
        for &id in self.ids.as_slice() {
            self.turns.store.set_owned(id);
        }
    }
}

impl<S: Store> Drop for UnfetchedIds<'_, S> {
    fn drop(&mut self) {
        self.set_owned();
        let ids = self.ids.as_slice();
        if !ids.is_empty() {
            let shares = &self.turns.shares;
            ids.iter().for_each(|&id| shares.gives(id));
            // An error: a user has put one of them a second time, and that put looked like a good
            // one. The others are back.
            let _ = self.turns.put_batch(ids);
        }
    }
}

impl<'a, S: Store> Wait<'a, S> {
    /// G3 to G6. `None` if the waiter is in the list and may sleep.
    fn join(&mut self, notify: Notify) -> Option<Outcome> {
        let turns = self.turns;
        // Tasks have no turns: waking them is cheap.
        let thread = is_thread(&notify);
        let mut request = self.waiter.request;
        let want = request.want;
        let in_turn = thread && want == 1 && !request.large;
        let turn = if in_turn { turns.turn() } else { None };
        let credits = match turn {
            Some(turn) => turn.credits - 1,
            None if in_turn => turns.rules.quantum - 1,
            None => 0,
        };
        // Checked before room is allocated. The depth may change, so it is checked again with the
        // lock.
        if let Err(refused) = request.check(turns.store.depth()) {
            return Some(Err(refused));
        }
        let ids = match request.part.min(want) {
            1 if want == 1 => Ids::One(None),
            n => Ids::for_many(n),
        };
        let mut chosen = WakeSet::default();
        let mut queue = turns.wait_queue.lock();
        if let Err(closed) = close::check(queue.closed) {
            return Some(Err(closed));
        }
        // Read once: a second read could return another depth, which would limit the part.
        let depth = turns.store.depth();
        if let Err(refused) = request.check(depth) {
            return Some(Err(refused));
        }
        request.part = request.part.clamp(1, depth);
        let node = Node::new(notify, request, ids, credits);
        // G3. A thread in its turn continues with it.
        let front = turn.is_some();
        let others_wait = !queue.list.is_empty();
        let key = queue.list.push(node, front);
        // With several lists the next waiter may be another one now.
        let behind = !front && others_wait && queue.list.tenants.has_one_list();
        self.waiter.place = Some(key);
        self.waiter.seen = turns.unlocked.grants();
        if thread {
            queue.set_watchdog(key, front);
        }
        if behind && turns.store.is_drained() {
            // The head has not changed, and neither has what puts know: the thread that serves the
            // head serves this one too.
            queue.waits += 1;
            return None;
        }
        // While there are waiters a drained store stays drained: then one look at the words is
        // enough. Otherwise ids may come into the words after the look without anyone being told.
        let one_look = turns.is_announced() && turns.store.is_drained();
        turns.serve(&mut queue, Some(key), &mut chosen); // G5
        let waits = !queue.list.is_served(key);
        queue.waits += u64::from(waits);
        // A waiter that has its first part stays too, and relies on puts that find the list.
        if queue.list.is_waiting(key) && !one_look {
            if !turns.store.is_drained() {
                drop(queue);
                turns.store.drain_percpu(); // G4
                queue = turns.wait_queue.lock();
            }
            turns.serve(&mut queue, Some(key), &mut chosen); // G5
        }
        if !queue.list.is_served(key) {
            turns.wake(queue, &mut chosen, Wakers::default());
            return None;
        }
        Some(self.arrive(key, queue, &mut chosen))
    }

    /// A1 to A4: the wait is over. Serves the next head, and runs the user's code without the lock.
    fn arrive(
        &mut self,
        key: NodeKey,
        mut queue: MutexGuard<'_, WaitQueue>,
        chosen: &mut WakeSet,
    ) -> Outcome {
        let turns = self.turns;
        if let Some((ids, token, outdated)) = queue.list.take_part(key) {
            self.waiter.request.want -= ids.as_slice().len();
            queue.return_token(token);
            turns.serve(&mut queue, None, chosen); // A2 A3: it continues
            let held = UnfetchedIds { turns, ids };
            turns.wake(queue, chosen, Wakers::default());
            drop(outdated);
            return Ok(held.take());
        }
        self.waiter.place = None;
        let closed = queue.closed;
        let node = queue.list.remove(key).expect("a waiter is removed once");
        if let WaiterState::Granted { serial } = node.state {
            let one = node.want == 1 && !node.large;
            if turns.rules.quantum > 1 && node.is_thread && one {
                turn::set(turns.number, serial, node.credits);
            }
            if queue.return_token(node.token) {
                turns.serve(&mut queue, None, chosen); // A2 A3
            }
        }
        let held = UnfetchedIds {
            turns,
            ids: node.ids,
        };
        turns.wake(queue, chosen, Wakers::default());
        drop(node.notify);
        match node.state {
            WaiterState::Granted { .. } => {
                let ids = held.take();
                self.waiter.request.want -= ids.as_slice().len();
                Ok(ids)
            }
            WaiterState::Refused { depth } => {
                close::check(closed)?;
                let n = node.least_depth;
                Err(GetManyError::TooMany { n, depth })
            }
            WaiterState::Waiting => unreachable!("a wait that is over was granted or refused"),
        }
    }

    /// Ends a wait that is over; otherwise returns the list's lock.
    fn arrive_if_served(&mut self, key: NodeKey) -> Result<Outcome, MutexGuard<'a, WaitQueue>> {
        let queue = self.turns.wait_queue.lock();
        if queue.list.is_served(key) {
            Ok(self.arrive(key, queue, &mut WakeSet::default()))
        } else {
            Err(queue)
        }
    }

    /// Ends a task's wait if it is over; otherwise `waker` wakes it from now on.
    fn poll_in_list(&mut self, key: NodeKey, waker: &Waker) -> Option<Outcome> {
        let queue = match self.arrive_if_served(key) {
            Ok(outcome) => return Some(outcome),
            Err(queue) => queue,
        };
        let notify = queue.list.peek(key).and_then(|node| node.notify.as_ref());
        if matches!(notify, Some(Notify::Task(old)) if old.will_wake(waker)) {
            return None;
        }
        // Cloning a waker may run anything, so it is not done under the lock.
        drop(queue);
        self.come_back(key, Notify::Task(waker.clone()))
    }

    /// The watchdog's check: gives up a token that has been out since its last check. Returns
    /// whether a token is out that may have been out for a shorter time.
    fn watch(&mut self) -> bool {
        let turns = self.turns;
        let mut queue = turns.wait_queue.lock();
        let is_out = turns.unlocked.awaits_token();
        let grants = turns.unlocked.grants();
        let stalled = is_out && grants == self.waiter.seen;
        self.waiter.seen = grants;
        if stalled && queue.give_up_tokens() {
            turns.serve_and_wake(queue, Wakers::default());
        }
        is_out && !stalled
    }

    /// Ends the wait whatever its state. Keeps a grant that came just in time, and a part.
    fn leave(&mut self) -> Option<Outcome> {
        let key = self.waiter.place?;
        let waiting = match self.arrive_if_served(key) {
            Ok(outcome) => return Some(outcome),
            Err(queue) => queue,
        };
        self.abandon(key, waiting);
        None
    }

    /// Leaves the list, if it is in it.
    pub(crate) fn leave_list(&mut self) {
        if cfg!(loom) && thread::panicking() {
            // A failed model reports why. One more step would panic again, and abort.
            return;
        }
        if let Some(key) = self.waiter.place {
            self.abandon(key, self.turns.wait_queue.lock());
        }
    }

    /// Leaves the list. Ids granted and not fetched go to others.
    fn abandon(&mut self, key: NodeKey, mut queue: MutexGuard<'_, WaitQueue>) {
        let turns = self.turns;
        self.waiter.place = None;
        let mut chosen = WakeSet::default();
        let waits = queue.list.is_waiting(key);
        if waits {
            queue
                .replace_watchdog(key)
                .into_iter()
                .for_each(|watchdog| chosen.push(watchdog));
        }
        let node = queue.list.remove(key).expect("a waiter is removed once");
        if queue.return_token(node.token) || waits {
            turns.serve(&mut queue, None, &mut chosen);
        }
        // Put back when the next is served.
        let _unfetched = UnfetchedIds {
            turns,
            ids: node.ids,
        };
        turns.wake(queue, &mut chosen, Wakers::default());
        drop(node.notify);
    }

    /// Fetches what was granted, if anything. The waiter keeps its position.
    pub(crate) fn fetch(&mut self) -> Option<Outcome> {
        let key = self.waiter.place?;
        self.arrive_if_served(key).ok()
    }

    /// The owner of a position waits again: `notify` wakes it from now on.
    fn come_back(&mut self, key: NodeKey, notify: Notify) -> Option<Outcome> {
        let turns = self.turns;
        let mut queue = match self.arrive_if_served(key) {
            Ok(outcome) => return Some(outcome),
            Err(queue) => queue,
        };
        let thread = is_thread(&notify);
        let node = queue.list.node(key)?;
        // Dropping a waker may run anything, so it is not done under the lock.
        let outdated = node.notify.replace(notify);
        let changes = mem::replace(&mut node.is_thread, thread) != thread;
        let mut chosen = WakeSet::default();
        if changes {
            self.waiter.seen = self.turns.unlocked.grants();
            let watchdog = queue.change_watchdog(key);
            watchdog
                .into_iter()
                .for_each(|watchdog| chosen.push(watchdog));
            // K: a task needs no token.
            turns.serve(&mut queue, Some(key), &mut chosen);
        }
        turns.wake(queue, &mut chosen, Wakers::default());
        drop(outdated);
        // No one else tells this thread what it has served itself.
        if changes { self.fetch() } else { None }
    }

    /// Waits as a thread.
    pub(crate) fn block(&mut self, deadline: Option<Instant>) -> Outcome {
        let parker = Parker::current();
        let notify = Notify::Thread(parker.unparker());
        let over = match self.waiter.place {
            None => self.join(notify),
            Some(key) => self.come_back(key, notify),
        };
        if let Some(outcome) = over {
            return outcome;
        }
        let clock = &self.turns.clock;
        // What may be missed while one sleeps: a token that is lost, a limit that begins.
        let shares = &self.turns.shares;
        let watches = self.turns.rules.tokens != u32::MAX || shares.is_some();
        let mut interval = WATCH;
        let mut watch_at = watches.then(|| clock.now() + interval);
        let mut look_at = None;
        loop {
            // G7.
            let tenant = self.waiter.request.tenant;
            let next = |every| look_at.unwrap_or_else(|| clock.now() + every);
            look_at = shares.look_every(tenant).map(next);
            let until = deadline.into_iter().chain(watch_at).chain(look_at).min();
            let passed = match until {
                Some(until) => !parker.park_until(clock, until),
                None => {
                    parker.park();
                    false
                }
            };
            let now = clock.now();
            if passed && deadline.is_some_and(|deadline| now >= deadline) {
                return self.leave().unwrap_or(Err(GetManyError::TimedOut));
            }
            if passed && look_at.is_some_and(|at| now >= at) {
                if !shares.may_take(tenant) {
                    self.turns.look_for_idle(now);
                }
                look_at = None;
            }
            let watched = passed && watch_at.is_some_and(|at| now >= at);
            let key = self.waiter.place.expect("the waiter is in the list");
            let is_watchdog = match self.arrive_if_served(key) {
                Ok(outcome) => return outcome,
                Err(mut queue) => queue.is_watchdog(key),
            };
            if !(is_watchdog && watches) {
                watch_at = None;
                continue;
            }
            if watched {
                interval = if self.watch() {
                    WATCH
                } else {
                    (interval * 2).min(WATCH * WATCH_LONGEST)
                };
            }
            if watched || watch_at.is_none() {
                watch_at = Some(clock.now() + interval);
            }
        }
    }

    /// Waits as a task.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<Outcome> {
        let outcome = match self.waiter.place {
            None => self.join(Notify::Task(cx.waker().clone())),
            Some(key) => self.poll_in_list(key, cx.waker()),
        };
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<S: Store> Drop for Wait<'_, S> {
    fn drop(&mut self) {
        self.leave_list();
    }
}

/// Waiters that their owner keeps apart from the queue.
impl<S: Store> Turns<S> {
    /// Lends a waiter. If the wait is forgotten, the waiter keeps its position.
    pub(crate) const fn wait<'a>(&'a self, waiter: &'a mut TurnsWaiter) -> Wait<'a, S> {
        Wait {
            turns: self,
            waiter,
        }
    }
}
