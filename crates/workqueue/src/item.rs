//! An item: its state word, where it is, and all that can be done to it.
//!
//! Protocol (the names are those of `PROTOCOL.md`): the state word holds PENDING and two counts
//! that forbid queueing. It changes only under the place lock; one step alone is taken without it,
//! S1, by which a caller learns that the item is pending already.

use crate::door;
use crate::error::{DisableError, JoinError, NotDisabled, WouldDeadlock};
use crate::panics::{caught, dispose, message};
use crate::pool::Pool;
use crate::timekeeper;
use crate::work::Queued;
use crate::worker;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::wait::Event;
use inflight_sync::{Arc, Mutex, MutexGuard};
use std::borrow::Cow;
use std::fmt;

/// It has been queued and its run has not begun.
const PENDING: u64 = 1;
/// `disable` without `enable` yet: 16 bits.
const DEPTH_ONE: u64 = 1 << 1;
const DEPTH_MASK: u64 = 0xffff << 1;
/// Running `cancel_sync` calls: 32 bits. Apart from the depth, so that a stray `enable` cannot end
/// one.
const CANCEL_ONE: u64 = 1 << 32;
const BLOCKED: u64 = DEPTH_MASK | !(CANCEL_ONE - 1);

pub(crate) type WorkRef = Arc<Item<dyn Run>>;

/// What an item does.
pub(crate) trait Run: Send + Sync {
    /// Runs it to its end, panics included.
    fn run(&self) -> Ended;

    /// Names its function, so that the next item with the same one is recognized. A hint.
    fn function(&self) -> usize {
        Self::run as fn(&Self) -> Ended as usize
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

/// An item's name, for people.
pub(crate) type Name = Cow<'static, str>;

pub(crate) struct Reusable<F>(pub(crate) F);

impl<F: Fn() + Send + Sync> Run for Reusable<F> {
    fn run(&self) -> Ended {
        match caught(&self.0) {
            Ok(()) => Ended::Returned,
            Err(payload) => {
                let message = message(&payload);
                dispose(payload);
                Ended::Panicked(message)
            }
        }
    }
}

pub(crate) struct Item<R: ?Sized> {
    /// PENDING, disable depth, running `cancel_sync` calls. Written under the lock of `place`.
    state: AtomicU64,
    place: Mutex<Place>,
    /// A run has ended, or a pending one was taken back.
    ended: Event,
    name: Name,
    run: R,
}

/// Where the item is. Its lock comes before those of gates and pools.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// How often it has been queued; names each time.
    instances: u64,
    /// While PENDING is set.
    pending: Option<Pending>,
    /// From the claim to the end of the run.
    running: Option<Running>,
}

#[derive(Debug)]
struct Pending {
    instance: u64,
    spot: Spot,
}

/// Where a pending item waits.
#[derive(Debug)]
pub(crate) enum Spot {
    /// In a gate, in a pool or in a worker's hand.
    Queued(door::Spot),
    /// For its time to come.
    Armed(timekeeper::Armed),
}

/// What is left to do after an item was taken back, outside all locks.
#[must_use]
pub(crate) enum Taken {
    Queued(door::Withdrawn),
    Armed {
        /// Dropping it may run foreign code.
        _alarm: Option<timekeeper::Alarm>,
    },
}

impl Spot {
    fn is_behind_caller(&self) -> bool {
        matches!(self, Self::Queued(spot) if spot.is_behind_caller())
    }

    fn withdraw(&self, key: usize, instance: u64) -> Taken {
        match self {
            Self::Queued(spot) => Taken::Queued(spot.withdraw(key, instance)),
            Self::Armed(armed) => Taken::Armed {
                _alarm: armed.disarm(),
            },
        }
    }
}

/// A pending item between two places. Its lock is held.
#[must_use]
pub(crate) struct Uprooted {
    /// What it is called from now on.
    pub(crate) instance: u64,
    taken: Taken,
    spot: Spot,
}

impl Uprooted {
    /// Outside all locks. Whoever waited for the old instance looks again.
    pub(crate) fn settle(self, work: &WorkRef) {
        self.taken.settle();
        drop(self.spot);
        work.tell();
    }
}

impl Taken {
    pub(crate) fn settle(self) {
        if let Self::Queued(withdrawn) = self {
            withdrawn.settle();
        }
    }
}

#[derive(Debug)]
struct Running {
    instance: u64,
    pool: Arc<Pool>,
}

impl Place {
    /// Whether the pending instance can begin only when the caller, an item, has returned.
    fn is_behind_caller(&self) -> bool {
        let pending = self.pending.as_ref();
        pending.is_some_and(|p| p.spot.is_behind_caller())
    }

    /// Where the item waits for its time, and as which instance.
    pub(crate) fn armed(&self) -> Option<(&timekeeper::Armed, u64)> {
        match &self.pending.as_ref()? {
            Pending {
                instance,
                spot: Spot::Armed(armed),
            } => Some((armed, *instance)),
            _ => None,
        }
    }

    /// Whether the item waits for its time as this instance.
    pub(crate) fn is_armed(&self, instance: u64) -> bool {
        self.armed().is_some_and(|(_, armed)| armed == instance)
    }

    /// The pool that runs the item now.
    pub(crate) fn runner(&self) -> Option<&Arc<Pool>> {
        self.running.as_ref().map(|running| &running.pool)
    }

    /// Whether an instance up to `instance` has not ended.
    fn holds(&self, instance: u64) -> bool {
        let pending = self
            .pending
            .as_ref()
            .is_some_and(|p| p.instance <= instance);
        pending
            || self
                .running
                .as_ref()
                .is_some_and(|r| r.instance <= instance)
    }
}

impl<R: Run + 'static> Item<R> {
    pub(crate) fn new(name: Name, run: R) -> WorkRef {
        Arc::new(Self {
            state: AtomicU64::new(0),
            place: Mutex::new(Place::default()),
            ended: Event::new(),
            name,
            run,
        })
    }
}

impl Item<dyn Run> {
    /// Names the item among all that exist.
    pub(crate) fn key(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).cast::<()>().addr()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock()
    }

    /// S1: whether queueing would change nothing. Takes no lock.
    pub(crate) fn refuses(&self) -> Option<Queued> {
        // Relaxed: a guess; what is not refused here is decided under the place lock.
        let seen = self.state.load(Ordering::Relaxed);
        if seen & BLOCKED != 0 {
            return Some(Queued::Disabled);
        }
        if seen & PENDING == 0 {
            return None;
        }
        // A write, though it changes nothing: what this caller stored before goes to the run it
        // found pending.
        // Ordering: Release RMW, pairs with the RMW of `clear_pending` (C2), which reads from it or
        // from a later RMW.
        let state = self.state.fetch_or(0, Ordering::Release);
        (state & PENDING != 0).then_some(Queued::AlreadyPending)
    }

    /// S2: sets PENDING, unless queueing is refused. `place` is this item's, locked.
    pub(crate) fn set_pending(&self, place: &mut Place) -> Result<u64, Queued> {
        // Relaxed: the lock orders all writers that change a bit.
        let seen = self.state.load(Ordering::Relaxed);
        if seen & BLOCKED != 0 {
            return Err(Queued::Disabled);
        }
        // Relaxed: C2 is a section of the same lock. As an RMW it passes on what S1 released.
        if self.state.fetch_or(PENDING, Ordering::Relaxed) & PENDING != 0 {
            return Err(Queued::AlreadyPending);
        }
        place.instances += 1;
        Ok(place.instances)
    }

    /// S3: records where the item has gone, in the same lock section as S2 or as its removal from
    /// where it was. What is given back is dropped outside the lock.
    #[must_use]
    pub(crate) fn set_spot(&self, place: &mut Place, instance: u64, spot: Spot) -> Option<Spot> {
        let old = place.pending.replace(Pending { instance, spot });
        old.map(|pending| pending.spot)
    }

    /// Whether queueing is forbidden now. `place` is this item's, locked.
    pub(crate) fn is_blocked(&self, _place: &Place) -> bool {
        // Relaxed: the lock orders all writers that change a bit.
        self.state.load(Ordering::Relaxed) & BLOCKED != 0
    }

    /// Whether it is pending, and whether it runs.
    pub(crate) fn activity(&self) -> (bool, bool) {
        let place = self.place.lock();
        (place.pending.is_some(), place.running.is_some())
    }

    /// M2: takes a pending item from where it is, without its ceasing to be pending; it goes on as
    /// a new instance. `None` if it is not pending.
    pub(crate) fn uproot(self: &Arc<Self>, place: &mut Place) -> Option<Uprooted> {
        let Pending { instance, spot } = place.pending.take()?;
        let taken = spot.withdraw(self.key(), instance);
        place.instances += 1;
        Some(Uprooted {
            instance: place.instances,
            taken,
            spot,
        })
    }

    /// M4: an uprooted item finds no new place.
    pub(crate) fn abandon(&self, _place: &mut Place) {
        self.clear_pending();
    }

    /// Whoever waits for it looks again.
    pub(crate) fn tell(&self) {
        self.ended.notify_all();
    }

    /// T5: an instance that waited for its time will not run. `false` if it does not wait.
    pub(crate) fn give_up(self: &Arc<Self>, instance: u64) -> bool {
        let place = self.place.lock();
        place.is_armed(instance) && self.withdraw(place)
    }

    /// C1-C3: the worker that holds the entry takes the run. `false` if it was cancelled.
    pub(crate) fn claim(&self, instance: u64) -> bool {
        let mut place = self.place.lock();
        let taken = place.pending.take_if(|p| p.instance == instance);
        let Some(Pending { spot, .. }) = taken else {
            return false;
        };
        let Spot::Queued(spot) = spot else {
            unreachable!("an instance that a worker has in hand waits for no time");
        };
        self.clear_pending();
        let (queue, pool) = spot.into_parts();
        place.running = Some(Running { instance, pool });
        drop(place);
        // The queue outlives this: the worker's entry holds another handle.
        drop(queue);
        true
    }

    fn clear_pending(&self) {
        // Ordering: C2, Acquire RMW, pairs with the RMW of a failing `refuses` (S1): either that
        // came first and what it published is seen by the run, or it finds PENDING clear.
        self.state.fetch_and(!PENDING, Ordering::Acquire);
    }

    /// See [`Run::function`].
    pub(crate) fn function(&self) -> usize {
        self.run.function()
    }

    /// Runs the function. Only after a successful claim.
    pub(crate) fn run(&self) -> Ended {
        self.run.run()
    }

    /// It was refused or cancelled and will not be queued again.
    pub(crate) fn discard(&self, why: JoinError) {
        self.run.discard(why);
    }

    /// C4: the run has ended.
    pub(crate) fn finish(&self) {
        let running = self.place.lock().running.take();
        drop(running);
        self.ended.notify_all();
    }

    /// Takes a pending instance back.
    fn withdraw(self: &Arc<Self>, mut place: MutexGuard<'_, Place>) -> bool {
        let Some(pending) = place.pending.take() else {
            return false;
        };
        self.clear_pending();
        let taken = pending.spot.withdraw(self.key(), pending.instance);
        drop(place);
        // Outside the lock: dropping a queue or a function runs foreign code.
        taken.settle();
        drop(pending);
        self.ended.notify_all();
        true
    }

    pub(crate) fn cancel(self: &Arc<Self>) -> bool {
        self.withdraw(self.place.lock())
    }

    pub(crate) fn refuse_own(self: &Arc<Self>) -> Result<(), WouldDeadlock> {
        if worker::runs_work(self.key()) {
            return Err(WouldDeadlock);
        }
        Ok(())
    }

    /// Whether a wait for the item would be a wait for the caller's own return.
    pub(crate) fn waits_for_caller(self: &Arc<Self>) -> bool {
        worker::runs_work(self.key()) || (worker::runs_any() && self.place().is_behind_caller())
    }

    /// Waits until nothing of what had been queued up to `instance` is left.
    fn wait_ended(&self, instance: u64) {
        self.ended.wait_while(|| self.place.lock().holds(instance));
    }

    pub(crate) fn cancel_sync(self: &Arc<Self>) -> Result<bool, WouldDeadlock> {
        self.refuse_own()?;
        let place = self.place.lock();
        // X1. Relaxed: read under the lock, where it decides; S1 needs only a guess.
        self.state.fetch_add(CANCEL_ONE, Ordering::Relaxed);
        let last = place.instances;
        let was_pending = self.withdraw(place);
        self.wait_ended(last);
        let _place = self.place.lock();
        // X4. Relaxed: as above.
        self.state.fetch_sub(CANCEL_ONE, Ordering::Relaxed);
        Ok(was_pending)
    }

    /// Returns whether it was pending, and the last instance there has been.
    pub(crate) fn disable(self: &Arc<Self>) -> Result<(bool, u64), DisableError> {
        let place = self.place.lock();
        // Relaxed: under the lock, as all changes of the depth.
        if self.state.load(Ordering::Relaxed) & DEPTH_MASK == DEPTH_MASK {
            return Err(DisableError::DepthOverflow);
        }
        self.state.fetch_add(DEPTH_ONE, Ordering::Relaxed);
        let last = place.instances;
        Ok((self.withdraw(place), last))
    }

    pub(crate) fn disable_sync(self: &Arc<Self>) -> Result<bool, DisableError> {
        self.refuse_own()?;
        let (was_pending, last) = self.disable()?;
        self.wait_ended(last);
        Ok(was_pending)
    }

    pub(crate) fn enable(&self) -> Result<bool, NotDisabled> {
        let _place = self.place.lock();
        // Relaxed: under the lock, as all changes of the depth.
        if self.state.load(Ordering::Relaxed) & DEPTH_MASK == 0 {
            return Err(NotDisabled);
        }
        let before = self.state.fetch_sub(DEPTH_ONE, Ordering::Relaxed);
        Ok(before & DEPTH_MASK == DEPTH_ONE)
    }

    pub(crate) fn flush(self: &Arc<Self>) -> Result<bool, WouldDeadlock> {
        self.refuse_own()?;
        let last = {
            let place = self.place.lock();
            if !place.holds(place.instances) {
                return Ok(false);
            }
            if place.is_behind_caller() {
                return Err(WouldDeadlock);
            }
            place.instances
        };
        self.wait_ended(last);
        Ok(true)
    }
}

impl fmt::Debug for Item<dyn Run> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.lock();
        // Relaxed: read under the lock.
        let state = self.state.load(Ordering::Relaxed);
        f.debug_struct("Item")
            .field("name", &self.name)
            .field("pending", &place.pending.is_some())
            .field("waits_for_time", &place.armed().is_some())
            .field("running", &place.running.is_some())
            .field("disabled", &((state & DEPTH_MASK) / DEPTH_ONE))
            .finish_non_exhaustive()
    }
}
