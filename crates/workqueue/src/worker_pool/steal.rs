//! Work stealing: a worker that has nothing to do takes a batch of a sibling's pool, if that pays.

use super::{Away, PoolState, Siblings, WorkerPool, WorkerShared};
use crate::current::Context;
use crate::pool_core::{INTENSIVE, WorkerId};
use crate::steal_policy::Load;
use crate::threads;
use crate::worker;
use crate::workqueue_inner::Count;
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;

impl WorkerPool {
    /// For a worker without work, if a sibling may have something.
    pub(crate) fn theft(&self, state: &PoolState) -> Option<(Arc<Siblings>, Load)> {
        let siblings = state.siblings.as_ref()?;
        let some = siblings.overloaded.0.load(Ordering::Relaxed) > 0;
        some.then(|| (siblings.clone(), state.load(self)))
    }

    /// Marks it as a guest elsewhere, or as back: the sampler then sees what it runs.
    pub(super) fn set_away(&self, worker: WorkerId, away: Option<Away>) {
        let mut state = self.lock();
        let thread = state.thread_mut(worker);
        // The queue that is charged goes with the worker, there and back.
        let (from, to) = match &away {
            Some(guest) => (&thread.shared, &guest.shared),
            None => (thread.running_as(), &thread.shared),
        };
        to.charged.set(from.charged.queue());
        thread.away = away;
    }

    /// What that guest runs elsewhere holds nobody back here, until it is back.
    pub(super) fn flag_away(&self, worker: WorkerId, guest: &Arc<WorkerShared>, flag: u8) {
        let mut state = self.lock();
        let thread = state.known_thread(worker);
        let away = thread.and_then(|thread| thread.away.as_ref());
        if away.is_some_and(|away| Arc::ptr_eq(&away.shared, guest)) {
            state.core.workers.set_flag(worker, flag, true);
        }
        self.unlock(state, true);
    }

    /// *steal*: worker `me` runs a batch of a sibling, as its guest. `false` if there was none.
    pub(crate) fn steal(
        self: &Arc<Self>,
        (siblings, mine): (Arc<Siblings>, Load),
        me: WorkerId,
    ) -> bool {
        let loads = siblings.loads(mine);
        let victim = siblings.policy.victim(siblings.me, &loads);
        let victim = victim.and_then(|from| siblings.all[from].pool.upgrade());
        let Some(victim) = victim else {
            return false;
        };
        let mut state = victim.lock();
        if !state.core.has_waiting() {
            return false;
        }
        let own = Some((self.clone(), me));
        let context = Context::attach(&victim, &mut state, threads::name(), own);
        let (guest, shared) = (context.me, &context.shared);
        let taken = state.take(guest, &shared.batch).entries;
        for (_, entry) in state.entries(guest) {
            // SAFETY: the entry has just been taken.
            unsafe { entry.pwq.as_ref() }.wq.counted(Count::Stolen);
        }
        let unmanaged = !state.core.workers.get(guest).may_hold_others_back();
        victim.unlock(state, false);
        let away = Away {
            pool: victim.clone(),
            me: guest,
            shared: shared.clone(),
        };
        self.set_away(me, Some(away));
        if unmanaged {
            self.flag_away(me, shared, INTENSIVE);
        }
        worker::run_as_guest(&context);
        self.set_away(me, None);
        context.detach();
        taken > 0
    }
}
