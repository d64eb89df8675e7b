//! The system: its pools, its queues, and its shutdown.

use crate::attrs::Attrs;
use crate::completion::Completion;
use crate::current::{self, Running};
use crate::error::{AttrsError, BuildError, QueueError};
use crate::leftover::Leftover;
use crate::pool_attrs::{PoolAttrs, Settings};
use crate::system_shared::SystemShared;
use crate::threads;
use crate::watchdog::Watch;
use crate::worker_pool::{Overloaded, QueueDeferred, Siblings, WorkerPool};
use crate::workqueue::{Handle, Workqueue};
use crate::workqueue_inner::{QueueHost, WorkqueueInner};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, Mutex, Weak};
use inflight_topology::Topology;
use std::collections::BTreeMap;

pub(crate) struct SystemInner {
    pub(crate) shared: Arc<SystemShared>,
    /// The first lock in the lock order.
    pub(crate) settings: Mutex<Settings>,
    pools: Mutex<Pools>,
    registry: Mutex<Registry>,
    /// Done when the last thread has been joined.
    joined: Completion,
    /// The system queues, by name. Cleared when the last handle is dropped.
    pub(crate) system_queues: Mutex<BTreeMap<&'static str, Workqueue>>,
}

/// The pools of a system. Their pwqs keep them alive.
#[derive(Default)]
struct Pools {
    all: Vec<Weak<WorkerPool>>,
    made: usize,
    /// They do not know their siblings yet.
    new: Vec<Weak<WorkerPool>>,
    overloaded: Arc<Overloaded>,
}

impl Pools {
    fn live(&self) -> impl Iterator<Item = Arc<WorkerPool>> {
        self.all.iter().filter_map(Weak::upgrade)
    }
}

#[derive(Default)]
struct Registry {
    queues: Vec<Weak<WorkqueueInner>>,
    /// Those that have a handle.
    handles: Vec<Weak<Handle>>,
    /// Shutdown has begun: no queue is added.
    shut: bool,
    /// No queue accepts items any more: an idle queue stays idle.
    closed: bool,
    /// A timed shutdown has returned with items left: the drop does not wait.
    given_up: bool,
}

impl Registry {
    fn queues(&self) -> Vec<Arc<WorkqueueInner>> {
        self.queues.iter().filter_map(Weak::upgrade).collect()
    }
}

impl SystemInner {
    pub(crate) fn new(
        shared: impl FnOnce(Weak<Self>) -> SystemShared,
        settings: Settings,
    ) -> Arc<Self> {
        Arc::new_cyclic(|system| Self {
            shared: Arc::new(shared(system.clone())),
            settings: Mutex::new(settings),
            pools: Mutex::default(),
            registry: Mutex::default(),
            joined: Completion::new(1),
            system_queues: Mutex::default(),
        })
    }

    /// The pools that are in use, by their numbers.
    pub(crate) fn pools(&self) -> Vec<Arc<WorkerPool>> {
        let mut pools = self.all_pools();
        pools.retain(|pool| pool.is_in_use());
        pools.sort_by_key(|pool| pool.id);
        pools
    }

    fn all_pools(&self) -> Vec<Arc<WorkerPool>> {
        self.pools.lock().live().collect()
    }

    fn watch(self: &Arc<Self>, at: Instant) {
        if !self.shared.watchdog.disarm(at) {
            return; // The threshold has been changed.
        }
        let (pools, queues) = (self.pools(), self.queues());
        let waiting = pools.iter().filter_map(|pool| pool.waiting());
        let starved = queues.iter().filter_map(|queue| queue.starved());
        let places = waiting.chain(starved).collect();
        let shared = &self.shared;
        let mut report = |report| shared.report(report);
        shared
            .watchdog
            .tick(shared.clock.now(), places, &mut report);
        self.arm_watchdog_for_items();
    }

    /// Plans a tick if there are items; later items plan it themselves.
    pub(crate) fn arm_watchdog_for_items(self: &Arc<Self>) {
        if self.queues().iter().any(|queue| queue.items() > 0) {
            self.clone().arm_watchdog();
        }
    }

    pub(crate) fn queues(&self) -> Vec<Arc<WorkqueueInner>> {
        self.registry.lock().queues()
    }

    pub(crate) fn handles(&self) -> Vec<Workqueue> {
        let registry = self.registry.lock();
        let handles = registry.handles.iter();
        handles
            .filter_map(Weak::upgrade)
            .map(Workqueue::of)
            .collect()
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    /// Makes a queue from the settings, and registers it for changes of them.
    pub(crate) fn register(
        &self,
        make: impl FnOnce(&Settings) -> Arc<WorkqueueInner>,
    ) -> Result<Workqueue, BuildError> {
        let settings = self.settings.lock();
        // If it is refused, dropping the handle removes its pwqs and its rescuer.
        let handle = Workqueue::new(make(&settings));
        let queue = handle.inner();
        let shut = {
            let mut registry = self.registry.lock();
            if !registry.shut {
                registry.queues.retain(|queue| queue.strong_count() > 0);
                registry.queues.push(Arc::downgrade(queue));
                registry.handles.retain(|held| held.strong_count() > 0);
                registry.handles.push(Arc::downgrade(handle.handle()));
            }
            registry.shut
        };
        if !shut {
            let metering = &self.shared.metering;
            metering.register(queue.number, &queue.cpu_time_ns);
        }
        drop(settings);
        if shut {
            return Err(BuildError::ShutDown);
        }
        handle.inner().make_pwqs()?;
        self.introduce_newcomers(&mut QueueDeferred::default());
        Ok(handle)
    }

    /// *shutdown*: closes every queue. Who finds nothing in flight any more stops the pools.
    pub(crate) fn begin_shutdown(self: &Arc<Self>) {
        self.registry.lock().shut = true;
        // No queue is added after the flag, so these are all. Frozen items run.
        self.change_freezes(|settings| settings.ended = true);
        self.queues().iter().for_each(|queue| queue.shut_down());
        self.pools().iter().for_each(|pool| pool.relieve_poller());
        self.shared.timers.close();
        self.registry.lock().closed = true;
        self.queue_is_idle();
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.registry.lock().shut
    }

    /// Whether the caller is a thread of the system, or runs an item: it would wait for itself.
    pub(crate) fn is_inside(&self) -> bool {
        let of_this = |running: &Running| Arc::ptr_eq(&running.pwq().wq.shared, &self.shared);
        self.shared.is_own_thread() || current::runs(of_this)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.threads.lock().stopped
    }

    /// Waits until nothing is in flight and all threads have ended.
    pub(crate) async fn ended(self: Arc<Self>) {
        let _ = self.shared.ended.wait_unless(|| Ok(())).await;
        let is_first = !std::mem::replace(&mut self.shared.threads.lock().joining, true);
        if is_first {
            let last = self.shared.threads.lock().left.take();
            threads::join(last);
            self.joined.done();
        } else {
            let _ = self.joined.wait_unless(|| Ok(())).await;
        }
    }

    pub(crate) fn give_up(&self) {
        self.registry.lock().given_up = true;
    }

    pub(crate) fn has_given_up(&self) -> bool {
        self.registry.lock().given_up
    }

    pub(crate) fn leftover(&self, own_worker: bool) -> Leftover {
        let queues = self.queues().into_iter().filter_map(|queue| {
            let items = queue.items() as u64;
            (items > 0).then(|| (queue.name.to_owned(), items))
        });
        Leftover::new(queues.collect(), own_worker)
    }
}

impl Watch for SystemInner {
    fn arm_watchdog(self: Arc<Self>) {
        let shared = &self.shared;
        let Some(at) = shared.watchdog.arm(&shared.clock) else {
            return;
        };
        let system = self.clone();
        let planned = shared.set_duty(at, move || system.watch(at));
        if !planned {
            shared.watchdog.disarm(at); // The next item tries again.
        }
    }
}

impl QueueHost for SystemInner {
    fn shared(&self) -> &Arc<SystemShared> {
        &self.shared
    }

    fn pool(&self, attrs: &PoolAttrs, machine: &Topology) -> Arc<WorkerPool> {
        let mut pools = self.pools.lock();
        pools.all.retain(|pool| pool.strong_count() > 0);
        if let Some(known) = pools.live().find(|pool| pool.attrs == *attrs) {
            return known;
        }
        let pool = WorkerPool::new(attrs.clone(), machine, pools.made, &self.shared);
        pools.made += 1;
        pools.all.push(Arc::downgrade(&pool));
        if attrs.may_have_siblings() {
            self.shared.submitters.tell(attrs.cpus.clone(), &pool.hint);
            pools.new.push(Arc::downgrade(&pool));
        }
        pool
    }

    fn introduce_newcomers(&self, deferred: &mut QueueDeferred) {
        let mut pools = self.pools.lock();
        let new = std::mem::take(&mut pools.new);
        let new: Vec<_> = new.iter().filter_map(Weak::upgrade).collect();
        if new.is_empty() {
            return;
        }
        let all: Vec<_> = pools.live().collect();
        // There may be many pools that no queue uses any more. They need not meet anybody.
        let meets = |pool: &&Arc<WorkerPool>| {
            let mut new = new.iter();
            new.any(|new| Arc::ptr_eq(new, pool) || new.attrs.is_sibling_of(&pool.attrs))
        };
        for pool in all.iter().filter(meets) {
            let others = all.iter().filter(|p| p.attrs.is_sibling_of(&pool.attrs));
            let others: Vec<_> = others.cloned().collect();
            let siblings = Siblings::new(pool, &others, &pools.overloaded);
            pool.meet(siblings, deferred);
        }
    }

    /// A closed queue has become idle. If all queues are, stops the workers.
    ///
    /// Only once all queues are closed: a queue that is not closed could be idle now and get an
    /// item later, without a worker to run it. Closed queues stay idle, so of the threads that end
    /// the last items, the last one finds all queues idle.
    fn queue_is_idle(&self) {
        let queues = {
            let registry = self.registry.lock();
            if !registry.closed {
                return; // The thread that closes the last queue checks afterwards.
            }
            registry.queues()
        };
        if !queues.iter().all(|queue| queue.is_idle()) {
            return;
        }
        if std::mem::replace(&mut self.shared.threads.lock().stopped, true) {
            return;
        }
        for queue in &queues {
            queue.unfinished.end(QueueError::ShutDown);
            queue.dismiss_rescuer();
        }
        self.all_pools().iter().for_each(|pool| pool.stop());
        self.shared.timers.stop();
        self.shared.reporter.inbox.stop();
        self.shared.ended.done();
    }

    fn set_attrs(
        &self,
        queue: &Arc<WorkqueueInner>,
        attrs: Attrs,
        expected: Option<&Attrs>,
    ) -> Result<bool, AttrsError> {
        if queue.mode.is_bound() {
            return Err(AttrsError::NotUnbound);
        }
        let mut deferred = QueueDeferred::default();
        let settings = self.settings.lock();
        if self.is_stopped() {
            return Err(AttrsError::ShutDown);
        }
        attrs.check()?;
        if expected.is_some_and(|expected| *expected != queue.attrs()) {
            return Ok(false);
        }
        if let Some(prepared) = queue.prepare(attrs, &settings, &mut deferred)? {
            prepared.commit(&settings, &mut deferred);
        }
        Ok(true)
    }
}
