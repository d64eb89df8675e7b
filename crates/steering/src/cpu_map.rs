//! Which CPUs share a done list: a map for each topology, and the shards that all maps share.

use crate::item::Item;
use crate::shard::{Core, Shard, ShardRef};
use crate::sink::CompletionSink;
use inflight_sync::Arc;
use inflight_topology::{Scope, Topology};

const NONE: u32 = u32::MAX;

pub(crate) struct ShardMap<I: Item> {
    pub(crate) topology: Topology,
    /// The done list of each CPU; `NONE` if the topology does not know it.
    list_of: Box<[u32]>,
    pub(crate) lists: Box<[ShardRef<I>]>,
}

impl<I: Item> ShardMap<I> {
    pub(crate) fn new(topology: Topology, lists: Box<[ShardRef<I>]>) -> Self {
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

/// All shards there have been.
pub(crate) struct Shards<I: Item> {
    pub(crate) known: Vec<Known<I>>,
    /// Shards that are added later are closed too.
    pub(crate) closed: bool,
}

pub(crate) struct Known<I: Item> {
    /// With the CPUs that it serves, or served last.
    pub(crate) list: ShardRef<I>,
    /// It is in the present map. Otherwise its done list is closed until it is in a map again.
    posted: bool,
}

/// The done lists of a topology: each pod gets the shard that has served most of its CPUs and that
/// no other pod got, or a new one.
pub(crate) fn lists<I: Item>(
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

impl<I: Item> Shards<I> {
    pub(crate) fn new(lists: &[ShardRef<I>]) -> Self {
        let known = |list: &ShardRef<I>| Known {
            list: list.of(list.cpus.clone()),
            posted: true,
        };
        Self {
            known: lists.iter().map(known).collect(),
            closed: false,
        }
    }

    /// Opens those that are back and makes the new ones known. Those that have left now.
    pub(crate) fn follow(&mut self, lists: &[ShardRef<I>]) -> Vec<Arc<Shard<I>>> {
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
