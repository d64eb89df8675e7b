//! What a workqueue is made from.

use crate::attrs::{Attrs, Kind};
use crate::error::BuildError;
use crate::ordered::ORDERED_LIMIT;
use crate::rescuer::Rescuer;
use crate::system_inner::SystemInner;
use crate::system_shared::SystemShared;
use crate::workqueue::{NO_LIMIT, Workqueue, checked_max_active, checked_name};
use crate::workqueue_inner::{ActiveLimit, Flags, Share, WorkqueueInner};
use inflight_sync::Arc;
use inflight_topology::wake::WakeRules;
use std::fmt;

/// A workqueue whose kind has not been chosen.
#[must_use = "nothing is made before `build`"]
pub struct WorkqueueDraft {
    system: Arc<SystemInner>,
    name: String,
}

impl WorkqueueDraft {
    pub(crate) const fn new(system: Arc<SystemInner>, name: String) -> Self {
        Self { system, name }
    }

    /// Items run on the CPU they are queued on, one at a time unless they block.
    pub fn bound(self) -> WorkqueueBuilder {
        self.kind(Kind::Bound)
    }

    /// One item at a time, in the order in which they were queued, whatever CPU they come from. The
    /// limit of one cannot be changed. Needs no thread of its own: items run in one pool for all
    /// CPUs that the queue may use, whatever the scope.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let log = sys.workqueue("journal").ordered().build()?;
    /// let lines = Arc::new(Mutex::new(Vec::new()));
    /// for n in 0..3 {
    ///     let lines = lines.clone();
    ///     log.spawn(move || lines.lock().unwrap().push(n)).detach();
    /// }
    /// log.flush_blocking()?;
    /// assert_eq!(*lines.lock().unwrap(), [0, 1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ordered(self) -> WorkqueueBuilder {
        self.ordered_with(Attrs::new())
    }

    /// As [`ordered`](WorkqueueDraft::ordered), with attributes of one's own.
    pub fn ordered_with(self, attrs: Attrs) -> WorkqueueBuilder {
        let builder = self.kind(Kind::Ordered(attrs));
        builder.max_active(ORDERED_LIMIT)
    }

    /// Items run on the CPU they are queued on, in their order, one after the other, and may not
    /// sleep: by whoever [polls](crate::BhPoller) that CPU, on its own thread; where nobody does,
    /// or not in time, by the thread `inflight/bh:N` of that CPU. For what is short and comes
    /// often: completions.
    ///
    /// Such a queue has no limit. It can be [`highpri`](WorkqueueBuilder::highpri), and nothing
    /// else. See [`BhPoller`](crate::BhPoller) for what an item may not do.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let done = sys.workqueue("done").bh().build()?;
    /// assert_eq!(done.spawn(|| 6 * 7).wait()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bh(self) -> WorkqueueBuilder {
        self.kind(Kind::Bh).max_active(NO_LIMIT)
    }

    /// Items run in the group of CPUs they are queued in, as many at a time as it has CPUs. See
    /// [`Attrs`] for which groups there are.
    pub fn unbound(self, attrs: Attrs) -> WorkqueueBuilder {
        self.kind(Kind::Unbound(attrs))
    }

    fn kind(self, kind: Kind) -> WorkqueueBuilder {
        WorkqueueBuilder {
            draft: self,
            kind,
            limit: ActiveLimit::default(),
            flags: Flags::default(),
        }
    }
}

impl fmt::Debug for WorkqueueDraft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkqueueDraft")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Describes a [`Workqueue`].
///
/// ```
/// use inflight_topology::wake::{Reach, WakeRules};
/// use inflight_workqueue::{Attrs, Share, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let urgent = sys.workqueue("urgent").bound().highpri().build()?;
/// let sums = sys.workqueue("checksums").bound().cpu_intensive().power_efficient().build()?;
/// let stay = WakeRules { pull: Reach::Nowhere, ..WakeRules::default() };
/// let done = sys.workqueue("complete").bound().wake_rules(stay).max_active(0).build()?;
/// let wq = sys.workqueue("chains").unbound(Attrs::new()).share(Share::PerNode);
/// let chains = wq.max_active(64).min_active(32).freezable().build()?;
/// assert!(urgent.is_highpri());
/// assert!(sys.workqueue("many").bound().max_active(1 << 20).build().is_err());
/// assert_eq!(sums.spawn(|| (0..1000u32).sum::<u32>()).wait()?, 499_500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is made before `build`"]
pub struct WorkqueueBuilder {
    draft: WorkqueueDraft,
    kind: Kind,
    limit: ActiveLimit,
    flags: Flags,
}

impl WorkqueueBuilder {
    /// Its items run in pools of their own, whose workers have nice -20 where the system permits
    /// it. They and the normal pools of the same CPUs do not know of each other: the scheduler
    /// prefers the one with the higher priority.
    /// [`nice_refused`](crate::WorkqueueSystem::nice_refused) tells if it was not granted; the
    /// pools are apart all the same.
    pub fn highpri(mut self) -> Self {
        self.flags.highpri = true;
        self
    }

    /// Its items compute for long, and say so: once one has started, the CPU's pool does not wait
    /// for it. The scheduler shares the CPU among it and what runs beside it. Items still start in
    /// their order, and not before a worker of the pool is free to start them. For an unbound queue
    /// the flag means nothing.
    ///
    /// Without it an item is found to compute for long when it has used
    /// [`intensive_threshold`](crate::SystemBuilder::intensive_threshold) of CPU time and others
    /// wait.
    pub fn cpu_intensive(mut self) -> Self {
        self.flags.cpu_intensive = true;
        self
    }

    /// Reserves a thread for this queue, its rescuer, so that its items run even when the system
    /// refuses threads. For work on which others' progress depends: writing back, freeing.
    ///
    /// The name is that of the kernel's flag, where memory is what runs out. The rescuer is made
    /// with the queue and named `inflight/R-NAME`. It sleeps until a pool has been short of a
    /// worker for 10 ms while an item of the queue waits there; then it runs the queue's items,
    /// one at a time, until the pool can help itself. So items of the queue that wait for each
    /// other need two queues. Beside it a bound pool may run one more item than its one.
    /// Queueing never fails with [`QueueError::NoWorker`](crate::QueueError::NoWorker).
    ///
    /// ```
    /// # use inflight_sync::fault::Faults;
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let faults = Faults::new();
    /// let sys = WorkqueueSystem::builder().faults(&faults).build()?;
    /// let writeback = sys.workqueue("writeback").bound().mem_reclaim().build()?;
    /// assert!(writeback.is_mem_reclaim());
    /// faults.refuse_spawns(true); // not one more thread
    /// assert_eq!(writeback.spawn(|| 7).wait()?, 7);
    /// assert_eq!(writeback.stats().rescued, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mem_reclaim(mut self) -> Self {
        self.flags.mem_reclaim = true;
        self
    }

    /// It need not run on the CPU it is queued on, if that saves power: where the system is built
    /// as [`power_efficient`](crate::SystemBuilder::power_efficient) a bound queue becomes an
    /// unbound one, so that items gather on CPUs that are awake. Its `max_active` then counts for
    /// the whole queue.
    pub fn power_efficient(mut self) -> Self {
        self.flags.power_efficient = true;
        self
    }

    /// Its items are held by [`freeze`](crate::WorkqueueSystem::freeze): none starts until the
    /// thaw.
    pub fn freezable(mut self) -> Self {
        self.flags.freezable = true;
        self
    }

    /// Where work goes on that something has woken: a [future](Workqueue::spawn_future), and what
    /// is [queued near](Workqueue::queue_near) a CPU. By [`Wake::place`] with these rules and with
    /// what the queue's pools say of themselves at the moment, which is a hint.
    ///
    /// The CPU before is the one where the future was polled last, or that is named. The waker is
    /// a bound worker if the call comes from an item of a bound queue; the stack rule supposes that
    /// it is the item's last act. Any other thread is taken for an interrupt, and its CPU for idle
    /// if none of the pools' workers runs there: only those are known.
    ///
    /// Without, a future is polled on the CPU of whoever wakes it, and `queue_near` is
    /// [`queue_on`](Workqueue::queue_on). With, the queue's pools write two words more for each
    /// item. A BH queue has no rules; an ordered one has no use for them.
    ///
    /// [`Wake::place`]: inflight_topology::wake::Wake::place
    pub fn wake_rules(mut self, rules: WakeRules) -> Self {
        self.flags.wake_rules = Some(rules);
        self
    }

    /// How many items may be active at once: for each CPU of a bound queue, altogether for an
    /// unbound one. [`DEFAULT_MAX_ACTIVE`](crate::DEFAULT_MAX_ACTIVE) unless set, or if 0; at most
    /// [`MAX_ACTIVE_LIMIT`](crate::MAX_ACTIVE_LIMIT); 1 for an ordered one.
    pub fn max_active(mut self, max_active: usize) -> Self {
        self.limit.max_active = max_active;
        self
    }

    /// How the limit of an unbound queue is split among the memory nodes: [`Share::Lend`] unless
    /// set, which is exact. For other queues, and on a machine with one node, it means nothing.
    pub fn share(mut self, share: Share) -> Self {
        self.limit.share = share;
        self
    }

    /// How many items may be active on each memory node, however few CPUs it has, with
    /// [`Share::PerNode`]: so many that wait for each other are sure to make progress. 8 unless
    /// set, at most `max_active`; a part is never below 1. With [`Share::Lend`] it means nothing:
    /// the limit is exact.
    pub fn min_active(mut self, min_active: usize) -> Self {
        self.limit.min_active = Some(min_active);
        self
    }

    /// Makes the workqueue.
    ///
    /// # Errors
    ///
    /// A [`BuildError`] says what is wrong with the name, the limit or the attributes, that the
    /// system is shutting down, or that it refused the queue's rescuer its thread.
    pub fn build(self) -> Result<Workqueue, BuildError> {
        let WorkqueueDraft { system, name } = self.draft;
        let name = checked_name(name)?;
        let power_efficient = self.flags.power_efficient && system.shared.power_efficient;
        let kind = match self.kind {
            Kind::Bound if power_efficient => Kind::Unbound(Attrs::new()),
            kind => kind,
        };
        kind.attrs().check().map_err(BuildError::Attrs)?;
        if let Some(what) = self.flags.not_bh().filter(|_| kind == Kind::Bh) {
            return Err(BuildError::NotBh(what));
        }
        let mut limit = self.limit;
        let checked = checked_max_active(kind.mode(), limit.max_active);
        limit.max_active = checked.map_err(BuildError::MaxActive)?;
        let rescuer = self.flags.mem_reclaim;
        let rescuer = rescuer.then(|| rescuer_of(&name, &system.shared));
        let rescuer = rescuer.transpose()?;
        let flags = self.flags;
        system.register(|settings| {
            WorkqueueInner::new(name, &kind, flags, limit, rescuer, system.clone(), settings)
        })
    }
}

/// The reserved thread of a queue, and the timer that calls it.
fn rescuer_of(queue: &str, shared: &Arc<SystemShared>) -> Result<Arc<Rescuer>, BuildError> {
    let refused = |e: std::io::Error| {
        let refused = BuildError::NoRescuer(e.kind());
        shared.no_thread(BuildError::ShutDown, refused)
    };
    shared.start_timer().map_err(refused)?;
    Rescuer::start(queue, shared).map_err(refused)
}
