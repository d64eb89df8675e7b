//! A worker pool: the core behind its lock.

use crate::batch::Entry;
use crate::busy_worker::WorkerDesc;
use crate::cpu_time::{Charged, Meter};
use crate::item::{FunctionCell, ItemPtr};
use crate::load_hint::{Lately, LoadHint};
use crate::nr_active::{NrActive, PwqId};
use crate::pool_attrs::PoolAttrs;
use crate::pool_core::{Deferred, PoolCore, PoolItem, PwqIndex, WorkerId};
use crate::pwq::{Batch, Pwq};
use crate::sampler::Sampler;
use crate::shrink::shrink_table;
use crate::steal_policy::{Load, Pod, StealPolicy};
use crate::system_shared::SystemShared;
use inflight_sync::atomic::AtomicUsize;
use inflight_sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, CachePadded, Mutex, MutexGuard, Parker, Unparker, Weak};
use inflight_topology::Topology;
use smallvec::SmallVec;
use std::time::Duration;

mod act_on_sampler;
mod affinity;
mod batches;
mod create_worker;
mod deferred;
mod idle_timeout;
mod leave;
mod mayday;
mod pool_report;
mod siblings;
mod steal;
mod wake;
mod wake_sibling;

pub(crate) use batches::Settlement;
pub(crate) use pool_report::{PoolReport, PwqLevel};
#[cfg(any(loom, feature = "unstable-sim"))]
pub use wake_sibling::WakeTarget;

impl PoolItem for Entry {
    #[inline]
    fn colour(&self) -> u8 {
        self.colour
    }

    #[inline]
    fn set_position(&self, position: u32) {
        // SAFETY: whoever has an entry keeps its item alive.
        unsafe { self.item.header() }.set_position(position);
    }
}

pub(crate) struct WorkerPool {
    this: Weak<Self>,
    /// Names it in dumps, and the threads of an unbound pool.
    pub(crate) id: usize,
    pub(crate) attrs: PoolAttrs,
    /// Its CPUs, on the machine for which it was made: some of them may leave and return.
    pub(crate) pod: Pod,
    pub(crate) shared: Arc<SystemShared>,
    pub(crate) hint: Arc<LoadHint>,
    sampler: Mutex<Sampler>,
    meter: Meter,
    /// How often an item has said that it gets on.
    touched: AtomicU64,
    /// It has a worker, or one is being created. Written under the lock.
    has_worker: AtomicBool,
    /// Something has come while a worker lingers.
    has_come: AtomicBool,
    state: CachePadded<Mutex<PoolState>>,
}

/// What the lock guards. On lines of its own: who waits for the lock looks at that of the lock all
/// the time. First what each push and each batch changes, then what each push only reads.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct PoolState {
    pub(crate) core: PoolCore<Entry>,
    /// By the core's numbers.
    pwqs: Vec<Option<Arc<Pwq>>>,
    /// By the core's numbers of workers.
    threads: Vec<Option<WorkerThread>>,
    /// The timer looks at the pool.
    pub(crate) watched: bool,
    /// Those know that they may take something here.
    overloaded: bool,
    /// Others read what it says of itself.
    tells: bool,
    /// The timer comes for the coldest idle worker.
    culling: bool,
    /// The system ends: the workers leave.
    stopped: bool,
    /// So many events pass before somebody looks again for a sibling that could help.
    look_later: u32,
    /// The pools that may help this one and be helped, if there are any.
    pub(crate) siblings: Option<Arc<Siblings>>,
    /// What those have been told last.
    told: Load,
    /// With fewer entries none of them is wanted; 0: they are to be told of each.
    help_from: usize,
    /// Items with an entry that was cancelled and left behind, and is gone. Dropping one may run
    /// foreign code.
    pub(crate) stale: Vec<ItemPtr>,
    /// Of a pool of BH items.
    pub(crate) poller: Option<PollerState>,
    /// What workers take to come, in ns.
    delay: Lately,
    /// Threads asked for, to number them.
    started: usize,
    /// Set while threads are refused.
    mayday: Option<Mayday>,
    /// Pwqs that have not been retired: what is in those others still runs.
    pub(crate) users: usize,
    /// Room for the workers that a recall chooses.
    chosen: Vec<WorkerId>,
}

pub(crate) struct WorkerThread {
    pub(crate) shared: Arc<WorkerShared>,
    /// Its number, if threads have one.
    number: Option<u32>,
    /// When it was woken, if it has not come yet and that matters.
    woken_at: Option<Instant>,
    /// How far it was in its batch at the last tick.
    seen: Option<u32>,
    /// The entry that somebody has seen it run, and when first.
    runs_since: Option<(u32, Instant)>,
    /// Of a guest: the pool in which it counts.
    own: Option<(Arc<WorkerPool>, WorkerId)>,
    /// It is a guest of another pool, and is this there.
    away: Option<Arc<WorkerShared>>,
}

/// How many pools of a system have waiting items that others might take. Relaxed: a hint. As long
/// as there is none no worker looks at the others.
#[derive(Debug, Default)]
pub(crate) struct Overloaded(CachePadded<AtomicUsize>);

/// A pool and those of its system that may help it and be helped.
pub(crate) struct Siblings {
    pub(crate) policy: StealPolicy,
    /// Which of `all` the pool is itself.
    me: usize,
    /// In the order of their CPUs.
    all: Vec<Sibling>,
    overloaded: Arc<Overloaded>,
}

struct Sibling {
    pool: Weak<WorkerPool>,
    hint: Arc<LoadHint>,
}

/// A thread was refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mayday {
    /// Until then nobody asks for one.
    cooldown: Instant,
    lasts: Duration,
    /// Rescuers have been called.
    called: bool,
}

/// Tells a poller to come.
pub(crate) type BhNotify = Arc<dyn Fn() + Send + Sync>;

/// What a pool knows of its poller.
pub(crate) struct PollerState {
    pub(crate) me: WorkerId,
    pub(crate) notify: BhNotify,
    /// It has been called and has not come: the number of the call.
    pub(crate) called: Option<u64>,
    pub(crate) calls: u64,
    /// It was called and has not come in time.
    pub(crate) late: bool,
    /// The system ends: it is not called any more.
    pub(crate) relieved: bool,
    /// Somebody will ask whether it has come.
    pub(crate) expected: bool,
}

/// What a worker shares with those who hold its pool's lock, and with the timer.
pub(crate) struct WorkerShared {
    pub(crate) batch: Batch,
    /// Of its thread, or of whoever has made it for a poller, which is not woken by it.
    unparker: Unparker,
    /// It was woken, or is to leave.
    woken: AtomicBool,
    /// What was found out about the item that it runs. Relaxed, these three: statistics and hints.
    pub(crate) found: AtomicU8,
    /// The function that it runs, if it runs one.
    pub(crate) function: FunctionCell,
    /// What the item that it runs has told of itself.
    pub(crate) told: Mutex<WorkerDesc>,
    /// Whose CPU time it uses.
    pub(crate) charged: Charged,
    /// The name of its thread; `None` of a poller, whoever polls.
    pub(crate) thread_name: Option<Arc<str>>,
}

/// What is to be done when a pool's lock has been released.
#[must_use]
#[derive(Default)]
pub(crate) struct PoolDeferred {
    wake: Option<Arc<WorkerShared>>,
    create: Option<WorkerId>,
    /// In most cases one or two, which need no memory of their own.
    actions: SmallVec<[Deferred<Arc<Pwq>>; 2]>,
    watch: bool,
    /// The siblings are to be looked at for help, and whether what waits is not left to those that
    /// run.
    help: Option<bool>,
    poll: bool,
    stale: Vec<ItemPtr>,
}

/// What is done when the locks of queues' controls have been released, which what pools leave to do
/// may want: when this is dropped.
#[derive(Default)]
pub(crate) struct QueueDeferred {
    pools: Vec<(Arc<WorkerPool>, PoolDeferred)>,
    /// Slots that have become free, with who waits for them.
    pub(crate) slots: Vec<(Arc<NrActive>, PwqId)>,
    /// Pwqs that have been replaced.
    pub(crate) retired: Vec<Arc<Pwq>>,
}

impl WorkerShared {
    /// Of the calling thread.
    pub(crate) fn new(shared: &SystemShared, thread_name: Option<Arc<str>>) -> Arc<Self> {
        Arc::new(Self {
            batch: Batch::new(shared.fence),
            unparker: Parker::current().unparker(),
            woken: AtomicBool::new(false),
            found: AtomicU8::new(0),
            function: FunctionCell::new(),
            told: Mutex::default(),
            charged: Charged::new(&shared.metering),
            thread_name,
        })
    }
}

impl WorkerThread {
    /// What tells what it runs.
    fn running_as(&self) -> &Arc<WorkerShared> {
        self.away.as_ref().unwrap_or(&self.shared)
    }
}

impl WorkerPool {
    pub(crate) fn new(
        attrs: PoolAttrs,
        machine: &Topology,
        id: usize,
        shared: &Arc<SystemShared>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            id,
            pod: Pod::new(machine, &attrs.cpus),
            hint: Arc::default(),
            sampler: Mutex::default(),
            meter: Meter::default(),
            touched: AtomicU64::new(0),
            has_worker: AtomicBool::new(false),
            has_come: AtomicBool::new(false),
            state: CachePadded::new(Mutex::new(PoolState {
                core: PoolCore::new(attrs.target()),
                ..PoolState::default()
            })),
            attrs,
            shared: shared.clone(),
        })
    }

    pub(crate) fn arc(&self) -> Arc<Self> {
        self.this.upgrade().expect("who calls has one")
    }

    /// The timer does that then, if the system has not ended.
    fn do_at(&self, at: Instant, duty: fn(&Self)) {
        let pool = self.arc();
        self.shared.set_duty(at, move || duty(&pool));
    }

    fn do_after(&self, later: Duration, duty: fn(&Self)) {
        self.do_at(self.shared.clock.now() + later, duty);
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }

    /// Whether somebody looks after the pool while something waits in it: in a model, itself, or
    /// the timer by the model's clock.
    #[inline]
    pub(crate) fn is_looked_after(&self) -> bool {
        let looks =
            self.shared.sampling.on && (cfg!(any(loom, shuttle)) || !self.shared.clock.is_manual());
        looks && !self.attrs.bh
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
        state.tells |= pwq.wq.flags.wake_rules.is_some();
        state.pwqs[index] = Some(pwq.clone());
        state.users += 1;
        pwq
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

    fn is_empty(&self) -> bool {
        self.pwqs().all(|pwq| self.core.pwq(pwq).is_idle())
    }

    /// Whether something is left to do when the lock has been released.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.core.has_deferred() || !self.stale.is_empty()
    }

    /// A pwq that is idle goes for good.
    pub(crate) fn remove_pwq(&mut self, index: PwqIndex) -> Option<Arc<Pwq>> {
        self.core.remove_pwq(index);
        let pwq = self.pwqs[index as usize].take();
        shrink_table(&mut self.pwqs, Option::is_none);
        pwq
    }

    pub(crate) fn thread(&self, worker: WorkerId) -> &WorkerThread {
        self.threads[worker].as_ref().expect("it is there")
    }

    /// `None` as long as it is being created.
    fn known_thread(&self, worker: WorkerId) -> Option<&WorkerThread> {
        self.threads.get(worker)?.as_ref()
    }

    /// The timer looks at the pool, which has no poller, and nobody lingers: only a worker may be
    /// missing, of the pool or of a sibling.
    #[inline]
    fn is_looked_at(&self) -> bool {
        debug_assert!(
            !self.watched || self.poller.is_none(),
            "pollers' pools are not looked at"
        );
        self.watched && self.poller.is_none() && !self.core.workers.is_lingering()
    }
}
