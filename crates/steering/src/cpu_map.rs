//! Which CPUs share a mailbox: a map for each topology, and what is kept from one to the next.

use crate::item::{Item, TenantId};
use crate::shard::{Core, MailboxRef, Panic, Shard, first_of};
use crate::sink::CompletionSink;
use crate::stats::{ShardStats, SteeringStats};
use inflight_sync::{Arc, Mutex, Versions};
use inflight_topology::{Scope, Topology};

/// What is left to do: runs what was in mailboxes that are closed.
///
/// # Errors
/// The first panic of a callback, after all have been called.
pub type Leftover = Box<dyn FnOnce() -> Result<(), Panic>>;

const NONE: u32 = u32::MAX;

pub(crate) struct CpuMap<I: Item> {
    pub(crate) topology: Topology,
    /// The mailbox of each CPU; `NONE` if the topology does not know it.
    mailbox_of: Box<[u32]>,
    mailboxes: Box<[MailboxRef<I>]>,
}

impl<I: Item> CpuMap<I> {
    fn new(topology: Topology, mailboxes: Box<[MailboxRef<I>]>) -> Self {
        let cpus = mailboxes.iter().filter_map(|mailbox| mailbox.cpus.last());
        let mut mailbox_of = vec![NONE; cpus.max().map_or(0, |last| last + 1)];
        for (index, mailbox) in mailboxes.iter().enumerate() {
            for cpu in &mailbox.cpus {
                mailbox_of[cpu] = index as u32;
            }
        }
        Self {
            topology,
            mailbox_of: mailbox_of.into(),
            mailboxes,
        }
    }

    pub(crate) fn mailbox(&self, cpu: usize) -> Option<&MailboxRef<I>> {
        let mailbox = *self.mailbox_of.get(cpu)?;
        (mailbox != NONE).then(|| &self.mailboxes[mailbox as usize])
    }

    /// Where what is seen on a CPU is counted.
    pub(crate) fn counting(&self, cpu: usize) -> &Shard<I> {
        &self.mailbox(cpu).unwrap_or(&self.mailboxes[0]).shard
    }

    pub(crate) fn is_one_shard(&self) -> bool {
        self.mailboxes.len() == 1
    }
}

/// The shards of some completions, by map.
pub(crate) struct CpuMaps<I: Item> {
    core: Arc<Core<I>>,
    scope: Scope,
    sink: Box<dyn CompletionSink>,
    map: Versions<CpuMap<I>>,
    shards: Mutex<Shards<I>>,
}

/// All that there have been.
struct Shards<I: Item> {
    known: Vec<Known<I>>,
    /// Those that come later are closed too.
    closed: bool,
}

struct Known<I: Item> {
    /// With the CPUs it serves, or served last.
    mailbox: MailboxRef<I>,
    /// It is in the present map. Else its mailbox is closed until it is in one again.
    posted: bool,
}

/// The mailboxes of a topology: each pod gets the shard that has served most of its CPUs and that
/// no other pod got, or a new one.
fn mailboxes<I: Item>(
    pods: &Topology,
    scope: Scope,
    known: &[MailboxRef<I>],
    core: &Arc<Core<I>>,
    sink: &dyn CompletionSink,
) -> Box<[MailboxRef<I>]> {
    let mut left: Vec<&MailboxRef<I>> = known.iter().collect();
    let mailbox = |cpus: &inflight_topology::CpuSet| {
        let common = |mailbox: &MailboxRef<I>| {
            mailbox
                .cpus
                .iter()
                .filter(|&cpu| cpus.contains(cpu))
                .count()
        };
        let best = (0..left.len()).max_by_key(|&n| (common(left[n]), std::cmp::Reverse(n)));
        if let Some(best) = best.filter(|&n| common(left[n]) > 0) {
            let mailbox = left.remove(best);
            return mailbox.of(cpus.clone());
        }
        let shard = Arc::new(Shard::new());
        let runner = sink.runner(cpus, core.handle(&shard)).map(Arc::from);
        MailboxRef {
            cpus: cpus.clone(),
            shard,
            runner,
        }
    };
    pods.pods(scope)
        .iter()
        .map(|pod| pod.cpus())
        .map(mailbox)
        .collect()
}

impl<I: Item> CpuMaps<I> {
    pub(crate) fn new(
        core: Arc<Core<I>>,
        topology: Topology,
        scope: Scope,
        sink: Box<dyn CompletionSink>,
    ) -> Self {
        let mailboxes = mailboxes(&topology, scope, &[], &core, &*sink);
        let known = |mailbox: &MailboxRef<I>| Known {
            mailbox: mailbox.of(mailbox.cpus.clone()),
            posted: true,
        };
        let shards = Shards {
            known: mailboxes.iter().map(known).collect(),
            closed: false,
        };
        Self {
            core,
            scope,
            sink,
            map: Versions::new(CpuMap::new(topology, mailboxes)),
            shards: Mutex::new(shards),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core<I>> {
        &self.core
    }

    #[inline]
    pub(crate) fn current(&self) -> &CpuMap<I> {
        self.map.current()
    }

    /// From now on by this topology. One call at a time. A shard whose CPUs are gone is closed.
    pub(crate) fn refresh(&self, topology: &Topology) -> Leftover {
        if self.current().topology == *topology {
            return Box::new(|| Ok(()));
        }
        self.map.replace(
            |map| map.topology == *topology,
            || {
                let known: Vec<MailboxRef<I>> = {
                    let shards = self.shards.lock();
                    let mailboxes = shards.known.iter().map(|known| &known.mailbox);
                    mailboxes
                        .map(|mailbox| mailbox.of(mailbox.cpus.clone()))
                        .collect()
                };
                let mailboxes = mailboxes(topology, self.scope, &known, &self.core, &*self.sink);
                CpuMap::new(topology.clone(), mailboxes)
            },
        );
        let left = self.shards.lock().follow(&self.current().mailboxes);
        // M4 now, before the next refresh may open them.
        let left = left.into_iter().map(|shard| (shard.close(), shard));
        let (left, core) = (left.collect::<Vec<_>>(), self.core.clone());
        Box::new(move || {
            first_of(left.into_iter().map(|(batch, shard)| {
                let panic = core.run_batch(&shard, batch);
                panic.map_or(Ok(()), Err)
            }))
        })
    }

    pub(crate) fn forget(&self, tenants: &[TenantId]) {
        for known in &self.shards.lock().known {
            tenants
                .iter()
                .for_each(|&tenant| known.mailbox.shard.forget(tenant));
        }
    }

    /// Closes all, also those that are to come.
    ///
    /// # Errors
    /// The first panic of a callback, after all have been called.
    pub(crate) fn close(&self) -> Result<(), Panic> {
        let shards: Vec<_> = {
            let mut shards = self.shards.lock();
            shards.closed = true;
            let known = shards.known.iter();
            known.map(|known| known.mailbox.shard.clone()).collect()
        };
        first_of(shards.iter().map(|shard| self.core.close(shard)))
    }

    pub(crate) fn stats(&self, tenant: Option<TenantId>) -> SteeringStats {
        let mut sum = SteeringStats::default();
        for known in &self.shards.lock().known {
            let shard = &known.mailbox.shard;
            sum.add(&tenant.map_or_else(|| shard.stats(), |tenant| shard.stats_of(tenant)));
        }
        sum
    }

    pub(crate) fn shard_stats(&self) -> Vec<ShardStats> {
        let shards = self.shards.lock();
        let of = |known: &Known<I>| ShardStats {
            cpus: known.mailbox.cpus.clone(),
            stats: known.mailbox.shard.stats(),
        };
        shards.known.iter().map(of).collect()
    }
}

impl<I: Item> Shards<I> {
    /// Opens those that are back and makes the new ones known. Those that have left now.
    fn follow(&mut self, mailboxes: &[MailboxRef<I>]) -> Vec<Arc<Shard<I>>> {
        let mut left = Vec::new();
        for known in &mut self.known {
            let same = |mailbox: &&MailboxRef<I>| Arc::ptr_eq(&mailbox.shard, &known.mailbox.shard);
            let now = mailboxes.iter().find(same);
            if let Some(mailbox) = now {
                known.mailbox.cpus = mailbox.cpus.clone();
                if !known.posted && !self.closed {
                    known.mailbox.shard.open();
                }
            } else if known.posted {
                left.push(known.mailbox.shard.clone());
            }
            known.posted = now.is_some();
        }
        for mailbox in mailboxes {
            let is_known = |known: &Known<I>| Arc::ptr_eq(&known.mailbox.shard, &mailbox.shard);
            if !self.known.iter().any(is_known) {
                if self.closed {
                    // It is new and empty.
                    drop(mailbox.shard.close());
                }
                self.known.push(Known {
                    mailbox: mailbox.of(mailbox.cpus.clone()),
                    posted: true,
                });
            }
        }
        left
    }
}
