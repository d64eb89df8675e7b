//! A workqueue: takes items that shared workers run.

use crate::attrs::Kind;
use crate::consts::NAME_LIMIT;
use crate::delayed_work::DelayedWork;
use crate::error::{BuildError, EnableError, QueueError};
use crate::pwq::NOT_OPEN;
use crate::queued::{Modified, Queued};
use crate::stats::WorkqueueStats;
use crate::work::Work;
use crate::workqueue_inner::WorkqueueInner;
use inflight_sync::{Arc, cpu};
use inflight_topology::Scope;
use inflight_topology::wake::ShardLoad;
use std::time::Duration;

mod settings;
mod waits;

pub(crate) use settings::{NO_LIMIT, checked_max_active, checked_min_active};

/// A workqueue: takes items, which workers shared with other queues run.
///
/// Items start in the order in which they were queued, in one sequence for each pool: for each CPU
/// of a bound queue, for each group of CPUs of an unbound one. A worker takes small items, of less
/// than 10 us, in batches: up to 48 at a time, or as many as take about 20 us. Several workers of
/// an unbound queue take batches in turn. So an item may start about 20 us after newer ones, or
/// later if items take longer than before. A pool serves its queues in turn, one batch each, so no
/// queue starves another. If order matters, use an [ordered](crate::WorkqueueDraft::ordered) queue.
///
/// A clone is another handle on the same queue. Handles do not keep the system alive: when the last
/// [`WorkqueueSystem`](crate::WorkqueueSystem) is dropped, the queue refuses new items. When the
/// last handle on a queue is dropped, its queued items still run.
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

/// Removes the queue from its pools when the last handle is dropped and nothing is in flight.
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

    /// The handle, for a weak reference that tells whether the queue still has handles.
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

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner().name
    }

    /// The kind of the queue.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.inner().kind()
    }

    /// Queues `work` on the caller's CPU.
    ///
    /// The run that follows sees what the caller did before, also if the result is
    /// [`Queued::AlreadyPending`]. The call waits only for short locks, and for the start of a
    /// thread when the pool is used for the first time.
    ///
    /// # Errors
    ///
    /// [`QueueError`]; this call has then not queued the work.
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

    /// Queues `work` on a CPU; if the queue is unbound, in the pool of its group.
    ///
    /// While the process may not use the CPU, its workers run where the system lets them.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoSuchCpu`] if neither the machine that the system was made with nor that of
    /// the last [refresh](crate::WorkqueueSystem::refresh) has the CPU. Also the errors of
    /// [`queue`](Workqueue::queue).
    pub fn queue_on(&self, cpu: usize, work: &Work) -> Result<Queued, QueueError> {
        self.check_cpu(cpu)?;
        self.inner().queue(&work.item, cpu)
    }

    /// As [`queue_on`](Workqueue::queue_on), for work that continues what was done on that CPU: it
    /// goes there, or where the queue's [wake rules](crate::WorkqueueBuilder::wake_rules) place it.
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

    /// The load of the pool that serves a CPU, as a hint: waiting items, and workers that run or
    /// come. `None` for a queue without [wake rules](crate::WorkqueueBuilder::wake_rules).
    #[must_use]
    pub fn load_on(&self, cpu: usize) -> Option<ShardLoad> {
        let inner = self.inner();
        inner.flags.wake_rules.map(|_| inner.load_on(cpu))
    }

    /// Queues `work` after `delay`, or now if it is zero, on the CPU that the caller runs on now.
    ///
    /// The work is pending during the delay, as [`DelayedWork`] says.
    ///
    /// # Errors
    ///
    /// As [`queue`](Workqueue::queue); [`QueueError::Draining`] occurs only without a delay.
    /// [`QueueError::NoTimer`] if the timer's thread is needed for the first time and refused.
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

    /// Queues `work` on a CPU after `delay`. The errors are those of
    /// [`queue_on`](Workqueue::queue_on) and [`queue_delayed`](Workqueue::queue_delayed).
    pub fn queue_delayed_on(
        &self,
        cpu: usize,
        work: &DelayedWork,
        delay: Duration,
    ) -> Result<Queued, QueueError> {
        self.check_cpu(cpu)?;
        self.queue_later(&work.item, cpu, delay)
    }

    /// Queues `work` `delay` from now and not before, whether it is pending or not. With a zero
    /// delay, at once.
    ///
    /// A pending instance is taken from its queue or timer in one step: the work does not stop
    /// being pending. A flush that waited for that instance ends.
    ///
    /// # Errors
    ///
    /// [`QueueError`]; nothing has changed. If the queue closes during the call, the pending
    /// instance may have been cancelled.
    pub fn mod_delayed(&self, work: &DelayedWork, delay: Duration) -> Result<Modified, QueueError> {
        self.requeue_later(&work.item, cpu::current(), delay)
    }

    /// As [`mod_delayed`](Workqueue::mod_delayed), on a CPU, also with the errors of
    /// [`queue_on`](Workqueue::queue_on).
    pub fn mod_delayed_on(
        &self,
        cpu: usize,
        work: &DelayedWork,
        delay: Duration,
    ) -> Result<Modified, QueueError> {
        self.check_cpu(cpu)?;
        self.requeue_later(&work.item, cpu, delay)
    }

    /// Removes one level of [`disable`](Work::disable). If it was the last level, queues `work`.
    ///
    /// # Errors
    ///
    /// [`EnableError::NotDisabled`] if the work is not disabled. [`EnableError::Rejected`] if the
    /// queue does not take the work; the work is enabled all the same.
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

    /// Whether an item queued now on a CPU would have to wait because `max_active` items are
    /// active: with [`Share::PerNode`](crate::Share::PerNode) as many as the part of that CPU's
    /// node. Other threads may change that at any moment.
    #[must_use]
    pub fn is_congested(&self, cpu: usize) -> bool {
        self.inner().is_congested(cpu)
    }

    /// Whether the queue takes items from everybody: it does not drain, and neither it nor its
    /// system has ended. Other threads may change that at any moment.
    ///
    /// For an item that queues itself: a queue that drains, or is being destroyed, takes its own
    /// items all the same, and does not end while they come.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// let drain = wq.drain();
    /// assert!(!wq.is_open());
    /// drop(drain);
    /// assert!(wq.is_open());
    /// wq.destroy_blocking()?;
    /// assert!(!wq.is_open());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_open(&self) -> bool {
        let flags = self.inner().flags_of(cpu::current());
        flags.is_ok_and(|flags| flags & NOT_OPEN == 0)
    }

    /// Queues `work` on a memory node: on the caller's CPU if it belongs to the node, else on the
    /// node's first CPU.
    ///
    /// # Errors
    ///
    /// [`QueueError::NoSuchNode`] if no usable CPU belongs to the node, and those of
    /// [`queue`](Workqueue::queue).
    pub fn queue_node(&self, node: usize, work: &Work) -> Result<Queued, QueueError> {
        let cpu = self.cpu_of_node(self.inner().here(), node)?;
        self.inner().queue(&work.item, cpu)
    }

    /// Queues `work` as [`queue_node`](Workqueue::queue_node) does, after `delay`, also with the
    /// errors of [`queue_delayed`](Workqueue::queue_delayed).
    pub fn queue_delayed_node(
        &self,
        node: usize,
        work: &DelayedWork,
        delay: Duration,
    ) -> Result<Queued, QueueError> {
        let cpu = self.cpu_of_node(cpu::current(), node)?;
        self.queue_later(&work.item, cpu, delay)
    }

    /// Counters of the queue, and the number of items in it.
    ///
    /// The part of each pool is exact at the moment when it is read, but the pools are read one
    /// after the other. After a flush of a queue that is left alone, `started == completed` and
    /// `queued == completed + cancelled`.
    #[must_use]
    pub fn stats(&self) -> WorkqueueStats {
        self.inner().stats()
    }

    /// `here` if it belongs to the node, else the node's first CPU.
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

inflight_sync::debug_fields!(Workqueue: |this| name = this.name(), kind = this.kind());

pub(crate) fn checked_name(name: String) -> Result<String, BuildError> {
    match name.len() {
        0 => Err(BuildError::EmptyName),
        // A dump has one line for each queue, so a name may not break a line.
        _ if name.chars().any(char::is_control) => Err(BuildError::ControlCharacter),
        1..=NAME_LIMIT => Ok(name),
        bytes => Err(BuildError::NameTooLong { bytes }),
    }
}
