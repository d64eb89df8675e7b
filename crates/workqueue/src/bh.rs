//! Pollers: threads of the user that run the items of BH queues.
//!
//! For its pool a poller is a worker without a thread. The pool calls it, and the thread leaves the
//! remaining items to it after its own. While a poller does not poll in time, it is late, and the
//! pool uses the thread.

use crate::attrs::HIGHPRI;
use crate::current::{self, Context};
use crate::error::PollerError;
use crate::panics::contained;
use crate::pool_attrs::PoolAttrs;
use crate::pool_core::{ASLEEP, WakeAction, WorkerId, WorkerPhase};
use crate::system_inner::SystemInner;
use crate::worker;
use crate::worker_pool::{BhNotify, PollerState, PoolState, Settlement, WorkerPool, WorkerShared};
use crate::workqueue_inner::QueueHost;
use inflight_sync::{Arc, MutexGuard, cpu};
use std::time::Duration;

/// The budget for a poll that has no reason to choose another one.
pub const BH_BUDGET: usize = 10;

/// A poll that has run for so long begins no further item.
const TIME: Duration = Duration::from_millis(2);

/// How long a poller that was called may take to poll before it is late. Then a thread runs the
/// waiting items. By the system's clock.
pub const BH_PATIENCE: Duration = Duration::from_millis(10);

/// The result of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "if more waits, nobody calls again"]
pub struct Polled {
    /// How many items the poll ran.
    pub ran: usize,
    /// Whether more items wait: it has to poll again, unasked, within [`BH_PATIENCE`].
    pub more: bool,
}

/// Runs the items of all BH queues of one CPU on the thread that calls [`poll`](BhPoller::poll):
/// for instance an event loop that is pinned to that CPU.
///
/// While it polls in time, no other thread runs these items, and none is started for them. When
/// there is something to run, the function given to
/// [`bh_poller`](crate::WorkqueueSystem::bh_poller) notifies it once until it polls. If it does not
/// poll within [`BH_PATIENCE`], or is dropped, or the system shuts down, the thread `inflight/bh:N`
/// of the CPU runs the waiting items until it polls again.
///
/// Items run one at a time. Those of [`highpri`](crate::WorkqueueBuilder::highpri) queues run first
/// (on the threads, beside the others). The items of a queue run in the order in which they were
/// queued on that CPU. The queues take turns.
///
/// # What an item may not do
///
/// It may not sleep. [`blocking`](crate::blocking), and each wait of this library that would sleep,
/// panic in it; the panic counts as the item's. Waits that can fail return
/// [`WouldDeadlock`](crate::WaitError::WouldDeadlock), whether they would have to wait or not;
/// [`JoinHandle::wait`](crate::JoinHandle::wait) only if the result is not there. Other ways to
/// sleep are not detected and hold up the loop.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use std::sync::mpsc;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let (call, called) = mpsc::channel(); // in an event loop: an eventfd
/// let mut poller = sys.bh_poller(0, move || drop(call.send(())))?;
///
/// let done = sys.workqueue("done").bh().build()?;
/// let sum = done.spawn_on(0, || 1 + 2);
/// called.recv()?;
/// while poller.poll(10).more {}
/// assert_eq!(sum.wait()?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BhPoller {
    cpu: usize,
    /// The highpri pool, then the normal one.
    pools: Vec<Polling>,
}

struct Polling {
    pool: Arc<WorkerPool>,
    me: WorkerId,
    shared: Arc<WorkerShared>,
}

impl BhPoller {
    pub(crate) fn new(
        system: &Arc<SystemInner>,
        cpu: usize,
        notify: BhNotify,
    ) -> Result<Self, PollerError> {
        let shared = &system.shared;
        if !shared.has_cpu(cpu) {
            return Err(PollerError::NoSuchCpu(cpu));
        }
        if system.is_shut() {
            return Err(PollerError::ShutDown);
        }
        // The timer detects a late poller.
        let started = shared.start_timer();
        started.map_err(shared.no_thread(PollerError::ShutDown, PollerError::NoTimer))?;
        let mut poller = Self {
            cpu,
            pools: Vec::new(),
        };
        for nice in [HIGHPRI, 0] {
            let pool = system.pool(&PoolAttrs::of_cpu(cpu, nice, true), system.shared.machine());
            let shared = WorkerShared::new(shared, None);
            // The poller that has the first pool has both.
            let me = pool.register_poller(notify.clone(), &shared);
            let me = me.ok_or(PollerError::Taken(cpu))?;
            poller.pools.push(Polling { pool, me, shared });
        }
        // The shutdown may have missed this poller's pools.
        if system.is_shut() {
            return Err(PollerError::ShutDown);
        }
        Ok(poller)
    }

    /// The CPU whose items it runs.
    #[must_use]
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// Runs up to `budget` items on the calling thread, and begins none once 2 ms have passed by
    /// the system's clock. [`BH_BUDGET`] is a good budget. Items that these items queue go to the
    /// poller's CPU.
    ///
    /// While the thread of the CPU runs an item or is being woken, the poll runs nothing. After
    /// that the remaining items are the poller's, and it is notified of them, also if the thread
    /// was refused. Inside a BH item the poll runs nothing either. In the destructor of a
    /// thread-local it may run nothing, and then does not count as a poll.
    ///
    /// The items' CPU time is the caller's, and is not counted for the queues.
    pub fn poll(&mut self, budget: usize) -> Polled {
        if current::may_not_sleep() || !current::can_install() {
            return Polled::default();
        }
        let before = cpu::swap_current_for_thread(Some(self.cpu));
        let clock = self.pools[0].pool.shared.clock.clone();
        let end = clock.now() + TIME;
        let mut here = [false; 2];
        let mut polled = Polled::default();
        while polled.ran < budget && (polled.ran == 0 || clock.now() < end) {
            let mut pools = self.pools.iter().zip(&mut here);
            let next = pools.find_map(|(polling, here)| polling.take(here).then_some(polling));
            let Some(polling) = next else { break };
            polling.run();
            polled.ran += 1;
        }
        for (polling, here) in self.pools.iter().zip(here) {
            // A pool in which the poller may not run calls it later, as before.
            polled.more |= if here {
                polling.end()
            } else {
                polling.pool.waits_for_poller()
            };
        }
        cpu::swap_current_for_thread(before);
        polled
    }
}

impl Polling {
    /// Takes an entry, if the poller may run one. `here`: whether it counts as running.
    fn take(&self, here: &mut bool) -> bool {
        let mut state = self.pool.lock();
        if !*here {
            *here = self.pool.poller_comes(&mut state);
        }
        if !*here {
            return false;
        }
        state.end_batch(self.me, &self.shared.batch, &Settlement::default());
        let taken = state.take(self.me, &self.shared.batch).entries > 0;
        self.pool.unlock(state, false);
        taken
    }

    fn run(&self) {
        let context = Context::new(self.pool.clone(), self.me, self.shared.clone(), None);
        worker::run_as_guest(&context);
    }

    /// The poller stops running in this pool. Returns whether items wait for it.
    fn end(&self) -> bool {
        let mut state = self.pool.lock();
        state.end_batch(self.me, &self.shared.batch, &Settlement::default());
        state.core.workers.set_aside(self.me);
        // After a shutdown the remaining items are the thread's.
        let more = state.core.has_waiting() && state.is_polled();
        if more {
            self.pool.poller_is_called(&mut state);
        }
        self.pool.unlock(state, false);
        if more {
            self.pool.expect_poller();
        }
        more
    }
}

impl Drop for BhPoller {
    fn drop(&mut self) {
        for polling in &self.pools {
            polling.pool.unseat_poller();
        }
    }
}

inflight_sync::debug_fields!(BhPoller: |this| cpu = this.cpu);

impl PoolState {
    pub(crate) fn is_poller(&self, worker: WorkerId) -> bool {
        self.poller.as_ref().is_some_and(|p| p.me == worker)
    }

    /// Whether there is a poller that has not been called.
    pub(crate) fn is_poller_idle(&self) -> bool {
        let me = self.poller.as_ref().map(|p| p.me);
        me.is_some_and(|me| self.core.workers.get(me).phase == WorkerPhase::Idle)
    }

    /// Whether the poller, and not a thread, is to run new items.
    pub(crate) fn is_polled(&self) -> bool {
        self.poller.as_ref().is_some_and(|p| !p.late && !p.relieved)
    }

    pub(crate) fn need_poller(&mut self) -> WakeAction {
        let me = self.poller.as_ref().expect("the pool has a poller").me;
        if !self.core.has_waiting() || self.core.workers.are_enough() {
            return WakeAction::None;
        }
        self.core.workers.wake_this(me)
    }
}

impl WorkerPool {
    fn register_poller(&self, notify: BhNotify, shared: &Arc<WorkerShared>) -> Option<WorkerId> {
        let mut state = self.lock();
        if state.poller.is_some() {
            return None;
        }
        let me = state.core.workers.add_aside();
        state.register(me, shared.clone());
        state.poller = Some(PollerState {
            me,
            notify,
            called: None,
            late: false,
            relieved: false,
        });
        self.unlock(state, false);
        Some(me)
    }

    fn unseat_poller(&self) {
        let mut state = self.lock();
        let poller = state.poller.take();
        let me = poller.as_ref().map(|poller| poller.me);
        let thread = me.map(|me| self.remove_worker(&mut state, me));
        self.unlock(state, true);
        self.dismiss_if_unused();
        // Dropped outside the lock: the function's captures are the user's.
        drop((poller, thread));
    }

    /// The system shuts down, and the pool no longer waits for the poller.
    pub(crate) fn relieve_poller(&self) {
        let mut state = self.lock();
        let Some(poller) = &mut state.poller else {
            return;
        };
        (poller.relieved, poller.called) = (true, None);
        let me = poller.me;
        self.give_up_call(&mut state, me);
        self.unlock(state, true);
    }

    /// A poller that has not polled no longer counts as being woken.
    fn give_up_call(&self, state: &mut PoolState, me: WorkerId) {
        if state.core.workers.get(me).phase == WorkerPhase::Waking {
            state.core.workers.set_flag(me, ASLEEP, true);
        }
    }

    /// The poller is called, or knows that it has to poll. A relieved one polls no more.
    fn poller_is_called(&self, state: &mut PoolState) {
        let Some(poller) = state.poller.as_mut().filter(|p| !p.relieved) else {
            return;
        };
        poller.called = Some(self.shared.clock.now() + BH_PATIENCE);
        let me = poller.me;
        let _ = state.core.workers.wake_this(me);
    }

    /// *call*, without a lock: notifies the poller, or the one that has replaced it.
    pub(crate) fn call_poller(&self) {
        let notify = {
            let mut state = self.lock();
            self.poller_is_called(&mut state);
            state.poller.as_ref().map(|poller| poller.notify.clone())
        };
        self.expect_poller();
        if let Some(notify) = notify {
            contained(|| notify());
            // The last reference drops the function's captures.
            contained(|| drop(notify));
        }
    }

    /// If the poller has been called, plans the check whether it has polled.
    fn expect_poller(&self) {
        let mut state = self.lock();
        let called = state.poller.as_ref().and_then(|poller| poller.called);
        let called = called.filter(|_| !state.expected);
        state.expected |= called.is_some();
        drop(state);
        if let Some(until) = called {
            self.do_at(until, Self::check_poller);
        }
    }

    /// *late*: the time limit of a call has passed, perhaps of an earlier one.
    fn check_poller(&self) {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        state.expected = false;
        let late = |poller: &&mut PollerState| poller.called.is_some_and(|until| until <= now);
        if let Some(poller) = state.poller.as_mut().filter(late) {
            poller.late = true;
            let me = poller.me;
            self.give_up_call(&mut state, me);
            self.unlock(state, true);
        } else {
            drop(state);
            self.expect_poller();
        }
    }

    /// `false` if the thread runs an item or is being woken: the rest is then the poller's.
    fn poller_comes(&self, state: &mut MutexGuard<'_, PoolState>) -> bool {
        let Some(poller) = &mut state.poller else {
            return false;
        };
        if poller.relieved {
            return false;
        }
        (poller.called, poller.late) = (None, false);
        let me = poller.me;
        let own = state.core.workers.get(me).is_running();
        if state.core.workers.nr_running() > usize::from(own) {
            state.core.workers.set_aside(me);
            return false;
        }
        let _ = state.core.workers.wake_this(me);
        state.core.workers.arrive(me);
        true
    }

    fn waits_for_poller(&self) -> bool {
        let state = self.lock();
        state.poller.as_ref().is_some_and(|p| p.called.is_some())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::test_support::Rigged;

    /// A thread that has queued an item is about to call the poller. Before it does, the poller has
    /// run the item, and the system's end has relieved the poller.
    #[test]
    fn who_calls_a_relieved_poller_keeps_no_thread_away() {
        let sys = Rigged::new("core:1", |builder| builder);
        let wq = sys.0.workqueue("done").bh().build().unwrap();
        let _poller = sys.0.bh_poller(0, || ()).unwrap();
        let pool = &wq.inner().pwq_of(0).unwrap().pool;
        pool.relieve_poller();
        pool.call_poller();
        assert_eq!(pool.lock().core.workers.nr_running(), 0);
        wq.spawn_on(0, || ()).wait().unwrap();
    }

    /// The time of the first poller's call comes when the second one has just been called.
    #[test]
    fn a_new_poller_is_not_late_for_the_call_of_the_one_before() {
        let sys = Rigged::new("core:1", |builder| builder);
        let wq = sys.0.workqueue("done").bh().build().unwrap();
        for _ in 0..2 {
            let mut poller = sys.0.bh_poller(0, || ()).unwrap();
            wq.spawn_on(0, || ()).detach();
            wq.inner().pwq_of(0).unwrap().pool.check_poller();
            assert_eq!(poller.poll(10).ran, 1);
        }
    }

    /// The time of a call that the poller has followed comes when it has been called again.
    #[test]
    fn who_looks_too_early_for_a_call_looks_again() {
        let sys = Rigged::new("core:1", |builder| builder);
        let wq = sys.0.workqueue("done").bh().build().unwrap();
        let _poller = sys.0.bh_poller(0, || ()).unwrap();
        wq.spawn_on(0, || ()).detach();
        let pool = &wq.inner().pwq_of(0).unwrap().pool;
        pool.check_poller();
        assert!(pool.lock().expected);
    }

    #[test]
    fn many_calls_that_are_followed_set_one_timer() {
        let sys = Rigged::new("core:1", |builder| builder);
        let wq = sys.0.workqueue("done").bh().build().unwrap();
        let mut poller = sys.0.bh_poller(0, || ()).unwrap();
        let jobs = || sys.0.inner.shared.timers.jobs_set();
        let before = jobs();
        for _ in 0..3 {
            wq.spawn_on(0, || ()).detach();
            assert_eq!(poller.poll(10).ran, 1);
        }
        assert_eq!(jobs(), before + 1);
    }
}
