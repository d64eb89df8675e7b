//! What a system and its queues are made from.

use crate::attrs::{Attrs, Kind};
use crate::door;
use crate::error::{BuildError, QueueError, SystemError};
use crate::layout::Settings;
use crate::learned::Learned;
use crate::lending::Crowd;
use crate::limits::Share;
use crate::meter::Metering;
use crate::pool::Env;
use crate::queue::{DEFAULT_MAX_ACTIVE, NO_LIMIT, Workqueue, checked_max_active, checked_name};
use crate::rescuer::Rescuer;
use crate::sampler::{self, Sampling};
use crate::system::{Shared, WorkqueueSystem};
use crate::threads::Threads;
use crate::timekeeper::Timekeeper;
use crate::trace::{TraceEvent, Tracer};
use crate::watchdog::{OnStall, Stall, Watchdog};
use inflight_sync::atomic::AtomicUsize;
use inflight_sync::fault::Faults;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex};
use inflight_topology::{Scope, Topology};
use std::borrow::Borrow;
use std::fmt;
use std::time::Duration;

/// Describes a [`WorkqueueSystem`].
///
/// ```
/// use inflight_topology::{Scope, Topology};
/// use inflight_workqueue::WorkqueueSystem;
///
/// let topo = Topology::synthetic("cache:2 core:4")?;
/// let sys = WorkqueueSystem::builder().topology(&topo).build()?;
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
    cpu_time: bool,
    default_scope: Scope,
    power_efficient: bool,
}

impl fmt::Debug for SystemBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemBuilder")
            .field("topology", &self.topology)
            .field("clock", &self.clock)
            .field("faults", &self.faults)
            .field("idle_timeout", &self.idle_timeout)
            .field("sampling", &self.sampling)
            .field("intensive_threshold", &self.intensive)
            .field("trace", &self.tracer.is_some())
            .field("cpu_time", &self.cpu_time)
            .field("default_scope", &self.default_scope)
            .field("power_efficient", &self.power_efficient)
            .field("watchdog", &self.watchdog.as_ref().map(|w| w.0))
            .finish()
    }
}

/// How much CPU time makes an item one that computes for long, unless the builder says otherwise.
const INTENSIVE_THRESHOLD: Duration = Duration::from_millis(10);

/// After how long an idle worker too many leaves, unless the builder says otherwise.
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
            cpu_time: false,
            default_scope: Scope::CacheShard,
            power_efficient: false,
        }
    }

    /// Whether the CPU time is measured that the items of each queue use
    /// ([`WorkqueueStats::cpu_time`](crate::WorkqueueStats::cpu_time)): not unless asked for, here
    /// or by [`measure_cpu_time`](WorkqueueSystem::measure_cpu_time), and on Linux only.
    ///
    /// Every 10 ms, while workers run, the timekeeper reads what each worker's thread has used
    /// since the last time, and charges all of it to the queue whose item the worker runs then. So
    /// it is right on average, not for a single item, and costs nothing for each item. While the
    /// running items use no CPU time it reads up to ten times less often, and while nobody runs it
    /// does not. What a [`call`](crate::Workqueue::call) uses on its caller's thread is the
    /// caller's.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().cpu_time(true).build()?;
    /// # Ok::<(), inflight_workqueue::SystemError>(())
    /// ```
    pub fn cpu_time(self, on: bool) -> Self {
        Self {
            cpu_time: on,
            ..self
        }
    }

    /// Whether the system looks for workers that sleep without having said so (see
    /// [`blocking`](crate::blocking)) and for items that compute for long. On Linux it does so by
    /// default, if its clock is the system's; elsewhere it cannot.
    ///
    /// It looks only while items wait because others run: first after 50 us, and again after up to
    /// 1 ms. A pool whose worker is found asleep lets another one run.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().sampling(false).build()?;
    /// # Ok::<(), inflight_workqueue::SystemError>(())
    /// ```
    pub fn sampling(self, on: bool) -> Self {
        let sampling = Some(on);
        Self { sampling, ..self }
    }

    /// How much CPU time an item of a bound queue may use, since it began or last blocked, before
    /// the pool lets another worker run beside it: 10 ms by default, zero for any amount. Found out
    /// by [sampling](SystemBuilder::sampling), so only while items wait.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// use std::time::Duration;
    ///
    /// let builder = WorkqueueSystem::builder().intensive_threshold(Duration::from_millis(50));
    /// let sys = builder.build()?;
    /// # Ok::<(), inflight_workqueue::SystemError>(())
    /// ```
    pub fn intensive_threshold(self, cpu_time: Duration) -> Self {
        Self {
            intensive: cpu_time,
            ..self
        }
    }

    /// Calls `f` with each step of each item: queued, activated, started, ended, panicked,
    /// cancelled.
    ///
    /// On the thread that takes the step, without a lock, so two threads' steps of one item may be
    /// told in either order: that it is queued after that it has started. `f` should be quick; its
    /// panics are ignored, and it must not queue items of this system, each of which would call it
    /// again.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let builder = WorkqueueSystem::builder();
    /// let sys = builder.trace(|event| println!("{}: {} {}", event.queue, event.item, event.step));
    /// let wq = sys.build()?.workqueue("jobs").bound().build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trace(self, f: impl Fn(&TraceEvent<'_>) + Send + Sync + 'static) -> Self {
        let tracer: Option<Tracer> = Some(Box::new(f));
        Self { tracer, ..self }
    }

    /// Calls `f`, on the system's timekeeper, when items wait and nothing has moved for
    /// `threshold`: in a pool, whose workers run and do not end or cannot be had, or in front of a
    /// queue's limit. It is called again after each further `threshold`.
    ///
    /// An item that is long but gets on says so by [`touch_watchdog`](crate::touch_watchdog). To
    /// end a process that has stalled so often or so long, `f` ends it.
    ///
    /// It looks once in each `threshold`, and only while items are queued or running, so a stall is
    /// reported after one to two of them.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// use std::time::Duration;
    ///
    /// let builder = WorkqueueSystem::builder();
    /// let sys = builder.watchdog(Duration::from_secs(30), |stall| eprintln!("{stall}")).build()?;
    /// # Ok::<(), inflight_workqueue::SystemError>(())
    /// ```
    pub fn watchdog(self, threshold: Duration, f: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        let on_stall: OnStall = Box::new(f);
        Self {
            watchdog: Some((threshold, on_stall)),
            ..self
        }
    }

    /// After how long idle workers leave that nobody needs, 300 s by default.
    ///
    /// Each pool keeps two idle workers, and one more for each four busy ones; of the others those
    /// leave that have been idle for so long. Without any of them the system makes no wakeups.
    /// With [`Duration::MAX`] nobody leaves.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// use std::time::Duration;
    ///
    /// let sys = WorkqueueSystem::builder().idle_timeout(Duration::from_secs(1)).build()?;
    /// # Ok::<(), inflight_workqueue::SystemError>(())
    /// ```
    pub fn idle_timeout(self, idle_timeout: Duration) -> Self {
        Self {
            idle_timeout,
            ..self
        }
    }

    /// The machine. Without it, [`build`](SystemBuilder::build) looks at the one it runs on.
    ///
    /// ```
    /// # use inflight_topology::{Scope, Topology};
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().topology(Topology::discover()?).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn topology(self, topology: impl Borrow<Topology>) -> Self {
        let topology = Some(topology.borrow().clone());
        Self { topology, ..self }
    }

    /// The scope of unbound queues whose [`Attrs`] name none: `cache_shard` unless set.
    ///
    /// ```
    /// # use inflight_topology::Scope;
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().default_scope(Scope::Cache).build()?;
    /// assert!(sys.dump().contains("CACHE (default)"));
    /// # Ok::<(), inflight_workqueue::SystemError>(())
    /// ```
    pub fn default_scope(self, default_scope: Scope) -> Self {
        Self {
            default_scope,
            ..self
        }
    }

    /// Whether queues built as [`power_efficient`](WorkqueueBuilder::power_efficient) are unbound.
    ///
    /// ```
    /// # use inflight_workqueue::{Kind, WorkqueueSystem};
    /// let sys = WorkqueueSystem::builder().power_efficient(true).build()?;
    /// let wq = sys.workqueue("lazy").bound().power_efficient().build()?;
    /// assert_ne!(wq.kind(), Kind::Bound);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn power_efficient(self, power_efficient: bool) -> Self {
        Self {
            power_efficient,
            ..self
        }
    }

    /// The clock of timed waits, the system's by default.
    ///
    /// ```
    /// # use inflight_sync::time::Clock;
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().clock(Clock::manual()).build()?;
    /// # Ok::<(), inflight_workqueue::SystemError>(())
    /// ```
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Lets a test refuse threads.
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
    pub fn faults(self, faults: &Faults) -> Self {
        let faults = faults.clone();
        Self { faults, ..self }
    }

    /// Makes the system. No thread is started yet.
    ///
    /// # Errors
    ///
    /// [`SystemError::Topology`] if no topology was given and this machine's cannot be read.
    ///
    /// ```
    /// let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// # Ok::<(), inflight_workqueue::SystemError>(())
    /// ```
    pub fn build(self) -> Result<WorkqueueSystem, SystemError> {
        let topology = match self.topology {
            Some(topology) => topology,
            None => Topology::discover().map_err(SystemError::Topology)?,
        };
        let sampling = Sampling {
            // In a model nobody is found asleep, but what has to wait is looked at, if asked for.
            on: if cfg!(loom) {
                self.sampling == Some(true)
            } else {
                sampler::proc::this_thread().is_some()
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
        let env = Env {
            now: Mutex::new(topology.clone()),
            refreshed: AtomicUsize::new(0),
            power_efficient: self.power_efficient,
            topology,
            clock: self.clock,
            faults: self.faults,
            idle_timeout: self.idle_timeout,
            sampling,
            learned: Learned::default(),
            crowd: Crowd::new(cpus),
            metering,
            tracer: self.tracer,
            watchdog: self
                .watchdog
                .map(|(threshold, f)| Watchdog::new(threshold, f)),
            nice_refused: Mutex::new(None),
            threads: Mutex::new(Threads::default()),
            timekeeper: Timekeeper::default(),
        };
        Ok(WorkqueueSystem::new(env, settings))
    }
}

/// A workqueue whose kind has not been chosen.
///
/// ```
/// # use inflight_workqueue::{WorkqueueDraft, WorkqueueSystem};
/// # let sys = WorkqueueSystem::builder().build()?;
/// let draft: WorkqueueDraft = sys.workqueue("events");
/// let wq = draft.bound().build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is made before `build`"]
pub struct WorkqueueDraft {
    system: Arc<Shared>,
    name: String,
}

impl WorkqueueDraft {
    pub(crate) const fn new(system: Arc<Shared>, name: String) -> Self {
        Self { system, name }
    }

    /// Items run on the CPU they are queued on, one at a time unless they block.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("complete").bound().build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bound(self) -> WorkqueueBuilder {
        self.kind(Kind::Bound)
    }

    /// One item at a time, in the order in which they were queued, whatever CPU they come from. The
    /// limit of one cannot be changed. Needs no thread of its own: an item runs in the group of
    /// CPUs it is queued in, as with [`unbound`](WorkqueueDraft::unbound).
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let log = sys.workqueue("journal").ordered().build()?;
    /// let lines = Arc::new(Mutex::new(Vec::new()));
    /// for n in 0..3 {
    ///     let lines = lines.clone();
    ///     drop(log.spawn(move || lines.lock().unwrap().push(n)));
    /// }
    /// log.flush()?;
    /// assert_eq!(*lines.lock().unwrap(), [0, 1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ordered(self) -> WorkqueueBuilder {
        self.ordered_with(Attrs::new())
    }

    /// As [`ordered`](WorkqueueDraft::ordered), with attributes of one's own.
    ///
    /// ```
    /// # use inflight_topology::Scope;
    /// # use inflight_workqueue::Attrs;
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let attrs = Attrs::new().scope(Scope::Numa);
    /// let log = sys.workqueue("journal").ordered_with(attrs).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ordered_with(self, attrs: Attrs) -> WorkqueueBuilder {
        let builder = self.kind(Kind::Ordered(attrs));
        builder.max_active(1)
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
    ///
    /// ```
    /// # use inflight_topology::Scope;
    /// # use inflight_workqueue::Attrs;
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("kcryptd").unbound(Attrs::new().scope(Scope::Numa)).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unbound(self, attrs: Attrs) -> WorkqueueBuilder {
        self.kind(Kind::Unbound(attrs))
    }

    fn kind(self, kind: Kind) -> WorkqueueBuilder {
        WorkqueueBuilder {
            draft: self,
            kind,
            limit: door::Limit {
                max_active: DEFAULT_MAX_ACTIVE,
                share: Share::Lend,
                min_active: None,
            },
            flags: door::Flags::default(),
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
/// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("complete").bound().max_active(2).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is made before `build`"]
pub struct WorkqueueBuilder {
    draft: WorkqueueDraft,
    kind: Kind,
    limit: door::Limit,
    flags: door::Flags,
}

impl WorkqueueBuilder {
    /// Its items run in pools of their own, whose workers have nice -20 where the system permits
    /// it. They and the normal pools of the same CPUs do not know of each other: the scheduler
    /// prefers the one with the higher priority. [`WorkqueueSystem::nice_refused`] tells if it was
    /// not granted; the pools are apart all the same.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let urgent = sys.workqueue("urgent").bound().highpri().build()?;
    /// urgent.spawn(|| ()).wait()?;
    /// assert!(sys.dump().contains("highpri"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    /// [`intensive_threshold`](SystemBuilder::intensive_threshold) of CPU time and others wait.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let sums = sys.workqueue("checksums").bound().cpu_intensive().build()?;
    /// assert_eq!(sums.spawn(|| (0..1000u32).sum::<u32>()).wait()?, 499_500);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    /// as [`power_efficient`](SystemBuilder::power_efficient) a bound queue becomes an unbound one,
    /// so that items gather on CPUs that are awake. Its `max_active` then counts for the whole
    /// queue.
    ///
    /// ```
    /// # use inflight_workqueue::{Kind, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("lazy").bound().power_efficient().build()?;
    /// assert_eq!(wq.kind(), Kind::Bound, "the switch is off");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn power_efficient(mut self) -> Self {
        self.flags.power_efficient = true;
        self
    }

    /// Its items are held by [`WorkqueueSystem::freeze`]: none starts until the thaw.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("writeback").bound().freezable().build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn freezable(mut self) -> Self {
        self.flags.freezable = true;
        self
    }

    /// How many items may be active at once: for each CPU of a bound queue, altogether for an
    /// unbound one. [`DEFAULT_MAX_ACTIVE`] unless set, at most
    /// [`MAX_ACTIVE_LIMIT`](crate::MAX_ACTIVE_LIMIT); 1 for an ordered one.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// assert!(sys.workqueue("none").bound().max_active(0).build().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_active(mut self, max_active: usize) -> Self {
        self.limit.max_active = max_active;
        self
    }

    /// How the limit of an unbound queue is split among the memory nodes: [`Share::Lend`] unless
    /// set, which is exact. For other queues, and on a machine with one node, it means nothing.
    ///
    /// ```
    /// use inflight_workqueue::{Attrs, Share};
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("jobs").unbound(Attrs::new()).max_active(16).share(Share::PerNode);
    /// # wq.build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn share(mut self, share: Share) -> Self {
        self.limit.share = share;
        self
    }

    /// How many items may be active on each memory node, however few CPUs it has, with
    /// [`Share::PerNode`]: so many that wait for each other are sure to make progress. 8 unless
    /// set, at most `max_active`; a part is never below 1. With [`Share::Lend`] it means nothing:
    /// the limit is exact.
    ///
    /// ```
    /// use inflight_workqueue::{Attrs, Share};
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("chains").unbound(Attrs::new()).share(Share::PerNode);
    /// # let wq =
    /// wq.max_active(64).min_active(32).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("events").bound().build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build(self) -> Result<Workqueue, BuildError> {
        let WorkqueueDraft { system, name } = self.draft;
        let name = checked_name(name)?;
        let power_efficient = self.flags.power_efficient && system.env().power_efficient;
        let kind = match self.kind {
            Kind::Bound if power_efficient => Kind::Unbound(Attrs::new()),
            kind => kind,
        };
        kind.attrs().check().map_err(BuildError::Attrs)?;
        if let Some(what) = self.flags.not_bh().filter(|_| kind == Kind::Bh) {
            return Err(BuildError::NotBh(what));
        }
        let checked = checked_max_active(kind.mode(), self.limit.max_active);
        checked.map_err(BuildError::MaxActive)?;
        let rescuer = self.flags.mem_reclaim.then(|| rescuer(&name, system.env()));
        let rescuer = rescuer.transpose()?;
        let (flags, limit) = (self.flags, self.limit);
        let queue = system.register(|settings| {
            door::Shared::new(name, &kind, flags, limit, rescuer, &system, settings)
        })?;
        Ok(Workqueue::new(queue))
    }
}

/// The reserved thread of a queue, and the timekeeper who calls it.
fn rescuer(queue: &str, env: &Arc<Env>) -> Result<Arc<Rescuer>, BuildError> {
    env.timekeeper.ready(env).map_err(|e| match e {
        QueueError::NoTimer(kind) => BuildError::NoRescuer(kind),
        _ => BuildError::ShutDown,
    })?;
    let rescuer = Rescuer::start(queue, env);
    rescuer.map_err(|e| BuildError::NoRescuer(e.kind()))
}
