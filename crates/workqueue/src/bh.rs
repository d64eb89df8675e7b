//! Whoever runs the items of BH queues on its own thread.
//!
//! To its pool a poller is a worker without a thread. While it comes in time it is the one that is
//! called, and a thread that has become a worker leaves the rest to it after its item. A poller
//! that does not come is late: the thread is brought, until the poller comes again.

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
use std::fmt;
use std::time::Duration;

/// So many items a poll runs that has no reason to choose another number.
pub const BH_BUDGET: usize = 10;

/// A poll that has run for so long does not begin another item.
const TIME: Duration = Duration::from_millis(2);

/// A poller that has been called and does not come for so long is late: a thread runs what waits.
/// By the system's clock.
pub const BH_PATIENCE: Duration = Duration::from_millis(10);

/// What a poll has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "if more waits, nobody calls again"]
pub struct Polled {
    /// So many items it has run.
    pub ran: usize,
    /// More wait. The poller is not told of them: it is to poll again, within [`BH_PATIENCE`].
    pub more: bool,
}

/// Runs the items of one CPU's BH queues, of all of them, on the thread that calls
/// [`poll`](BhPoller::poll): an event loop, for instance, that is pinned to that CPU.
///
/// As long as it comes in time nobody else runs them, and no thread is made for them. It is told by
/// the function given to [`bh_poller`](crate::WorkqueueSystem::bh_poller) when there is something
/// to run, once until it has polled. If it then does not poll for [`BH_PATIENCE`], or when it is
/// dropped, the thread `inflight/bh:N` of the CPU runs what waits, until the poller comes again.
/// So a poller may even wait for its own items: it only loses time. Once the system ends, the
/// thread runs all that is left.
///
/// Items run one at a time, those of [`highpri`](crate::WorkqueueBuilder::highpri) queues (from a
/// thread: beside the others) first, those of each queue in the order in which they were queued on
/// that CPU, and the queues by turns.
///
/// # What an item may not do
///
/// It may not sleep. [`blocking`](crate::blocking), and each wait of this library that would
/// sleep, panic in it; the panic is the item's, and counted. To flush, drain or destroy a queue,
/// [`flush`](crate::Work::flush), [`cancel_sync`](crate::Work::cancel_sync) and
/// [`disable_sync`](crate::Work::disable_sync) are
/// [`WouldDeadlock`](crate::WaitError::WouldDeadlock) there, whether they would have to wait or
/// not; [`JoinHandle::wait`](crate::JoinHandle::wait) is, unless the result is there. Other sleep
/// is not noticed, and holds up the loop.
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
    /// Of high priority, and the other.
    pools: Vec<Polling>,
}

/// A poller in one pool.
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
        // Who polls can be late.
        let started = shared.start_timer();
        started.map_err(|e| {
            let refused = PollerError::NoTimer(e.kind());
            shared.no_thread(PollerError::ShutDown, refused)
        })?;
        let mut poller = Self {
            cpu,
            pools: Vec::new(),
        };
        for nice in [HIGHPRI, 0] {
            let pool = system.pool(&PoolAttrs::of_cpu(cpu, nice, true), system.shared.machine());
            let shared = WorkerShared::new(shared, None);
            // Who has the first has both.
            let me = pool.register_poller(notify.clone(), &shared);
            let me = me.ok_or(PollerError::Taken(cpu))?;
            poller.pools.push(Polling { pool, me, shared });
        }
        // It came while the others were told.
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
    /// the system's clock. [`BH_BUDGET`] is a good budget. What the items queue, they queue on the
    /// poller's CPU.
    ///
    /// While the thread of the CPU runs an item, or is on its way, nothing is run; from then on the
    /// rest is the poller's, which is told of it, also if the thread was refused. Inside a BH item
    /// nothing is run either.
    ///
    /// The items' CPU time is the caller's, and not counted for the queues.
    pub fn poll(&mut self, budget: usize) -> Polled {
        if current::may_not_sleep() {
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
            // Who has not come is called as before.
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
    /// An entry into the batch, if the poller may run one. `here` says whether it has come.
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

    /// The poller, which has come, goes. Whether something waits for it.
    fn end(&self) -> bool {
        let mut state = self.pool.lock();
        state.end_batch(self.me, &self.shared.batch, &Settlement::default());
        state.core.workers.set_aside(self.me);
        // Once the system ends, the rest is the thread's.
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

impl fmt::Debug for BhPoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BhPoller")
            .field("cpu", &self.cpu)
            .finish_non_exhaustive()
    }
}

impl PoolState {
    pub(crate) fn is_poller(&self, worker: WorkerId) -> bool {
        self.poller.as_ref().is_some_and(|p| p.me == worker)
    }

    /// Whether there is a poller that nobody has called.
    pub(crate) fn is_poller_idle(&self) -> bool {
        let me = self.poller.as_ref().map(|p| p.me);
        me.is_some_and(|me| self.core.workers.get(me).phase == WorkerPhase::Idle)
    }

    /// Whether the poller, and not a thread, is to run what comes.
    pub(crate) fn is_polled(&self) -> bool {
        self.poller.as_ref().is_some_and(|p| !p.late && !p.relieved)
    }

    /// Who is brought for what is listed.
    pub(crate) fn need_poller(&mut self) -> WakeAction {
        let me = self.poller.as_ref().expect("it is polled").me;
        if !self.core.has_waiting() || self.core.workers.are_enough() {
            return WakeAction::None;
        }
        self.core.workers.wake_this(me)
    }
}

impl WorkerPool {
    /// The pool's poller, unless it has one.
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
            calls: 0,
            late: false,
            relieved: false,
            expected: false,
        });
        self.unlock(state, false);
        Some(me)
    }

    /// The poller goes for good.
    fn unseat_poller(&self) {
        let mut state = self.lock();
        let poller = state.poller.take();
        if let Some(poller) = &poller {
            state.core.workers.remove(poller.me);
        }
        self.unlock(state, true);
        self.dismiss_if_unused();
        // Outside the lock: what it captured is foreign.
        drop(poller);
    }

    /// The system ends; nobody waits for the poller any more.
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

    /// A poller that has not come does not count as on its way any more.
    fn give_up_call(&self, state: &mut PoolState, me: WorkerId) {
        if state.core.workers.get(me).phase == WorkerPhase::Waking {
            state.core.workers.set_flag(me, ASLEEP, true);
        }
    }

    /// The poller has been called, or knows that it is to come.
    fn poller_is_called(&self, state: &mut PoolState) {
        let Some(poller) = &mut state.poller else {
            return;
        };
        poller.calls += 1;
        poller.called = Some(poller.calls);
        let me = poller.me;
        let _ = state.core.workers.wake_this(me);
    }

    /// *call*, without a lock: the poller is told, and has its time. If it is another one by now,
    /// that one comes for nothing.
    pub(crate) fn call_poller(&self) {
        let notify = {
            let mut state = self.lock();
            self.poller_is_called(&mut state);
            state.poller.as_ref().map(|poller| poller.notify.clone())
        };
        self.expect_poller();
        if let Some(notify) = notify {
            contained(|| notify());
            // The last of them drops what it captured.
            contained(|| drop(notify));
        }
    }

    /// If the poller has been called, somebody will ask whether it has come.
    fn expect_poller(&self) {
        let call = {
            let mut state = self.lock();
            let Some(poller) = &mut state.poller else {
                return;
            };
            let call = poller.called.filter(|_| !poller.expected);
            poller.expected |= call.is_some();
            call
        };
        if let Some(call) = call {
            self.expect(call);
        }
    }

    fn expect(&self, call: u64) {
        let at = self.shared.clock.now() + BH_PATIENCE;
        let pool = self.arc();
        self.shared.set_duty(at, move || pool.call_is_over(call));
    }

    /// *late*: that call of the poller has had its time.
    fn call_is_over(&self, call: u64) {
        let mut state = self.lock();
        let Some(poller) = &mut state.poller else {
            return;
        };
        match poller.called {
            Some(last) if last != call => {
                drop(state);
                return self.expect(last);
            }
            None => {
                poller.expected = false;
                return;
            }
            Some(_) => {}
        }
        (poller.expected, poller.late) = (false, true);
        let me = poller.me;
        self.give_up_call(&mut state, me);
        self.unlock(state, true);
    }

    /// The poller has come. `false`: the thread runs an item or is on its way; when that has ended
    /// the rest is the poller's.
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
        state.core.workers.clear_flags(me);
        true
    }

    /// Whether the poller has been called and has not come.
    fn waits_for_poller(&self) -> bool {
        let state = self.lock();
        state.poller.as_ref().is_some_and(|p| p.called.is_some())
    }
}
