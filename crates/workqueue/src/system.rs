//! The system: pools, their threads, and the end of both.

use crate::attrs::Attrs;
use crate::bh::BhPoller;
use crate::builder::{SystemBuilder, WorkqueueDraft};
use crate::door::{self, Promoted};
use crate::dump::Dump;
use crate::error::{AttrsError, BuildError, PollerError};
use crate::freeze::Frozen;
use crate::layout::{Place, Settings};
use crate::panics::dispose;
#[cfg(any(test, feature = "metrics"))]
use crate::pool::Pool;
use crate::pool::{Env, Notify};
use crate::pools::{Lease, Pools};
#[cfg(loom)]
use crate::sampler::Finding;
use crate::timekeeper::Alarm;
use crate::worker;
use inflight_sync::atomic::Ordering;
use inflight_sync::thread::JoinHandle;
use inflight_sync::time::Instant;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, Mutex, Weak};
use inflight_topology::{CpuSet, Scope, Topology};
use std::error::Error;
use std::fmt;
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
/// on. Dropped on one of its own workers, or inside a [`call`](crate::Workqueue::call), the system
/// shuts down in the same way, but the drop returns at once and the threads end by themselves.
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
    settings: Mutex<Settings>,
    pools: Arc<Pools>,
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
    fn new(env: Env, settings: Settings) -> Self {
        Self {
            env: Arc::new(env),
            settings: Mutex::new(settings),
            pools: Arc::default(),
            registry: Mutex::new(Registry::default()),
            event: Event::new(),
        }
    }

    pub(crate) fn env(&self) -> &Arc<Env> {
        &self.env
    }

    pub(crate) fn pools(&self) -> &Arc<Pools> {
        &self.pools
    }

    /// The pool that serves a place, made if there is none.
    pub(crate) fn pool(&self, place: &Place, rescued: bool) -> io::Result<Arc<Lease>> {
        self.pools.lease(place, &self.env, rescued)
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
        let pools = self.pools.all();
        let queues = self.queues();
        let waiting = pools.iter().filter_map(|pool| pool.waiting());
        let starved = queues.iter().filter_map(|queue| queue.starved());
        let places = waiting.chain(starved).collect();
        watchdog.look(self.env.clock.now(), places, &self.env.metering);
        watchdog.disarm();
        // What is queued after this look sets the alarm itself.
        if !queues.iter().all(|queue| queue.is_idle()) {
            self.watch();
        }
    }

    pub(crate) fn dump(&self) -> String {
        let settings = self.settings();
        let dump = Dump {
            topology: &settings.topology,
            settings: &settings,
            pools: self.pools.all(),
            queues: self.queues(),
            nice_refused: *self.env.nice_refused.lock(),
        };
        dump.to_string()
    }

    pub(crate) fn queues(&self) -> Vec<Arc<door::Shared>> {
        self.registry.lock().queues()
    }

    /// What holds for all unbound queues now.
    pub(crate) fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    /// O1, O2 for one queue.
    pub(crate) fn set_attrs(
        &self,
        queue: &Arc<door::Shared>,
        attrs: Attrs,
    ) -> Result<(), AttrsError> {
        self.change_attrs(queue, |_| Ok(attrs))
    }

    /// The same, from the attributes it has; nobody else changes them meanwhile.
    pub(crate) fn change_attrs<E: From<AttrsError>>(
        &self,
        queue: &Arc<door::Shared>,
        change: impl FnOnce(Attrs) -> Result<Attrs, E>,
    ) -> Result<(), E> {
        if queue.mode().is_bound() {
            return Err(AttrsError::NotUnbound.into());
        }
        let settings = self.settings.lock();
        let attrs = change(queue.attrs())?;
        attrs.check()?;
        let prepared = queue.prepare(attrs, &settings);
        let through = prepared.map_err(|e| self.no_worker(&e))?.perform();
        drop(settings);
        through.into_iter().for_each(Promoted::tell);
        Ok(())
    }

    /// O1, O2 for all unbound queues: other settings.
    fn reconfigure(
        &self,
        change: impl FnOnce(&mut Settings) -> Result<(), AttrsError>,
    ) -> Result<(), AttrsError> {
        let mut settings = self.settings.lock();
        let mut new = settings.clone();
        change(&mut new)?;
        let queues = self.queues().into_iter();
        let unbound = queues.filter(|queue| !queue.mode().is_bound());
        let moves = unbound.map(|queue| queue.prepare(queue.attrs(), &new));
        let moves = moves.collect::<io::Result<Vec<_>>>();
        let moves = moves.map_err(|e| self.no_worker(&e))?;
        if new.topology.version() != settings.topology.version()
            || new.topology != settings.topology
        {
            *self.env.now.lock() = new.topology.clone();
            // Relaxed: as said where it is.
            self.env.refreshed.fetch_add(1, Ordering::Relaxed);
        }
        let through: Vec<_> = moves.into_iter().filter_map(door::Move::perform).collect();
        *settings = new;
        drop(settings);
        through.into_iter().for_each(Promoted::tell);
        Ok(())
    }

    /// Why a pool that is needed has no worker.
    fn no_worker(&self, refused: &io::Error) -> AttrsError {
        if self.is_stopped() {
            AttrsError::ShutDown
        } else {
            AttrsError::NoWorker(refused.kind())
        }
    }

    /// From now on freezable queues let nobody through.
    pub(crate) fn freeze(&self) {
        self.change_freezes(|settings| settings.freezes += 1);
    }

    /// The end of one [`freeze`](Shared::freeze).
    pub(crate) fn thaw(&self) {
        self.change_freezes(|settings| settings.freezes -= 1);
    }

    fn change_freezes(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings.lock();
        let before = settings.is_frozen();
        change(&mut settings);
        let now = settings.is_frozen();
        if before != now {
            let through = self.freezable().map(|queue| queue.set_frozen(now));
            let through: Vec<_> = through.collect();
            drop(settings);
            through.into_iter().for_each(Promoted::tell);
        }
    }

    fn freezable(&self) -> impl Iterator<Item = Arc<door::Shared>> {
        let queues = self.queues().into_iter();
        queues.filter(|queue| queue.is_freezable())
    }

    /// Whether freezable queues have active items.
    pub(crate) fn is_freezing(&self) -> bool {
        self.freezable().any(|queue| queue.level().0 > 0)
    }

    /// A queue as the settings want it, in the list of those to which changes of them go.
    pub(crate) fn register(
        self: &Arc<Self>,
        make: impl FnOnce(&Settings) -> Arc<door::Shared>,
    ) -> Result<Arc<door::Shared>, BuildError> {
        let settings = self.settings.lock();
        let queue = make(&settings);
        self.add(&queue)?;
        Ok(queue)
    }

    fn add(&self, queue: &Arc<door::Shared>) -> Result<(), BuildError> {
        let mut registry = self.registry.lock();
        if registry.shut {
            return Err(BuildError::ShutDown);
        }
        registry.queues.retain(|queue| queue.strong_count() > 0);
        registry.queues.push(Arc::downgrade(queue));
        self.env.metering.register(queue);
        Ok(())
    }

    /// Z1 to Z3: closes every queue. Whoever finds the last item gone stops the pools.
    fn begin_shutdown(&self) {
        self.registry.lock().shut = true;
        // No queue is added after the flag, so these are all. What is held runs.
        self.change_freezes(|settings| settings.ended = true);
        self.queues().iter().for_each(|queue| queue.shut());
        let pools = self.pools.all().into_iter();
        let bh = pools.filter(|pool| pool.place().bh);
        bh.for_each(|pool| pool.relieve_poller());
        self.env.timekeeper.close();
        self.registry.lock().closed = true;
        self.queue_is_idle();
    }

    /// The end has begun.
    pub(crate) fn is_shut(&self) -> bool {
        self.registry.lock().shut
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
        let pools = self.pools.all();
        pools.iter().for_each(|pool| pool.stop());
        queues.iter().for_each(|queue| queue.dismiss_rescuer());
        self.env.timekeeper.stop();
        self.event.notify_all();
    }

    /// Whether the caller is one of the system's threads, or its call is one of the items: the
    /// system's end would wait for it.
    fn is_inside(&self) -> bool {
        let called = || self.queues().iter().any(|q| worker::runs_item_of(q.key()));
        worker::belongs_to(&self.env) || called()
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
        if shared.registry.lock().given_up || shared.is_inside() {
            return;
        }
        shared.event.wait_while(|| !shared.is_stopped());
        shared.join(None);
    }
}

impl WorkqueueSystem {
    pub(crate) fn new(env: Env, settings: Settings) -> Self {
        let shared = Arc::new(Shared::new(env, settings));
        let handle = Arc::new(Handle { shared });
        Self { handle }
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn queues(&self) -> Vec<Arc<door::Shared>> {
        self.handle.shared.queues()
    }

    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn pools(&self) -> Vec<Arc<Pool>> {
        self.handle.shared.pools.all()
    }

    /// A system to be described.
    ///
    /// ```
    /// let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// # Ok::<(), inflight_workqueue::SystemError>(())
    /// ```
    pub fn builder() -> SystemBuilder {
        SystemBuilder::new()
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
        WorkqueueDraft::new(self.handle.shared.clone(), name.into())
    }

    /// Shuts the system down now, whoever else holds handles, and waits at most for `limit` on its
    /// clock.
    ///
    /// On success everything that was queued has ended, and so have the worker threads, whoever
    /// else shuts down at the same time. Else the items that are left still run, and dropping the
    /// last handle no longer waits for them. Called on one of the system's own workers, or inside a
    /// [`call`](crate::Workqueue::call), it does not wait at all. The limit does not cover
    /// destructors of the items' thread locals, which run while the threads are joined.
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
        let inside = shared.is_inside();
        let clock = &shared.env.clock;
        let running = || !shared.is_stopped();
        let ended = !inside
            && shared.event.wait_while_until(clock, deadline, running)
            && shared.join(Some(deadline));
        if ended {
            return Ok(());
        }
        shared.registry.lock().given_up = true;
        Err(shared.leftover(inside))
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

    /// Begins to measure the CPU time that the items of each queue use, as
    /// [`SystemBuilder::cpu_time`](crate::SystemBuilder::cpu_time) does from the start.
    ///
    /// What was used before is not charged. It cannot be switched off. Without effect where CPU
    /// times of threads cannot be read, and with a manual clock.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("jobs").bound().build()?;
    /// assert_eq!(wq.stats().cpu_time, None);
    /// sys.measure_cpu_time();
    /// # if cfg!(target_os = "linux") {
    /// assert!(wq.stats().cpu_time.is_some());
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn measure_cpu_time(&self) {
        let shared = &self.handle.shared;
        if shared.env.metering.switch_on(&shared.env.clock) {
            // What the threads have used until now is noted, and nobody's.
            let pools = shared.pools.all();
            pools.iter().for_each(|pool| pool.read_meter());
        }
    }

    /// Shows this system on a Unix socket at `path`, to `inflight-wq` and to
    /// [`serve::ask`](crate::serve::ask), until the value returned is dropped.
    ///
    /// The socket's mode is 0600: only this user and root can ask, and change limits. A socket that
    /// a process left there when it ended is replaced; anything else that has the name is
    /// not. Begins to [measure](WorkqueueSystem::measure_cpu_time) CPU time, which clients
    /// show. The server does not keep the system alive, and goes on when it has ended. It has a
    /// thread of its own; no worker waits for a client.
    ///
    /// # Errors
    ///
    /// [`ServeError`](crate::serve::ServeError): the name is taken, or socket or thread cannot be
    /// had.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let dir = tempfile::tempdir()?;
    /// let sys = WorkqueueSystem::builder().build()?;
    /// let _server = sys.serve(dir.path().join("wq"))?; // inflight-wq --socket DIR/wq monitor
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(all(feature = "serve", target_os = "linux", not(any(loom, shuttle))))]
    pub fn serve(
        &self,
        path: impl AsRef<std::path::Path>,
    ) -> Result<crate::serve::Server, crate::serve::ServeError> {
        let server = crate::serve::Server::start(&self.handle.shared, path.as_ref())?;
        self.measure_cpu_time();
        Ok(server)
    }

    /// A poller of the BH queues of that CPU: their items run on the thread that polls. `notify` is
    /// called, on any thread, when there is something to poll for: it should be quick and wake the
    /// loop, by an eventfd for instance. A panic of it is ignored.
    ///
    /// # Errors
    ///
    /// [`PollerError`]: the CPU has a poller, the number is no CPU's, there is no thread to ask
    /// whether the poller is late, or the system ends.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let mut poller = sys.bh_poller(0, || ())?;
    /// assert_eq!(poller.poll(10).ran, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bh_poller(
        &self,
        cpu: usize,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Result<BhPoller, PollerError> {
        let notify: Notify = Arc::new(Box::new(notify));
        BhPoller::new(&self.handle.shared, cpu, &notify)
    }

    /// Holds all [`freezable`](crate::WorkqueueBuilder::freezable) queues until the value is
    /// dropped: none of their items starts. Returns at once; items that were active already run to
    /// their end ([`Frozen::is_busy`]).
    ///
    /// Items are taken, and wait. A flush of such a queue, and of an item in it, ends after the
    /// thaw; `cancel_sync` of a held item works. Queues that are made meanwhile are held from the
    /// start. Freezes may overlap. The end of the system lets everything go.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("writeback").bound().freezable().build()?;
    /// let frozen = sys.freeze();
    /// let handle = wq.spawn(|| ());
    /// assert_eq!(wq.stats().active, 0);
    /// drop(frozen);
    /// handle.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn freeze(&self) -> Frozen {
        Frozen::new(&self.handle.shared)
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
    ///
    /// ```
    /// # use inflight_topology::{CpuSet, Topology};
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let topo = Topology::synthetic("core:4")?;
    /// let sys = WorkqueueSystem::builder().topology(topo).build()?;
    /// sys.set_unbound_cpumask(&CpuSet::from([2, 3]))?;
    /// assert_eq!(sys.unbound_cpumask(), CpuSet::from([2, 3]));
    /// assert!(sys.set_unbound_cpumask(&CpuSet::from([4])).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_unbound_cpumask(&self, cpus: &CpuSet) -> Result<(), AttrsError> {
        self.handle.shared.reconfigure(|settings| {
            if cpus.is_disjoint(settings.topology.allowed()) {
                return Err(AttrsError::NoCpu);
            }
            settings.unbound = Some(cpus.clone());
            Ok(())
        })
    }

    /// The CPUs that unbound queues use.
    ///
    /// ```
    /// # use inflight_topology::Topology;
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let topo = Topology::synthetic("core:4 isolated:3")?;
    /// let sys = WorkqueueSystem::builder().topology(topo).build()?;
    /// assert_eq!(sys.unbound_cpumask().to_string(), "0-2");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn unbound_cpumask(&self) -> CpuSet {
        self.handle.shared.settings.lock().unbound_cpus()
    }

    /// The machine has changed: CPUs have gone, or come back. `topology` is what
    /// [`Topology::refresh`] has found; the system does not look by itself.
    ///
    /// Unbound queues go over to the pools that their attributes give on the new machine, all or
    /// nothing, as [`set_attrs`](crate::Workqueue::set_attrs) does for one. Bound queues, BH queues
    /// among them, have a pool for each CPU that was [possible](Topology::possible) when they were
    /// made: while its CPU is away, its workers run where the system lets them, and each is pinned
    /// before the first item it runs after the CPU has come, be it again or for the first time.
    /// Items queued on a CPU that was not even possible then have another one stand in. So it is
    /// for unbound queues with CPUs that were not there when they were made.
    ///
    /// # Errors
    ///
    /// [`AttrsError::NoWorker`] if a pool that is needed at once can get no thread. All goes on
    /// as before, and the call can be repeated.
    ///
    /// ```
    /// # use inflight_topology::{Refresh, Topology};
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let topo = Topology::discover()?;
    /// let sys = WorkqueueSystem::builder().topology(&topo).build()?;
    /// if let Refresh::Changed(now) = topo.refresh()? {
    ///     sys.refresh(&now)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn refresh(&self, topology: &Topology) -> Result<(), AttrsError> {
        self.handle.shared.reconfigure(|settings| {
            settings.topology = topology.clone();
            Ok(())
        })
    }

    /// Changes the scope of unbound queues whose [`Attrs`] name none, all or nothing.
    ///
    /// # Errors
    ///
    /// [`AttrsError::NoWorker`] if a pool that is needed at once can get no thread.
    ///
    /// ```
    /// # use inflight_topology::Scope;
    /// # use inflight_workqueue::WorkqueueSystem;
    /// let sys = WorkqueueSystem::builder().build()?;
    /// sys.set_default_scope(Scope::Numa)?;
    /// assert!(sys.dump().contains("NUMA (default)"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_default_scope(&self, scope: Scope) -> Result<(), AttrsError> {
        self.handle.shared.reconfigure(|settings| {
            settings.default_scope = scope;
            Ok(())
        })
    }

    /// The system as text for a person: the machine, the pools, where the queues' items go, and
    /// what they do now. The form may change.
    ///
    /// The first five sections are those of the kernel's `wq_dump` tool; `docs/wq-tools.md`
    /// explains each line. Its parts are true at moments close to each other.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("events").bound().build()?;
    /// assert!(sys.dump().contains("Worker Pools"));
    /// assert!(sys.dump().contains("queue events bound"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn dump(&self) -> String {
        self.handle.shared.dump()
    }
}

#[cfg(loom)]
#[doc(hidden)]
impl WorkqueueSystem {
    /// How many pools there are.
    pub fn pool_count(&self) -> usize {
        self.handle.shared.pools.all().len()
    }

    /// How many workers are idle.
    pub fn idle_count(&self) -> usize {
        let pools = self.handle.shared.pools.all();
        pools.iter().map(|pool| pool.state_now().idle).sum()
    }

    /// L2 and L3 by a model's hand: every worker that holds others back is seen asleep, or
    /// computing for long, whatever it does. Returns whether that was news of any.
    pub fn look(&self, asleep: bool) -> bool {
        let pools = self.handle.shared.pools.all();
        pools.iter().any(|pool| {
            let suspects = pool.suspects().unwrap_or_default().into_iter();
            let seen = suspects.map(|s| {
                let finding = if asleep {
                    Finding::Asleep
                } else {
                    Finding::Intensive
                };
                (s.worker, s.turn, finding)
            });
            pool.found(seen.collect())
        })
    }
}

impl fmt::Debug for WorkqueueSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.handle.shared;
        f.debug_struct("WorkqueueSystem")
            .field("pools", &shared.pools.all().len())
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

    /// Whether the caller was one of the system's own workers, or inside a
    /// [`call`](crate::Workqueue::call), whose end cannot be waited for.
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
