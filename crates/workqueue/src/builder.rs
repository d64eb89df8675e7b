//! The builder of a system.

use crate::completion::Completion;
use crate::cpu_time::Metering;
use crate::error::SystemError;
use crate::hog::{Hog, Hogs, OnHog};
use crate::known_blockers::KnownBlockers;
use crate::pool_attrs::Settings;
use crate::proc;
use crate::sampler::Sampling;
use crate::submitters::Submitters;
use crate::system::WorkqueueSystem;
use crate::system_inner::SystemInner;
use crate::system_shared::SystemShared;
use crate::threads::{Reporter, Threads};
use crate::timer_queue::TimerQueue;
use crate::trace::{TraceEvent, Tracer, Tracing};
use crate::watchdog::{OnStall, Stall, Watchdog};
use inflight_sync::asym::AsymFence;
use inflight_sync::atomic::AtomicUsize;
use inflight_sync::fault::Faults;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, RetainedVersions, Weak};
use inflight_topology::{Scope, Topology};
use std::borrow::Borrow;
use std::time::Duration;

/// Builds a [`WorkqueueSystem`].
///
/// ```
/// use inflight_sync::time::Clock;
/// use inflight_topology::{Scope, Topology};
/// use inflight_workqueue::{Kind, WorkqueueSystem};
/// use std::time::Duration;
///
/// let topo = Topology::synthetic("cache:2 core:4")?;
/// let builder = WorkqueueSystem::builder().topology(&topo).clock(Clock::system()).cpu_time(true);
/// let builder = builder.sampling(true).intensive_threshold(Duration::from_millis(50));
/// let builder = builder.hog_reports(4, |hog| eprintln!("{hog}")).power_efficient(true);
/// let builder = builder.default_scope(Scope::Cache).idle_timeout(Duration::from_secs(1));
/// let sys = builder.build()?;
/// let lazy = sys.workqueue("lazy").bound().power_efficient().build()?;
/// assert_ne!(lazy.kind(), Kind::Bound);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is made before `build`"]
pub struct SystemBuilder {
    topology: Option<Topology>,
    clock: Clock,
    faults: Faults,
    idle_timeout: Duration,
    sampling: Option<bool>,
    intensive: Duration,
    tracer: Option<Tracer>,
    watchdog: Option<(Duration, OnStall)>,
    hogs: Option<(u64, OnHog)>,
    cpu_time: bool,
    default_scope: Scope,
    power_efficient: bool,
}

inflight_sync::debug_fields!(SystemBuilder: |this|
    topology = this.topology, default_scope = this.default_scope);

/// How much CPU time makes an item CPU-intensive, unless the builder sets another value.
const INTENSIVE_THRESHOLD: Duration = Duration::from_millis(10);

/// How long a surplus worker stays idle before it exits, unless the builder sets another value.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

impl SystemBuilder {
    pub(crate) fn new() -> Self {
        Self {
            topology: None,
            clock: Clock::system(),
            faults: Faults::none(),
            idle_timeout: IDLE_TIMEOUT,
            sampling: None,
            intensive: INTENSIVE_THRESHOLD,
            tracer: None,
            watchdog: None,
            hogs: None,
            cpu_time: false,
            default_scope: Scope::CacheShard,
            power_efficient: false,
        }
    }

    /// Whether to measure the CPU time that the items of each queue use
    /// ([`WorkqueueStats::cpu_time`](crate::WorkqueueStats::cpu_time)). Off by default;
    /// [`measure_cpu_time`](WorkqueueSystem::measure_cpu_time) switches it on later. Linux only.
    ///
    /// While workers run, the timer reads the CPU time of each worker's thread every 10 ms (up to
    /// ten times less often while they use none), and charges it to the queue whose item the worker
    /// runs at that moment. So the figure is right on average, but not for a single item, and an
    /// item costs nothing extra. The time of a [`call_blocking`](crate::Workqueue::call_blocking)
    /// on its caller's thread is not counted.
    pub fn cpu_time(mut self, on: bool) -> Self {
        self.cpu_time = on;
        self
    }

    /// Whether the system looks for workers that sleep outside [`blocking`](crate::blocking), or
    /// compute for long. On by default on Linux with the system's clock. Not available elsewhere.
    ///
    /// The sampler looks only while items wait because others run: first after 50 us, then again
    /// after up to 1 ms. If it finds a worker asleep, the pool lets another one run.
    pub fn sampling(mut self, on: bool) -> Self {
        self.sampling = Some(on);
        self
    }

    /// How much CPU time an item of a bound or an unbound queue may use, since it began or last
    /// blocked, before the pool lets another worker run beside it: 10 ms by default; zero means
    /// any. [Sampling](SystemBuilder::sampling) detects it, so only while items wait.
    pub fn intensive_threshold(mut self, cpu_time: Duration) -> Self {
        self.intensive = cpu_time;
        self
    }

    /// Calls `f` for each [step](crate::TraceStep) of each item.
    ///
    /// `f` runs on the thread that takes the step, or on the report thread for the timer's steps,
    /// without a lock. So steps of one item that two threads take may come in either order:
    /// "queued" after "started". `f` should be quick. Its panics are ignored. It must not queue
    /// items of this system, because each of them would call `f` again.
    pub fn trace(mut self, f: impl Fn(&TraceEvent<'_>) + Send + Sync + 'static) -> Self {
        self.tracer = Some(Arc::new(f));
        self
    }

    /// Calls `f` on the report thread when items wait and nothing has moved for `threshold`. The
    /// items may wait in a pool whose workers do not finish or cannot be started, or for a queue's
    /// limit. `f` is called again after each further `threshold`.
    ///
    /// A long item that makes progress can say so with [`touch_watchdog`](crate::touch_watchdog).
    /// The watchdog looks once in each `threshold`, and only while items are queued or running, so
    /// it reports a stall after one to two thresholds.
    /// [`set_watchdog_threshold`](WorkqueueSystem::set_watchdog_threshold) changes it later.
    pub fn watchdog(
        mut self,
        threshold: Duration,
        f: impl Fn(&Stall) + Send + Sync + 'static,
    ) -> Self {
        self.watchdog = Some((threshold, Arc::new(f)));
        self
    }

    /// Calls `f` on the report thread when a function of a bound queue is found to be a hog: it has
    /// used more CPU time than the [threshold](SystemBuilder::intensive_threshold) while other
    /// items waited. `f` is called when the function is found for the `after`-th time, and then
    /// after 1, 2, 4, 8.. more times.
    pub fn hog_reports(mut self, after: u64, f: impl Fn(&Hog) + Send + Sync + 'static) -> Self {
        self.hogs = Some((after, Arc::new(f)));
        self
    }

    /// How long a surplus worker stays idle before it exits: 300 s by default, [`Duration::MAX`]
    /// for ever. Each pool keeps two idle workers, and k more while more than 4k are busy; the
    /// others are surplus. While there are none, the system makes no wakeups.
    pub fn idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.idle_timeout = idle_timeout;
        self
    }

    /// The topology of the machine; if none is given, [`build`](SystemBuilder::build) reads it.
    pub fn topology(mut self, topology: impl Borrow<Topology>) -> Self {
        self.topology = Some(topology.borrow().clone());
        self
    }

    /// The scope of unbound queues that name none: `cache_shard` unless set.
    pub fn default_scope(mut self, default_scope: Scope) -> Self {
        self.default_scope = default_scope;
        self
    }

    /// Whether queues built as [`power_efficient`](crate::WorkqueueBuilder::power_efficient) are
    /// unbound.
    pub fn power_efficient(mut self, power_efficient: bool) -> Self {
        self.power_efficient = power_efficient;
        self
    }

    /// The clock for delays, timed waits, idle workers and reports; the machine's by default. Timed
    /// waits for a [`Work`](crate::Work) or [`DelayedWork`](crate::DelayedWork) use real time.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Lets a test refuse to start threads.
    ///
    /// ```
    /// # use inflight_sync::fault::Faults;
    /// # use inflight_workqueue::{QueueError, Work, WorkqueueSystem};
    /// let faults = Faults::new();
    /// let sys = WorkqueueSystem::builder().faults(&faults).build()?;
    /// let wq = sys.workqueue("jobs").bound().build()?;
    /// faults.refuse_spawns(true);
    /// assert!(matches!(wq.queue(&Work::new(|| ())), Err(QueueError::NoWorker(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn faults(mut self, faults: &Faults) -> Self {
        self.faults = faults.clone();
        self
    }

    /// Makes the system. Starts no thread.
    ///
    /// # Errors
    ///
    /// [`SystemError::Topology`] if no topology was given and this machine's cannot be read.
    pub fn build(self) -> Result<WorkqueueSystem, SystemError> {
        let topology = match self.topology {
            Some(topology) => topology,
            None => Topology::discover().map_err(SystemError::Topology)?,
        };
        let sampling = Sampling {
            // Models have no sleeping threads to find, but a model can ask for the sampler's ticks.
            on: if cfg!(any(loom, shuttle)) {
                self.sampling == Some(true)
            } else {
                proc::this_thread().is_some()
                    && self.sampling.unwrap_or_else(|| !self.clock.is_manual())
            },
            intensive: self.intensive,
        };
        let metering = Metering::default();
        if self.cpu_time {
            metering.switch_on(&self.clock);
        }
        let settings = Settings::new(topology.clone(), self.default_scope);
        let last = topology.possible().union(topology.cpus()).last();
        let cpus = last.map_or(0, |last| last + 1);
        let unbound_cpus = Mutex::new(settings.unbound_cpus());
        let shared = |system: Weak<SystemInner>| SystemShared {
            system,
            now: RetainedVersions::new(topology.clone()),
            unbound_cpus,
            refreshes: AtomicUsize::new(0),
            power_efficient: self.power_efficient,
            topology,
            clock: self.clock,
            faults: self.faults,
            fence: AsymFence::new(),
            idle_timeout: self.idle_timeout,
            sampling,
            known_blockers: KnownBlockers::default(),
            hogs: Hogs::new(self.hogs),
            #[cfg(feature = "metrics")]
            ended_queues: Default::default(),
            #[cfg(feature = "metrics")]
            recorded_queues: Mutex::default(),
            #[cfg(feature = "metrics")]
            recorded_pools: Mutex::default(),
            submitters: Submitters::new(cpus),
            metering,
            tracing: Tracing::new(self.tracer),
            watchdog: Watchdog::new(self.watchdog),
            reporter: Reporter::default(),
            base_nice: proc::nice_of_process(),
            nice_refused: Mutex::new(None),
            threads: Mutex::new(Threads::default()),
            ended: Completion::new(1),
            timers: TimerQueue::default(),
        };
        Ok(WorkqueueSystem::new(SystemInner::new(shared, settings)))
    }
}
