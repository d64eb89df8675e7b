//! What the pools of a system know of each other, and how they help. `PROTOCOL-lending.md`.

use crate::lending::{Costs, Lending, Load, Notice, Pod, Reason};
use crate::pool::{Entry, Pool};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, CachePadded, Weak};
use inflight_topology::Topology;

/// How many pools of a system have waiting items that others might take. Relaxed: a hint, as
/// notices are. As long as there is none no worker looks at the others.
#[derive(Debug, Default)]
pub(crate) struct Needy(CachePadded<AtomicUsize>);

impl Needy {
    fn are_some(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// One more, or one fewer.
    fn note(&self, one: bool) {
        if one {
            self.0.fetch_add(1, Ordering::Relaxed);
        } else {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A pool and those of its system that may help it and be helped.
pub(crate) struct Peers {
    lending: Lending,
    /// Which of `all` the pool is itself.
    me: usize,
    /// In the order of their CPUs.
    all: Vec<Peer>,
    needy: Arc<Needy>,
    clock: Clock,
}

struct Peer {
    pool: Weak<Pool>,
    notice: Arc<Notice>,
}

impl Peers {
    /// `pool` among `others`.
    pub(crate) fn new(
        topology: &Topology,
        pool: &Arc<Pool>,
        mut others: Vec<Arc<Pool>>,
        needy: &Arc<Needy>,
    ) -> Self {
        others.push(pool.clone());
        others.sort_by_key(|other| other.cpus().first());
        let pods = others.iter().map(|p| Pod::new(topology, &p.cpus()));
        Self {
            lending: Lending::of(pods.collect(), Costs::default()),
            me: others
                .iter()
                .position(|p| Arc::ptr_eq(p, pool))
                .unwrap_or(0),
            all: others
                .iter()
                .map(|p| Peer {
                    pool: Arc::downgrade(p),
                    notice: p.notice().clone(),
                })
                .collect(),
            needy: needy.clone(),
            clock: pool.env().clock.clone(),
        }
    }

    fn loads(&self, mine: Load) -> Vec<Load> {
        let now = self.clock.now();
        let load = |(at, peer): (usize, &Peer)| Load {
            delay: peer.notice.delay(now),
            ..if at == self.me {
                mine
            } else {
                peer.notice.load()
            }
        };
        self.all.iter().enumerate().map(load).collect()
    }

    /// Y2: the pool, if there is one, whose worker is to be woken, instead of one at home, for what
    /// is ready at home or is about to come.
    pub(crate) fn better_place(&self, mine: Load) -> Option<(Arc<Pool>, Reason)> {
        if !self.are_some() {
            return None;
        }
        let place = self
            .lending
            .better_place(self.me, &mine, || self.loads(mine));
        self.found(place?)
    }

    /// Y2: the pool, if there is one, whose worker is to help with the list.
    pub(crate) fn helper(&self, mine: Load) -> Option<(Arc<Pool>, Reason)> {
        if !self.are_some() {
            return None;
        }
        let helper = self.lending.helper(self.me, &mine, || self.loads(mine));
        self.found(helper?)
    }

    fn found(&self, (at, reason): (usize, Reason)) -> Option<(Arc<Pool>, Reason)> {
        Some((self.all[at].pool.upgrade()?, reason))
    }

    /// How many submit from the pool's CPUs.
    pub(crate) fn submitters(&self) -> usize {
        self.all[self.me].notice.submitters()
    }

    /// There is somebody else.
    pub(crate) fn are_some(&self) -> bool {
        self.all.len() > 1
    }

    /// The pool needs no help, whoever could give it.
    pub(crate) fn are_needless(&self, mine: &Load) -> bool {
        self.lending.keeps(self.me, mine)
    }

    /// Whether the others are to know that they may take something here. `known`: they do.
    pub(crate) fn call(&self, mine: &Load, known: &mut bool) {
        let needy = self.are_some() && mine.waiting > 0 && !self.are_needless(mine);
        if needy != *known {
            *known = needy;
            self.needy.note(needy);
        }
    }

    /// Y4: whether there may be something to take from somebody.
    pub(crate) fn may_have_something(&self) -> bool {
        self.are_some() && self.needy.are_some()
    }

    /// Y4, Y5: an item for a worker, counted in `mine`, that has found nothing at home. No lock is
    /// held.
    pub(crate) fn take(&self, mine: Load) -> Option<Entry> {
        let (from, _) = self.lending.victim(self.me, &self.loads(mine))?;
        self.all[from].pool.upgrade()?.lend()
    }
}
