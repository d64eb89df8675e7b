//! What all handles of a workqueue share.

mod apply_attrs;
mod call;
mod choose_pwq;
mod lifecycle;
mod max_active;
mod queue_report;
mod queueing;

pub(crate) use lifecycle::{Destroy, Drain};
pub(crate) use queueing::Origin;

use crate::attrs::{Attrs, Kind, Mode};
use crate::choose_pool::PodMap;
use crate::consts::DEFAULT_MAX_ACTIVE;
use crate::error::AttrsError;
use crate::mayday_list::MaydayList;
use crate::nr_active::NrActive;
use crate::pool_attrs::PoolAttrs;
use crate::pwq::Pwq;
use crate::system_shared::SystemShared;
use crate::timer_queue::{Delayed, TimerKey};
use crate::unfinished::Unfinished;
use crate::worker_pool::{QueueDeferred, WorkerPool};
use inflight_sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use inflight_sync::wait::Event;
use inflight_sync::{Arc, Mutex};
use inflight_topology::Topology;
use inflight_topology::wake::WakeRules;
use std::collections::BTreeMap;

/// How the limit of an unbound workqueue is split among memory nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Share {
    /// Not at all: the limit is exact, wherever the items are queued.
    #[default]
    Lend,
    /// As the kernel does: each node has a part by its CPUs, at least `min_active`. The parts may
    /// be more than the limit together, and a node does not lend what it does not use.
    PerNode,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) highpri: bool,
    pub(crate) cpu_intensive: bool,
    pub(crate) mem_reclaim: bool,
    pub(crate) power_efficient: bool,
    pub(crate) freezable: bool,
    /// Where work goes on that is woken; where it is told to if there are none.
    pub(crate) wake_rules: Option<WakeRules>,
}

impl Flags {
    /// What a BH queue cannot be.
    pub(crate) fn not_bh(&self) -> Option<&'static str> {
        let flags = [
            (self.cpu_intensive, "cpu_intensive"),
            (self.mem_reclaim, "mem_reclaim"),
            (self.power_efficient, "power_efficient"),
            (self.freezable, "freezable"),
            (self.wake_rules.is_some(), "wake_rules"),
        ];
        flags
            .into_iter()
            .find_map(|(set, name)| set.then_some(name))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ActiveLimit {
    pub(crate) max_active: usize,
    pub(crate) share: Share,
    /// `None`: the default.
    pub(crate) min_active: Option<usize>,
}

impl Default for ActiveLimit {
    fn default() -> Self {
        Self {
            max_active: DEFAULT_MAX_ACTIVE,
            share: Share::Lend,
            min_active: None,
        }
    }
}

/// Something that is counted while items run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Panicked,
    Refused,
    CmWakeup,
    FoundAsleep,
    Intensive,
    RemoteWakeups,
    Stolen,
    Repatriated,
    Placed,
    Rescued,
    Touched,
}

const COUNTS: usize = 11;

/// What a queue asks of its system, which has all pools and all queues.
pub(crate) trait QueueHost: Send + Sync {
    fn shared(&self) -> &Arc<SystemShared>;

    /// The pool with such attributes, made for that machine if there is none.
    fn pool(&self, attrs: &PoolAttrs, machine: &Topology) -> Arc<WorkerPool>;

    /// Pools that have been made, and those that serve the same queues, learn of each other.
    fn introduce_newcomers(&self, deferred: &mut QueueDeferred);

    /// A closed queue has become idle.
    fn queue_is_idle(&self);

    /// Changes the attributes of an unbound queue, unless it has others than `expected`. Returns
    /// whether they are changed.
    fn set_attrs(
        &self,
        queue: &Arc<WorkqueueInner>,
        attrs: Attrs,
        expected: Option<&Attrs>,
    ) -> Result<bool, AttrsError>;
}

pub(crate) struct WorkqueueInner {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) flags: Flags,
    pub(crate) shared: Arc<SystemShared>,
    pub(crate) host: Arc<dyn QueueHost>,
    /// Names it for those who charge CPU time.
    pub(crate) number: u64,
    /// By CPU: the pwq of items that are queued there; null if it has not been made. What they
    /// point to lives in `control`, until the queue is detached.
    by_cpu: Box<[AtomicPtr<Pwq>]>,
    pub(crate) control: Mutex<Control>,
    /// Pwqs in which something is in flight, while they are counted, and those who count.
    busy: AtomicUsize,
    /// `busy` has become 0.
    idle: Event,
    /// Relaxed: statistics.
    counts: [AtomicU64; COUNTS],
    pub(crate) cpu_time_ns: Arc<AtomicU64>,
    last_panic: Mutex<Option<(String, Option<String>)>>,
    pub(crate) rescuer: Option<Arc<MaydayList<WorkerPool>>>,
    /// Futures that have not ended.
    pub(crate) unfinished: Unfinished,
}

/// The slow side of a workqueue, one change at a time. Its lock comes after that of the system's
/// settings and before those of pools.
#[derive(Default)]
pub(crate) struct Control {
    attrs: Attrs,
    limit: ActiveLimit,
    pods: PodMap,
    /// All pwqs, retired ones too: who queues may still look at one.
    pub(crate) pwqs: Vec<Arc<Pwq>>,
    /// Limits that pwqs share: one, or one for each node and one for pools without a node.
    nr_active: Vec<Arc<NrActive>>,
    /// The machine's nodes when the queue was made, if there were several, each with the CPUs that
    /// the queue may use there: by those the limit is split.
    nodes: Vec<(usize, usize)>,
    pub(crate) frozen: bool,
    /// Drains under way.
    draining: usize,
    /// What has come due during them, and waits for their end.
    postponed: BTreeMap<TimerKey, Box<dyn Delayed>>,
    destroyed: bool,
    /// Those who wait for that.
    destroying: usize,
    shut_down: bool,
    /// The last handle has gone.
    abandoned: bool,
    /// The queue has left its pools.
    detached: bool,
    /// The pwqs are counted in `busy`.
    counting: bool,
}

impl WorkqueueInner {
    pub(crate) fn kind(&self) -> Kind {
        self.mode.with(self.attrs())
    }

    pub(crate) fn attrs(&self) -> Attrs {
        self.control.lock().attrs.clone()
    }

    /// Whether a worker that runs items of such a queue does not count as running.
    fn is_unmanaged(&self, attrs: &Attrs) -> bool {
        let bound = self.mode == Mode::Bound && self.flags.cpu_intensive;
        bound || attrs.is_unmanaged()
    }

    pub(crate) fn counted(&self, count: Count, times: u64) {
        self.counts[count as usize].fetch_add(times, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// An item's run has ended by panic.
    pub(crate) fn panicked(&self, item: &str, message: Option<&str>) {
        #[cfg(loom)]
        inflight_sync::model::contained(item, message);
        self.counted(Count::Panicked, 1);
        *self.last_panic.lock() = Some((item.to_owned(), message.map(str::to_owned)));
    }
}
