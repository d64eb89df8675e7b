//! How a worker becomes idle and is woken: it may linger first, and then sleeps until `woken` is
//! set. Also which idle workers exit, and when.

use super::{PoolState, WorkerPool, WorkerShared};
use crate::pool_core::{WorkerId, Workers};
use inflight_sync::atomic::Ordering;
use inflight_sync::time::Instant;
use inflight_sync::{MutexGuard, cpu};
use std::time::Duration;

impl WorkerPool {
    /// For a lingering worker: whether something has come since the lock was released.
    pub(crate) fn seems_to_have_work(&self) -> bool {
        self.has_come.load(Ordering::Relaxed)
    }

    pub(crate) fn set_lingering(&self, state: &mut PoolState, lingering: bool) {
        state.core.workers.set_lingering(lingering);
        self.has_come.store(false, Ordering::Relaxed);
    }

    /// A lingering worker yields that CPU, or (`usize::MAX`) no longer does.
    pub(crate) fn set_yielded_cpu(&self, cpu: usize) {
        // Relaxed: a hint.
        self.yielded_cpu.store(cpu, Ordering::Relaxed);
    }

    /// Whether the workers may run on no other CPU than the calling thread's.
    pub(crate) fn needs_callers_cpu(&self) -> bool {
        let allowed = &self.attrs.allowed;
        allowed.len() == 1 && allowed.contains(cpu::current())
    }

    /// Whether the next entry waits for the calling thread's CPU, which a worker has yielded.
    pub(crate) fn yields_to_caller(&self) -> bool {
        self.needs_callers_cpu() && self.yielded_cpu.load(Ordering::Relaxed) == cpu::current()
    }

    pub(crate) fn enter_idle(&self, mut state: MutexGuard<'_, PoolState>, worker: WorkerId) {
        let now = self.shared.clock.now();
        state.core.workers.enter_idle(worker, now.as_nanos());
        state.core.workers.set_idle_on(worker, cpu::current());
        self.unlock_and_cull(state, now);
    }

    /// Releases the lock. Dismisses surplus idle workers that are due, and plans the next look.
    fn unlock_and_cull(&self, mut state: MutexGuard<'_, PoolState>, now: Instant) {
        let (mut woken, mut look_at) = (Vec::new(), None);
        let timeout = self.shared.idle_timeout;
        while timeout < Duration::MAX && state.core.workers.are_too_many_idle() {
            let (worker, since) = state.core.workers.coldest().expect("too many are idle");
            let at = Instant::from_nanos(since) + timeout;
            if at > now {
                let planned = std::mem::replace(&mut state.culling, true);
                look_at = (!planned).then_some(at);
                break;
            }
            state.core.workers.dismiss(worker);
            woken.push(state.thread(worker).shared.clone());
        }
        self.unlock(state, false);
        woken.iter().for_each(|worker| worker.wake());
        if let Some(at) = look_at {
            self.do_at(at, Self::cull);
        }
    }

    fn cull(&self) {
        let mut state = self.lock();
        state.culling = false;
        self.unlock_and_cull(state, self.shared.clock.now());
    }
}

impl WorkerShared {
    /// Whether the worker has been woken since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        // Relaxed: the unpark token orders it, and the lock everything else.
        let woken = self.woken.load(Ordering::Relaxed);
        if woken {
            self.woken.store(false, Ordering::Relaxed);
        }
        woken
    }

    pub(super) fn wake(&self) {
        // Relaxed: as in `take_woken`. A worker that another token wakes sleeps again.
        self.woken.store(true, Ordering::Relaxed);
        self.unparker.unpark();
    }
}

impl Workers {
    /// Whether more are idle than may stay: two, and k more while more than 4k are busy.
    pub(crate) fn are_too_many_idle(&self) -> bool {
        let idle = self.nr_idle();
        let busy = self.nr_workers() - idle;
        idle > 2 && (idle - 2) * 4 >= busy
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Attrs;
    use crate::test_support::Rigged;
    use inflight_topology::Scope;

    /// A worker yields to a caller on the yielded CPU, if no other CPU could run the worker.
    #[test]
    fn a_worker_yields_to_who_keeps_it_from_running() {
        let sys = Rigged::new("core:2", |builder| builder);
        let of_cpu = |strict| Attrs::new().scope(Scope::Cpu).strict(strict);
        let unbound = |attrs| sys.0.workqueue("unbound").unbound(attrs).build().unwrap();
        let bound = sys.0.workqueue("bound").bound().build().unwrap();
        let queues = [bound, unbound(of_cpu(true)), unbound(of_cpu(false))];
        let answers = |cpu, yielded| {
            queues.each_ref().map(|wq| {
                let pool = &wq.inner().pwq_of(cpu).unwrap().pool;
                pool.set_yielded_cpu(yielded);
                (pool.needs_callers_cpu(), pool.yields_to_caller())
            })
        };
        cpu::set_current_for_thread(Some(1));
        let answers = [(1, 1), (1, 0), (1, usize::MAX), (0, 1)].map(|(cpu, y)| answers(cpu, y));
        cpu::set_current_for_thread(None);
        let [never, needs, yields] = [(false, false), (true, false), (true, true)];
        assert_eq!(answers[0], [yields, yields, never]);
        assert_eq!(answers[1..3], [[needs, needs, never]; 2]);
        assert_eq!(answers[3], [never; 3]);
    }
}
