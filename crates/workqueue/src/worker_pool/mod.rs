//! A worker pool: the core behind its lock, and what happens when the lock has been released.

use crate::batch::{Batch, Entry};
use crate::cpu_time::{Charged, Meter};
use crate::item::{FunctionCell, ItemPtr};
use crate::load_hint::{Lately, LoadHint};
use crate::nr_active::{NrActive, PwqId};
use crate::pool_attrs::{Cpus, PoolAttrs};
use crate::pool_core::{Deferred, PoolCore, PoolItem, PwqIndex, WakeAction, WorkerId};
use crate::pwq::{self, Pwq};
use crate::sampler::{self, Sampler};
use crate::shared::SystemShared;
use crate::worker;
use inflight_sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, CachePadded, Mutex, MutexGuard, Parker, Unparker, Weak};
use std::fmt;
use std::io;
use std::time::Duration;

mod batches;
mod look;
mod mayday;
mod report;
mod siblings;

pub(crate) use mayday::Mayday;
pub(crate) use report::PwqLevel;
pub(crate) use siblings::{Overloaded, Siblings};

impl PoolItem for Entry {
    #[inline]
    fn colour(&self) -> u8 {
        self.colour
    }

    #[inline]
    fn set_colour(&mut self, colour: u8) {
        self.colour = colour;
    }

    #[inline]
    fn set_position(&self, position: u32) {
        // SAFETY: whoever has an entry keeps its item alive.
        unsafe { self.item.header() }.set_position(position);
    }
}

/// A worker pool.
pub(crate) struct WorkerPool {
    this: Weak<Self>,
    /// Names it in dumps, and the threads of an unbound pool.
    id: usize,
    attrs: PoolAttrs,
    shared: Arc<SystemShared>,
    hint: Arc<LoadHint>,
    sampler: Sampler,
    meter: Meter,
    /// How often an item has said that it gets on.
    touched: AtomicU64,
    /// It has a worker, or one is being created. Written under the lock.
    manned: AtomicBool,
    /// Something has come while a worker lingers.
    has_come: AtomicBool,
    state: CachePadded<Mutex<PoolState>>,
}

/// What the lock guards.
pub(crate) struct PoolState {
    pub(crate) core: PoolCore<Entry>,
    /// By the core's numbers.
    pwqs: Vec<Option<Arc<Pwq>>>,
    /// By the core's numbers of workers.
    threads: Vec<Option<WorkerThread>>,
    /// The pools that may help this one and be helped, if there are any.
    siblings: Option<Arc<Siblings>>,
    /// Those know that they may take something here.
    overloaded: bool,
    /// So many events pass before somebody looks again for a sibling that could help.
    look_later: u32,
    /// What workers take to come, in ns.
    delay: Lately,
    /// The timer looks at the pool.
    watched: bool,
    /// It may have flushes that wait.
    flushing: bool,
    /// The timer is to be told that it looks.
    watch_wanted: bool,
    /// A worker that has nothing to do waits a little before it sleeps.
    pub(crate) lingering: bool,
    /// The timer comes for the coldest idle worker.
    culling: bool,
    /// Threads asked for, to number them.
    started: usize,
    /// Set while threads are refused.
    mayday: Option<Mayday>,
    /// Pwqs that have not been retired.
    users: usize,
    /// The system ends: the workers leave.
    stopped: bool,
    /// Items with an entry that was cancelled and left behind, and is gone. Dropping one may run
    /// foreign code.
    pub(crate) stale: Vec<ItemPtr>,
    /// Of a pool of BH items.
    pub(crate) poller: Option<crate::bh::PollerState>,
}

/// A worker's thread.
#[derive(Clone)]
pub(crate) struct WorkerThread {
    pub(crate) shared: Arc<WorkerShared>,
    unparker: Unparker,
    /// Its number, if threads have one.
    number: Option<u32>,
    /// When it was woken, if it has not come yet and that matters.
    woken_at: Option<Instant>,
    /// How far it was in its batch at the last look.
    seen: Option<u32>,
    /// Of a guest: the pool in which it counts.
    own: Option<(Arc<WorkerPool>, WorkerId)>,
    /// It is a guest of another pool, and is this there.
    away: Option<Arc<WorkerShared>>,
}

/// What a worker shares with those who hold its pool's lock, and with the timer.
pub(crate) struct WorkerShared {
    pub(crate) batch: Batch,
    /// It was woken, or is to leave.
    woken: AtomicBool,
    /// What was found out about the item that it runs. Relaxed, these three: statistics and hints.
    pub(crate) found: AtomicU8,
    /// The function that it runs, if it runs one.
    pub(crate) function: FunctionCell,
    /// Whose CPU time it uses.
    pub(crate) charged: Charged,
}

impl WorkerShared {
    pub(crate) fn new(shared: &SystemShared) -> Arc<Self> {
        Arc::new(Self {
            batch: Batch::new(shared.fence),
            woken: AtomicBool::new(false),
            found: AtomicU8::new(0),
            function: FunctionCell::new(),
            charged: Charged::new(&shared.metering),
        })
    }

    /// Whether the worker has been woken since it asked last.
    pub(crate) fn take_woken(&self) -> bool {
        // Relaxed: the token orders it, and the lock all else.
        let woken = self.woken.load(Ordering::Relaxed);
        if woken {
            self.woken.store(false, Ordering::Relaxed);
        }
        woken
    }
}

impl WorkerThread {
    /// What tells what it runs.
    fn running_as(&self) -> &Arc<WorkerShared> {
        self.away.as_ref().unwrap_or(&self.shared)
    }

    fn wake(&self) {
        // Relaxed: as in `take_woken`. The worker sleeps on if a token was meant for something
        // else.
        self.shared.woken.store(true, Ordering::Relaxed);
        self.unparker.unpark();
    }
}

/// What is to be done when a pool's lock has been released.
#[must_use]
#[derive(Default)]
pub(crate) struct AfterUnlock {
    wake: Option<WorkerThread>,
    create: Option<WorkerId>,
    deferred: Vec<Deferred>,
    /// The pwqs that `deferred` is about.
    pwqs: Vec<Arc<Pwq>>,
    watch: bool,
    /// The siblings are to be looked at for help, and whether what waits is not left to those that
    /// run.
    help: Option<bool>,
    poll: bool,
    stale: Vec<ItemPtr>,
}

impl WorkerPool {
    /// A pool without workers.
    pub(crate) fn new(attrs: PoolAttrs, id: usize, shared: &Arc<SystemShared>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            id,
            hint: Arc::default(),
            sampler: Sampler::default(),
            meter: Meter::default(),
            touched: AtomicU64::new(0),
            manned: AtomicBool::new(false),
            has_come: AtomicBool::new(false),
            state: CachePadded::new(Mutex::new(PoolState {
                core: PoolCore::new(attrs.target()),
                pwqs: Vec::new(),
                threads: Vec::new(),
                siblings: None,
                overloaded: false,
                look_later: 0,
                delay: Lately::default(),
                watched: false,
                flushing: false,
                watch_wanted: false,
                lingering: false,
                culling: false,
                started: 0,
                mayday: None,
                users: 0,
                stopped: false,
                stale: Vec::new(),
                poller: None,
            })),
            attrs,
            shared: shared.clone(),
        })
    }

    pub(crate) fn id(&self) -> usize {
        self.id
    }

    pub(crate) fn attrs(&self) -> &PoolAttrs {
        &self.attrs
    }

    pub(crate) fn shared(&self) -> &Arc<SystemShared> {
        &self.shared
    }

    pub(crate) fn hint(&self) -> &Arc<LoadHint> {
        &self.hint
    }

    pub(crate) fn arc(&self) -> Arc<Self> {
        self.this.upgrade().expect("who calls has one")
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }

    /// Releases the lock after an event, and does what that asks for. `now`: what waits is not left
    /// to those that run. Returns whether a worker is brought.
    #[inline]
    pub(crate) fn unlock(&self, state: MutexGuard<'_, PoolState>, now: bool) -> bool {
        match self.release(state, now) {
            Some(after) => after.perform(self),
            None => false,
        }
    }

    /// The same for callers that hold the lock of a queue's control.
    pub(crate) fn unlock_later(
        &self,
        state: MutexGuard<'_, PoolState>,
        now: bool,
        later: &mut Later,
    ) {
        if let Some(after) = self.release(state, now) {
            later.pools.push((self.arc(), after));
        }
    }

    #[inline]
    fn release(&self, mut state: MutexGuard<'_, PoolState>, now: bool) -> Option<AfterUnlock> {
        let action = self.decide(&mut state, now);
        let watch = self.must_watch(&mut state, action);
        let help = state.siblings.is_some() && self.wants_help(&mut state);
        let help = help.then_some(now);
        if state.lingering && state.core.has_waiting() {
            // Relaxed: a hint; what comes is seen under the lock.
            self.has_come.store(true, Ordering::Relaxed);
        }
        let plain = action == WakeAction::None && !watch && help.is_none();
        if plain && !state.has_deferred() {
            return None;
        }
        Some(self.after(&mut state, action, watch, help))
    }

    /// For a worker that lingers: whether something has come since the lock was released.
    pub(crate) fn seems_to_have_work(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }

    /// A worker begins or ends to linger.
    pub(crate) fn set_lingering(&self, state: &mut PoolState, lingering: bool) {
        state.lingering = lingering;
        self.has_come.store(false, Ordering::Relaxed);
    }

    /// Who is to be brought for what is listed.
    #[inline]
    fn decide(&self, state: &mut PoolState, now: bool) -> WakeAction {
        if state.siblings.is_some() && self.seeks_place(state) {
            // If there is no better place, `seek_help` brings somebody here.
            return WakeAction::None;
        }
        if state.poller.is_some() && state.is_polled() {
            return state.need_poller();
        }
        // What is left to those that run is looked after, or they might sleep.
        state.core.need_worker(now || !self.is_looked_after())
    }

    /// Whether the timer is to look at the pool from now on: something waits for those that run.
    #[inline]
    fn must_watch(&self, state: &mut PoolState, action: WakeAction) -> bool {
        if std::mem::take(&mut state.watch_wanted) {
            return true;
        }
        let waits = action == WakeAction::None && state.core.has_waiting();
        waits && !state.watched && !state.lingering && self.is_looked_after()
    }

    /// Whether somebody looks after the pool while something waits in it.
    #[inline]
    pub(crate) fn is_looked_after(&self) -> bool {
        self.shared.looks_after_pools() && !self.attrs.bh
    }

    #[cold]
    fn after(
        &self,
        state: &mut PoolState,
        action: WakeAction,
        watch: bool,
        help: Option<bool>,
    ) -> AfterUnlock {
        if watch {
            state.watched = true;
            state.core.set_batching(true);
        }
        let deferred = state.core.take_deferred();
        let of = |deferred: &Deferred| match deferred {
            Deferred::Slot(..) => None,
            Deferred::Flushed(index, _) | Deferred::Idle(index, _) => {
                state.pwqs[*index as usize].clone()
            }
        };
        let pwqs = deferred.iter().filter_map(of).collect();
        let mut after = AfterUnlock {
            deferred,
            pwqs,
            watch,
            help,
            stale: std::mem::take(&mut state.stale),
            ..AfterUnlock::default()
        };
        self.plan(state, &mut after, action);
        after
    }

    fn plan(&self, state: &mut PoolState, after: &mut AfterUnlock, action: WakeAction) {
        match action {
            WakeAction::None => {}
            WakeAction::Wake(worker) if state.is_poller(worker) => after.poll = true,
            WakeAction::Wake(worker) => after.wake = Some(self.wakes(state, worker)),
            WakeAction::Create(worker) if self.may_create(state) => after.create = Some(worker),
            WakeAction::Create(worker) => state.core.workers.remove(worker),
        }
    }

    fn wakes(&self, state: &mut PoolState, worker: WorkerId) -> WorkerThread {
        let matters = state.siblings.is_some();
        let thread = state.threads[worker].as_mut().expect("it is idle");
        thread.woken_at = matters.then(|| self.shared.clock.now());
        thread.clone()
    }

    /// The timer begins to look at what it looks at only while something runs.
    fn somebody_comes(&self) {
        self.shared.arm_watchdog();
        self.begin_metering();
    }

    /// Starts the first worker, if there is none. Without one nothing may be queued, unless a
    /// rescuer takes care of it.
    #[inline]
    pub(crate) fn man(&self, rescued: bool) -> io::Result<()> {
        // Relaxed: a worker is there for good, or the pool is retired, which its lock tells.
        if self.manned.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.man_slow(rescued)
    }

    /// In a model: no worker is made.
    #[cfg(loom)]
    pub(crate) fn set_by_hand(&self) {
        self.lock().core.workers.creates = false;
    }

    #[cold]
    fn man_slow(&self, rescued: bool) -> io::Result<()> {
        if !cfg!(loom) {
            let timer = self.shared.timers.start(&self.shared);
            if !rescued {
                timer?;
            }
        }
        let mut state = self.lock();
        if cfg!(loom) && !state.core.workers.creates {
            return Ok(()); // A model has the pool by hand.
        }
        if state.poller.is_some() || state.core.workers.nr_workers() > 0 || state.stopped {
            self.manned.store(true, Ordering::Relaxed);
            return Ok(());
        }
        if state.mayday.is_some() && rescued {
            return Ok(());
        }
        let worker = state.core.workers.create();
        self.manned.store(true, Ordering::Relaxed);
        drop(state);
        match self.create_worker(worker) {
            Err(refused) if !rescued => Err(refused),
            _ => Ok(()),
        }
    }

    /// Makes the thread of a worker that the core has counted. If that is refused it is uncounted,
    /// and somebody looks after the pool.
    pub(super) fn create_worker(&self, worker: WorkerId) -> io::Result<()> {
        let number = {
            let mut state = self.lock();
            state.started += 1;
            state.started - 1
        };
        let high = if self.attrs.is_high() { "H" } else { "" };
        let name = match &self.attrs.cpus {
            Cpus::One(cpu) if self.attrs.bh => format!("inflight/bh:{cpu}{high}"),
            Cpus::One(cpu) => format!("inflight/{cpu}:{number}{high}"),
            Cpus::Pod { .. } => format!("inflight/u{}:{number}{high}", self.id),
        };
        let pool = self.arc();
        let started = self
            .shared
            .start_thread(name, move || worker::run(&pool, worker));
        match &started {
            Ok(()) => self.somebody_comes(),
            Err(_) => self.creation_failed(worker),
        }
        started
    }

    /// The calling thread is that worker from now on.
    pub(crate) fn register(
        state: &mut PoolState,
        worker: WorkerId,
        shared: Arc<WorkerShared>,
        unparker: Unparker,
    ) {
        if state.threads.len() <= worker {
            state.threads.resize(worker + 1, None);
        }
        // A batch goes on counting where that of the worker before was.
        let settled = state.core.workers.get(worker).settled;
        shared.batch.resume(settled);
        state.threads[worker] = Some(WorkerThread {
            shared,
            unparker,
            number: sampler::proc::this_thread(),
            woken_at: None,
            seen: None,
            own: None,
            away: None,
        });
    }

    /// The calling thread comes to run entries of the pool, and does not count as running in it.
    pub(crate) fn attach(&self, shared: Arc<WorkerShared>) -> WorkerId {
        let mut state = self.lock();
        let me = state.core.workers.attach();
        Self::register(&mut state, me, shared, Parker::current().unparker());
        me
    }

    /// It leaves.
    pub(crate) fn detach(&self, me: WorkerId, shared: &WorkerShared) {
        let mut state = self.lock();
        state.end_batch(me, &shared.batch);
        self.leave(state, me);
    }

    /// A pwq joins; its number.
    pub(crate) fn add_pwq(
        &self,
        make: impl FnOnce(&mut PoolCore<Entry>) -> (PwqIndex, Arc<Pwq>),
    ) -> Arc<Pwq> {
        let mut state = self.lock();
        let (index, pwq) = make(&mut state.core);
        let index = index as usize;
        if state.pwqs.len() <= index {
            state.pwqs.resize(index + 1, None);
        }
        state.pwqs[index] = Some(pwq.clone());
        state.users += 1;
        pwq
    }

    /// A pwq that had left is used again.
    pub(crate) fn readd_user(state: &mut PoolState) {
        state.users += 1;
    }

    /// A pwq is not used by its queue any more. What is in it still runs.
    pub(crate) fn remove_user(state: &mut PoolState) {
        state.users -= 1;
    }

    /// If nobody uses the pool and nothing is left in it, its workers leave.
    pub(crate) fn dismiss_if_unused(&self) {
        let mut state = self.lock();
        let unused = state.users == 0 && state.pwqs().all(|pwq| state.core.pwq(pwq).is_idle());
        if !unused || state.stopped {
            return;
        }
        let woken = self.dismiss_idle(&mut state);
        drop(state);
        woken.iter().for_each(WorkerThread::wake);
    }

    fn unman(&self) {
        self.manned.store(false, Ordering::Relaxed);
    }

    /// Whether nobody uses the pool: its workers leave when they find nothing to do.
    fn is_unused(state: &PoolState) -> bool {
        state.users == 0 && state.poller.is_none()
    }

    fn dismiss_idle(&self, state: &mut PoolState) -> Vec<WorkerThread> {
        let mut woken = Vec::new();
        while let Some((worker, _)) = state.core.workers.coldest() {
            state.core.workers.dismiss(worker);
            woken.extend(state.threads[worker].clone());
        }
        woken
    }

    /// Nothing is queued and nothing will be: the workers leave with the system.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        let woken = self.dismiss_idle(&mut state);
        drop(state);
        woken.iter().for_each(WorkerThread::wake);
    }

    /// Whether a worker that finds nothing to do is to leave.
    pub(crate) fn is_over(state: &PoolState) -> bool {
        state.stopped || Self::is_unused(state)
    }

    /// The worker leaves. Returns whether the system has ended.
    pub(crate) fn leave(&self, mut state: MutexGuard<'_, PoolState>, worker: WorkerId) -> bool {
        state.core.workers.remove(worker);
        let thread = state.threads[worker].take();
        if state.core.workers.nr_workers() == 0 && state.poller.is_none() {
            self.unman();
        }
        let stopped = state.stopped;
        self.unlock(state, false);
        drop(thread);
        stopped
    }

    /// The worker is about to sleep until it is woken.
    pub(crate) fn park(&self, mut state: MutexGuard<'_, PoolState>, worker: WorkerId) {
        let now = self.shared.clock.now();
        state.core.workers.park(worker, now.as_nanos());
        let (woken, cull_at) = self.next_cull(&mut state, now);
        self.unlock(state, false);
        woken.iter().for_each(WorkerThread::wake);
        self.plan_cull(cull_at);
    }

    /// Dismisses idle workers too many whose time has come. Returns them, and when to look again if
    /// nobody has planned to.
    fn next_cull(
        &self,
        state: &mut PoolState,
        now: Instant,
    ) -> (Vec<WorkerThread>, Option<Instant>) {
        let mut woken = Vec::new();
        let timeout = self.shared.idle_timeout;
        if timeout == Duration::MAX {
            return (woken, None);
        }
        while state.core.workers.are_too_many_idle() {
            let (worker, since) = state.core.workers.coldest().expect("there are too many");
            let at = Instant::from_nanos(since) + timeout;
            if at > now {
                let planned = std::mem::replace(&mut state.culling, true);
                return (woken, (!planned).then_some(at));
            }
            state.core.workers.dismiss(worker);
            woken.extend(state.threads[worker].clone());
        }
        (woken, None)
    }

    fn plan_cull(&self, at: Option<Instant>) {
        let Some(at) = at else { return };
        let pool = self.arc();
        let planned = self
            .shared
            .timers
            .set_duty(&self.shared, at, move || pool.cull());
        if !planned {
            self.lock().culling = false;
        }
    }

    /// *cull*: the timer's time has come.
    fn cull(&self) {
        let mut state = self.lock();
        state.culling = false;
        let (woken, at) = self.next_cull(&mut state, self.shared.clock.now());
        drop(state);
        woken.iter().for_each(WorkerThread::wake);
        self.plan_cull(at);
    }
}

impl PoolState {
    pub(crate) fn pwq(&self, index: PwqIndex) -> &Arc<Pwq> {
        self.pwqs[index as usize].as_ref().expect("it is there")
    }

    fn pwqs(&self) -> impl Iterator<Item = PwqIndex> {
        let pwqs = self.pwqs.iter().enumerate();
        pwqs.filter_map(|(index, pwq)| pwq.as_ref().map(|_| index as PwqIndex))
    }

    /// Whether something is left to do when the lock has been released.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.core.has_deferred() || !self.stale.is_empty()
    }

    /// A pwq that is idle goes for good.
    pub(crate) fn remove_pwq(&mut self, index: PwqIndex) -> Option<Arc<Pwq>> {
        self.core.remove_pwq(index);
        self.pwqs[index as usize].take()
    }

    pub(crate) fn thread(&self, worker: WorkerId) -> &WorkerThread {
        self.threads[worker].as_ref().expect("it is there")
    }

    /// Whether the timer looks at the pool.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }
}

/// What is done when the locks of queues' controls have been released, which what pools leave to do
/// may want: when this is dropped.
#[derive(Default)]
pub(crate) struct Later {
    pools: Vec<(Arc<WorkerPool>, AfterUnlock)>,
    /// Slots that have become free, with who waits for them.
    pub(crate) slots: Vec<(Arc<NrActive>, PwqId)>,
    /// Pwqs that have been replaced.
    pub(crate) retired: Vec<Arc<Pwq>>,
}

impl Drop for Later {
    fn drop(&mut self) {
        for (pool, after) in self.pools.drain(..) {
            after.perform(&pool);
        }
        for (nr_active, id) in self.slots.drain(..) {
            pwq::grant(&nr_active, id);
        }
        for pwq in self.retired.drain(..) {
            pwq.unplug_successor();
            pwq.pool().dismiss_if_unused();
        }
    }
}

impl AfterUnlock {
    /// Does it. No lock is held. Returns whether a worker is brought.
    pub(crate) fn perform(mut self, pool: &WorkerPool) -> bool {
        let brings = self.wake.is_some() || self.create.is_some() || self.poll;
        if let Some(thread) = self.wake.take() {
            thread.wake();
            pool.somebody_comes();
        }
        if let Some(worker) = self.create.take() {
            // Who waits for it is looked after.
            let _ = pool.create_worker(worker);
        }
        if self.poll {
            pool.call_poller();
            pool.somebody_comes();
        }
        if self.watch {
            pool.begin_watch();
        }
        if let Some(now) = self.help {
            pool.seek_help(now);
        }
        let mut pwqs = self.pwqs.drain(..);
        for deferred in self.deferred.drain(..) {
            match deferred {
                Deferred::Slot(nr_active, id) => pwq::grant(&nr_active, id),
                Deferred::Flushed(_, over) => pwqs.next().expect("each has one").flushed(over),
                Deferred::Idle(_, counted) => {
                    pwqs.next().expect("each has one").became_idle(counted)
                }
            }
        }
        for item in self.stale {
            // SAFETY: the cancel has left a reference with the entry.
            unsafe { item.release() };
        }
        brings
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool")
            .field("id", &self.id)
            .field("attrs", &self.attrs)
            .finish_non_exhaustive()
    }
}
