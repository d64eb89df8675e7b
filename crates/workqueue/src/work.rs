//! A reusable work item.
//!
//! Protocol (the names are those of `PROTOCOL.md`): the state word holds PENDING and two counts
//! that forbid queueing. It changes only under the place lock; one step alone is taken without it,
//! S1, by which a caller learns that the item is pending already.

use crate::door::Spot;
use crate::error::{DisableError, JoinError, NotDisabled, WouldDeadlock};
use crate::panics::contained;
use crate::pool::Pool;
use crate::worker;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::wait::Event;
use inflight_sync::{Arc, Mutex, MutexGuard};
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

/// What came of queueing an item.
///
/// ```
/// use inflight_workqueue::{Queued, Work, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("jobs").bound().build()?;
/// let work = Work::new(|| ());
/// assert_eq!(wq.queue(&work)?, Queued::Queued);
/// work.disable()?;
/// assert_eq!(wq.queue(&work)?, Queued::Disabled);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// This call has queued it: a run will follow.
    Queued,
    /// It was queued already, by another call, and its run has not begun. That run sees everything
    /// this caller did before.
    AlreadyPending,
    /// It is disabled, or a `cancel_sync` is at work. No run follows from this call.
    Disabled,
}

impl Queued {
    /// Whether this call has queued the item.
    ///
    /// ```
    /// use inflight_workqueue::Queued;
    ///
    /// assert!(Queued::Queued.is_queued());
    /// assert!(!Queued::AlreadyPending.is_queued());
    /// ```
    #[must_use]
    pub const fn is_queued(self) -> bool {
        matches!(self, Self::Queued)
    }
}

/// A function that can be queued again and again.
///
/// The work item of Linux's workqueues. It is pending from the moment it is queued until its run
/// begins; queueing it meanwhile changes nothing. It never runs twice at once, through whatever
/// workqueues it goes: queued while it runs, it runs again afterwards, with the workers that run it
/// now. A run that panics is counted by its workqueue, and the work can be queued again.
///
/// Clones are handles on the same work. Dropping the last handle does not cancel: what is queued
/// runs.
///
/// ```
/// use inflight_workqueue::{Work, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("scan").bound().build()?;
/// let work = Work::new(|| println!("scanning"));
/// assert!(wq.queue(&work)?.is_queued());
/// work.flush()?; // it has run
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Work {
    pub(crate) item: WorkRef,
}

pub(crate) type WorkRef = Arc<Item<dyn Run>>;

/// What an item does.
pub(crate) trait Run: Send + Sync {
    /// Runs it to its end, panics included.
    fn run(&self) -> Ended;

    /// It will not run; whoever waits for it is told why.
    fn discard(&self, _why: JoinError) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Returned,
    Panicked,
    Cancelled,
}

struct Reusable<F>(F);

impl<F: Fn() + Send + Sync> Run for Reusable<F> {
    fn run(&self) -> Ended {
        match contained(&self.0) {
            Some(()) => Ended::Returned,
            None => Ended::Panicked,
        }
    }
}

pub(crate) struct Item<R: ?Sized> {
    /// PENDING, disable depth, running `cancel_sync` calls. Written under the lock of `place`.
    state: AtomicU64,
    place: Mutex<Place>,
    /// A run has ended, or a pending one was taken back.
    ended: Event,
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
    pub(crate) fn new(run: R) -> WorkRef {
        Arc::new(Self {
            state: AtomicU64::new(0),
            place: Mutex::new(Place::default()),
            ended: Event::new(),
            run,
        })
    }
}

impl Item<dyn Run> {
    /// Names the item among all that exist.
    pub(crate) fn key(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).cast::<()>().addr()
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

    /// S3: records where the item has gone, in the same lock section as S2.
    pub(crate) fn set_spot(&self, place: &mut Place, spot: Spot) {
        let instance = place.instances;
        place.pending = Some(Pending { instance, spot });
    }

    /// C1-C3: the worker that holds the entry takes the run. `false` if it was cancelled.
    pub(crate) fn claim(&self, instance: u64, pool: &Arc<Pool>) -> bool {
        let mut place = self.place.lock();
        let taken = place.pending.take_if(|p| p.instance == instance);
        if taken.is_none() {
            return false;
        }
        self.clear_pending();
        let pool = pool.clone();
        place.running = Some(Running { instance, pool });
        drop(place);
        // The entry's queue outlives this: the worker holds another handle.
        drop(taken);
        true
    }

    fn clear_pending(&self) {
        // Ordering: C2, Acquire RMW, pairs with the RMW of a failing `refuses` (S1): either that
        // came first and what it published is seen by the run, or it finds PENDING clear.
        self.state.fetch_and(!PENDING, Ordering::Acquire);
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

    fn refuse_own(self: &Arc<Self>) -> Result<(), WouldDeadlock> {
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

    fn cancel_sync(self: &Arc<Self>) -> Result<bool, WouldDeadlock> {
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
    fn disable(self: &Arc<Self>) -> Result<(bool, u64), DisableError> {
        let place = self.place.lock();
        // Relaxed: under the lock, as all changes of the depth.
        if self.state.load(Ordering::Relaxed) & DEPTH_MASK == DEPTH_MASK {
            return Err(DisableError::DepthOverflow);
        }
        self.state.fetch_add(DEPTH_ONE, Ordering::Relaxed);
        let last = place.instances;
        Ok((self.withdraw(place), last))
    }

    fn enable(&self) -> Result<bool, NotDisabled> {
        let _place = self.place.lock();
        // Relaxed: under the lock, as all changes of the depth.
        if self.state.load(Ordering::Relaxed) & DEPTH_MASK == 0 {
            return Err(NotDisabled);
        }
        let before = self.state.fetch_sub(DEPTH_ONE, Ordering::Relaxed);
        Ok(before & DEPTH_MASK == DEPTH_ONE)
    }

    fn flush(self: &Arc<Self>) -> Result<bool, WouldDeadlock> {
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

impl Work {
    /// A work that runs `f`.
    ///
    /// ```
    /// let work = inflight_workqueue::Work::new(|| println!("called"));
    /// # let _ = work;
    /// ```
    pub fn new(f: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            item: Item::new(Reusable(f)),
        }
    }

    /// Waits until the instance that was queued last has ended; `true` if there was one to wait
    /// for.
    ///
    /// An instance queued later is not waited for, so work that queues itself does not hold the
    /// caller. If the awaited instance is cancelled, the wait ends when the one before it has
    /// ended. On a worker the wait counts as blocking.
    ///
    /// # Errors
    ///
    /// [`WouldDeadlock`] from inside the work's own function, and from an item of a queue with
    /// `max_active` 1 whose own slot the awaited instance needs. That counts at the moment of the
    /// call: a limit that is raised later would have helped.
    ///
    /// ```
    /// use inflight_workqueue::{Work, WorkqueueSystem};
    ///
    /// let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("jobs").bound().build()?;
    /// let work = Work::new(|| ());
    /// assert!(!work.flush()?, "nothing was queued");
    /// assert!(wq.queue(&work)?.is_queued());
    /// work.flush()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flush(&self) -> Result<bool, WouldDeadlock> {
        self.item.flush()
    }

    /// Takes a pending instance back; `true` if there was one. A run that has begun goes on.
    ///
    /// ```
    /// let work = inflight_workqueue::Work::new(|| ());
    /// assert!(!work.cancel(), "it was not pending");
    /// ```
    #[allow(clippy::must_use_candidate)] // Called for its effect as often as for its answer.
    pub fn cancel(&self) -> bool {
        self.item.cancel()
    }

    /// Takes a pending instance back and waits for a running one; `true` if one was pending.
    ///
    /// Meanwhile nobody can queue the work, the work itself included, so work that queues itself is
    /// stopped: such calls say [`Queued::Disabled`] and are not made up for. Afterwards the work
    /// can be used again. On a worker the wait counts as blocking.
    ///
    /// # Errors
    ///
    /// [`WouldDeadlock`] from inside the work's own function.
    ///
    /// ```
    /// use inflight_workqueue::{Work, WorkqueueSystem};
    ///
    /// let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("jobs").bound().build()?;
    /// let work = Work::new(|| ());
    /// assert!(wq.queue(&work)?.is_queued());
    /// work.cancel_sync()?; // neither pending nor running now
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_sync(&self) -> Result<bool, WouldDeadlock> {
        self.item.cancel_sync()
    }

    /// Forbids queueing until [`enable`](Work::enable), and takes a pending instance back; `true`
    /// if there was one. Nests: it takes as many calls of `enable`. A run that has begun goes on.
    ///
    /// # Errors
    ///
    /// [`DisableError::DepthOverflow`] at the 65,536th level.
    ///
    /// ```
    /// use inflight_workqueue::Work;
    ///
    /// let work = Work::new(|| ());
    /// work.disable()?;
    /// assert!(work.enable()?, "it can be queued again");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disable(&self) -> Result<bool, DisableError> {
        Ok(self.item.disable()?.0)
    }

    /// As [`disable`](Work::disable), and waits for a running instance.
    ///
    /// # Errors
    ///
    /// [`DisableError::DepthOverflow`] at the 65,536th level, [`DisableError::WouldDeadlock`] from
    /// inside the work's own function.
    ///
    /// ```
    /// use inflight_workqueue::Work;
    ///
    /// let work = Work::new(|| ());
    /// work.disable_sync()?; // it is not running, and will not
    /// work.enable()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disable_sync(&self) -> Result<bool, DisableError> {
        self.item.refuse_own()?;
        let (was_pending, last) = self.item.disable()?;
        self.item.wait_ended(last);
        Ok(was_pending)
    }

    /// Takes one level of [`disable`](Work::disable) back; `true` if the work can be queued again.
    /// Queues nothing by itself: calls that were refused are not made up for.
    ///
    /// # Errors
    ///
    /// [`NotDisabled`] if there is no level to take back.
    ///
    /// ```
    /// use inflight_workqueue::Work;
    ///
    /// let work = Work::new(|| ());
    /// work.disable()?;
    /// work.disable()?;
    /// assert!(!work.enable()?, "one level is left");
    /// assert!(work.enable()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enable(&self) -> Result<bool, NotDisabled> {
        self.item.enable()
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.item.place.lock();
        // Relaxed: read under the lock.
        let state = self.item.state.load(Ordering::Relaxed);
        f.debug_struct("Work")
            .field("pending", &place.pending.is_some())
            .field("running", &place.running.is_some())
            .field("disabled", &((state & DEPTH_MASK) / DEPTH_ONE))
            .finish_non_exhaustive()
    }
}
