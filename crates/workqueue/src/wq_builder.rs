//! The builder of a workqueue.

use crate::attrs::{Attrs, Kind};
use crate::error::BuildError;
use crate::rescuer::Rescuer;
use crate::system_inner::SystemInner;
use crate::workqueue::{NO_LIMIT, Workqueue, checked_max_active, checked_min_active, checked_name};
use crate::workqueue_inner::{ActiveLimit, Flags, Share, WorkqueueInner};
use inflight_sync::Arc;
use inflight_topology::wake::WakeRules;

/// A workqueue under construction whose kind is not chosen yet.
#[must_use = "nothing is made before `build`"]
pub struct WorkqueueDraft {
    system: Arc<SystemInner>,
    name: String,
}

impl WorkqueueDraft {
    pub(crate) const fn new(system: Arc<SystemInner>, name: String) -> Self {
        Self { system, name }
    }

    /// Items run on the CPU that they are queued on, one at a time unless they block.
    pub fn bound(self) -> WorkqueueBuilder {
        self.kind(Kind::Bound)
    }

    /// Items run one at a time, in the order in which they were queued, from whatever CPU. The
    /// limit of one cannot be changed. The queue needs no thread of its own: its items run in one
    /// pool for all CPUs that the queue may use, whatever the scope.
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

    /// As [`ordered`](WorkqueueDraft::ordered), with the given attributes.
    pub fn ordered_with(self, attrs: Attrs) -> WorkqueueBuilder {
        self.kind(Kind::Ordered(attrs))
    }

    /// Items run on the CPU that they are queued on, one after the other in their order, and may
    /// not sleep. The thread that [polls](crate::BhPoller) the CPU runs them. If no thread polls,
    /// or not in time, the thread `inflight/bh:N` of the CPU runs them. For short and frequent
    /// work, such as completions.
    ///
    /// Such a queue has no limit. [`highpri`](WorkqueueBuilder::highpri) is the only option that
    /// has an effect. [`BhPoller`](crate::BhPoller) says what an item may not do.
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

    /// Items run in the group of CPUs that they are queued in, as many at a time as the group has
    /// CPUs. [`Attrs`] lists the groups.
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

inflight_sync::debug_fields!(WorkqueueDraft: |this| name = this.name);

/// Builds a [`Workqueue`].
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
    /// The items run in separate pools whose workers have nice -20, if the system permits it. These
    /// pools and the normal pools of the same CPUs work independently; the scheduler prefers the
    /// higher priority. [`nice_refused`](crate::WorkqueueSystem::nice_refused) says if the priority
    /// was refused; the pools are separate all the same.
    pub fn highpri(mut self) -> Self {
        self.flags.highpri = true;
        self
    }

    /// The items compute for long: once one has started, its CPU's pool may start the next. The
    /// scheduler shares the CPU among them. Items still start in their order, and only when a
    /// worker of the pool is free to start them. The flag has no effect on an unbound queue.
    ///
    /// Without this flag, an item counts as CPU-intensive once it has used
    /// [`intensive_threshold`](crate::SystemBuilder::intensive_threshold) of CPU time while others
    /// wait.
    pub fn cpu_intensive(mut self) -> Self {
        self.flags.cpu_intensive = true;
        self
    }

    /// Reserves a thread for this queue, its rescuer, for the time when the system refuses new
    /// threads: for work on which the progress of others depends, such as writing back.
    ///
    /// The name is that of the kernel's flag; in the kernel memory is what runs out. The rescuer
    /// starts with the queue and is named `inflight/R-NAME`. It sleeps until a pool has lacked a
    /// worker for 10 ms while an item of the queue waits there. Then it runs the queue's items, one
    /// at a time, until the pool has workers again. So items that wait for each other need two
    /// queues. While the rescuer runs, a bound pool may run one item more than usual. Queueing
    /// never fails with [`QueueError::NoWorker`](crate::QueueError::NoWorker).
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

    /// Lets the items run on another CPU than the one that they are queued on, if that saves power.
    /// If the system was built as [`power_efficient`](crate::SystemBuilder::power_efficient), a
    /// bound queue becomes an unbound one, so that its items gather on CPUs that are awake. Its
    /// `max_active` then counts for the whole queue.
    pub fn power_efficient(mut self) -> Self {
        self.flags.power_efficient = true;
        self
    }

    /// [`freeze`](crate::WorkqueueSystem::freeze) holds the queue's items until the thaw.
    pub fn freezable(mut self) -> Self {
        self.flags.freezable = true;
        self
    }

    /// Where work continues after a wakeup: a [future](Workqueue::spawn_future), and a work that is
    /// [queued near](Workqueue::queue_near) a CPU. [`Wake::place`] chooses the CPU from these rules
    /// and from the current load of the queue's pools, which is a hint.
    ///
    /// The previous CPU is the one where the future was polled last, or the one named by the
    /// caller. If the call comes from an item of a bound queue, the waker is a bound worker; the
    /// stack rule assumes that the call is the item's last action. Any other calling thread is
    /// taken for an interrupt, and its CPU counts as idle if no worker of the pools runs there:
    /// other threads on it are not known.
    ///
    /// Without rules, a future is polled on the CPU of the thread that wakes it, and `queue_near`
    /// is [`queue_on`](Workqueue::queue_on). With rules, the queue's pools write two more words for
    /// each item. A BH queue cannot have rules; on an ordered queue they have no effect.
    ///
    /// [`Wake::place`]: inflight_topology::wake::Wake::place
    pub fn wake_rules(mut self, rules: WakeRules) -> Self {
        self.flags.wake_rules = Some(rules);
        self
    }

    /// How many items may be active at once: for each CPU of a bound queue, in total for an unbound
    /// one. The default, also for 0, is [`DEFAULT_MAX_ACTIVE`](crate::DEFAULT_MAX_ACTIVE). At most
    /// [`MAX_ACTIVE_LIMIT`](crate::MAX_ACTIVE_LIMIT). An ordered queue has 1, and takes no other.
    pub fn max_active(mut self, max_active: usize) -> Self {
        self.limit.max_active = max_active;
        self
    }

    /// How the limit of an unbound queue is split among several memory nodes. The default is
    /// [`Share::Lend`], which keeps the limit exact.
    pub fn share(mut self, share: Share) -> Self {
        self.limit.share = share;
        self
    }

    /// How many items may be active on each memory node with [`Share::PerNode`], however few CPUs
    /// the node has. So that many items that wait for each other always make progress. The default
    /// is 8, at most `max_active`; a node's part is at least 1. It must be from 1 to `max_active`.
    /// No effect with [`Share::Lend`], where the limit is exact, and on other queues; it is checked
    /// all the same.
    pub fn min_active(mut self, min_active: usize) -> Self {
        self.limit.min_active = Some(min_active);
        self
    }

    /// Makes the workqueue.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if the name, the limit or the attributes are invalid, the system is shutting
    /// down, or the system refused the thread for the queue's rescuer.
    pub fn build(self) -> Result<Workqueue, BuildError> {
        let WorkqueueDraft { system, name } = self.draft;
        let name = checked_name(name)?;
        let power_efficient = self.flags.power_efficient && system.shared.power_efficient;
        let kind = match self.kind {
            Kind::Bound if power_efficient => Kind::Unbound(Attrs::new()),
            kind => kind,
        };
        kind.attrs().check().map_err(BuildError::Attrs)?;
        let mut limit = self.limit;
        let not_bh = self.flags.not_bh().or_else(|| limit.not_bh());
        if let Some(what) = not_bh.filter(|_| kind == Kind::Bh) {
            return Err(BuildError::NotBh(what));
        }
        let checked = checked_max_active(kind.mode(), limit.max_active);
        limit.max_active = checked.map_err(BuildError::MaxActive)?;
        if let Some(min_active) = limit.min_active {
            checked_min_active(min_active, limit.max_active).map_err(BuildError::MinActive)?;
        }
        let rescuer = self.flags.mem_reclaim;
        let rescuer = rescuer.then(|| Rescuer::start(&name, &system.shared));
        let no_thread = system
            .shared
            .no_thread(BuildError::ShutDown, BuildError::NoRescuer);
        let rescuer = rescuer.transpose().map_err(no_thread)?;
        let flags = self.flags;
        system.register(|settings| {
            WorkqueueInner::new(name, &kind, flags, limit, rescuer, system.clone(), settings)
        })
    }
}
