//! Who is woken or created for what is listed, at the end of each section of a pool's lock: nobody,
//! if those that run, linger or are on their way are enough; the pool's poller; an idle worker of
//! it, or a new one; or a worker of another pod, which is to steal.
//!
//! Whether the pool itself needs one more, and whether that is woken or created, is decided in
//! `pool_core/wake_or_create.rs`; which other pod is asked, in `wake_sibling.rs`.

use super::wake_sibling::WakeTarget;
use super::{PoolDeferred, PoolState, WorkerPool};
use crate::pool_core::WakeAction;
use crate::workqueue_inner::Count;
use inflight_sync::atomic::Ordering;

/// So many events pass after a search for help that has found nobody.
const LOOK_LATER: u32 = 8;

impl WorkerPool {
    /// Who is to be brought for what is listed.
    #[inline]
    pub(super) fn decide(&self, state: &mut PoolState, now: bool) -> WakeAction {
        if state.siblings.is_some() && !state.is_refused() && self.seeks_place(state) {
            // If there is no better place, `seek_help` brings somebody here.
            return WakeAction::None;
        }
        if state.poller.is_some() && state.is_polled() {
            return state.need_poller();
        }
        // What is left to those that run is looked after, or they might sleep.
        state.core.need_worker(now || !self.is_looked_after())
    }

    /// Whether the timer is to look at the pool from now on: something waits for those that run.
    #[inline]
    pub(super) fn must_watch(&self, state: &PoolState, action: WakeAction) -> bool {
        let waits = action == WakeAction::None && state.core.has_waiting();
        waits && !state.watched && !state.core.workers.is_lingering() && self.is_looked_after()
    }

    /// What is to be done for that without the lock.
    pub(super) fn plan(&self, state: &mut PoolState, after: &mut PoolDeferred, action: WakeAction) {
        match action {
            WakeAction::None => {}
            WakeAction::Wake(worker) if state.is_poller(worker) => after.poll = true,
            WakeAction::Wake(worker) => {
                let matters = state.siblings.is_some();
                let thread = state.threads[worker].as_mut().expect("it is idle");
                thread.woken_at = matters.then(|| self.shared.clock.now());
                after.wake = Some(thread.shared.clone());
            }
            WakeAction::Create(worker) if self.may_create(state) => after.create = Some(worker),
            WakeAction::Create(worker) => state.core.workers.remove(worker),
        }
    }

    /// Whether what is listed would run better in a sibling's pool than beside those that are awake
    /// here: nobody is brought here before the siblings have been looked at.
    fn seeks_place(&self, state: &PoolState) -> bool {
        let Some(siblings) = &state.siblings else {
            return false;
        };
        let seeks = state.look_later == 0 && state.core.has_waiting();
        seeks && siblings.policy.seeks_place(siblings.me, &state.load(self))
    }

    /// The others learn how the pool is. Returns whether one of them is to be asked for help.
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
        // An entry of which they were not told is an event, too.
        let events = load.waiting.saturating_sub(state.told.waiting).max(1);
        let events = u32::try_from(events).unwrap_or(u32::MAX);
        state.told = load;
        state.help_from = if state.is_refused() { 0 } else { help_from };
        state.look_later = state.look_later.saturating_sub(events);
        overloaded && state.look_later == 0
    }

    /// *wake*, for what is listed, without the lock: a worker of the pool that suits it best.
    /// Unless `now`, little is left to those that run. Not inlined, as `unlock_slow`.
    #[inline(never)]
    pub(super) fn seek_help(&self, now: bool) {
        let (siblings, mine, first) = {
            let mut state = self.lock();
            // Unless this finds somebody.
            state.look_later = LOOK_LATER;
            let Some(siblings) = state.siblings.clone() else {
                return;
            };
            // Now: who is woken may have taken it before this thread goes on.
            let first = state.core.worklist().next();
            let first = first.map(|index| state.pwq(index).clone());
            (siblings, state.load(self), first)
        };
        let mut loads = siblings.loads(self, mine);
        loop {
            let to = match siblings.policy.wake_for(siblings.me, &loads) {
                WakeTarget::Nobody => return,
                WakeTarget::Other(to, _) => to,
                WakeTarget::Own => break,
            };
            let helper = siblings.all[to].pool.upgrade();
            if helper.is_some_and(|helper| helper.invite()) {
                self.lock().look_later = 0;
                if let Some(pwq) = first {
                    pwq.wq.counted(Count::RemoteWakeups, 1);
                }
                return;
            }
            // Its hint is out of date. It counts as full, and the next one is asked.
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

    /// A worker is wanted for an item of another pool. `false`: there is none to be had.
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
