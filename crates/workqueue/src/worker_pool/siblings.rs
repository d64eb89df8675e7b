//! What the pools of a system know of each other. `wake.rs` and `steal.rs` use it.

use super::{Overloaded, PoolState, QueueDeferred, Sibling, Siblings, WorkerPool};
use crate::steal_policy::{Costs, Load, StealPolicy};
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;

impl Siblings {
    pub(crate) fn new(
        pool: &Arc<WorkerPool>,
        others: &[Arc<WorkerPool>],
        overloaded: &Arc<Overloaded>,
    ) -> Self {
        let mut all: Vec<_> = others.iter().chain([pool]).collect();
        all.sort_by_key(|pool| pool.attrs.cpus.first());
        let pods = all.iter().map(|p| p.pod.clone()).collect();
        let costs = Costs::default();
        Self {
            policy: StealPolicy { pods, costs },
            me: all.iter().position(|p| Arc::ptr_eq(p, pool)).unwrap_or(0),
            all: all
                .iter()
                .map(|p| Sibling {
                    pool: Arc::downgrade(p),
                    hint: p.hint.clone(),
                })
                .collect(),
            overloaded: overloaded.clone(),
        }
    }

    pub(super) fn loads(&self, mine: Load) -> Vec<Load> {
        let load = |(at, sibling): (usize, &Sibling)| {
            if at == self.me {
                mine
            } else {
                sibling.hint.load()
            }
        };
        self.all.iter().enumerate().map(load).collect()
    }
}

impl PoolState {
    /// Whether the siblings need not be told of another entry: they know that something waits,
    /// nothing else has changed since, and one more entry is not enough for them to help.
    #[inline]
    pub(super) fn siblings_know(&self, pool: &WorkerPool) -> bool {
        let (core, told) = (&self.core, &self.told);
        (2..self.help_from).contains(&core.listed())
            && told.awake == core.workers.nr_running()
            && told.service == core.service_ns()
            && told.submitters == pool.hint.submitters()
    }

    pub(super) fn load(&self, pool: &WorkerPool) -> Load {
        let workers = &self.core.workers;
        Load {
            waiting: self.core.listed(),
            // No worker can be woken or created: counts as if all were awake.
            awake: if self.is_refused() && workers.nr_idle() == 0 {
                workers.target()
            } else {
                workers.nr_running()
            },
            service: self.core.service_ns(),
            submitters: pool.hint.submitters(),
        }
    }
}

impl WorkerPool {
    pub(crate) fn meet(&self, siblings: Siblings, deferred: &mut QueueDeferred) {
        let mut state = self.lock();
        if state.overloaded {
            // Leaves the count that its former siblings read.
            state.overloaded = false;
            siblings.overloaded.0.fetch_sub(1, Ordering::Relaxed);
        }
        let are_some = siblings.all.len() > 1;
        state.tells |= are_some;
        state.siblings = are_some.then(|| Arc::new(siblings));
        self.unlock_deferred(state, false, deferred);
    }
}
