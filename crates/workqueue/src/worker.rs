//! A worker thread: takes batches, runs their items, waits for more.

use crate::busy_worker::WorkerDesc;
use crate::current::{self, Context};
use crate::item::{ItemPtr, NotRun, Parked, ReusableRef, RunScope, Runner};
use crate::pool_core::{WorkerId, WorkerPhase, slice};
use crate::proc;
use crate::pwq::{BatchTaken, Pwq, Taken};
use crate::submitters;
use crate::threads;
use crate::trace::TraceStep;
use crate::worker_pool::{PoolState, Settlement, WorkerPool, WorkerShared};
use crate::workqueue_inner::Count;
use inflight_sync::time::Instant;
use inflight_sync::{Arc, MutexGuard, Parker, cpu};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

mod linger;
mod pace;

use linger::Linger;
use pace::Pace;

/// How many entries ahead of the running one a worker prefetches items.
const AHEAD: u32 = 8;

/// How often in a row a repeating work may run, and how long after the first run.
const RERUNS: u32 = if cfg!(loom) { 2 } else { 32 };
const RERUNS_FOR: Duration = Duration::from_micros(20);

/// Batches of at least this many entries are always timed.
const TIMED_TOGETHER: u32 = 8;

pub(crate) fn run(pool: &Arc<WorkerPool>, me: WorkerId) {
    submitters::is_a_worker();
    let mut settled = None;
    pool.settle_worker(&mut settled);
    let parker = Parker::current();
    let shared = WorkerShared::new(&pool.shared, threads::name());
    let context = Context::new(pool.clone(), me, shared.clone(), None);
    let installed = current::install(context.clone());
    let mut worker = Worker {
        pool,
        me,
        context,
        pace: Pace::new(pool.is_looked_after()),
        linger: Linger::new(),
        round: 0,
        settlement: Settlement::default(),
        service_ns: None,
    };
    let mut state = pool.lock();
    state.register(me, shared.clone());
    state.core.workers.arrive(me);
    let mut lingered = false;
    let last = loop {
        state.end_batch(me, &shared.batch, &worker.settlement);
        match worker.take(state, &mut lingered) {
            Next::Again(again) => state = again,
            Next::Ran => {
                lingered = false;
                state = pool.lock();
            }
            Next::Leave(last) => break last,
            Next::Park(last) => {
                lingered = false;
                pool.enter_idle(last, me);
                worker.sleep(|| {
                    while !shared.take_woken() {
                        parker.park();
                    }
                });
                state = pool.lock();
                if state.core.workers.get(me).phase == WorkerPhase::Leaving {
                    break state;
                }
                state.core.workers.arrive(me);
                if pool.strays() {
                    drop(state);
                    pool.repatriate(&worker.context);
                    state = pool.lock();
                }
            }
        }
        if pool.shared.must_settle(settled) {
            // CPUs have come online or gone offline: pins itself again.
            pool.unlock(state, false);
            pool.settle_worker(&mut settled);
            state = pool.lock();
        }
    };
    pool.leave(last, me);
    drop(installed);
}

struct Worker<'a> {
    pool: &'a Arc<WorkerPool>,
    me: WorkerId,
    context: Rc<Context>,
    pace: Pace,
    linger: Linger,
    round: u32,
    /// What has ended of its batch.
    settlement: Settlement,
    /// The measured time of an item of the last batch, if the pool does not know it yet.
    service_ns: Option<u64>,
}

enum Next<'a> {
    /// A batch was run.
    Ran,
    /// Something may have come.
    Again(MutexGuard<'a, PoolState>),
    Park(MutexGuard<'a, PoolState>),
    Leave(MutexGuard<'a, PoolState>),
}

impl<'a> Worker<'a> {
    fn take(&mut self, mut state: MutexGuard<'a, PoolState>, lingered: &mut bool) -> Next<'a> {
        if let Some(ns) = self.service_ns.take() {
            state.core.note_service(ns);
        }
        let batch = &self.context.shared.batch;
        // If a poller serves the pool, the entries are the poller's.
        let is_too_many = state.core.workers.are_too_many() || state.is_polled();
        if !is_too_many {
            let taken = state.take(self.me, batch);
            self.pace.took(taken.entries);
            if taken.entries > 0 {
                self.run_taken(state, taken);
                return Next::Ran;
            }
        }
        self.took_nothing(state, is_too_many, lingered)
    }

    /// Lingers, steals, sleeps or leaves. Separate: batches run on a small stack frame.
    #[inline(never)]
    fn took_nothing(
        &mut self,
        mut state: MutexGuard<'a, PoolState>,
        is_too_many: bool,
        lingered: &mut bool,
    ) -> Next<'a> {
        let batch = &self.context.shared.batch;
        if state.has_deferred() {
            self.pool.unlock(state, false);
            return Next::Again(self.pool.lock());
        }
        if WorkerPool::is_over(&state) {
            return Next::Leave(state);
        }
        if is_too_many {
            return Next::Park(state);
        }
        let may_linger = !*lingered && !state.core.workers.is_lingering() && self.lingers();
        if let Some(mode) = may_linger.then(|| self.linger.mode(self.pool)).flatten() {
            *lingered = true;
            self.pool.set_lingering(&mut state, true);
            drop(state);
            self.linger.wait(mode, self.pool);
            let mut state = self.pool.lock();
            self.pool.set_lingering(&mut state, false);
            return Next::Again(state);
        }
        if let Some(theft) = self.pool.theft(&state) {
            drop(state);
            if self.pool.steal(theft, self.me) {
                *lingered = false;
                return Next::Ran;
            }
            state = self.pool.lock();
            state.end_batch(self.me, batch, &self.settlement);
            let comes = state.core.has_waiting() && !state.core.workers.are_too_many();
            if comes || WorkerPool::is_over(&state) {
                return Next::Again(state);
            }
        }
        Next::Park(state)
    }

    fn run_taken(&mut self, state: MutexGuard<'_, PoolState>, taken: BatchTaken) {
        let service_ns = state.core.service_ns();
        let mut pauses =
            Pace::is_short(taken.entries, service_ns) && !state.core.waits_for(self.me);
        let batch = &self.context.shared.batch;
        let batching = self.pool.is_looked_after();
        // No worker is told of appended entries, so they are allowed only in a watched pool.
        let room = if state.watched { slice(service_ns) } else { 0 };
        let begin = batch.next();
        self.context.begin_batch(begin, room);
        self.pool.unlock(state, false);
        self.round = self.round.wrapping_add(1);
        let timed = batching
            && (taken.entries as u32 >= TIMED_TOGETHER
                || self.round % 8 == 0
                || service_ns >= 1_000);
        if timed {
            let began = self.pool.shared.clock.now();
            let ran = run_batch(&self.context);
            let now = self.pool.shared.clock.now();
            self.pool.shared.submitters.tick(now);
            let ns = u64::try_from((now - began).as_nanos()).unwrap_or(u64::MAX);
            self.service_ns = Some(ns / u64::from(ran.max(1)));
            pauses &= Pace::is_short(1, ns);
        } else {
            run_batch(&self.context);
        }
        self.settlement.count_all(batch, begin, &taken);
        if !self.context.pushed.replace(false) && pauses {
            self.pace.pause(taken.entries);
        }
    }

    fn lingers(&self) -> bool {
        self.pool.is_looked_after() && !cfg!(any(loom, shuttle))
    }

    fn sleep(&mut self, until_woken: impl FnOnce()) {
        if self.lingers() {
            self.linger.sleep(&self.pool.shared.clock, until_woken);
        } else {
            until_woken();
        }
        self.pace.slept();
    }
}

/// Runs the entries of the calling thread's batch, and what their items append. Returns how many.
pub(crate) fn run_batch(context: &Context) -> u32 {
    let batch = &context.shared.batch;
    let mut i = batch.next();
    let mut ran = 0;
    for ahead in 0..AHEAD.min(batch.end().wrapping_sub(i)) {
        batch.get(i.wrapping_add(ahead)).entry.item.prefetch();
    }
    context.shared.function.set_unknown();
    while i != batch.end() {
        if !batch.start(i) {
            if !context.pool.answer_recall(context.me, batch, i) {
                break;
            }
            context.end_appends();
        }
        if batch.end().wrapping_sub(i) > AHEAD {
            batch.get(i.wrapping_add(AHEAD)).entry.item.prefetch();
        }
        let taken = batch.get(i);
        while !run_entry(context, taken, i) {
            // The item runs elsewhere.
            if context.pool.park_entry(context.me, batch, i) {
                break;
            }
        }
        i = i.wrapping_add(1);
        ran += 1;
    }
    context.shared.function.clear();
    ran
}

/// Runs an entry; `false` if its item runs elsewhere.
#[inline]
fn run_entry(context: &Context, taken: Taken, i: u32) -> bool {
    let Taken { entry, pwq } = taken;
    // SAFETY: an entry of a batch that is not settled keeps the pwq alive.
    let pwq = unsafe { pwq.as_ref() };
    // SAFETY: the entry keeps the item alive.
    let function = unsafe { entry.item.function() };
    context.shared.function.set(function);
    context.begin_item(pwq, i);
    let shared = &context.pool.shared;
    let runner = ItemRunner {
        context,
        pwq,
        began: Cell::new(None),
    };
    let scope = RunScope {
        traced: shared.tracing.is_on(),
        runner: &runner,
        runs: &context.item_runs,
    };
    // SAFETY: the worker owns the entry: it has started it, and the entry was not recalled.
    let run = || unsafe { entry.item.run(entry.seq(), &scope) };
    let ran = if shared.known_blockers.knows(function.key()) {
        run_blocking(context, function.key(), run)
    } else {
        run()
    };
    context.end_item();
    match ran {
        Err(NotRun::Elsewhere) => return false,
        Err(NotRun::Stale) => context.shared.batch.mark_skipped(i),
        Ok(()) => context.count_repatriation(pwq),
    }
    true
}

/// Runs an item inside a blocking section, because its function is known to sleep.
#[cold]
fn run_blocking(
    context: &Context,
    function: usize,
    run: impl FnOnce() -> Result<(), NotRun>,
) -> Result<(), NotRun> {
    let section = current::begin_blocking();
    let before = proc::used_here();
    let ran = run();
    if let Some((before, after)) = before.zip(proc::used_here()) {
        let used = after.saturating_sub(before);
        context.pool.shared.known_blockers.used(function, used);
    }
    drop(section);
    ran
}

struct ItemRunner<'a> {
    context: &'a Context,
    pwq: &'a Pwq,
    /// When `may_rerun` first read the clock.
    began: Cell<Option<Instant>>,
}

impl Runner for ItemRunner<'_> {
    /// Allowed only if the time can be measured and nothing else waits.
    fn may_rerun(&self, runs: u32) -> bool {
        let (context, pwq) = (self.context, self.pwq);
        // A worker that was found asleep, or CPU-intensive, has been recalled.
        let stays = !context.has_blocked() && !context.shared.batch.is_recalled();
        let is_traced = || context.pool.shared.tracing.is_on();
        let may = stays && pwq.may_append() && runs < RERUNS && pwq.wq.may_rerun() && !is_traced();
        if !may || !context.pool.is_looked_after() {
            return false;
        }
        // Reading the clock takes longer than the shortest items.
        if runs > 4 && runs % 4 != 0 {
            return true;
        }
        let now = context.pool.shared.clock.now();
        let since = self.began.get().unwrap_or(now);
        self.began.set(Some(since));
        now - since < RERUNS_FOR
    }

    fn has_rerun(&self, times: u32) {
        self.pwq.count_reruns(times);
    }

    #[cold]
    fn trace(&self, item: &str, step: TraceStep) {
        let (shared, queue) = (&self.pwq.wq.shared, &self.pwq.wq.name);
        if step == TraceStep::Started {
            shared.trace(queue, item, TraceStep::Activated);
        }
        shared.trace(queue, item, step);
    }

    fn tell_name(&self, name: &str) {
        let tell = |desc: &mut WorkerDesc, entry| name.clone_into(&mut desc.of(entry).name);
        self.context.tell(tell);
    }

    fn requeue(&self, item: ItemPtr) {
        // SAFETY: only reusable items call this, before their end, and the calling thread runs it.
        let item = unsafe { ReusableRef::of_running(item) };
        let wq = &self.pwq.wq;
        if wq.queue(&item, cpu::current()).is_err() {
            wq.counted(Count::Refused);
        }
    }

    fn panicked(&self, item: &str, message: Option<&str>) {
        self.pwq.wq.panicked(item, message);
    }

    fn put_back(&self, item: ItemPtr, parked: Parked) {
        let of = crate::pwq::by_id(parked.pwq).expect("a parked entry keeps its pwq alive");
        of.pool.unpark_entry(&of, item, parked);
    }
}

/// Runs the batch on the calling thread, as a worker of the pool or as a guest.
pub(crate) fn run_as_guest(context: &Rc<Context>) -> u32 {
    let installed = current::install(context.clone());
    let ran = run_batch(context);
    drop(installed);
    ran
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
