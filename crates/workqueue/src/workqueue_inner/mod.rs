//! The state that all handles of a workqueue share.

mod apply_attrs;
mod call;
mod choose_pwq;
mod lifecycle;
mod max_active;
mod queue_report;
mod queueing;

pub(crate) use lifecycle::{Destroy, Drain};
pub(crate) use queueing::{Origin, Pushed};

use crate::attrs::{Attrs, Kind, Mode};
use crate::choose_pool::PodMap;
use crate::completion::Completion;
use crate::error::AttrsError;
use crate::mayday_list::MaydayList;
use crate::nr_active::NrActive;
use crate::pool_attrs::PoolAttrs;
use crate::pwq::Pwq;
use crate::system_shared::SystemShared;
use crate::unfinished::Unfinished;
use crate::worker_pool::{QueueDeferred, WorkerPool};
use inflight_sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use inflight_sync::{Arc, Mutex};
use inflight_topology::Topology;
use inflight_topology::wake::WakeRules;

/// How the limit of an unbound workqueue is split among memory nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Share {
    /// Not split: the limit is exact, wherever the items are queued.
    #[default]
    Lend,
    /// As in the kernel: each node has a part by its CPUs, at least `min_active`. The sum of the
    /// parts may exceed the limit, and a node does not lend slots that it does not use.
    PerNode,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) highpri: bool,
    pub(crate) cpu_intensive: bool,
    pub(crate) mem_reclaim: bool,
    pub(crate) power_efficient: bool,
    pub(crate) freezable: bool,
    /// Where woken work continues. `None`: on the CPU of the waker, or the named one.
    pub(crate) wake_rules: Option<WakeRules>,
}

impl Flags {
    /// An option that is set and that a BH queue cannot have.
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

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ActiveLimit {
    /// 0 for the default, until the queue is built.
    pub(crate) max_active: usize,
    pub(crate) share: Share,
    /// `None` for the default.
    pub(crate) min_active: Option<usize>,
}

impl ActiveLimit {
    /// As [`Flags::not_bh`].
    pub(crate) fn not_bh(&self) -> Option<&'static str> {
        match self {
            Self { share, .. } if *share != Share::default() => Some("share"),
            Self { min_active, .. } => min_active.map(|_| "min_active"),
        }
    }
}

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

/// The system as a queue sees it; it has all pools and all queues.
pub(crate) trait QueueHost: Send + Sync {
    fn shared(&self) -> &Arc<SystemShared>;

    /// The pool with these attributes. Makes it for that machine if there is none.
    fn pool(&self, attrs: &PoolAttrs, machine: &Topology) -> Arc<WorkerPool>;

    /// Tells new pools, and the pools that serve the same queues, of each other.
    fn introduce_newcomers(&self, deferred: &mut QueueDeferred);

    /// A closed queue has become idle.
    fn queue_is_idle(&self);

    /// Changes the attributes, unless they differ from `expected`. Returns whether it did.
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
    pub(crate) number: u64,
    /// For each CPU, its pwq, or null. They live in `control` until the queue is detached.
    by_cpu: Box<[AtomicPtr<Pwq>]>,
    pub(crate) control: Mutex<Control>,
    /// Whether what comes due waits for the end of a drain. Written under the lock of `control`.
    postpones: AtomicBool,
    /// While pwqs are counted: an event for each one with items in flight, and for each thread that
    /// counts.
    busy: Completion,
    /// Relaxed: statistics.
    counts: [AtomicU64; COUNTS],
    pub(crate) cpu_time_ns: Arc<AtomicU64>,
    /// The item, and the message if it is a text.
    pub(crate) last_panic: Mutex<Option<(String, Option<String>)>>,
    pub(crate) rescuer: Option<Arc<MaydayList<WorkerPool>>>,
    pub(crate) unfinished: Unfinished,
}

/// The slow path, one change at a time. Locked after the settings, before pools.
#[derive(Default)]
pub(crate) struct Control {
    attrs: Attrs,
    limit: ActiveLimit,
    pods: PodMap,
    /// All pwqs, also retired ones: a caller of `queue` may still use one.
    pub(crate) pwqs: Vec<Arc<Pwq>>,
    /// The limits that pwqs share: one, or one for each node and one for pools without a node.
    nr_active: Vec<Arc<NrActive>>,
    /// The nodes when the queue was made, if several, each with its usable CPUs.
    nodes: Vec<(usize, usize)>,
    pub(crate) frozen: bool,
    draining: usize,
    destroyed: bool,
    /// The number of threads that wait for the queue to be destroyed.
    destroying: usize,
    shut_down: bool,
    /// The last handle has been dropped.
    abandoned: bool,
    /// The queue has left its pools.
    detached: bool,
    /// Whether the pwqs are counted in `busy`.
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

    pub(crate) fn counted(&self, count: Count) {
        self.counts[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn panicked(&self, item: &str, message: Option<&str>) {
        #[cfg(loom)]
        inflight_sync::model::contained(item, message);
        self.counted(Count::Panicked);
        *self.last_panic.lock() = Some((item.to_owned(), message.map(str::to_owned)));
    }
}
