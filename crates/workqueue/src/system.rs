//! The system: pools, their threads, and the end of both.

use crate::attrs::{Attrs, Cpus, Kind, Place};
use crate::door;
use crate::error::{BuildError, QueueError, SystemError};
use crate::panics::dispose;
use crate::pool::{Env, Pool};
use crate::queue::{DEFAULT_MAX_ACTIVE, Workqueue, checked_max_active, checked_name};
use crate::rescuer::Rescuer;
use crate::sampler::{self, Sampling};
use crate::stats;
use crate::threads::Threads;
use crate::timekeeper::{Alarm, Timekeeper};
use crate::trace::{TraceEvent, Tracer};
use crate::watchdog::{OnStall, Stall, Watchdog};
use crate::worker;
use inflight_sync::fault::Faults;
use inflight_sync::thread::JoinHandle;
use inflight_sync::time::{Clock, Instant};
use inflight_sync::wait::Event;
use inflight_sync::{Arc, Mutex, Weak};
use inflight_topology::Topology;
use std::borrow::Borrow;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::io;
use std::time::Duration;

/// Worker pools, and the workqueues that share them.
///
/// Starts no thread until an item is queued. A clone is another handle on the same system.
///
/// # Shutdown
///
/// When the last handle is dropped the system shuts down: what is queued runs, new items are
/// refused (also from the system's own items), and the drop returns when the worker threads have
/// ended. Workqueues do not keep the system alive, so that an item may hold the queue it is queued
/// on. Dropped on one of its own workers, the system shuts down in the same way, but the drop
/// returns at once and the threads end by themselves.
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
#[derive(Clone)]
pub struct WorkqueueSystem {
    handle: Arc<Handle>,
}

/// Shuts the system down when the last handle goes.
struct Handle {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    env: Arc<Env>,
    pools: Mutex<Vec<Arc<Pool>>>,
    registry: Mutex<Registry>,
    /// The system has stopped.
    event: Event,
}

#[derive(Default)]
struct Registry {
    queues: Vec<Weak<door::Shared>>,
    /// Shutdown has begun: no queue is added.
    shut: bool,
    /// Every gate of every queue is shut: whatever is idle stays idle.
    closed: bool,
    /// A timed shutdown has returned with work left: nobody waits any more.
    given_up: bool,
}

impl Registry {
    fn queues(&self) -> Vec<Arc<door::Shared>> {
        self.queues.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Shared {
    pub(crate) fn env(&self) -> &Arc<Env> {
        &self.env
    }

    /// The pool that serves a place, made if there is none.
    pub(crate) fn pool(&self, place: &Place, rescued: bool) -> io::Result<Arc<Pool>> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.iter().find(|pool| pool.place() == place) {
            return Ok(pool.clone());
        }
        let unbound = pools
            .iter()
            .filter(|p| matches!(p.place().cpus, Cpus::Pod { .. }))
            .count();
        let pool = Pool::new(place.clone(), unbound, &self.env, rescued)?;
        pools.push(pool.clone());
        Ok(pool)
    }

    /// Something has been queued: the watchdog is to look after a while.
    pub(crate) fn watch(self: &Arc<Self>) {
        if let Some(watchdog) = self.env.watchdog.as_ref().filter(|w| w.arm()) {
            let at = self.env.clock.now() + watchdog.threshold;
            let alarm = Alarm::Watch(self.clone());
            if !self.env.timekeeper.set_alarm(&self.env, at, alarm) {
                watchdog.disarm(); // The next item tries again.
            }
        }
    }

    /// The watchdog looks whether all moves.
    pub(crate) fn look(self: &Arc<Self>) {
        let Some(watchdog) = &self.env.watchdog else {
            return;
        };
        let pools = self.pools.lock().clone();
        let queues = self.queues();
        let waiting = pools.iter().filter_map(|pool| pool.waiting());
        let starved = queues.iter().filter_map(|queue| queue.starved());
        watchdog.look(self.env.clock.now(), waiting.chain(starved).collect());
        watchdog.disarm();
        // What is queued after this look sets the alarm itself.
        if !queues.iter().all(|queue| queue.is_idle()) {
            self.watch();
        }
    }

    fn queues(&self) -> Vec<Arc<door::Shared>> {
        self.registry.lock().queues()
    }

    fn register(self: &Arc<Self>, queue: &Arc<door::Shared>) -> Result<(), BuildError> {
        let mut registry = self.registry.lock();
        if registry.shut {
            return Err(BuildError::ShutDown);
        }
        registry.queues.retain(|queue| queue.strong_count() > 0);
        registry.queues.push(Arc::downgrade(queue));
        Ok(())
    }

    /// Z1 to Z3: closes every queue. Whoever finds the last item gone stops the pools.
    fn begin_shutdown(&self) {
        self.registry.lock().shut = true;
        // No queue is added after the flag, so these are all.
        self.queues().iter().for_each(|queue| queue.shut());
        self.env.timekeeper.close();
        self.registry.lock().closed = true;
        self.queue_is_idle();
    }

    /// Z4, Z5: a closed queue has become idle; if all are, sends the workers home.
    ///
    /// Not before all queues are closed: one that is not could be idle now and take an item later,
    /// for which no worker would be left. Closed queues stay idle, so of those that end the last
    /// items, the last one to look finds all idle.
    pub(crate) fn queue_is_idle(&self) {
        let queues = {
            let registry = self.registry.lock();
            if !registry.closed {
                return; // Whoever closes the last queue looks afterwards.
            }
            registry.queues()
        };
        if !queues.iter().all(|queue| queue.is_idle()) {
            return;
        }
        self.env.threads.lock().stopped = true;
        let pools = self.pools.lock().clone();
        pools.iter().for_each(|pool| pool.stop());
        queues.iter().for_each(|queue| queue.dismiss_rescuer());
        self.env.timekeeper.stop();
        self.event.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.env.threads.lock().stopped
    }

    /// After [`is_stopped`](Shared::is_stopped): joins the workers, or has somebody else join them
    /// and waits for that, at most until `deadline`. Returns whether they have been joined.
    fn join(&self, deadline: Option<Instant>) -> bool {
        let handles = {
            let mut threads = self.env.threads.lock();
            threads.take()
        };
        if let Some(handles) = handles {
            let failed = handles
                .into_iter()
                .filter_map(|h| JoinHandle::join(h).err());
            failed.for_each(dispose);
            self.env.threads.lock().joined = true;
            self.event.notify_all();
            return true;
        }
        let joining = || !self.env.threads.lock().joined;
        match deadline {
            Some(deadline) => self
                .event
                .wait_while_until(&self.env.clock, deadline, joining),
            None => {
                self.event.wait_while(joining);
                true
            }
        }
    }

    fn leftover(&self, own_worker: bool) -> Leftover {
        let queues = self.queues().into_iter().filter_map(|queue| {
            let stats = queue.stats();
            let items = stats.queued - stats.completed - stats.cancelled;
            (items > 0).then(|| (queue.name().to_owned(), items))
        });
        Leftover {
            queues: queues.collect(),
            own_worker,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let shared = &self.shared;
        shared.begin_shutdown();
        if shared.registry.lock().given_up || worker::belongs_to(&shared.env) {
            return;
        }
        shared.event.wait_while(|| !shared.is_stopped());
        shared.join(None);
    }
}

impl WorkqueueSystem {
    /// A system to be described.
    ///
    /// ```
    /// let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// # Ok::<(), inflight_workqueue::SystemError>(())
    /// ```
    pub fn builder() -> SystemBuilder {
        SystemBuilder {
            topology: None,
            clock: Clock::system(),
            faults: Faults::none(),
            idle_timeout: IDLE_TIMEOUT,
            sampling: None,
            intensive: INTENSIVE_THRESHOLD,
            tracer: None,
            watchdog: None,
        }
    }

    /// A workqueue to be described. Its kind is chosen next.
    ///
    /// ```
    /// # use inflight_workqueue::{Attrs, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// let irq = sys.workqueue("complete").bound().build()?;
    /// let crypt = sys.workqueue("kcryptd").unbound(Attrs::new()).max_active(64).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn workqueue(&self, name: impl Into<String>) -> WorkqueueDraft {
        WorkqueueDraft {
            system: self.handle.shared.clone(),
            name: name.into(),
        }
    }

    /// Shuts the system down now, whoever else holds handles, and waits at most for `limit` on its
    /// clock.
    ///
    /// On success everything that was queued has ended, and so have the worker threads, whoever
    /// else shuts down at the same time. Else the items that are left still run, and dropping the
    /// last handle no longer waits for them. Called on one of the system's own workers it does not
    /// wait at all. The limit does not cover destructors of the items' thread locals, which run
    /// while the threads are joined.
    ///
    /// # Errors
    ///
    /// [`Leftover`] says what had not ended.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// use std::time::Duration;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// drop(wq.spawn(|| ()));
    /// sys.shutdown_timeout(Duration::from_secs(60))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_timeout(&self, limit: Duration) -> Result<(), Leftover> {
        let shared = &self.handle.shared;
        let deadline: Instant = shared.env.clock.now() + limit;
        shared.begin_shutdown();
        let own_worker = worker::belongs_to(&shared.env);
        let clock = &shared.env.clock;
        let running = || !shared.is_stopped();
        let ended = !own_worker
            && shared.event.wait_while_until(clock, deadline, running)
            && shared.join(Some(deadline));
        if ended {
            return Ok(());
        }
        shared.registry.lock().given_up = true;
        Err(shared.leftover(own_worker))
    }

    /// Why the system refused a thread its priority, if it did: highpri workers and rescuers then
    /// run with that of the thread that made them.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().build()?;
    /// let urgent = sys.workqueue("urgent").bound().highpri().build()?;
    /// urgent.spawn(|| ()).wait()?;
    /// if let Some(why) = sys.nice_refused() {
    ///     eprintln!("no high priority: {why}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn nice_refused(&self) -> Option<io::ErrorKind> {
        *self.handle.shared.env.nice_refused.lock()
    }

    /// The pools, their workers and the queues as text for a person; the form may change.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("events").bound().build()?;
    /// assert!(sys.dump().contains("queue events bound"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn dump(&self) -> String {
        let shared = &self.handle.shared;
        let pools = shared.pools.lock().clone();
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = pools
            .iter()
            .try_for_each(|pool| stats::describe_pool(&mut out, pool));
        if let Some(why) = self.nice_refused() {
            let _ = writeln!(out, "high priority refused: {why}");
        }
        let queues = shared.queues();
        let _ = queues
            .iter()
            .try_for_each(|queue| stats::describe_queue(&mut out, queue));
        out
    }
}

impl fmt::Debug for WorkqueueSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.handle.shared;
        f.debug_struct("WorkqueueSystem")
            .field("pools", &shared.pools.lock().len())
            .field("queues", &shared.queues().len())
            .field("shut", &shared.registry.lock().shut)
            .finish_non_exhaustive()
    }
}

/// What had not ended when a timed shutdown returned.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use std::time::Duration;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("jobs").bound().build()?;
/// let left = wq.spawn(move || sys.shutdown_timeout(Duration::MAX)).wait()?.unwrap_err();
/// assert_eq!(left.items(), 1, "the caller itself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    queues: Vec<(String, u64)>,
    own_worker: bool,
}

impl Leftover {
    /// How many items were queued or running. 0 if all had ended but not all worker threads.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// let left = sys.shutdown_timeout(std::time::Duration::from_secs(60));
    /// assert_eq!(left.map_or_else(|left| left.items(), |()| 0), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn items(&self) -> u64 {
        self.queues.iter().map(|(_, items)| items).sum()
    }

    /// The queues that had items left, with their number.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// if let Err(left) = sys.shutdown_timeout(std::time::Duration::from_secs(60)) {
    ///     left.queues().for_each(|(name, items)| eprintln!("{name}: {items}"));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queues(&self) -> impl Iterator<Item = (&str, u64)> {
        self.queues
            .iter()
            .map(|(name, items)| (name.as_str(), *items))
    }

    /// Whether the caller was one of the system's own workers, whose end cannot be waited for.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # use std::time::Duration;
    /// let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("jobs").bound().build()?;
    /// let last = wq.spawn(move || sys.shutdown_timeout(Duration::MAX)).wait()?;
    /// assert!(last.unwrap_err().is_own_worker());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_own_worker(&self) -> bool {
        self.own_worker
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.items() == 0 {
            return f.write_str("all items, but not all worker threads had ended");
        }
        write!(f, "{} items had not ended", self.items())?;
        for (at, (name, items)) in self.queues.iter().enumerate() {
            write!(f, "{} {name} {items}", if at == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

impl Error for Leftover {}

/// Describes a [`WorkqueueSystem`].
///
/// ```
/// use inflight_topology::Topology;
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
            .field("watchdog", &self.watchdog.as_ref().map(|w| w.0))
            .finish()
    }
}

/// How much CPU time makes an item one that computes for long, unless the builder says otherwise.
const INTENSIVE_THRESHOLD: Duration = Duration::from_millis(10);

/// After how long an idle worker too many leaves, unless the builder says otherwise.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

impl SystemBuilder {
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
    /// # use inflight_topology::Topology;
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().topology(Topology::discover()?).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn topology(self, topology: impl Borrow<Topology>) -> Self {
        let topology = Some(topology.borrow().clone());
        Self { topology, ..self }
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
            on: sampler::proc::this_thread().is_some()
                && self.sampling.unwrap_or_else(|| !self.clock.is_manual()),
            intensive: self.intensive,
        };
        let env = Arc::new(Env {
            topology,
            clock: self.clock,
            faults: self.faults,
            idle_timeout: self.idle_timeout,
            sampling,
            tracer: self.tracer,
            watchdog: self
                .watchdog
                .map(|(threshold, f)| Watchdog::new(threshold, f)),
            nice_refused: Mutex::new(None),
            threads: Mutex::new(Threads::default()),
            timekeeper: Timekeeper::default(),
        });
        let shared = Arc::new(Shared {
            env,
            pools: Mutex::new(Vec::new()),
            registry: Mutex::new(Registry::default()),
            event: Event::new(),
        });
        let handle = Arc::new(Handle { shared });
        Ok(WorkqueueSystem { handle })
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
    /// # use inflight_workqueue::Attrs;
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let log = sys.workqueue("journal").ordered(Attrs::new()).build()?;
    /// let handles: Vec<_> = (0..3).map(|n| log.spawn(move || n)).collect();
    /// assert_eq!(log.stats().active, 1.min(log.stats().active), "never two at once");
    /// for (n, handle) in handles.into_iter().enumerate() {
    ///     assert_eq!(handle.wait()?, n);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ordered(self, attrs: Attrs) -> WorkqueueBuilder {
        let builder = self.kind(Kind::Ordered(attrs));
        builder.max_active(1)
    }

    /// Items run in the group of CPUs they are queued in, as many at a time as it has CPUs.
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
            max_active: DEFAULT_MAX_ACTIVE,
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
    max_active: usize,
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

    /// How many items may be active at once: for each CPU of a bound queue, altogether for an
    /// unbound one. [`DEFAULT_MAX_ACTIVE`] unless set, at most
    /// [`MAX_ACTIVE_LIMIT`](crate::MAX_ACTIVE_LIMIT); 1 for an ordered one.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// assert!(sys.workqueue("none").bound().max_active(0).build().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_active(self, max_active: usize) -> Self {
        Self { max_active, ..self }
    }

    /// Makes the workqueue.
    ///
    /// # Errors
    ///
    /// A [`BuildError`] says what is wrong with the name or the limit, that the system is shutting
    /// down, or that it refused the queue's rescuer its thread.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("events").bound().build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build(self) -> Result<Workqueue, BuildError> {
        let WorkqueueDraft { system, name } = self.draft;
        let name = checked_name(name)?;
        let max_active = checked_max_active(self.kind, self.max_active);
        let max_active = max_active.map_err(BuildError::MaxActive)?;
        let rescuer = self.flags.mem_reclaim.then(|| rescuer(&name, &system.env));
        let rescuer = rescuer.transpose()?;
        let queue = door::Shared::new(name, self.kind, self.flags, max_active, rescuer, &system);
        system.register(&queue)?;
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
