//! The system, as its users see it.

use crate::bh::BhPoller;
use crate::builder::SystemBuilder;
use crate::completion::Wait;
use crate::error::{AttrsError, PollerError};
use crate::freeze::Frozen;
use crate::hog::Hog;
use crate::leftover::Leftover;
use crate::system_inner::SystemInner;
use crate::trace::RecordedTrace;
use crate::workqueue::Workqueue;
use crate::wq_builder::WorkqueueDraft;
use inflight_sync::atomic::Ordering;
use inflight_sync::{Arc, block_on, poll_until};
use inflight_topology::{CpuSet, Scope, Topology};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Worker pools, and the workqueues that share them.
///
/// Starts no thread until an item is queued, or something is made that needs one: a
/// [`mem_reclaim`](crate::WorkqueueBuilder::mem_reclaim) queue its rescuer and the timer, a
/// [poller](crate::BhPoller) the timer. A clone is another handle on the same system.
///
/// # Shutdown
///
/// When the last handle is dropped the system shuts down: what is queued runs, new items are
/// refused (also from the system's own items), and the drop returns when the worker threads have
/// ended. Workqueues do not keep the system alive, so that an item may hold the queue it is queued
/// on. Dropped on one of its own workers, or inside a
/// [`call_blocking`](crate::Workqueue::call_blocking), the system shuts down in the same way, but
/// the drop returns at once and the threads end by themselves. On a thread of an async runtime,
/// [`shutdown`](WorkqueueSystem::shutdown) comes first: it blocks nobody.
///
/// ```
/// use inflight_workqueue::{QueueError, Work, WorkqueueSystem};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("jobs").bound().build()?;
/// let handle = wq.spawn(|| 3);
/// drop(sys);
/// assert_eq!(handle.wait()?, 3, "what was queued has run");
/// assert_eq!(wq.queue(&Work::new(|| ())), Err(QueueError::ShutDown));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What can be changed and seen
///
/// ```
/// use inflight_topology::{CpuSet, Scope, Topology};
/// use inflight_workqueue::WorkqueueSystem;
/// use std::time::Duration;
///
/// let topo = Topology::synthetic("core:4")?;
/// let sys = WorkqueueSystem::builder().topology(topo).build()?;
/// sys.set_unbound_cpumask(&CpuSet::from([2, 3]))?;
/// assert!(sys.set_unbound_cpumask(&CpuSet::from([4])).is_err());
/// sys.set_default_scope(Scope::Numa)?;
/// assert!(sys.dump().contains("NUMA (default)"));
/// sys.set_watchdog_threshold(Duration::from_secs(5));
/// sys.measure_cpu_time();
/// if let Some(why) = sys.nice_refused() {
///     eprintln!("no high priority: {why}");
/// }
/// let _wq = sys.workqueue("uploads").bound().build()?;
/// let tool = sys.observer(); // sees and changes what others have made
/// let uploads = tool.queues().into_iter().find(|wq| wq.name() == "uploads");
/// uploads.expect("it has been made").set_max_active(2)?;
/// drop(sys); // shuts it down
/// assert!(tool.workqueue("late").bound().build().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct WorkqueueSystem {
    pub(crate) inner: Arc<SystemInner>,
    /// `None`: of an observer.
    _handle: Option<Arc<Handle>>,
}

/// Shuts the system down when the last handle goes.
struct Handle {
    inner: Arc<SystemInner>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.begin_shutdown();
        // From now on none is made.
        let queues = std::mem::take(&mut *self.inner.system_queues.lock());
        drop(queues);
        if self.inner.has_given_up() || self.inner.is_inside() {
            return;
        }
        block_on(self.inner.clone().ended(true));
    }
}

impl WorkqueueSystem {
    pub(crate) fn new(inner: Arc<SystemInner>) -> Self {
        let handle = Arc::new(Handle {
            inner: inner.clone(),
        });
        Self {
            inner,
            _handle: Some(handle),
        }
    }

    /// A system to be described.
    pub fn builder() -> SystemBuilder {
        SystemBuilder::new()
    }

    /// A handle for tools, which does not keep the system alive: they see and change what it does,
    /// for as long as others have it. When it has ended they see the end.
    #[must_use]
    pub fn observer(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            _handle: None,
        }
    }

    /// The queues that somebody has a handle on, in the order in which they were made. Several may
    /// have the same name.
    #[must_use]
    pub fn queues(&self) -> Vec<Workqueue> {
        self.inner.handles()
    }

    /// The machine as it was when the system was made.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.inner.shared.topology
    }

    /// A workqueue to be described. Its kind is chosen next.
    pub fn workqueue(&self, name: impl Into<String>) -> WorkqueueDraft {
        WorkqueueDraft::new(self.inner.clone(), name.into())
    }

    /// Shuts the system down now, whoever else holds handles. Blocks no thread: the form for async
    /// runtimes. Dropping the last handle afterwards returns at once.
    ///
    /// When it is done everything that was queued has ended, and so have the system's threads. The
    /// shutdown begins with the call; dropping the future ends the wait alone.
    ///
    /// # Errors
    ///
    /// [`Leftover`], if it is awaited inside one of the system's own items, which would wait for
    /// itself, whoever has called this. The items that are left still run.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// # let async_part = async {
    /// wq.spawn(|| println!("written back")).detach();
    /// sys.shutdown().await?; // it has been
    /// # Ok::<(), Box<dyn std::error::Error>>(()) };
    /// # inflight_sync::block_on(async_part)?;
    /// sys.shutdown_blocking()?; // on a thread
    /// sys.shutdown_timeout(std::time::Duration::from_secs(60))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self) -> Wait<'static, Result<(), Leftover>> {
        Wait::new(self.end(false))
    }

    fn end(&self, may_block: bool) -> impl Future<Output = Result<(), Leftover>> + use<> {
        let inner = self.inner.clone();
        inner.begin_shutdown();
        async move {
            let mut ended = pin!(inner.clone().ended(may_block));
            // In each poll: an item may await a future that was polled elsewhere before.
            poll_fn(|cx| {
                if inner.is_inside() {
                    inner.give_up();
                    return Poll::Ready(Err(inner.leftover(true)));
                }
                ended.as_mut().poll(cx).map(Ok)
            })
            .await
        }
    }

    /// As [`shutdown`](WorkqueueSystem::shutdown), errors too, for threads.
    pub fn shutdown_blocking(&self) -> Result<(), Leftover> {
        block_on(self.end(true))
    }

    /// As [`shutdown_blocking`](WorkqueueSystem::shutdown_blocking), at most for `limit` on the
    /// system's clock; then [`Leftover`] says what had not ended. What is left still runs, and
    /// dropping the last handle does not wait for it.
    pub fn shutdown_timeout(&self, limit: Duration) -> Result<(), Leftover> {
        let clock = &self.inner.shared.clock;
        let deadline = Some(clock.now() + limit);
        poll_until(clock, deadline, pin!(self.end(true))).unwrap_or_else(|| {
            self.inner.give_up();
            Err(self.inner.leftover(false))
        })
    }

    /// Why the system refused a thread its priority, if it did: highpri workers and rescuers then
    /// run with that of the thread that made them.
    #[must_use]
    pub fn nice_refused(&self) -> Option<io::ErrorKind> {
        *self.inner.shared.nice_refused.lock()
    }

    /// Begins to measure the CPU time that the items of each queue use, as
    /// [`SystemBuilder::cpu_time`](crate::SystemBuilder::cpu_time) does from the start.
    ///
    /// What was used before is not charged. It cannot be switched off. Without effect where CPU
    /// times of threads cannot be read, and with a manual clock.
    pub fn measure_cpu_time(&self) {
        let shared = &self.inner.shared;
        if shared.metering.switch_on(&shared.clock) {
            // What the threads have used until now is noted, and nobody's.
            let pools = self.inner.pools();
            pools.iter().for_each(|pool| pool.read_meter());
        }
    }

    /// A poller of the BH queues of that CPU: their items run on the thread that polls. `notify` is
    /// called, on any thread, when there is something to poll for: it should be quick and wake the
    /// loop, by an eventfd for instance. A panic of it is ignored.
    ///
    /// # Errors
    ///
    /// [`PollerError`]: the CPU has a poller, the number is no CPU's, there is no thread to ask
    /// whether the poller is late, or the system ends.
    pub fn bh_poller(
        &self,
        cpu: usize,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Result<BhPoller, PollerError> {
        BhPoller::new(&self.inner, cpu, Arc::new(notify))
    }

    /// Holds all [`freezable`](crate::WorkqueueBuilder::freezable) queues until the value is
    /// dropped: once this has returned none of their items begins. Items that have begun run to
    /// their end ([`Frozen::is_busy`]); one that a worker is about to call has begun, and counts as
    /// [`started`](crate::WorkqueueStats::started).
    ///
    /// Items are taken, and wait. A flush of such a queue, and of an item in it, ends after the
    /// thaw; `cancel_sync` of a held item works. Queues that are made meanwhile are held from the
    /// start. Freezes may overlap. The end of the system lets everything go.
    pub fn freeze(&self) -> Frozen {
        Frozen::new(&self.inner)
    }

    /// Which CPUs unbound queues may use, from now on; bound ones are not concerned.
    ///
    /// At first these are all the process may use but the isolated ones. Isolated CPUs are used if
    /// they are named here; CPUs that cannot be used are left out. All or nothing, while the queues
    /// are in use, as [`set_attrs`](crate::Workqueue::set_attrs) does for one queue; a queue whose
    /// own mask has nothing in common with this one uses all of this one.
    ///
    /// # Errors
    ///
    /// [`AttrsError::NoCpu`] if none of the CPUs can be used, and
    /// [`AttrsError::NoWorker`] if a pool that is needed at once can get no thread.
    pub fn set_unbound_cpumask(&self, cpus: &CpuSet) -> Result<(), AttrsError> {
        self.inner.reconfigure(|settings| {
            if cpus.is_disjoint(settings.topology.allowed()) {
                return Err(AttrsError::NoCpu);
            }
            settings.unbound = Some(cpus.clone());
            Ok(())
        })
    }

    /// The CPUs that unbound queues use.
    #[must_use]
    pub fn unbound_cpumask(&self) -> CpuSet {
        self.inner.settings().unbound_cpus()
    }

    /// Changes the scope of unbound queues whose [`Attrs`](crate::Attrs) name none, all or nothing.
    ///
    /// # Errors
    ///
    /// [`AttrsError::NoWorker`] if a pool that is needed at once can get no thread.
    pub fn set_default_scope(&self, scope: Scope) -> Result<(), AttrsError> {
        self.inner.reconfigure(|settings| {
            settings.default_scope = scope;
            Ok(())
        })
    }

    /// The scope of unbound queues whose [`Attrs`](crate::Attrs) name none.
    #[must_use]
    pub fn default_scope(&self) -> Scope {
        self.inner.settings().default_scope
    }

    /// The system as text for a person: the machine, the pools, where the queues' items go, and
    /// what they do now. The form may change.
    ///
    /// The first five sections are those of the kernel's `wq_dump` tool; `docs/wq-tools.md`
    /// explains each line. Its parts are true at moments close to each other.
    #[must_use]
    pub fn dump(&self) -> String {
        self.inner.dump()
    }
}

/// More of what can be changed and seen while it runs.
impl WorkqueueSystem {
    /// After how long the watchdog reports a stall, from now on; zero switches it off. The
    /// [dump](WorkqueueSystem::dump) has the stalls that its last tick has found, also in a system
    /// that was built without [`watchdog`](SystemBuilder::watchdog).
    pub fn set_watchdog_threshold(&self, threshold: Duration) {
        self.inner.shared.watchdog.set_threshold(threshold);
        self.inner.arm_watchdog_for_items();
    }

    /// That threshold, zero if it is switched off.
    #[must_use]
    pub fn watchdog_threshold(&self) -> Duration {
        let threshold = self.inner.shared.watchdog.threshold();
        threshold.unwrap_or_default()
    }

    /// Whether steps are [recorded](WorkqueueSystem::record_trace).
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.inner.shared.tracing.is_recording()
    }

    /// Begins or ends to record each step of each item, with its CPU and time. A recording keeps
    /// the last 16,384 steps and counts those before; beginning a new one empties it. While it is
    /// on, items take longer. See [`TraceRecord`](crate::TraceRecord) for an example.
    pub fn record_trace(&self, on: bool) {
        self.inner.shared.tracing.record(on);
    }

    /// What has been recorded since this was asked last, and how much of that was dropped.
    #[must_use]
    pub fn take_trace(&self) -> RecordedTrace {
        self.inner.shared.tracing.take_recorded()
    }

    /// Functions of bound queues that have been found to compute for long while other items waited,
    /// those found most often first: the first 128 that were found.
    #[must_use]
    pub fn hogs(&self) -> Vec<Hog> {
        self.inner.shared.hogs.all()
    }

    /// How often further functions were found, for which [`hogs`](WorkqueueSystem::hogs) has no
    /// room.
    #[must_use]
    pub fn other_hogs(&self) -> u64 {
        self.inner.shared.hogs.others()
    }

    /// Reports that were dropped because the functions that are told of them were too slow, or for
    /// want of a thread.
    #[must_use]
    pub fn reports_dropped(&self) -> u64 {
        self.inner.shared.reporter.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(loom)]
#[doc(hidden)]
impl WorkqueueSystem {
    /// How many pools there are.
    #[must_use]
    pub fn pool_count(&self) -> usize {
        self.inner.pools().len()
    }

    /// How many workers are idle.
    #[must_use]
    pub fn idle_count(&self) -> usize {
        let pools = self.inner.pools();
        pools.iter().map(|pool| pool.report().idle).sum()
    }

    /// A tick that a model asks for: every worker that holds others back is seen asleep, or
    /// computing for long, whatever it does. Returns whether that was news of any.
    #[allow(clippy::must_use_candidate, reason = "a model may not care")]
    pub fn tick(&self, asleep: bool) -> bool {
        let pools = self.inner.pools();
        pools.iter().any(|pool| pool.tick_finds_all(asleep))
    }

    /// The same, but everybody is seen on a CPU.
    pub fn tick_finds_nobody(&self) {
        self.inner
            .pools()
            .iter()
            .for_each(|pool| pool.tick_finds_nobody());
    }
}

impl fmt::Debug for WorkqueueSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkqueueSystem")
            .field("pools", &self.inner.pools().len())
            .field("queues", &self.inner.queues().len())
            .field("shut", &self.inner.is_shut())
            .finish_non_exhaustive()
    }
}
