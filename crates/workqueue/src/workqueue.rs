//! A workqueue: items go in here, and workers that it shares with others run them.

use crate::attrs::Kind;
use crate::consts::NAME_LIMIT;
use crate::delayed_work::DelayedWork;
use crate::error::{BuildError, EnableError, QueueError};
use crate::queued::{Modified, Queued};
use crate::stats::WorkqueueStats;
use crate::work::Work;
use crate::workqueue_inner::WorkqueueInner;
use inflight_sync::{Arc, cpu};
use inflight_topology::Scope;
use inflight_topology::wake::ShardLoad;
use std::fmt;
use std::time::Duration;

mod settings;
mod waits;

pub(crate) use settings::{NO_LIMIT, checked_max_active};

/// A workqueue: items go in here, and workers that it shares with other queues run them.
///
/// Items start in the order in which they were queued, one sequence for each pool: for each CPU of
/// a bound queue, for each group of CPUs of an unbound one. A worker takes small items, of less
/// than 10 us, in batches, up to 48 at a time or what takes about 20 us; several workers of an
/// unbound queue take batches by turns, so an item may start about 20 us after newer ones, or later
/// if items take longer than they used to. Pools serve their queues by turns, a batch each: no
/// queue starves another. If order matters, the queue is to be
/// [ordered](crate::WorkqueueDraft::ordered).
///
/// A clone is another handle on the same queue. Handles do not keep the system alive: when the last
/// [`WorkqueueSystem`](crate::WorkqueueSystem) is gone, the queue refuses new items. A queue whose
/// last handle is dropped still runs what is queued.
///
/// ```
/// use inflight_workqueue::{Attrs, Kind, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let crypt = sys.workqueue("kcryptd").unbound(Attrs::new()).max_active(64).build()?;
/// let sum = crypt.spawn(|| [1, 2, 3].iter().sum::<u32>()).wait()?;
/// assert_eq!(sum, 6);
/// assert_eq!((crypt.name(), crypt.kind()), ("kcryptd", Kind::Unbound(Attrs::new())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Workqueue {
    handle: Arc<Handle>,
}

/// The queue leaves its pools when the last handle has gone and nothing is in flight.
pub(crate) struct Handle {
    pub(crate) inner: Arc<WorkqueueInner>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.abandon();
    }
}

impl Workqueue {
    pub(crate) fn new(inner: Arc<WorkqueueInner>) -> Self {
        Self {
            handle: Arc::new(Handle { inner }),
        }
    }

    /// What keeps the queue, of which somebody may want to know whether it is still there.
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(crate) fn of(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Arc<WorkqueueInner> {
        &self.handle.inner
    }

    /// The name it was made with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner().name
    }

    /// What kind of queue it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.inner().kind()
    }

    /// Queues `work` on the CPU the caller runs on.
    ///
    /// What the caller did before is seen by the run that follows, also if the answer is
    /// [`Queued::AlreadyPending`]. Does not wait for anything but short locks, and for the start of
    /// a thread when the pool is used for the first time.
    ///
    /// # Errors
    ///
    /// A [`QueueError`]; the work is then not queued by this call.
    ///
    /// ```
    /// # use inflight_workqueue::{QueueError, Work, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// let work = Work::new(|| ());
    /// assert!(wq.queue(&work)?.is_queued());
    /// work.flush_blocking()?;
    /// assert!(wq.queue_on(0, &work)?.is_queued());
    /// assert_eq!(wq.queue_on(99_999, &work), Err(QueueError::NoSuchCpu(99_999)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue(&self, work: &Work) -> Result<Queued, QueueError> {
        self.inner().queue(&work.item, self.inner().here())
    }

    /// Queues `work` on a CPU: in its pool if the queue is bound, in that of its group if unbound.
    ///
    /// A bound queue has workers for each CPU of the machine that may ever be online; while the CPU
    /// is offline, or the process may not use it, they run where the system lets them. A work that
    /// runs elsewhere when its turn comes waits for the end of that run.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoSuchCpu`] for a number that no CPU of the topology has, neither of that the
    /// system was made with nor of the one it was last
    /// [told of](crate::WorkqueueSystem::refresh); and those of [`queue`](Workqueue::queue).
    pub fn queue_on(&self, cpu: usize, work: &Work) -> Result<Queued, QueueError> {
        self.check_cpu(cpu)?;
        self.inner().queue(&work.item, cpu)
    }

    /// Queues `work`, which goes on with what was done on a CPU: there, or where the queue's
    /// [wake rules](crate::WorkqueueBuilder::wake_rules) place it.
    ///
    /// # Errors
    ///
    /// Those of [`queue_on`](Workqueue::queue_on).
    ///
    /// ```
    /// # use inflight_topology::wake::{ShardLoad, WakeRules};
    /// # use inflight_workqueue::{Work, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// let done = sys.workqueue("complete").bound().wake_rules(WakeRules::default()).build()?;
    /// assert_eq!(done.load_on(0), Some(ShardLoad::new(0, 0)));
    /// assert!(done.queue_near(0, &Work::new(|| ()))?.is_queued());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue_near(&self, cpu: usize, work: &Work) -> Result<Queued, QueueError> {
        self.check_cpu(cpu)?;
        let cpu = self.inner().place(cpu::current(), cpu);
        self.inner().queue(&work.item, cpu)
    }

    /// What the pool has to do that runs what is queued on a CPU, as it has said last: items that
    /// wait, and workers that run or are on their way. Reads one word and takes no lock, so it is a
    /// hint. `None` for a queue without [wake rules](crate::WorkqueueBuilder::wake_rules), whose
    /// pools do not tell.
    #[must_use]
    pub fn load_on(&self, cpu: usize) -> Option<ShardLoad> {
        let inner = self.inner();
        inner.flags.wake_rules.map(|_| inner.load_on(cpu))
    }

    /// Queues `work` after `delay`, on the CPU the caller runs on now. Without delay, at once.
    ///
    /// It is pending meanwhile. See [`DelayedWork`] for what it is not.
    ///
    /// # Errors
    ///
    /// A [`QueueError`]; the work is then not queued by this call. [`QueueError::Draining`] only
    /// without a delay. [`QueueError::NoTimer`] if this is the system's first delay and it refuses
    /// the thread that waits for it.
    ///
    /// ```
    /// # use inflight_workqueue::{DelayedWork, Modified, WorkqueueSystem};
    /// # use std::time::Duration;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// let work = DelayedWork::new(|| ());
    /// assert!(wq.queue_delayed(&work, Duration::from_secs(3600))?.is_queued());
    /// assert!(!wq.queue_delayed(&work, Duration::ZERO)?.is_queued(), "it is pending already");
    /// assert_eq!(wq.mod_delayed(&work, Duration::ZERO)?, Modified::Moved);
    /// work.flush_blocking()?;
    /// assert_eq!(wq.mod_delayed_on(0, &work, Duration::ZERO)?, Modified::Queued);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue_delayed(&self, work: &DelayedWork, delay: Duration) -> Result<Queued, QueueError> {
        self.queue_later(&work.item, cpu::current(), delay)
    }

    /// Queues `work` after `delay`, on a CPU.
    ///
    /// # Errors
    ///
    /// Those of [`queue_on`](Workqueue::queue_on) and [`queue_delayed`](Workqueue::queue_delayed).
    pub fn queue_delayed_on(
        &self,
        cpu: usize,
        work: &DelayedWork,
        delay: Duration,
    ) -> Result<Queued, QueueError> {
        self.check_cpu(cpu)?;
        self.queue_later(&work.item, cpu, delay)
    }

    /// Whether `work` is pending or not, it will be queued `delay` from now and not before; without
    /// delay, at once.
    ///
    /// A pending instance is taken from where it is, the other queue or timer it may be in, in one
    /// step: the work does not cease to be pending. A flush that waited for that instance ends.
    ///
    /// # Errors
    ///
    /// A [`QueueError`]; nothing has changed. If the queue closes during the call, the work may
    /// have been taken back.
    pub fn mod_delayed(&self, work: &DelayedWork, delay: Duration) -> Result<Modified, QueueError> {
        self.requeue_later(&work.item, cpu::current(), delay)
    }

    /// As [`mod_delayed`](Workqueue::mod_delayed), on a CPU.
    ///
    /// # Errors
    ///
    /// Those of [`mod_delayed`](Workqueue::mod_delayed) and [`queue_on`](Workqueue::queue_on).
    pub fn mod_delayed_on(
        &self,
        cpu: usize,
        work: &DelayedWork,
        delay: Duration,
    ) -> Result<Modified, QueueError> {
        self.check_cpu(cpu)?;
        self.requeue_later(&work.item, cpu, delay)
    }

    /// Takes one level of [`disable`](Work::disable) back and, if it was the last, queues `work`.
    ///
    /// # Errors
    ///
    /// [`EnableError::NotDisabled`] if there is no level to take back. [`EnableError::Rejected`] if
    /// the queue does not take the work, which is enabled all the same.
    ///
    /// ```
    /// # use inflight_workqueue::{Queued, Work, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// let work = Work::new(|| ());
    /// work.disable()?;
    /// assert_eq!(wq.enable_and_queue(&work)?, Queued::Queued);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enable_and_queue(&self, work: &Work) -> Result<Queued, EnableError> {
        if !work.enable()? {
            return Ok(Queued::Disabled);
        }
        self.queue(work).map_err(EnableError::Rejected)
    }

    /// Whether an item queued now on a CPU would have to wait until others end, because
    /// `max_active` of them are active. Others may change that at any moment.
    #[must_use]
    pub fn is_congested(&self, cpu: usize) -> bool {
        self.inner().is_congested(cpu)
    }

    /// Queues `work` on a memory node: on the caller's CPU if that belongs to the node, else on the
    /// node's first.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoSuchNode`] if no usable CPU belongs to the node, and those of
    /// [`queue`](Workqueue::queue).
    pub fn queue_node(&self, node: usize, work: &Work) -> Result<Queued, QueueError> {
        let cpu = self.cpu_of_node(self.inner().here(), node)?;
        self.inner().queue(&work.item, cpu)
    }

    /// Queues `work` after `delay`, on a memory node: on the CPU the caller runs on now if that
    /// belongs to the node, else on the node's first.
    ///
    /// # Errors
    ///
    /// Those of [`queue_node`](Workqueue::queue_node) and
    /// [`queue_delayed`](Workqueue::queue_delayed).
    pub fn queue_delayed_node(
        &self,
        node: usize,
        work: &DelayedWork,
        delay: Duration,
    ) -> Result<Queued, QueueError> {
        let cpu = self.cpu_of_node(cpu::current(), node)?;
        self.queue_later(&work.item, cpu, delay)
    }

    /// Counts of what went through the queue, and of what is in it.
    ///
    /// The part of each pool is exact at the moment it is read; the moments differ. After a flush
    /// of a queue that is left alone, `started == completed` and `queued == completed + cancelled`.
    #[must_use]
    pub fn stats(&self) -> WorkqueueStats {
        self.inner().stats()
    }

    /// `here` if that belongs to the node, else the node's first CPU.
    pub(crate) fn cpu_of_node(&self, here: usize, node: usize) -> Result<usize, QueueError> {
        let topology = self.inner().shared.machine();
        if topology.node_of(here) == Some(node) {
            return Ok(here);
        }
        let pods = topology.pods(Scope::Numa).iter();
        pods.filter(|pod| pod.node() == Some(node))
            .find_map(|pod| pod.cpus().first())
            .ok_or(QueueError::NoSuchNode(node))
    }

    pub(crate) fn check_cpu(&self, cpu: usize) -> Result<(), QueueError> {
        if !self.inner().shared.has_cpu(cpu) {
            return Err(QueueError::NoSuchCpu(cpu));
        }
        Ok(())
    }
}

impl fmt::Debug for Workqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workqueue")
            .field("name", &self.inner().name)
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

pub(crate) fn checked_name(name: String) -> Result<String, BuildError> {
    match name.len() {
        0 => Err(BuildError::EmptyName),
        // A dump has one line for each queue.
        _ if name.chars().any(char::is_control) => Err(BuildError::ControlCharacter),
        1..=NAME_LIMIT => Ok(name),
        bytes => Err(BuildError::NameTooLong { bytes }),
    }
}
