//! Which CPUs share a done list: a map for each topology, and the shards that all maps share.

use crate::item::{Item, TenantId};
use crate::shard::{Core, Shard, ShardRef};
use crate::sink::CompletionSink;
use crate::stats::{ShardStats, SteeringStats};
use inflight_sync::panics::FirstPanic;
use inflight_sync::{Arc, Mutex, RetainedVersions};
use inflight_topology::{Scope, Topology};

/// Work for the caller: runs the completions of done lists that were closed.
///
/// # Panics
/// With the first panic of a callback, after all have been called.
pub type Leftover = Box<dyn FnOnce()>;

const NONE: u32 = u32::MAX;

pub(crate) struct ShardMap<I: Item> {
    pub(crate) topology: Topology,
    /// The done list of each CPU; `NONE` if the topology does not know it.
    list_of: Box<[u32]>,
    lists: Box<[ShardRef<I>]>,
}

impl<I: Item> ShardMap<I> {
    fn new(topology: Topology, lists: Box<[ShardRef<I>]>) -> Self {
        let cpus = lists.iter().filter_map(|list| list.cpus.last());
        let mut list_of = vec![NONE; cpus.max().map_or(0, |last| last + 1)];
        for (index, list) in lists.iter().enumerate() {
            for cpu in &list.cpus {
                list_of[cpu] = index as u32;
            }
        }
        Self {
            topology,
            list_of: list_of.into(),
            lists,
        }
    }

    pub(crate) fn done_list(&self, cpu: usize) -> Option<&ShardRef<I>> {
        let list = *self.list_of.get(cpu)?;
        (list != NONE).then(|| &self.lists[list as usize])
    }

    /// Returns the shard that counts the completions seen on a CPU.
    pub(crate) fn counting(&self, cpu: usize) -> &Shard<I> {
        &self.done_list(cpu).unwrap_or(&self.lists[0]).shard
    }

    pub(crate) fn is_one_shard(&self) -> bool {
        self.lists.len() == 1
    }
}

/// The shards of some completions, by map.
pub(crate) struct CpuMaps<I: Item> {
    core: Arc<Core<I>>,
    scope: Scope,
    sink: Box<dyn CompletionSink>,
    map: RetainedVersions<ShardMap<I>>,
    shards: Mutex<Shards<I>>,
}

/// All shards there have been.
struct Shards<I: Item> {
    known: Vec<Known<I>>,
    /// Shards that are added later are closed too.
    closed: bool,
}

struct Known<I: Item> {
    /// With the CPUs that it serves, or served last.
    list: ShardRef<I>,
    /// It is in the present map. Otherwise its done list is closed until it is in a map again.
    posted: bool,
}

/// The done lists of a topology: each pod gets the shard that has served most of its CPUs and that
/// no other pod got, or a new one.
fn lists<I: Item>(
    pods: &Topology,
    scope: Scope,
    known: &[ShardRef<I>],
    core: &Arc<Core<I>>,
    sink: &dyn CompletionSink,
) -> Box<[ShardRef<I>]> {
    let mut left: Vec<&ShardRef<I>> = known.iter().collect();
    let list = |cpus: &inflight_topology::CpuSet| {
        let common =
            |list: &ShardRef<I>| list.cpus.iter().filter(|&cpu| cpus.contains(cpu)).count();
        let best = (0..left.len()).max_by_key(|&n| (common(left[n]), std::cmp::Reverse(n)));
        if let Some(best) = best.filter(|&n| common(left[n]) > 0) {
            let list = left.remove(best);
            return list.of(cpus.clone());
        }
        let shard = Arc::new(Shard::new());
        let runner = sink.runner(cpus, core.handle(&shard)).map(Arc::from);
        ShardRef {
            cpus: cpus.clone(),
            shard,
            runner,
        }
    };
    pods.pods(scope)
        .iter()
        .map(|pod| pod.cpus())
        .map(list)
        .collect()
}

impl<I: Item> CpuMaps<I> {
    pub(crate) fn new(
        core: Arc<Core<I>>,
        topology: Topology,
        scope: Scope,
        sink: Box<dyn CompletionSink>,
    ) -> Self {
        let lists = lists(&topology, scope, &[], &core, &*sink);
        let known = |list: &ShardRef<I>| Known {
            list: list.of(list.cpus.clone()),
            posted: true,
        };
        let shards = Shards {
            known: lists.iter().map(known).collect(),
            closed: false,
        };
        Self {
            core,
            scope,
            sink,
            map: RetainedVersions::new(ShardMap::new(topology, lists)),
            shards: Mutex::new(shards),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core<I>> {
        &self.core
    }

    #[inline]
    pub(crate) fn current(&self) -> &ShardMap<I> {
        self.map.current()
    }

    /// Uses this topology from now on. One call at a time. A shard whose CPUs are gone is closed.
    pub(crate) fn refresh(&self, topology: &Topology) -> Leftover {
        if self.current().topology == *topology {
            return Box::new(|| ());
        }
        self.map.replace(
            |map| map.topology == *topology,
            || {
                let known: Vec<ShardRef<I>> = {
                    let shards = self.shards.lock();
                    let lists = shards.known.iter().map(|known| &known.list);
                    lists.map(|list| list.of(list.cpus.clone())).collect()
                };
                let lists = lists(topology, self.scope, &known, &self.core, &*self.sink);
                ShardMap::new(topology.clone(), lists)
            },
        );
        let left = self.shards.lock().follow(&self.current().lists);
        // M4 now, before the next refresh may open them.
        let left = left.into_iter().map(|shard| (shard.close(), shard));
        let (left, core) = (left.collect::<Vec<_>>(), self.core.clone());
        Box::new(move || {
            let mut panic = FirstPanic::default();
            for (batch, shard) in left {
                panic.run(|| core.run_batch(&shard, batch));
            }
            panic.finish();
        })
    }

    pub(crate) fn forget(&self, tenants: &[TenantId]) {
        for known in &self.shards.lock().known {
            tenants
                .iter()
                .for_each(|&tenant| known.list.shard.forget(tenant));
        }
    }

    /// Closes all shards, also those that are added later.
    ///
    /// # Panics
    /// With the first panic of a callback, after all have been called.
    pub(crate) fn close(&self) {
        let shards: Vec<_> = {
            let mut shards = self.shards.lock();
            shards.closed = true;
            let known = shards.known.iter();
            known.map(|known| known.list.shard.clone()).collect()
        };
        let mut panic = FirstPanic::default();
        for shard in &shards {
            panic.run(|| self.core.close(shard));
        }
        panic.finish();
    }

    pub(crate) fn stats(&self, tenant: Option<TenantId>) -> SteeringStats {
        let mut sum = SteeringStats::default();
        for known in &self.shards.lock().known {
            let shard = &known.list.shard;
            sum.add(tenant.map_or_else(|| shard.stats(), |tenant| shard.stats_of(tenant)));
        }
        if tenant.is_none() {
            sum.panicked = self.core.panicked();
        }
        sum
    }

    pub(crate) fn shard_stats(&self) -> Vec<ShardStats> {
        let shards = self.shards.lock();
        let of = |known: &Known<I>| ShardStats {
            cpus: known.list.cpus.clone(),
            stats: known.list.shard.stats(),
        };
        shards.known.iter().map(of).collect()
    }
}

impl<I: Item> Shards<I> {
    /// Opens those that are back and makes the new ones known. Those that have left now.
    fn follow(&mut self, lists: &[ShardRef<I>]) -> Vec<Arc<Shard<I>>> {
        let mut left = Vec::new();
        for known in &mut self.known {
            let same = |list: &&ShardRef<I>| Arc::ptr_eq(&list.shard, &known.list.shard);
            let now = lists.iter().find(same);
            if let Some(list) = now {
                known.list.cpus = list.cpus.clone();
                if !known.posted && !self.closed {
                    known.list.shard.open();
                }
            } else if known.posted {
                left.push(known.list.shard.clone());
            }
            known.posted = now.is_some();
        }
        for list in lists {
            let is_known = |known: &Known<I>| Arc::ptr_eq(&known.list.shard, &list.shard);
            if !self.known.iter().any(is_known) {
                if self.closed {
                    // It is new and empty.
                    drop(list.shard.close());
                }
                self.known.push(Known {
                    list: list.of(list.cpus.clone()),
                    posted: true,
                });
            }
        }
        left
    }
}
