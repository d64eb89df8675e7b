//! A worker pool: the core behind its lock.

use crate::batch::Entry;
use crate::busy_worker::WorkerDesc;
use crate::cpu_time::{Charged, Meter};
use crate::item::{FunctionCell, ItemPtr};
use crate::load_hint::LoadHint;
use crate::nr_active::{NrActive, PwqId};
use crate::pool_attrs::PoolAttrs;
use crate::pool_core::{Deferred, PoolCore, PoolItem, PwqIndex, WorkerId};
use crate::pwq::{Batch, Pwq};
use crate::sampler::Sampler;
use crate::shrink::shrink_table;
use crate::steal_policy::{Load, Pod, StealPolicy};
use crate::system_shared::SystemShared;
use inflight_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
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

pub(crate) use batches::Settlement;
pub(crate) use pool_report::{PoolReport, PwqLevel};

impl PoolItem for Entry {
    #[inline]
    fn colour(&self) -> u8 {
        Self::colour(*self)
    }

    #[inline]
    fn set_position(&self, position: u32) {
        // SAFETY: an entry keeps its item alive.
        unsafe { self.item.header() }.set_position(position);
    }
}

pub(crate) struct WorkerPool {
    this: Weak<Self>,
    /// Names the pool in dumps, and the threads of an unbound pool.
    pub(crate) id: usize,
    pub(crate) attrs: PoolAttrs,
    /// Its CPUs, on the machine for which it was made. Some may go offline and come back.
    pub(crate) pod: Pod,
    pub(crate) shared: Arc<SystemShared>,
    pub(crate) hint: Arc<LoadHint>,
    sampler: Mutex<Sampler>,
    meter: Meter,
    /// How often an item has called `touch_watchdog`.
    touched: AtomicU64,
    /// Whether it has a worker, or one is being created. Written under the lock.
    has_worker: AtomicBool,
    /// Whether something came while a worker lingered.
    has_come: AtomicBool,
    /// The CPU that a lingering worker yields; `usize::MAX` if none does.
    yielded_cpu: AtomicUsize,
    state: CachePadded<Mutex<PoolState>>,
}

/// The state under the lock. On separate cache lines: waiters poll the line of the lock. The fields
/// that each push and each batch change come first, then those that each push only reads.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct PoolState {
    pub(crate) core: PoolCore<Entry>,
    /// By the core's index.
    pwqs: Vec<Option<Arc<Pwq>>>,
    /// By the core's worker number.
    threads: Vec<Option<WorkerThread>>,
    /// Whether the timer ticks for the pool.
    pub(crate) watched: bool,
    /// Whether the siblings know that they may take something here.
    overloaded: bool,
    /// Whether others read its load hint.
    tells: bool,
    /// Whether the timer will come for the worker that has been idle longest.
    culling: bool,
    /// The system ends: the workers leave.
    stopped: bool,
    /// How many events pass before the next search for a sibling that could help.
    look_later: u32,
    /// The pools that may help this one and be helped, if there are any.
    pub(crate) siblings: Option<Arc<Siblings>>,
    /// The load that the siblings were last told.
    told: Load,
    /// With fewer entries no sibling is needed; 0: tell the siblings of each entry.
    help_from: usize,
    /// Items whose cancelled entry has now been found. Dropping one may run the user's code.
    pub(crate) stale: Vec<ItemPtr>,
    /// For a pool of BH items.
    pub(crate) poller: Option<PollerState>,
    /// Whether a check is planned that the poller has polled.
    pub(crate) expected: bool,
    /// Threads asked for, to number them.
    started: usize,
    /// Set while threads are refused.
    mayday: Option<Mayday>,
    /// Pwqs that are not retired. Retired pwqs may still have items.
    pub(crate) users: usize,
    /// Memory for the workers that a recall chooses.
    chosen: Vec<WorkerId>,
}

pub(crate) struct WorkerThread {
    pub(crate) shared: Arc<WorkerShared>,
    /// Its number, if threads have one.
    number: Option<u32>,
    /// Its position in the batch at the last tick.
    seen: Option<u32>,
    /// The entry that it was seen to run, and when it was first seen to do so.
    runs_since: Option<(u32, Instant)>,
    /// For a guest: the pool in which it counts.
    own: Option<(Arc<WorkerPool>, WorkerId)>,
    away: Option<Away>,
}

/// A worker is a guest of another pool, where it has this number and this state.
pub(crate) struct Away {
    pool: Arc<WorkerPool>,
    me: WorkerId,
    shared: Arc<WorkerShared>,
}

/// How many pools have items that others might take. A hint: at 0 nobody looks around.
#[derive(Debug, Default)]
pub(crate) struct Overloaded(CachePadded<AtomicUsize>);

/// A pool and the pools of its system that may help it and be helped.
pub(crate) struct Siblings {
    pub(crate) policy: StealPolicy,
    /// The index of the pool itself in `all`.
    me: usize,
    /// In the order of their CPUs.
    all: Vec<Sibling>,
    overloaded: Arc<Overloaded>,
}

struct Sibling {
    pool: Weak<WorkerPool>,
    hint: Arc<LoadHint>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Mayday {
    /// No thread is asked for before this.
    cooldown: Instant,
    /// How long it waits after this refusal; twice as long after the next.
    lasts: Duration,
    /// Whether rescuers have been called.
    called: bool,
}

pub(crate) type BhNotify = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct PollerState {
    pub(crate) me: WorkerId,
    pub(crate) notify: BhNotify,
    /// Until when it has to poll, if it has been called and has not polled since.
    pub(crate) called: Option<Instant>,
    /// It was called and has not polled in time.
    pub(crate) late: bool,
    /// The system ends: it is not called any more.
    pub(crate) relieved: bool,
}

/// The state that a worker shares with the holders of its pool's lock, and with the timer.
pub(crate) struct WorkerShared {
    pub(crate) batch: Batch,
    /// Of its thread. A poller is not woken by it.
    unparker: Unparker,
    /// It was woken, or has to leave.
    woken: AtomicBool,
    /// The function that it runs, if any.
    pub(crate) function: FunctionCell,
    pub(crate) told: Mutex<WorkerDesc>,
    pub(crate) charged: Charged,
    /// The name of its thread; `None` for a poller.
    pub(crate) thread_name: Option<Arc<str>>,
}

#[must_use]
#[derive(Default)]
pub(crate) struct PoolDeferred {
    wake: Option<Arc<WorkerShared>>,
    create: Option<WorkerId>,
    /// Usually one or two, which need no allocation.
    actions: SmallVec<[Deferred<Arc<Pwq>>; 2]>,
    watch: bool,
    /// Whether to ask the siblings for help, and with which `now`.
    help: Option<bool>,
    poll: bool,
    stale: Vec<ItemPtr>,
}

/// The same after the locks of controls, which these actions may take. Done when dropped.
#[derive(Default)]
pub(crate) struct QueueDeferred {
    pools: Vec<(Arc<WorkerPool>, PoolDeferred)>,
    /// Free slots, with the pwqs that get them.
    pub(crate) slots: Vec<(Arc<NrActive>, PwqId)>,
    pub(crate) retired: Vec<Arc<Pwq>>,
}

impl WorkerShared {
    /// For the calling thread.
    pub(crate) fn new(shared: &SystemShared, thread_name: Option<Arc<str>>) -> Arc<Self> {
        Arc::new(Self {
            batch: Batch::new(shared.fence),
            unparker: Parker::current().unparker(),
            woken: AtomicBool::new(false),
            function: FunctionCell::new(),
            told: Mutex::default(),
            charged: Charged::new(&shared.metering),
            thread_name,
        })
    }
}

impl WorkerThread {
    /// The state of what it runs now.
    fn running_as(&self) -> &Arc<WorkerShared> {
        self.away.as_ref().map_or(&self.shared, |away| &away.shared)
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
            yielded_cpu: AtomicUsize::new(usize::MAX),
            state: CachePadded::new(Mutex::new(PoolState {
                core: PoolCore::new(attrs.target()),
                ..PoolState::default()
            })),
            attrs,
            shared: shared.clone(),
        })
    }

    pub(crate) fn arc(&self) -> Arc<Self> {
        self.this.upgrade().expect("the caller has a reference")
    }

    pub(crate) fn do_at(&self, at: Instant, duty: fn(&Self)) {
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

    /// Whether the sampler watches the pool while something waits in it. A model watches by itself,
    /// or through the timer with the model's clock.
    #[inline]
    pub(crate) fn is_looked_after(&self) -> bool {
        let looks =
            self.shared.sampling.on && (cfg!(any(loom, shuttle)) || !self.shared.clock.is_manual());
        looks && !self.attrs.bh
    }
}

impl PoolState {
    pub(crate) fn pwq(&self, index: PwqIndex) -> &Arc<Pwq> {
        self.pwqs[index as usize].as_ref().expect("the pwq exists")
    }

    fn pwqs(&self) -> impl Iterator<Item = PwqIndex> {
        let pwqs = self.pwqs.iter().enumerate();
        pwqs.filter_map(|(index, pwq)| pwq.as_ref().map(|_| index as PwqIndex))
    }

    fn is_empty(&self) -> bool {
        self.pwqs().all(|pwq| self.core.pwq(pwq).is_idle())
    }

    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.core.has_deferred() || !self.stale.is_empty()
    }

    pub(crate) fn add_pwq(&mut self, pwq: &Arc<Pwq>) {
        let index = pwq.index as usize;
        if self.pwqs.len() <= index {
            self.pwqs.resize(index + 1, None);
        }
        self.tells |= pwq.wq.flags.wake_rules.is_some();
        self.pwqs[index] = Some(pwq.clone());
        self.users += 1;
    }

    pub(crate) fn remove_pwq(&mut self, index: PwqIndex) -> Option<Arc<Pwq>> {
        self.core.remove_pwq(index);
        let pwq = self.pwqs[index as usize].take();
        shrink_table(&mut self.pwqs, Option::is_none);
        pwq
    }

    pub(crate) fn thread(&self, worker: WorkerId) -> &WorkerThread {
        self.threads[worker]
            .as_ref()
            .expect("the worker has registered")
    }

    fn thread_mut(&mut self, worker: WorkerId) -> &mut WorkerThread {
        self.threads[worker]
            .as_mut()
            .expect("the worker has registered")
    }

    /// `None` while it is being created.
    fn known_thread(&self, worker: WorkerId) -> Option<&WorkerThread> {
        self.threads.get(worker)?.as_ref()
    }

    /// Whether the timer ticks, and no poller or lingering worker has to be told of an entry: an
    /// event can need only a worker, here or of a sibling, or deferred actions.
    #[inline]
    fn is_looked_at(&self) -> bool {
        debug_assert!(
            !self.watched || self.poller.is_none(),
            "pollers' pools are not looked at"
        );
        self.watched && self.poller.is_none() && !self.core.workers.is_lingering()
    }
}
