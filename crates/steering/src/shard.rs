//! The shards of a set of completions: a done list each, and the code that runs its contents.

use crate::cpu_map::Left;
use crate::done_list::{Batch, DoneList};
use crate::item::{Item, TenantId};
use crate::nesting;
use crate::sink::{DoneListHandle, RunDoneList, Runner};
use crate::stats::{Batches, Counters, SteeringStats};
use inflight_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use inflight_sync::panics::{FirstPanic, call_for_each};
use inflight_sync::{Arc, CachePadded, Grown};
use inflight_topology::CpuSet;
use inflight_topology::steering::{Completion, DoneList as Seen};
use std::collections::BTreeMap;

type Callback<I> = Box<dyn Fn(I) + Send + Sync>;

/// What runs completions; workers keep it alive.
pub(crate) struct Core<I: Item> {
    callback: Callback<I>,
    panicked: AtomicU64,
}

/// The done list of some CPUs, and what was counted there.
pub(crate) struct Shard<I: Item> {
    list: CachePadded<DoneList<I>>,
    /// Calls of `run` under way.
    running: CachePadded<AtomicUsize>,
    batches: CachePadded<Batches>,
    /// By tenant.
    tenants: Grown<Counters>,
    /// Of tenants that are gone.
    former: Counters,
}

impl<I: Item> Core<I> {
    pub(crate) fn new(callback: Callback<I>) -> Self {
        Self {
            callback,
            panicked: AtomicU64::new(0),
        }
    }

    /// Callbacks that have panicked.
    pub(crate) fn panicked(&self) -> u64 {
        // Relaxed, here and where it is counted: a number nobody decides by.
        self.panicked.load(Ordering::Relaxed)
    }

    /// The done list of a shard, for its worker.
    pub(crate) fn handle(self: &Arc<Self>, shard: &Arc<Shard<I>>) -> DoneListHandle {
        DoneListHandle::new(ListHandle {
            core: self.clone(),
            shard: shard.clone(),
        })
    }

    /// Runs one completion here.
    pub(crate) fn call(&self, item: I) {
        self.run_each(std::iter::once(item));
    }

    /// Runs one completion on this thread, after the callbacks that run on it.
    pub(crate) fn defer(self: &Arc<Self>, item: I) {
        let core = self.clone();
        nesting::at_the_end(move || core.call(item));
    }

    /// Runs what is in a done list: now, unless too many callbacks are around this.
    pub(crate) fn run_soon(self: &Arc<Self>, shard: &Arc<Shard<I>>) {
        if nesting::current() < Completion::MAX_DEPTH {
            return self.run(shard);
        }
        let (core, shard) = (self.clone(), shard.clone());
        nesting::at_the_end(move || core.run(&shard));
    }

    fn run(&self, shard: &Shard<I>) {
        shard.running.fetch_add(1, Ordering::Relaxed);
        let mut panic = FirstPanic::default();
        panic.run(|| self.run_batch(shard, shard.list.take()));
        shard.running.fetch_sub(1, Ordering::Relaxed);
        panic.finish();
    }

    /// Runs what was in done lists that were closed.
    pub(crate) fn run_left(&self, left: Left<I>) {
        call_for_each(left, |(batch, shard)| self.run_batch(&shard, batch));
    }

    fn run_batch(&self, shard: &Shard<I>, batch: Batch<I>) {
        if batch.len() > 0 {
            shard.took(&batch);
            self.run_each(batch);
        }
    }

    /// Calls the callback for each, whether or not one panics; then what was put off meanwhile, and
    /// what that puts off, if this was the outermost call. Then panics with the first panic.
    fn run_each(&self, items: impl Iterator<Item = I>) {
        let mut panic = FirstPanic::default();
        let inside = nesting::enter();
        for item in items {
            if panic.run(|| (self.callback)(item)).is_none() {
                self.panicked.fetch_add(1, Ordering::Relaxed);
            }
        }
        for later in inside.leave().into_iter().flatten() {
            panic.run(later);
        }
        panic.finish();
    }
}

impl<I: Item> Shard<I> {
    pub(crate) fn new() -> Self {
        Self {
            list: CachePadded::new(DoneList::new()),
            running: CachePadded::new(AtomicUsize::new(0)),
            batches: CachePadded::new(Batches::default()),
            tenants: Grown::new(),
            former: Counters::default(),
        }
    }

    pub(crate) fn counters(&self, tenant: TenantId) -> &Counters {
        self.tenants
            .get_or_make(tenant.get() as usize, Counters::default)
    }

    fn took(&self, batch: &Batch<I>) {
        self.batches.took(batch.len());
        let Some(first) = batch.tenants().next() else {
            return;
        };
        // Mostly they are all one tenant's.
        let same = batch.tenants().take_while(|&tenant| tenant == first);
        if same.count() as u64 == batch.len() {
            return self.counters(first).took(batch.len());
        }
        let mut by_tenant = BTreeMap::new();
        for tenant in batch.tenants() {
            *by_tenant.entry(tenant).or_default() += 1;
        }
        for (tenant, n) in by_tenant {
            self.counters(tenant).took(n);
        }
    }

    /// What was counted, for all tenants.
    pub(crate) fn stats(&self) -> SteeringStats {
        let mut sum = self.former.read();
        self.tenants
            .iter()
            .for_each(|(_, tenant)| sum.add(tenant.read()));
        self.batches.read(&mut sum);
        sum
    }

    /// What was counted for one tenant.
    pub(crate) fn stats_of(&self, tenant: TenantId) -> SteeringStats {
        let counters = self.tenants.get(tenant.get() as usize);
        counters.map_or_else(SteeringStats::default, Counters::read)
    }

    /// The tenant is gone, and so are its requests.
    pub(crate) fn forget(&self, tenant: TenantId) {
        if let Some(counters) = self.tenants.get(tenant.get() as usize) {
            counters.move_to(&self.former);
        }
    }

    /// Whether somebody looks into the done list. A hint.
    pub(crate) fn state(&self, runner: &dyn Runner) -> Seen {
        if self.list.is_closed() {
            Seen::Closed
        } else if !self.list.is_empty()
            || self.running.load(Ordering::Relaxed) > 0
            || runner.is_awake()
        {
            Seen::Awake
        } else {
            Seen::Asleep
        }
    }

    /// # Errors
    /// The done list is closed.
    pub(crate) fn push(&self, item: I, counters: &Counters) -> Result<bool, I> {
        if self.list.is_closed() {
            return Err(item);
        }
        // Before the push, so that whoever sees the completion run sees it counted.
        counters.pushed();
        self.list
            .push(item, |wakes| counters.wakes(wakes))
            .inspect_err(|_| counters.not_pushed())
    }

    /// M4. What was in it.
    pub(crate) fn close(&self) -> Batch<I> {
        self.list.close()
    }

    /// M5.
    pub(crate) fn open(&self) {
        self.list.open();
    }
}

/// The done list of one shard.
struct ListHandle<I: Item> {
    core: Arc<Core<I>>,
    shard: Arc<Shard<I>>,
}

impl<I: Item> RunDoneList for ListHandle<I> {
    fn run(&self) {
        self.core.run_soon(&self.shard);
    }

    fn is_empty(&self) -> bool {
        self.shard.list.is_empty()
    }
}

/// CPUs that share a done list, in one map.
pub(crate) struct ShardRef<I: Item> {
    pub(crate) cpus: CpuSet,
    pub(crate) shard: Arc<Shard<I>>,
    /// None: nobody empties the done list, which is closed.
    pub(crate) runner: Option<Arc<dyn Runner>>,
}

impl<I: Item> ShardRef<I> {
    /// The same for other CPUs.
    pub(crate) fn of(&self, cpus: CpuSet) -> Self {
        Self {
            cpus,
            shard: self.shard.clone(),
            runner: self.runner.clone(),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::test_support::{Req, on};
    use crate::{CompletionSink, Router};
    use inflight_sync::atomic::AtomicU32;
    use inflight_sync::{Mutex, Weak};
    use inflight_topology::{Scope, Topology};

    /// A runner whose worker is the thread that wakes it.
    struct Here(DoneListHandle);
    struct AllHere;

    impl CompletionSink for AllHere {
        fn runner(&self, _: &CpuSet, list: DoneListHandle) -> Option<Box<dyn Runner>> {
            Some(Box::new(Here(list)))
        }
    }

    impl Runner for Here {
        fn wake(&self, _: usize) -> bool {
            self.0.run();
            true
        }
    }

    /// What the callbacks of a chain know.
    #[derive(Default)]
    struct Chain {
        router: Mutex<Weak<Router<Box<Req>>>>,
        depth: AtomicU32,
        deepest: AtomicU32,
        ran: AtomicU32,
    }

    #[test]
    fn a_chain_that_runs_in_its_wakes_nests_no_deeper() {
        const LENGTH: u32 = 100;
        let chain = Arc::new(Chain::default());
        let known = chain.clone();
        let topology = Topology::synthetic("cache:2 core:1").unwrap();
        let router = Router::new(topology, Scope::Cpu, AllHere, move |_: Box<Req>| {
            let depth = known.depth.fetch_add(1, Ordering::Relaxed) + 1;
            known.deepest.fetch_max(depth, Ordering::Relaxed);
            if known.ran.fetch_add(1, Ordering::Relaxed) + 1 < LENGTH {
                let router = known.router.lock().upgrade().unwrap();
                router.complete(Req::from(1));
            }
            known.depth.fetch_sub(1, Ordering::Relaxed);
        });
        let router = Arc::new(router);
        *chain.router.lock() = Arc::downgrade(&router);
        on(0, || router.complete(Req::from(1)));
        let [ran, deepest] = [&chain.ran, &chain.deepest].map(|n| n.load(Ordering::Relaxed));
        assert_eq!((ran, deepest), (LENGTH, Completion::MAX_DEPTH));
    }
}
