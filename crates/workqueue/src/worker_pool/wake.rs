//! Which worker is woken or created for listed entries, at the end of each section of a pool's
//! lock: none, the pool's poller, an idle or a new worker of the pool
//! (`pool_core/wake_or_create.rs`), or a worker of another pod, which will steal
//! (`steal_policy.rs`).

use super::{PoolDeferred, PoolState, WorkerPool};
use crate::pool_core::WakeAction;
use crate::steal_policy::WakeTarget;
use crate::workqueue_inner::Count;
use inflight_sync::atomic::Ordering;

/// How many events pass after a search for help that found no worker.
const LOOK_LATER: u32 = 8;

impl WorkerPool {
    #[inline]
    pub(super) fn decide(&self, state: &mut PoolState, now: bool) -> WakeAction {
        if state.siblings.is_some() && !state.is_refused() && self.seeks_place(state) {
            // If there is no better place, `seek_help` wakes a worker here.
            return WakeAction::None;
        }
        if state.poller.is_some() && state.is_polled() {
            return state.need_poller();
        }
        // Running workers might sleep: entries are left to them only in a watched pool.
        state.core.need_worker(now || !self.is_looked_after())
    }

    /// Whether to begin to watch the pool: entries wait for running workers.
    #[inline]
    pub(super) fn must_watch(&self, state: &PoolState, action: WakeAction) -> bool {
        let waits = action == WakeAction::None && state.core.has_waiting();
        waits && !state.watched && !state.core.workers.is_lingering() && self.is_looked_after()
    }

    pub(super) fn plan(&self, state: &mut PoolState, after: &mut PoolDeferred, action: WakeAction) {
        match action {
            WakeAction::None => {}
            WakeAction::Wake(worker) if state.is_poller(worker) => after.poll = true,
            WakeAction::Wake(worker) => {
                after.wake = Some(state.thread(worker).shared.clone());
            }
            WakeAction::Create(worker) if self.may_create(state) => after.create = Some(worker),
            WakeAction::Create(worker) => state.core.workers.remove(worker),
        }
    }

    /// Whether siblings are asked before a worker is woken here: the entries run better there.
    fn seeks_place(&self, state: &PoolState) -> bool {
        let Some(siblings) = &state.siblings else {
            return false;
        };
        let seeks = state.look_later == 0 && state.core.has_waiting();
        seeks && siblings.policy.seeks_place(siblings.me, &state.load(self))
    }

    /// Publishes this pool's load. Returns whether to ask a sibling for help.
    pub(super) fn wants_help(&self, state: &mut PoolState) -> bool {
        let load = state.load(self);
        self.hint.tell(&load);
        let Some(siblings) = &state.siblings else {
            return false;
        };
        let help_from = siblings.policy.needs_help_from(siblings.me, &load);
        let overloaded = load.waiting >= help_from;
        if overloaded != state.overloaded {
            let count = &siblings.overloaded.0;
            if overloaded {
                count.fetch_add(1, Ordering::Relaxed);
            } else {
                count.fetch_sub(1, Ordering::Relaxed);
            }
            state.overloaded = overloaded;
        }
        // Entries that they were not told of count as events, too.
        let events = load.waiting.saturating_sub(state.told.waiting).max(1);
        let events = u32::try_from(events).unwrap_or(u32::MAX);
        state.told = load;
        state.help_from = if state.is_refused() { 0 } else { help_from };
        state.look_later = state.look_later.saturating_sub(events);
        overloaded && state.look_later == 0
    }

    /// *wake*, for listed entries, without the lock: wakes or creates the worker that suits them
    /// best. Unless `now`, a little work is left to running workers. Not inlined, as `unlock_slow`.
    #[inline(never)]
    pub(super) fn seek_help(&self, now: bool) {
        let (siblings, mine, first) = {
            let mut state = self.lock();
            // Set to 0 below if this finds a worker.
            state.look_later = LOOK_LATER;
            let Some(siblings) = state.siblings.clone() else {
                return;
            };
            // Read now: the woken worker may take it before this thread continues.
            let first = state.core.worklist().next();
            let first = first.map(|index| state.pwq(index).clone());
            (siblings, state.load(self), first)
        };
        let mut loads = siblings.loads(mine);
        loop {
            let to = match siblings.policy.wake_for(siblings.me, &loads) {
                WakeTarget::Nobody => return,
                WakeTarget::Other(to) => to,
                WakeTarget::Own => break,
            };
            let helper = siblings.all[to].pool.upgrade();
            if helper.is_some_and(|helper| helper.invite()) {
                self.lock().look_later = 0;
                if let Some(pwq) = first {
                    pwq.wq.counted(Count::RemoteWakeups);
                }
                return;
            }
            // Its hint is out of date. It counts as full, and the next pod is asked.
            loads[to].awake = usize::MAX;
        }
        let mut state = self.lock();
        state.look_later = 0;
        let action = state.core.need_worker(now || !self.is_looked_after());
        let watch = self.must_watch(&state, action);
        let mut after = self.after(&mut state, action, watch, None);
        drop(state);
        after.perform(self);
    }

    /// Wakes or creates a worker for an item of another pool. `false` if none is available.
    fn invite(&self) -> bool {
        let mut state = self.lock();
        if state.core.workers.are_enough() || state.stopped || Self::is_unused(&state) {
            return false;
        }
        let action = state.core.workers.wake_or_create();
        let mut after = self.after(&mut state, action, false, None);
        self.wants_help(&mut state);
        drop(state);
        after.perform(self)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
