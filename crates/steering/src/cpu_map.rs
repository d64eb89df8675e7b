//! Which CPUs share a done list: a map for each topology, and the shards that all maps share.

use crate::done_list::Batch;
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
    /// The user closed it: it stays closed when it is in a map again.
    closed: bool,
}

/// Done lists that were closed, and what was in them: the caller runs it without the lock.
pub(crate) type Left<I> = Vec<(Batch<I>, Arc<Shard<I>>)>;

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

impl<I: Item> Known<I> {
    /// M4.
    fn shut(&self) -> (Batch<I>, Arc<Shard<I>>) {
        (self.list.shard.close(), self.list.shard.clone())
    }

    fn close(&mut self) -> (Batch<I>, Arc<Shard<I>>) {
        self.closed = true;
        self.shut()
    }
}

impl<I: Item> Shards<I> {
    pub(crate) fn new(lists: &[ShardRef<I>]) -> Self {
        let mut shards = Self {
            known: Vec::new(),
            closed: false,
        };
        shards.add(lists);
        shards.follow(lists);
        shards
    }

    /// Makes the new ones known. Before their map is published: nothing is in them yet, and whoever
    /// closes a shard of a map finds it here.
    pub(crate) fn add(&mut self, lists: &[ShardRef<I>]) {
        for list in lists {
            let is_known = |known: &Known<I>| Arc::ptr_eq(&known.list.shard, &list.shard);
            if !self.known.iter().any(is_known) {
                if self.closed {
                    drop(list.shard.close());
                }
                self.known.push(Known {
                    list: list.of(list.cpus.clone()),
                    posted: false,
                    closed: self.closed,
                });
            }
        }
    }

    /// Opens those that are in the present map, unless the user closed them, and closes those that
    /// have left it.
    pub(crate) fn follow(&mut self, lists: &[ShardRef<I>]) -> Left<I> {
        let mut left = Vec::new();
        for known in &mut self.known {
            let same = |list: &&ShardRef<I>| Arc::ptr_eq(&list.shard, &known.list.shard);
            let now = lists.iter().find(same);
            if let Some(list) = now {
                known.list.cpus = list.cpus.clone();
                if !known.posted && !known.closed {
                    known.list.shard.open();
                }
            } else if known.posted {
                left.push(known.shut());
            }
            known.posted = now.is_some();
        }
        left
    }

    /// Closes all, and those that are added later.
    pub(crate) fn close_all(&mut self) -> Left<I> {
        self.closed = true;
        self.known.iter_mut().map(Known::close).collect()
    }

    /// Closes one of them.
    pub(crate) fn close(&mut self, shard: &Arc<Shard<I>>) -> Left<I> {
        self.find(shard).map(Known::close).into_iter().collect()
    }

    /// Opens one of them, now or when it is in a map again.
    pub(crate) fn open(&mut self, shard: &Arc<Shard<I>>) {
        if let Some(known) = self.find(shard) {
            known.closed = false;
            if known.posted {
                known.list.shard.open();
            }
        }
    }

    fn find(&mut self, shard: &Arc<Shard<I>>) -> Option<&mut Known<I>> {
        let mut known = self.known.iter_mut();
        known.find(|known| Arc::ptr_eq(&known.list.shard, shard))
    }
}
