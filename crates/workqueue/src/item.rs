//! An item: its state word, where it is, and all that can be done to it.
//!
//! Protocol (the names are those of `PROTOCOL.md`): the state word says whether the item is
//! pending, whether it runs and in which pool, and as which instance it was queued last. Whoever
//! changes it by a read-modify-write decides; the entry that goes through gate and pool is good for
//! one instance. What is rare is under the place lock.

use crate::door::{self, Home};
use crate::error::{DisableError, JoinError, NotDisabled, WouldDeadlock};
use crate::panics::{Payload, caught, dispose, message};
use crate::place::Place;
use crate::timekeeper;
use crate::work::Queued;
use crate::worker;
use inflight_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use inflight_sync::recycled::Recycled;
use inflight_sync::{Arc, Mutex, MutexGuard};
use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;

/// It has been queued and its run has not begun.
const PENDING: u64 = 1;
/// From the claim to the end of the run.
const RUNNING: u64 = 1 << 1;
/// Somebody waits for it: whoever ends what it does tells.
const AWAITED: u64 = 1 << 2;
/// `disable` without `enable` yet.
const DISABLED: u64 = 1 << 3;
/// A `cancel_sync` is at work.
const CANCELLING: u64 = 1 << 4;
const BLOCKED: u64 = DISABLED | CANCELLING;
/// The pool of the last claim.
const POOL_SHIFT: u32 = 8;
const POOL_MASK: u64 = (POOL_KEYS as u64 - 1) << POOL_SHIFT;
/// How often it has been queued; names each time. Wraps.
const INSTANCE_SHIFT: u32 = 32;
const INSTANCE_ONE: u64 = 1 << INSTANCE_SHIFT;

/// Pools are named by numbers below this.
pub(crate) const POOL_KEYS: u32 = 1 << (INSTANCE_SHIFT - POOL_SHIFT);

/// One queueing of an item.
pub(crate) type Instance = u32;

/// No ticket: it is active.
const NO_TICKET: u64 = u64::MAX;

const fn instance_of(state: u64) -> Instance {
    (state >> INSTANCE_SHIFT) as Instance
}

const fn pool_of(state: u64) -> u32 {
    ((state & POOL_MASK) >> POOL_SHIFT) as u32
}

/// Whether `instance` is `last` or came before it. They are never far apart.
const fn is_up_to(instance: Instance, last: Instance) -> bool {
    last.wrapping_sub(instance) as i32 >= 0
}

pub(crate) type WorkRef = Recycled<Item<dyn Run>>;

/// What an item does.
pub(crate) trait Run: Send + Sync {
    /// For traces, stall reports and panics.
    fn name(&self) -> &str;

    /// Runs it to its end, panics included.
    fn run(&self) -> Ran;

    /// Names its function, so that the next item with the same one is recognized. A hint.
    fn function(&self) -> usize {
        Self::run as fn(&Self) -> Ran as usize
    }

    /// Whether it may ever say that it is to run again.
    fn may_repeat(&self) -> bool {
        false
    }

    /// It will not run; whoever waits for it is told why.
    fn discard(&self, _why: JoinError) {}
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Returned,
    /// With what it said, if it was a text.
    Panicked(Option<String>),
    Cancelled,
}

/// What came of a run.
pub(crate) enum Ran {
    Over(Ended),
    /// It returned, and is to run again.
    Again,
}

/// An item's name, for people.
pub(crate) type Name = Cow<'static, str>;

pub(crate) struct Reusable<F> {
    pub(crate) name: Name,
    pub(crate) f: F,
}

impl<F: Fn() + Send + Sync> Run for Reusable<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self) -> Ran {
        match caught(&self.f) {
            Ok(()) => Ran::Over(Ended::Returned),
            Err(payload) => panicked(payload),
        }
    }
}

/// A function that says whether it is to run again.
pub(crate) struct Repeating<F> {
    pub(crate) name: Name,
    pub(crate) f: F,
}

impl<F: Fn() -> ControlFlow<()> + Send + Sync> Run for Repeating<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn may_repeat(&self) -> bool {
        true
    }

    fn run(&self) -> Ran {
        match caught(&self.f) {
            Ok(ControlFlow::Continue(())) => Ran::Again,
            Ok(ControlFlow::Break(())) => Ran::Over(Ended::Returned),
            Err(payload) => panicked(payload),
        }
    }
}

fn panicked(payload: Payload) -> Ran {
    let message = message(&payload);
    dispose(payload);
    Ran::Over(Ended::Panicked(message))
}

pub(crate) struct Item<R: ?Sized> {
    /// PENDING and so on, the pool of the last claim, the last instance.
    state: AtomicU64,
    /// The instance that runs, stored just after its claim: until then an older one.
    running: AtomicU32,
    /// Names the queue that `place.home` leads to; that keeps the name from being given again.
    home: AtomicUsize,
    /// Which gate of that queue, and which front end if it waits. Written with PENDING just set, as
    /// `ticket` a hint for those who look for the entry; they know it by its instance.
    gate: AtomicU32,
    /// Its ticket if it was inactive at first. Written under the gate's lock, and `gate` before.
    ticket: AtomicU64,
    place: Mutex<Place>,
    run: R,
}

/// What is left to do after an item was taken back, outside all locks.
#[must_use]
pub(crate) enum Taken {
    /// A worker has it in hand, and will find that it cannot claim it.
    InHand,
    Queued(Box<door::Withdrawn>),
    Armed {
        /// Dropping them may run foreign code.
        _armed: timekeeper::Armed,
        _alarm: Option<timekeeper::Alarm>,
    },
}

impl Taken {
    fn disarm(armed: timekeeper::Armed) -> Self {
        let _alarm = armed.disarm();
        Self::Armed {
            _armed: armed,
            _alarm,
        }
    }

    pub(crate) fn settle(self) {
        if let Self::Queued(withdrawn) = self {
            withdrawn.settle();
        }
    }
}

/// A pending item between two places. Its lock is held.
#[must_use]
pub(crate) struct Uprooted {
    /// What it is called from now on.
    pub(crate) instance: Instance,
    taken: Taken,
}

impl Uprooted {
    /// Outside all locks. Whoever waited for the old instance looks again.
    pub(crate) fn settle(self, work: &WorkRef) {
        self.taken.settle();
        work.tell();
    }
}

/// Why S2 did not queue an item.
pub(crate) enum Unset {
    Answer(Queued),
    /// It runs in another pool than the one it was to go to.
    RunsElsewhere,
}

/// S2 is done.
#[derive(Clone, Copy)]
pub(crate) struct Set {
    pub(crate) instance: Instance,
    /// The item runs, in the pool it is to go to.
    pub(crate) may_be_running: bool,
}

impl<R: Run> Item<R> {
    /// An item that is queued once: for who waits for it, and for the queue.
    pub(crate) fn new(run: R) -> (Recycled<Self>, Recycled<Self>) {
        Recycled::two(Self::made(Place::default(), run))
    }

    /// An item that is queued again and again, which allocates nothing.
    pub(crate) fn lasting(run: R) -> WorkRef
    where
        R: 'static,
    {
        Recycled::unsize(Recycled::new(Self::made(Place::lasting(), run)), |item| {
            item
        })
    }

    fn made(place: Place, run: R) -> Self {
        Self {
            state: AtomicU64::new(0),
            running: AtomicU32::new(0),
            home: AtomicUsize::new(0),
            gate: AtomicU32::new(0),
            ticket: AtomicU64::new(NO_TICKET),
            place: Mutex::new(place),
            run,
        }
    }
}

impl<R: Run + ?Sized> Item<R> {
    /// Names the item among all that exist. The next one may have the same: `PROTOCOL.md`, "Names
    /// of items".
    pub(crate) fn key(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>().addr()
    }

    pub(crate) fn name(&self) -> &str {
        self.run.name()
    }

    pub(crate) fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock()
    }

    /// What it does, for those who know it.
    pub(crate) fn what(&self) -> &R {
        &self.run
    }

    /// S1: whether queueing would change nothing. Takes no lock.
    pub(crate) fn refuses(&self) -> Option<Queued> {
        // Relaxed: a guess; what is not refused here is decided by S2.
        let seen = self.state.load(Ordering::Relaxed);
        if seen & BLOCKED != 0 {
            return Some(Queued::Disabled);
        }
        if seen & PENDING == 0 {
            return None;
        }
        self.is_pending_for_sure().then_some(Queued::AlreadyPending)
    }

    /// A write, though it changes nothing: what this caller stored before goes to the run it found
    /// pending.
    fn is_pending_for_sure(&self) -> bool {
        // Ordering: S1, Release RMW, pairs with the RMW of `claim` (C2), which reads from it or
        // from a later RMW.
        self.state.fetch_or(0, Ordering::Release) & PENDING != 0
    }

    /// The pool that runs the item now. A guess, unless S2 finds the same.
    pub(crate) fn runner(&self) -> Option<u32> {
        // Relaxed: as said.
        let seen = self.state.load(Ordering::Relaxed);
        (seen & RUNNING != 0).then(|| pool_of(seen))
    }

    /// S2: sets PENDING for an item on its way to that pool, or to wait for its time, unless
    /// queueing is refused or the item runs in another pool.
    pub(crate) fn set_pending(&self, pool: Option<u32>) -> Result<Set, Unset> {
        // Relaxed, all: the entry goes from lock to lock; RMWs pass on what S1 and C4 released.
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            if seen & BLOCKED != 0 {
                return Err(Unset::Answer(Queued::Disabled));
            }
            if seen & PENDING != 0 {
                if self.is_pending_for_sure() {
                    return Err(Unset::Answer(Queued::AlreadyPending));
                }
                seen = self.state.load(Ordering::Relaxed);
                continue;
            }
            let may_be_running = seen & RUNNING != 0;
            if may_be_running && pool.is_some_and(|pool| pool != pool_of(seen)) {
                return Err(Unset::RunsElsewhere);
            }
            let next = (seen | PENDING).wrapping_add(INSTANCE_ONE);
            let set =
                self.state
                    .compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed);
            match set {
                Ok(_) => {
                    return Ok(Set {
                        instance: instance_of(next),
                        may_be_running,
                    });
                }
                Err(other) => seen = other,
            }
        }
    }

    /// Before S2: the item will go through this queue. Of two queues at the same time one is
    /// forgotten; then a cancelled entry stays where it is until a worker comes to it.
    pub(crate) fn settle_in(&self, queue: usize, home: impl FnOnce() -> Arc<Home>) {
        // Relaxed: a hint, see `gate`.
        if self.home.load(Ordering::Relaxed) != queue {
            let old = self.move_home(&mut self.place.lock(), queue, home());
            drop(old);
        }
    }

    /// For an item that goes through one queue, once: whoever takes it back knows the way.
    pub(crate) fn learn_home(&self, home: Option<&Arc<Home>>) {
        self.place.lock().learn_home(home);
    }

    /// As [`settle_in`](Item::settle_in). The old home is for outside the lock.
    #[must_use]
    pub(crate) fn move_home(
        &self,
        place: &mut Place,
        queue: usize,
        home: Arc<Home>,
    ) -> Option<Arc<Home>> {
        // Relaxed: a hint.
        self.home.store(queue, Ordering::Relaxed);
        place.move_home(home)
    }

    /// S3: PENDING has been set, the entry is about to go through that gate.
    pub(crate) fn set_gate(&self, gate: usize) {
        // Relaxed: a hint. Gates are counted by CPUs.
        self.gate.store(gate as u32, Ordering::Relaxed);
    }

    /// The gate's lock is held.
    pub(crate) fn set_ticket(&self, ticket: Option<u64>) {
        // Relaxed: a hint.
        self.ticket
            .store(ticket.unwrap_or(NO_TICKET), Ordering::Relaxed);
    }

    /// Where it waits. See [`set_ticket`](Item::set_ticket).
    pub(crate) fn waits_at(&self) -> Option<(usize, u64)> {
        let ticket = self.ticket.load(Ordering::Relaxed);
        let gate = self.gate.load(Ordering::Relaxed) as usize;
        (ticket != NO_TICKET).then_some((gate, ticket))
    }

    /// Whether queueing is forbidden now. `place` is this item's, locked.
    pub(crate) fn is_blocked(&self, _place: &Place) -> bool {
        // Relaxed: these bits change under the lock.
        self.state.load(Ordering::Relaxed) & BLOCKED != 0
    }

    /// Whether it is pending, and whether it runs.
    pub(crate) fn activity(&self) -> (bool, bool) {
        // Ordering: Acquire, pairs with C4.
        let seen = self.state.load(Ordering::Acquire);
        (seen & PENDING != 0, seen & RUNNING != 0)
    }

    /// The instance that is pending, if one is.
    fn pending(&self) -> Option<Instance> {
        // Relaxed: a guess; the entry is known by it or is not found.
        let seen = self.state.load(Ordering::Relaxed);
        (seen & PENDING != 0).then(|| instance_of(seen))
    }

    /// Whether that instance is pending. Once it is not, it will not be again.
    pub(crate) fn is_pending_as(&self, instance: Instance) -> bool {
        self.pending() == Some(instance)
    }

    /// The queue and the gate where an entry of the item is, if it is in any.
    fn at(&self, place: &Place) -> Option<(Arc<Home>, usize)> {
        // Relaxed: a hint.
        let gate = self.gate.load(Ordering::Relaxed) as usize;
        place.home().map(|home| (home, gate))
    }

    /// M2: takes a pending item from where it is, without its ceasing to be pending; it goes on as
    /// a new instance. `None` if it is not pending.
    pub(crate) fn uproot(&self, place: &mut Place) -> Option<Uprooted> {
        loop {
            let instance = self.pending()?;
            let at = self.at(place);
            let old = PENDING | u64::from(instance) << INSTANCE_SHIFT;
            let new = |seen: u64| seen.wrapping_add(INSTANCE_ONE);
            if self.change_pending(old, new).is_none() {
                continue;
            }
            let taken = self.take(place, at, instance);
            return Some(Uprooted {
                instance: instance.wrapping_add(1),
                taken,
            });
        }
    }

    /// Changes the word of an item that is pending as this instance; `None` if it is not. Returns
    /// what it was.
    fn change_pending(&self, pending: u64, new: impl Fn(u64) -> u64) -> Option<u64> {
        let same = |seen: u64| (seen ^ pending) & (PENDING | !(INSTANCE_ONE - 1)) == 0;
        // Relaxed: who takes an instance back hands nothing over and gets nothing.
        let mut seen = self.state.load(Ordering::Relaxed);
        while same(seen) {
            let change = self.state.compare_exchange_weak(
                seen,
                new(seen),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match change {
                Ok(_) => return Some(seen),
                Err(other) => seen = other,
            }
        }
        None
    }

    /// Removes what has just ceased to be pending as this instance.
    fn take(&self, place: &mut Place, at: Option<(Arc<Home>, usize)>, instance: Instance) -> Taken {
        if let Some(armed) = place.disarmed() {
            return Taken::disarm(armed);
        }
        let place = || self.waits_at();
        let taken = at.and_then(|(home, gate)| home.withdraw(gate, self.key(), instance, place));
        taken.map_or(Taken::InHand, |taken| Taken::Queued(Box::new(taken)))
    }

    /// M4: an uprooted item finds no new place.
    pub(crate) fn abandon(&self, _place: &mut Place) {
        // Relaxed: as in `change_pending`.
        self.state.fetch_and(!PENDING, Ordering::Relaxed);
    }

    /// Whoever waits for it looks again.
    pub(crate) fn tell(&self) {
        // Relaxed: those who wait look at the word, and the event orders this with them.
        if self.state.fetch_and(!AWAITED, Ordering::Relaxed) & AWAITED != 0 {
            self.notify();
        }
    }

    /// T5: an instance that waited for its time will not run. `false` if it does not wait.
    pub(crate) fn give_up(&self, instance: Instance) -> bool {
        let place = self.place.lock();
        place.is_armed(instance) && self.withdraw(place)
    }

    /// C1-C3: the worker of that pool that holds the entry takes the run. `false` if it was
    /// cancelled.
    pub(crate) fn claim(&self, instance: Instance, pool: u32) -> bool {
        // Relaxed: the RMW decides.
        let mut seen = self.state.load(Ordering::Relaxed);
        loop {
            if seen & PENDING == 0 || instance_of(seen) != instance {
                return false;
            }
            debug_assert_eq!(seen & RUNNING, 0, "its pool lets it run once at a time");
            let next = seen & !(PENDING | POOL_MASK) | RUNNING | u64::from(pool) << POOL_SHIFT;
            // Ordering: C2, Acquire RMW, pairs with the RMW of a failing `refuses` (S1): either
            // that came first and what it published is seen by the run, or it finds PENDING clear.
            // And with C4 of the run before.
            let claim =
                self.state
                    .compare_exchange_weak(seen, next, Ordering::Acquire, Ordering::Relaxed);
            match claim {
                Ok(_) => break,
                Err(other) => seen = other,
            }
        }
        // Ordering: Release, pairs with the load in `holds`, which may have found RUNNING of the
        // run before: whoever reads this number sees what that run did, by C2's Acquire. Whoever
        // reads an older one waits for this run too.
        self.running.store(instance, Ordering::Release);
        true
    }

    /// See [`Run::function`].
    pub(crate) fn function(&self) -> usize {
        self.run.function()
    }

    /// See [`Run::may_repeat`].
    pub(crate) fn may_repeat(&self) -> bool {
        self.run.may_repeat()
    }

    /// Runs the function. Only after a successful claim.
    pub(crate) fn run(&self) -> Ran {
        self.run.run()
    }

    /// It was refused or cancelled and will not be queued again.
    pub(crate) fn discard(&self, why: JoinError) {
        self.run.discard(why);
    }

    /// C6: nobody waits for it, stops it or has queued it.
    pub(crate) fn is_left_alone(&self) -> bool {
        // Relaxed: a hint. To all others a row of runs is one run, and this only makes it shorter.
        self.state.load(Ordering::Relaxed) & (PENDING | AWAITED | BLOCKED) == 0
    }

    /// C4: the run has ended.
    pub(crate) fn finish(&self) {
        // Ordering: Release RMW, pairs with the next claim (C2) and with those who wait (`holds`).
        let old = self
            .state
            .fetch_and(!(RUNNING | AWAITED), Ordering::Release);
        if old & AWAITED != 0 {
            self.notify();
        }
    }

    /// X2: takes a pending instance back.
    fn withdraw(&self, mut place: MutexGuard<'_, Place>) -> bool {
        let (taken, old) = loop {
            let Some(instance) = self.pending() else {
                return false;
            };
            let at = self.at(&place);
            let pending = PENDING | u64::from(instance) << INSTANCE_SHIFT;
            if let Some(old) = self.change_pending(pending, |seen| seen & !(PENDING | AWAITED)) {
                break (self.take(&mut place, at, instance), old);
            }
        };
        drop(place);
        // Outside the lock: dropping a queue or a function runs foreign code.
        taken.settle();
        if old & AWAITED != 0 {
            self.notify();
        }
        true
    }

    pub(crate) fn cancel(&self) -> bool {
        // Relaxed: nobody has queued it, or is doing so only now.
        if self.pending().is_none() {
            return false;
        }
        self.withdraw(self.place.lock())
    }

    pub(crate) fn refuse_own(&self) -> Result<(), WouldDeadlock> {
        if worker::runs_work(self.key()) || worker::may_not_sleep() {
            return Err(WouldDeadlock);
        }
        Ok(())
    }

    /// Whether a wait for the item would be a wait for the caller's own return.
    pub(crate) fn waits_for_caller(&self) -> bool {
        worker::runs_work(self.key())
            || worker::may_not_sleep()
            || (worker::runs_any() && self.is_behind_caller())
    }

    /// Whether the pending instance can begin only when the caller, an item, has returned.
    fn is_behind_caller(&self) -> bool {
        let Some(instance) = self.pending() else {
            return false;
        };
        let at = {
            let place = self.place.lock();
            if place.armed().is_some() {
                return false;
            }
            self.at(&place)
        };
        let place = || self.waits_at();
        at.is_some_and(|(home, gate)| home.is_behind_caller(gate, self.key(), instance, place))
    }

    /// Whether an instance up to `last` has not ended.
    fn holds(&self, last: Instance) -> bool {
        let holds = |seen: u64| {
            let pending = seen & PENDING != 0 && is_up_to(instance_of(seen), last);
            // Ordering: Acquire, pairs with the store in `claim`: RUNNING may be of a run that has
            // ended since, and the number of the next one.
            let running = || is_up_to(self.running.load(Ordering::Acquire), last);
            pending || (seen & RUNNING != 0 && running())
        };
        // Ordering: Acquire, twice, pairs with C4.
        holds(self.state.load(Ordering::Acquire))
            && holds(self.state.fetch_or(AWAITED, Ordering::Acquire))
    }

    /// Waits until nothing of what had been queued up to `last` is left.
    fn wait_ended(&self, last: Instance) {
        let ended = self.place.lock().make_event();
        ended.wait_while(|| self.holds(last));
    }

    /// A run has ended, or a pending instance was taken back, and AWAITED has been taken from the
    /// word. Who has set it had made the event before.
    fn notify(&self) {
        let ended = self.place.lock().event();
        if let Some(ended) = ended {
            ended.notify_all();
        }
    }

    pub(crate) fn cancel_sync(&self) -> Result<bool, WouldDeadlock> {
        self.refuse_own()?;
        let mut place = self.place.lock();
        *place.cancels() += 1;
        // X1. Relaxed: one word decides between this and S2.
        let last = instance_of(self.state.fetch_or(CANCELLING, Ordering::Relaxed));
        let was_pending = self.withdraw(place);
        self.wait_ended(last);
        let mut place = self.place.lock();
        *place.cancels() -= 1;
        if *place.cancels() == 0 {
            // X4. Relaxed: as above.
            self.state.fetch_and(!CANCELLING, Ordering::Relaxed);
        }
        Ok(was_pending)
    }

    /// Returns whether it was pending, and the last instance there has been.
    pub(crate) fn disable(&self) -> Result<(bool, Instance), DisableError> {
        let mut place = self.place.lock();
        let depth = place.depth_mut();
        *depth = depth.checked_add(1).ok_or(DisableError::DepthOverflow)?;
        // X1. Relaxed: one word decides between this and S2.
        let last = instance_of(self.state.fetch_or(DISABLED, Ordering::Relaxed));
        Ok((self.withdraw(place), last))
    }

    pub(crate) fn disable_sync(&self) -> Result<bool, DisableError> {
        self.refuse_own()?;
        let (was_pending, last) = self.disable()?;
        self.wait_ended(last);
        Ok(was_pending)
    }

    pub(crate) fn enable(&self) -> Result<bool, NotDisabled> {
        let mut place = self.place.lock();
        let depth = place.depth().checked_sub(1).ok_or(NotDisabled)?;
        *place.depth_mut() = depth;
        if depth == 0 {
            // Relaxed: under the lock, as all changes of the depth.
            self.state.fetch_and(!DISABLED, Ordering::Relaxed);
        }
        Ok(depth == 0)
    }

    pub(crate) fn flush(&self) -> Result<bool, WouldDeadlock> {
        self.refuse_own()?;
        // Ordering: Acquire, pairs with C4: what has ended is seen.
        let seen = self.state.load(Ordering::Acquire);
        if seen & (PENDING | RUNNING) == 0 {
            return Ok(false);
        }
        if worker::runs_any() && self.is_behind_caller() {
            return Err(WouldDeadlock);
        }
        self.wait_ended(instance_of(seen));
        Ok(true)
    }
}

impl<R: Run + ?Sized> fmt::Debug for Item<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pending, running) = self.activity();
        let place = self.place.lock();
        f.debug_struct("Item")
            .field("name", &self.name())
            .field("pending", &pending)
            .field("waits_for_time", &place.armed().is_some())
            .field("running", &running)
            .field("disabled", &place.depth())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// C6: whoever waits for it, stops it or has queued it ends a row of runs.
    #[test]
    fn each_that_is_not_its_worker_ends_a_row() {
        let item = Item::lasting(Repeating {
            name: "row".into(),
            f: || ControlFlow::Continue(()),
        });
        item.state.store(RUNNING, Ordering::Relaxed);
        assert!(item.is_left_alone());
        for by in [PENDING, AWAITED, DISABLED, CANCELLING] {
            item.state.store(RUNNING | by, Ordering::Relaxed);
            assert!(!item.is_left_alone(), "{by:#b}");
        }
    }
}
