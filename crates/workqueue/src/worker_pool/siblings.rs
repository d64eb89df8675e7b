//! What the pools of a system know of each other, and how they help. The decisions are those of
//! [`StealPolicy`](crate::steal_policy::StealPolicy).

use super::{Overloaded, PoolState, QueueDeferred, Sibling, Siblings, WorkerPool, WorkerShared};
use crate::pool_core::{WakeAction, WorkerId};
use crate::steal_policy::{Costs, Load, Pod, StealPolicy, WakeTarget};
use crate::workqueue_inner::Count;
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;
use inflight_topology::Topology;

/// So many events pass after a search for help that has found nobody.
const LOOK_LATER: u32 = 8;

impl Siblings {
    /// `pool` among `others`.
    pub(crate) fn new(
        topology: &Topology,
        pool: &Arc<WorkerPool>,
        others: &[Arc<WorkerPool>],
        overloaded: &Arc<Overloaded>,
    ) -> Self {
        let mut all: Vec<_> = others.iter().chain([pool]).collect();
        all.sort_by_key(|pool| pool.attrs().cpus().first());
        let pods = all.iter().map(|p| Pod::new(topology, &p.attrs().cpus()));
        Self {
            policy: StealPolicy::of(pods.collect(), Costs::default()),
            me: all.iter().position(|p| Arc::ptr_eq(p, pool)).unwrap_or(0),
            all: all
                .iter()
                .map(|p| Sibling {
                    pool: Arc::downgrade(p),
                    hint: p.hint().clone(),
                })
                .collect(),
            overloaded: overloaded.clone(),
        }
    }

    pub(super) fn loads(&self, pool: &WorkerPool, mine: Load) -> Vec<Load> {
        let now = pool.shared.clock.now();
        let load = |(at, sibling): (usize, &Sibling)| Load {
            delay: sibling.hint.delay(now),
            ..if at == self.me {
                mine
            } else {
                sibling.hint.load()
            }
        };
        self.all.iter().enumerate().map(load).collect()
    }

    fn are_some(&self) -> bool {
        self.all.len() > 1
    }
}

impl PoolState {
    /// What is known of the pool now.
    pub(super) fn load(&self, pool: &WorkerPool) -> Load {
        let workers = &self.core.workers;
        Load {
            waiting: self.core.listed(),
            // Nobody can be brought: as if all were there.
            awake: if self.is_refused() && workers.nr_idle() == 0 {
                workers.target()
            } else {
                workers.nr_running()
            },
            service: self.core.service_ns(),
            submitters: pool.hint.submitters(),
            ..Load::default()
        }
    }
}

impl WorkerPool {
    /// Its siblings are these from now on, if there are any.
    pub(crate) fn meet(&self, siblings: Siblings, deferred: &mut QueueDeferred) {
        let mut state = self.lock();
        if state.overloaded {
            // The count of those that it knew.
            state.overloaded = false;
            siblings.overloaded.0.fetch_sub(1, Ordering::Relaxed);
        }
        state.tells |= siblings.are_some();
        state.siblings = siblings.are_some().then(|| Arc::new(siblings));
        self.unlock_deferred(state, false, deferred);
    }

    /// Whether what is listed would run better in a sibling's pool than beside those that are awake
    /// here: nobody is brought here before the siblings have been looked at.
    pub(super) fn seeks_place(&self, state: &PoolState) -> bool {
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
        let overloaded = load.waiting > 0 && !siblings.policy.needs_no_help(siblings.me, &load);
        if overloaded != state.overloaded {
            let count = &siblings.overloaded.0;
            if overloaded {
                count.fetch_add(1, Ordering::Relaxed);
            } else {
                count.fetch_sub(1, Ordering::Relaxed);
            }
            state.overloaded = overloaded;
        }
        state.look_later = state.look_later.saturating_sub(1);
        // What waits behind a limit is nobody else's to take either.
        overloaded && state.look_later == 0 && state.core.has_more_than_takers()
    }

    /// *wake*, for what is listed, without the lock: a worker of the pool that suits it best.
    /// Unless `now`, little is left to those that run.
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
        let loads = siblings.loads(self, mine);
        let helper = match siblings.policy.wake_for(siblings.me, &loads) {
            WakeTarget::Nobody => return,
            WakeTarget::Other(to, _) => siblings.all[to].pool.upgrade(),
            WakeTarget::Own => None,
        };
        if let Some(helper) = helper {
            let invited = helper.invite();
            self.lock().look_later = 0;
            if let Some(pwq) = first.filter(|_| invited) {
                pwq.wq().counted(Count::RemoteWakeups, 1);
            }
        } else {
            let mut state = self.lock();
            state.look_later = 0;
            let action = state.core.need_worker(now || !self.is_looked_after());
            let watch = self.must_watch(&state, action);
            let after = self.after(&mut state, action, watch, None);
            drop(state);
            after.perform(self);
        }
    }

    /// A worker is wanted for an item of another pool. `false`: there is none to be had.
    fn invite(&self) -> bool {
        let mut state = self.lock();
        if state.core.workers.are_enough() || state.stopped || Self::is_unused(&state) {
            return false;
        }
        let action = state.core.workers.wake_or_create();
        let after = self.after(&mut state, action, false, None);
        self.wants_help(&mut state);
        drop(state);
        after.perform(self);
        action != WakeAction::None
    }

    /// The worker is a guest of another pool, or is back. Whatever waits meanwhile, the timer is to
    /// know what it runs.
    pub(super) fn set_away(&self, worker: WorkerId, away: Option<Arc<WorkerShared>>) {
        let mut state = self.lock();
        state.threads[worker].as_mut().expect("it is there").away = away;
    }

    /// What the worker runs as that guest of another pool is no reason to hold others back here,
    /// until it is back.
    pub(super) fn flag_away(&self, worker: WorkerId, guest: &Arc<WorkerShared>, flag: u8) {
        let mut state = self.lock();
        let thread = state.threads.get(worker).and_then(Option::as_ref);
        let away = thread.and_then(|thread| thread.away.as_ref());
        if away.is_some_and(|away| Arc::ptr_eq(away, guest)) {
            state.core.workers.set_flag(worker, flag, true);
        }
        self.unlock(state, true);
    }

    /// A worker that was woken is here.
    pub(crate) fn has_come(&self, state: &mut PoolState, worker: WorkerId) {
        let thread = state.threads[worker].as_mut().expect("it is there");
        if let Some(woken_at) = thread.woken_at.take() {
            let now = self.shared.clock.now();
            let took = u64::try_from((now - woken_at).as_nanos()).unwrap_or(u64::MAX);
            state.delay.note(took, 10);
            self.hint.came(state.delay.ns(), now);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Attrs, JoinHandle, Workqueue, WorkqueueSystem, blocking};
    use inflight_sync::atomic::AtomicUsize;
    use inflight_sync::time::Clock;
    use inflight_sync::{Mutex, thread};
    use inflight_topology::Scope;

    /// Pods of one CPU each. Time stands, so nobody looks, and who is woken comes at once.
    fn pods(machine: &str) -> (Rigged, Workqueue) {
        let builder = WorkqueueSystem::builder().clock(Clock::manual());
        let builder = builder.topology(Topology::synthetic(machine).unwrap());
        let sys = builder.build().unwrap();
        let attrs = Attrs::new().scope(Scope::Cpu);
        let wq = sys.workqueue("pods").unbound(attrs).build().unwrap();
        (Rigged(sys), wq)
    }

    /// A test that has failed lets no item end, and does not wait for them.
    struct Rigged(WorkqueueSystem);

    impl Drop for Rigged {
        fn drop(&mut self) {
            if thread::panicking() {
                std::mem::forget(self.0.clone());
            }
        }
    }

    fn pool(wq: &Workqueue, cpu: usize) -> Arc<WorkerPool> {
        wq.inner().pwq_of(cpu).unwrap().pool().clone()
    }

    /// Items of that CPU's pod take long: if one waits, whoever can is to help.
    fn take_long(wq: &Workqueue, cpu: usize) {
        let pool = pool(wq, cpu);
        let mut state = pool.lock();
        state.core.note_service(1 << 40);
        pool.unlock(state, false);
    }

    /// A number that threads wait for, and do not say so. Relaxed: a signal.
    #[derive(Clone, Default)]
    struct Signal(Arc<AtomicUsize>);

    impl Signal {
        fn raise(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn is_raised(&self) -> bool {
            self.0.load(Ordering::Relaxed) > 0
        }

        fn wait(&self) {
            while !self.is_raised() {
                thread::yield_now();
            }
        }
    }

    /// An item that runs there until it is told to end.
    fn hold(wq: &Workqueue, cpu: usize) -> (JoinHandle<()>, Signal) {
        let (begun, end) = (Signal::default(), Signal::default());
        let item = wq.spawn_on(cpu, {
            let (begun, end) = (begun.clone(), end.clone());
            move || {
                begun.raise();
                end.wait();
            }
        });
        begun.wait();
        (item, end)
    }

    fn end((item, end): (JoinHandle<()>, Signal)) {
        end.raise();
        item.wait().unwrap();
    }

    /// How many run, sleep, and are there.
    fn workers(pool: &WorkerPool) -> [usize; 3] {
        let state = pool.lock();
        let workers = &state.core.workers;
        [
            workers.nr_running(),
            workers.nr_idle(),
            workers.nr_workers(),
        ]
    }

    /// A pool is asked for help because of a hint that is out of date: as many run as may, so
    /// nobody is brought. The next one that is asked helps.
    #[test]
    fn an_invite_brings_nobody_beyond_the_target() {
        let (_sys, wq) = pods("core:3");
        let held = [0, 1].map(|cpu| hold(&wq, cpu));
        let waits = wq.spawn_on(0, || ());
        let (own, other) = (pool(&wq, 0), pool(&wq, 1));
        other.hint.tell(&Load::default());
        take_long(&wq, 0);
        assert_eq!(workers(&other), [1, 0, 1]);
        assert_eq!(wq.stats().remote_wakeups, 0);
        other.hint.tell(&Load {
            awake: 1,
            ..Load::default()
        });
        own.unlock(own.lock(), false);
        waits.wait().unwrap();
        let stats = wq.stats();
        assert_eq!((stats.remote_wakeups, stats.stolen), (1, 1));
        held.into_iter().for_each(end);
    }

    /// Somebody is on the way for all that may run: nobody else is sent for, however much waits
    /// behind the limit.
    #[test]
    fn nobody_is_sent_for_what_waits_behind_a_limit() {
        for (max_active, is_sent_for) in [(1, false), (2, true)] {
            let (_sys, wq) = pods("core:2");
            wq.set_max_active(max_active).unwrap();
            take_long(&wq, 0);
            let pool = pool(&wq, 0);
            let coming = pool.lock().core.workers.create();
            let items: Vec<_> = (0..20).map(|_| wq.spawn_on(0, || ())).collect();
            assert_eq!(wq.stats().remote_wakeups > 0, is_sent_for, "{max_active}");
            // It was refused.
            let mut state = pool.lock();
            state.core.workers.remove(coming);
            pool.unlock(state, true);
            items.into_iter().for_each(|item| item.wait().unwrap());
        }
    }

    /// A pod's own items come first, however much another one has.
    #[test]
    fn a_worker_with_something_at_home_does_not_steal() {
        let (_sys, wq) = pods("core:2");
        let (busy, held) = (hold(&wq, 0), hold(&wq, 1));
        let log = Arc::new(Mutex::new(Vec::new()));
        let items = [(0, "other"), (0, "another"), (1, "own")].map(|(cpu, name)| {
            let log = log.clone();
            wq.spawn_on(cpu, move || log.lock().push(name))
        });
        take_long(&wq, 0);
        assert_eq!(wq.stats().stolen, 0);
        end(held);
        items.into_iter().for_each(|item| item.wait().unwrap());
        assert_eq!(*log.lock(), ["own", "other", "another"]);
        assert_eq!(wq.stats().stolen, 2, "their own worker is occupied");
        end(busy);
    }

    /// An item is back from its block while another one runs in its place: the worker that is the
    /// first to end its item is one too many, and sleeps.
    #[test]
    fn a_worker_that_is_one_too_many_does_not_steal() {
        let (_sys, wq) = pods("core:2");
        let busy = hold(&wq, 0);
        let [blocked, unblock, back, over] = [(); 4].map(|()| Signal::default());
        let first = wq.spawn_on(1, {
            let (blocked, unblock) = (blocked.clone(), unblock.clone());
            let (back, over) = (back.clone(), over.clone());
            move || {
                blocking(|| {
                    blocked.raise();
                    unblock.wait();
                });
                back.raise();
                over.wait();
            }
        });
        blocked.wait();
        let second = hold(&wq, 1);
        unblock.raise();
        back.wait();
        let beside = second.1.clone();
        let waits = wq.spawn_on(0, move || beside.is_raised());
        take_long(&wq, 0);
        let thief = pool(&wq, 1);
        assert_eq!(workers(&thief), [2, 0, 2]);
        over.raise();
        first.wait().unwrap();
        while workers(&thief) != [1, 1, 2] {
            assert_eq!(wq.stats().stolen, 0);
            thread::yield_now();
        }
        assert_eq!((wq.stats().stolen, waits.is_finished()), (0, false));
        end(second);
        assert!(waits.wait().unwrap(), "the second one has ended");
        assert_eq!(wq.stats().stolen, 1);
        end(busy);
    }
}
