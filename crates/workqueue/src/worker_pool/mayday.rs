//! A pool that gets no threads: it calls rescuers, and the timer retries.

use super::{Mayday, PoolState, WorkerPool};
use crate::pool_core::WorkerId;
use crate::rescuer::Rescuer;
use inflight_sync::Arc;
use std::time::Duration;

/// How long a pool lacks a worker before it calls rescuers.
const FIRST_MAYDAY: Duration = Duration::from_millis(10);

/// The time between later calls.
const NEXT_MAYDAY: Duration = Duration::from_millis(100);

/// The longest time between attempts, from [`FIRST_MAYDAY`] on; each refusal doubles it.
const COOLDOWN: Duration = Duration::from_secs(1);

impl PoolState {
    /// Whether entries are listed, too few workers run or come, and none is idle.
    pub(crate) fn needs_help(&self) -> bool {
        self.core.has_waiting()
            && !self.core.workers.are_enough()
            && self.core.workers.nr_idle() == 0
    }

    pub(super) fn is_refused(&self) -> bool {
        self.mayday.is_some() || !self.core.workers.creates
    }

    pub(crate) fn has_called(&self) -> bool {
        self.mayday.is_some_and(|mayday| mayday.called)
    }

    /// The rescuers of the queues whose items wait, in the order of the worklist.
    fn rescuers(&self) -> Vec<Arc<Rescuer>> {
        let pwqs = self.core.worklist().map(|index| self.pwq(index));
        pwqs.filter_map(|pwq| pwq.wq.rescuer.as_ref().cloned())
            .collect()
    }
}

impl WorkerPool {
    pub(super) fn may_create(&self, state: &PoolState) -> bool {
        state
            .mayday
            .is_none_or(|mayday| self.shared.clock.now() >= mayday.cooldown)
    }

    pub(super) fn creation_failed(&self, worker: WorkerId) {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        // It has not come, so it has registered nothing.
        self.remove_worker(&mut state, worker);
        let known = state.mayday;
        let lasts = known.map_or(FIRST_MAYDAY, |mayday| (mayday.lasts * 2).min(COOLDOWN));
        state.mayday = Some(Mayday {
            cooldown: now + lasts,
            lasts,
            called: known.is_some_and(|mayday| mayday.called),
        });
        // Entries queued since may have relied on this worker.
        self.unlock(state, true);
        if known.is_none() {
            self.do_at(now + FIRST_MAYDAY, Self::mayday);
        }
    }

    /// *mayday*: while it lacks a worker, calls rescuers, and now and then asks for a thread.
    fn mayday(&self) {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        if !state.needs_help() {
            state.mayday = None;
            // Siblings may ask it for help again.
            self.unlock(state, false);
            return;
        }
        let rescuers = state.rescuers();
        if let Some(mayday) = &mut state.mayday {
            mayday.called = true;
        }
        self.unlock(state, true);
        rescuers
            .iter()
            .for_each(|rescuer| rescuer.call(&self.arc()));
        let cooldown = self.lock().mayday.map(|mayday| mayday.cooldown);
        let at = match cooldown {
            // A thread has just been asked for, or a worker is being woken: waits a while.
            Some(cooldown) if cooldown <= now => now + FIRST_MAYDAY,
            Some(cooldown) => cooldown.min(now + NEXT_MAYDAY),
            None => now + NEXT_MAYDAY,
        };
        self.do_at(at, Self::mayday);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::test_support::{Rigged, Signal, end, hold, until};
    use crate::{Attrs, blocking};
    use inflight_sync::fault::Faults;
    use inflight_sync::thread;
    use inflight_sync::time::Clock;
    use inflight_topology::Scope;

    /// A pool of two CPUs was refused a thread. The next thread is being created when the timer
    /// ticks, so the timer asks for no further one and sleeps until it is time to look again.
    #[test]
    fn the_timer_sleeps_while_a_worker_is_on_its_way() {
        let (faults, clock) = (Faults::new(), Clock::manual());
        let sys = Rigged::new("core:2", |builder| {
            builder.faults(&faults).clock(clock.clone()).sampling(false)
        });
        let attrs = Attrs::new().scope(Scope::System);
        let wq = sys.0.workqueue("any").unbound(attrs).build().unwrap();
        let (begun, open) = (Signal::default(), Signal::default());
        let sleeps = until(&begun, &open, 1);
        let blocked = wq.spawn_on(0, move || blocking(sleeps));
        begun.wait(1);
        faults.refuse_spawns(true);
        let waits = wq.spawn_on(0, || ());
        let pool = wq.inner().pwq_of(0).unwrap().pool.clone();
        let on_its_way = {
            let mut state = pool.lock();
            assert!(state.mayday.is_some() && state.needs_help());
            state.core.workers.create()
        };
        clock.advance(FIRST_MAYDAY);
        let jobs = || pool.shared.timers.jobs_set();
        let before = jobs();
        while clock.sleepers() == 0 && jobs() < before + 100 {
            thread::yield_now();
        }
        // Counts jobs: whether it sleeps now says little, because other events may wake it.
        let sleeps = jobs() < before + 100;
        faults.refuse_spawns(false);
        {
            // The thread does not arrive; another worker takes its place.
            let mut state = pool.lock();
            state.core.workers.remove(on_its_way);
            pool.unlock(state, true);
        }
        waits.wait().unwrap();
        open.raise();
        blocked.wait().unwrap();
        assert!(sleeps, "it spins");
    }

    /// A pod was refused a thread, and nothing waits there any more: another pod may ask it again.
    #[test]
    fn a_pod_that_gets_threads_again_is_asked_for_help() {
        let (faults, clock) = (Faults::new(), Clock::manual());
        let sys = Rigged::new("core:2", |builder| {
            builder.faults(&faults).clock(clock.clone())
        });
        let attrs = Attrs::new().scope(Scope::Cpu);
        let wq = sys.0.workqueue("pods").unbound(attrs).build().unwrap();
        let [busy, refused] = [0, 1].map(|cpu| wq.inner().pwq_of(cpu).unwrap().pool.clone());
        let held = hold(&wq, 0);
        faults.refuse_spawns(true);
        assert!(wq.spawn_on(1, || ()).wait().is_err());
        faults.refuse_spawns(false);
        clock.advance(FIRST_MAYDAY);
        while refused.lock().is_refused() {
            thread::yield_now();
        }
        let waits = wq.spawn_on(0, || ());
        let mut state = busy.lock();
        // Its items take long.
        state.core.note_service(1 << 40);
        busy.unlock(state, false);
        assert_eq!(wq.stats().remote_wakeups, 1);
        waits.wait().unwrap();
        end(held);
    }

    /// Attempts to get a thread become rare, and the rescuers stay called.
    #[test]
    fn each_refusal_doubles_the_time_to_the_next_attempt() {
        let sys = Rigged::new("core:1", |builder| builder);
        let wq = sys.0.workqueue("bound").bound().build().unwrap();
        let pool = wq.inner().pwq_of(0).unwrap().pool.clone();
        let lasts = [false, true, true, true, true, true, true, true, true].map(|called| {
            let worker = pool.lock().core.workers.create();
            pool.creation_failed(worker);
            let mayday = &mut pool.lock().mayday;
            let mayday = mayday.as_mut().unwrap();
            assert_eq!(std::mem::replace(&mut mayday.called, true), called);
            mayday.lasts.as_millis()
        });
        assert_eq!(lasts, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }
}
