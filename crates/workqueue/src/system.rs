//! The system of the public API.

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
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Worker pools, and the workqueues that share them.
///
/// Starts no thread until an item is queued, or something is made that needs a thread: a
/// [`mem_reclaim`](crate::WorkqueueBuilder::mem_reclaim) queue needs its rescuer and the timer, a
/// [poller](crate::BhPoller) needs the timer. A clone is another handle on the same system.
///
/// # Shutdown
///
/// When the last handle is dropped, the system shuts down. Queued items run, new items are refused
/// (also from the system's own items), and the drop returns when the worker threads have ended.
/// Workqueues do not keep the system alive, so an item may hold the queue that it is queued on. If
/// the last handle is dropped on one of the system's own workers, or inside a
/// [`call_blocking`](crate::Workqueue::call_blocking), the system shuts down in the same way, but
/// the drop returns at once and the threads end later. On a thread of an async runtime, await
/// [`shutdown`](WorkqueueSystem::shutdown) first: it blocks no thread.
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
    /// `None` for an observer.
    _handle: Option<Arc<Handle>>,
}

struct Handle {
    inner: Arc<SystemInner>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.begin_shutdown();
        // No system queue is made after this.
        let queues = std::mem::take(&mut *self.inner.system_queues.lock());
        drop(queues);
        if self.inner.has_given_up() || self.inner.is_inside() {
            return;
        }
        block_on(self.inner.clone().ended());
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

    /// A builder for a system.
    pub fn builder() -> SystemBuilder {
        SystemBuilder::new()
    }

    /// A handle for tools that does not keep the system alive. A tool can inspect and change the
    /// system while others keep it alive, and sees when it has ended.
    #[must_use]
    pub fn observer(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            _handle: None,
        }
    }

    /// The queues that have a handle, oldest first. Several may have the same name.
    #[must_use]
    pub fn queues(&self) -> Vec<Workqueue> {
        self.inner.handles()
    }

    /// The topology that the system was made with.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.inner.shared.topology
    }

    /// Begins to build a workqueue. The next step chooses its kind.
    pub fn workqueue(&self, name: impl Into<String>) -> WorkqueueDraft {
        WorkqueueDraft::new(self.inner.clone(), name.into())
    }

    /// Shuts the system down now, even if there are other handles. Blocks no thread, but for the
    /// destructors of the last worker's thread-locals, so it suits async runtimes. Dropping the
    /// last handle afterwards returns at once.
    ///
    /// When the future completes, everything that was queued has ended, and so have the system's
    /// threads. The shutdown begins with the call. Dropping the future ends only the wait.
    ///
    /// # Errors
    ///
    /// [`Leftover`] if the future is awaited inside one of the system's own items, which would wait
    /// for itself, whoever made the call. The remaining items still run.
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
        Wait::new(self.end())
    }

    fn end(&self) -> impl Future<Output = Result<(), Leftover>> + use<> {
        let inner = self.inner.clone();
        inner.begin_shutdown();
        async move {
            let mut ended = pin!(inner.clone().ended());
            // Checked in each poll: an item may await a future that another thread has polled
            // before.
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

    /// As [`shutdown`](WorkqueueSystem::shutdown), for threads.
    pub fn shutdown_blocking(&self) -> Result<(), Leftover> {
        block_on(self.end())
    }

    /// As [`shutdown_blocking`](WorkqueueSystem::shutdown_blocking), for at most `limit` on the
    /// system's clock, and for the destructors of the last worker's thread-locals; then
    /// [`Leftover`] says what has not ended. The remaining items still run,
    /// and dropping the last handle does not wait for them.
    pub fn shutdown_timeout(&self, limit: Duration) -> Result<(), Leftover> {
        let clock = &self.inner.shared.clock;
        let deadline = Some(clock.now() + limit);
        poll_until(clock, deadline, pin!(self.end())).unwrap_or_else(|| {
            self.inner.give_up();
            Err(self.inner.leftover(false))
        })
    }

    /// Why the system refused a thread its priority, if it did. Highpri workers and rescuers then
    /// run with the priority of the thread that started them.
    #[must_use]
    pub fn nice_refused(&self) -> Option<io::ErrorKind> {
        *self.inner.shared.nice_refused.lock()
    }

    /// Begins to measure the CPU time that the items of each queue use, as
    /// [`SystemBuilder::cpu_time`](crate::SystemBuilder::cpu_time) does from the start.
    ///
    /// CPU time used before is not charged. The measurement cannot be switched off. No effect where
    /// the CPU times of threads cannot be read, and with a manual clock.
    pub fn measure_cpu_time(&self) {
        let shared = &self.inner.shared;
        if shared.metering.switch_on(&shared.clock) {
            // Sets the starting point: what the threads have used so far is charged to no queue.
            let pools = self.inner.pools();
            pools.iter().for_each(|pool| pool.read_meter());
        }
    }

    /// A poller of the BH queues of a CPU: their items run on the thread that polls. `notify` is
    /// called, on any thread, when there is something to poll for. It should be quick and wake the
    /// event loop, with an eventfd for instance. Its panics are ignored.
    ///
    /// # Errors
    ///
    /// [`PollerError`]: the CPU has a poller already, the number is of no CPU, the timer that
    /// detects a late poller got no thread, or the system is shutting down.
    pub fn bh_poller(
        &self,
        cpu: usize,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Result<BhPoller, PollerError> {
        BhPoller::new(&self.inner, cpu, Arc::new(notify))
    }

    /// Holds all [`freezable`](crate::WorkqueueBuilder::freezable) queues until the returned value
    /// is dropped: after this call has returned, none of their items begins. Items that have begun
    /// run to their end ([`Frozen::is_busy`]). An item that a worker is about to call has begun,
    /// and counts as [`started`](crate::WorkqueueStats::started).
    ///
    /// The queues still accept items, which wait. A flush of such a queue, or of an item in it,
    /// ends after the thaw; `cancel_sync` of a held item works. Queues made during a freeze are
    /// held from the start. Freezes may overlap. A shutdown of the system ends the freeze.
    pub fn freeze(&self) -> Frozen {
        Frozen::new(&self.inner)
    }

    /// Sets the CPUs that unbound queues may use. Bound queues are not affected.
    ///
    /// Initially these are all CPUs that the process may use, except isolated ones. An isolated CPU
    /// is used if it is named here; CPUs that cannot be used are left out. The change is all or
    /// nothing and works while the queues are in use, as [`set_attrs`](crate::Workqueue::set_attrs)
    /// does for one queue. A queue whose own mask has no CPU in common with this one uses all of
    /// this one.
    ///
    /// # Errors
    ///
    /// [`AttrsError::NoCpu`] if none of the CPUs can be used. [`AttrsError::NoWorker`] if a pool
    /// that is needed at once gets no thread.
    pub fn set_unbound_cpumask(&self, cpus: &CpuSet) -> Result<(), AttrsError> {
        self.inner.reconfigure(|settings| {
            if cpus.is_disjoint(settings.topology.allowed()) {
                let cpus = cpus.clone();
                return Err(AttrsError::NoCpu { cpus });
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

    /// Changes the scope of unbound queues whose [`Attrs`](crate::Attrs) name none. All or nothing.
    ///
    /// # Errors
    ///
    /// [`AttrsError::NoWorker`] if a pool that is needed at once gets no thread.
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

    /// A description of the system for people: the machine, the pools, which pools each queue uses,
    /// and what they do now. The format may change.
    ///
    /// The first five sections are those of the kernel's `wq_dump` tool; `docs/wq-tools.md`
    /// explains each line. The parts are read at slightly different moments.
    #[must_use]
    pub fn dump(&self) -> String {
        self.inner.dump()
    }
}

/// More settings and reports of a running system.
impl WorkqueueSystem {
    /// Sets after how long the watchdog reports a stall; zero switches it off. The
    /// [dump](WorkqueueSystem::dump) shows the stalls that the last tick found, also in a system
    /// that was built without [`watchdog`](SystemBuilder::watchdog).
    pub fn set_watchdog_threshold(&self, threshold: Duration) {
        self.inner.shared.watchdog.set_threshold(threshold);
        self.inner.arm_watchdog_for_items();
    }

    /// The watchdog's threshold; zero if it is switched off.
    #[must_use]
    pub fn watchdog_threshold(&self) -> Duration {
        let threshold = self.inner.shared.watchdog.threshold();
        threshold.unwrap_or_default()
    }

    /// Whether a [recording](WorkqueueSystem::record_trace) is on.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.inner.shared.tracing.is_recording()
    }

    /// Begins or ends a recording of each step of each item, with its CPU and time. A recording
    /// keeps the last 16,384 steps and counts those dropped before. Beginning a new recording
    /// empties it. Items take longer while a recording is on. See
    /// [`TraceRecord`](crate::TraceRecord) for an example.
    pub fn record_trace(&self, on: bool) {
        self.inner.shared.tracing.record(on);
    }

    /// What has been recorded since the last call, and how many steps were dropped.
    #[must_use]
    pub fn take_trace(&self) -> RecordedTrace {
        self.inner.shared.tracing.take()
    }

    /// Functions of bound queues that were found to compute for long while other items waited,
    /// sorted by how often they were found. Only the first 128 functions are kept.
    #[must_use]
    pub fn hogs(&self) -> Vec<Hog> {
        self.inner.shared.hogs.all()
    }

    /// How often functions were found for which [`hogs`](WorkqueueSystem::hogs) had no room.
    #[must_use]
    pub fn other_hogs(&self) -> u64 {
        self.inner.shared.hogs.others()
    }

    /// Reports dropped because report functions were too slow, or there was no thread.
    #[must_use]
    pub fn reports_dropped(&self) -> u64 {
        self.inner.shared.reporter.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(loom)]
#[doc(hidden)]
impl WorkqueueSystem {
    /// The number of pools.
    #[must_use]
    pub fn pool_count(&self) -> usize {
        self.inner.pools().len()
    }

    /// The number of idle workers.
    #[must_use]
    pub fn idle_count(&self) -> usize {
        let pools = self.inner.pools();
        pools.iter().map(|pool| pool.report().idle).sum()
    }

    /// A sampler tick for a model: takes every worker that holds others back for asleep
    /// (`Some(true)`) or for computing for long, or finds nobody. Returns whether that changed
    /// anything.
    #[allow(clippy::must_use_candidate, reason = "a model may not care")]
    pub fn tick(&self, asleep: Option<bool>) -> bool {
        let pools = self.inner.pools();
        pools.iter().any(|pool| pool.tick_finds(asleep))
    }
}

inflight_sync::debug_fields!(WorkqueueSystem: |this|
    pools = this.inner.pools().len(), queues = this.inner.queues().len(),
    shut = this.inner.is_shut());
