//! What is done after a pool's lock has been released: wakes, grants of slots, ends of flushes.

use super::{PoolDeferred, PoolState, QueueDeferred, WorkerPool};
use crate::pool_core::{Deferred, PwqIndex, WakeAction};
use crate::pwq;
use crate::sampler;
use inflight_sync::MutexGuard;
use inflight_sync::atomic::Ordering;

impl WorkerPool {
    /// Releases the lock after an event, and does what the event requires. `now`: does not leave
    /// waiting entries to running workers, except one entry for a lingering worker. Returns whether
    /// a worker was woken or created.
    #[inline]
    pub(crate) fn unlock(&self, state: MutexGuard<'_, PoolState>, now: bool) -> bool {
        !state.is_quiet(now) && self.unlock_slow(state, now)
    }

    /// Not inlined: it is large, and idle workers keep the stack pages of their deepest call.
    #[inline(never)]
    fn unlock_slow(&self, state: MutexGuard<'_, PoolState>, now: bool) -> bool {
        let mut after = self.release(state, now);
        after.as_mut().is_some_and(|after| after.perform(self))
    }

    /// The same after only an entry has been queued.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "each item comes through here")]
    pub(crate) fn unlock_pushed(&self, state: MutexGuard<'_, PoolState>) {
        let are_told = state.siblings.is_none() || state.siblings_know(self);
        if !(are_told && state.needs_nothing(false)) {
            self.unlock_slow(state, false);
        }
    }

    /// The same for callers that hold the lock of a queue's control.
    pub(crate) fn unlock_deferred(
        &self,
        state: MutexGuard<'_, PoolState>,
        now: bool,
        deferred: &mut QueueDeferred,
    ) {
        if state.is_quiet(now) {
            return;
        }
        if let Some(after) = self.release(state, now) {
            deferred.pools.push((self.arc(), after));
        }
    }

    #[inline(never)]
    fn release(&self, mut state: MutexGuard<'_, PoolState>, now: bool) -> Option<PoolDeferred> {
        let action = self.decide(&mut state, now);
        let watch = self.must_watch(&state, action);
        let help = state.tells && self.wants_help(&mut state);
        let help = help.then_some(now);
        if state.core.workers.is_lingering() && state.core.has_waiting() {
            // Relaxed: a hint; the entries are seen under the lock.
            self.has_come.store(true, Ordering::Relaxed);
        }
        let plain = action == WakeAction::None && !watch && help.is_none();
        if plain && !state.has_deferred() {
            return None;
        }
        Some(self.after(&mut state, action, watch, help))
    }

    #[cold]
    pub(super) fn after(
        &self,
        state: &mut PoolState,
        action: WakeAction,
        watch: bool,
        help: Option<bool>,
    ) -> PoolDeferred {
        if watch {
            state.watched = true;
            state.core.set_batching(true);
        }
        let pwqs = &state.pwqs;
        let pwq = |index: PwqIndex| pwqs[index as usize].clone().expect("the pwq exists");
        let to_do = |deferred| match deferred {
            Deferred::Slot(nr_active, id) => Deferred::Slot(nr_active, id),
            Deferred::Flushed(index, over) => Deferred::Flushed(pwq(index), over),
            Deferred::Idle(index, counted) => Deferred::Idle(pwq(index), counted),
        };
        let mut after = PoolDeferred {
            actions: state.core.drain_deferred().map(to_do).collect(),
            watch,
            help,
            stale: std::mem::take(&mut state.stale),
            ..PoolDeferred::default()
        };
        self.plan(state, &mut after, action);
        after
    }
}

impl PoolState {
    #[inline]
    fn is_quiet(&self, now: bool) -> bool {
        self.siblings.is_none() && self.needs_nothing(now)
    }

    /// Whether nothing has to be done within the pool.
    #[inline]
    fn needs_nothing(&self, now: bool) -> bool {
        self.is_looked_at() && !self.core.needs_worker(now) && !self.has_deferred()
    }
}

impl Drop for QueueDeferred {
    fn drop(&mut self) {
        for (pool, mut after) in self.pools.drain(..) {
            after.perform(&pool);
        }
        for (nr_active, id) in self.slots.drain(..) {
            pwq::grant(&nr_active, id);
        }
        for pwq in self.retired.drain(..) {
            pwq.unplug_successor();
            pwq.pool.dismiss_if_unused();
        }
    }
}

impl PoolDeferred {
    /// Does it, without a lock. Returns whether a worker was brought. By reference: it is large.
    pub(crate) fn perform(&mut self, pool: &WorkerPool) -> bool {
        let mut brings = self.wake.is_some() || self.poll;
        if let Some(worker) = self.wake.take() {
            worker.wake();
            pool.somebody_comes();
        }
        if let Some(worker) = self.create.take() {
            // If the thread is refused, the mayday handles the waiting entries.
            brings |= pool.create_worker(worker).is_ok();
        }
        if self.poll {
            pool.call_poller();
            pool.somebody_comes();
        }
        if self.watch {
            pool.plan_tick(sampler::SOON);
        }
        if let Some(now) = self.help {
            pool.seek_help(now);
        }
        for action in self.actions.drain(..) {
            match action {
                Deferred::Slot(nr_active, id) => pwq::grant(&nr_active, id),
                Deferred::Flushed(pwq, over) => pwq.flushed(over),
                Deferred::Idle(pwq, counted) => pwq.became_idle(counted),
            }
        }
        if !self.stale.is_empty() {
            let stale = std::mem::take(&mut self.stale);
            pool.shared.apart(move || {
                for item in stale {
                    // SAFETY: the cancel has left a reference with the entry.
                    unsafe { item.release() };
                }
            });
        }
        brings
    }
}
