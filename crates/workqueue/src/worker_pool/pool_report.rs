//! Reports of a pool, and the CPU time of its workers.

use super::{PoolState, WorkerPool};
use crate::batch::bit;
use crate::busy_worker::BusyWorker;
use crate::cpu_time::{self, Metered};
use crate::item::Function;
use crate::pool_core::{PwqIndex, Worker, WorkerId, WorkerPhase};
use crate::pwq::Pwq;
use crate::watchdog::{Stall, StallSite, Waiting};
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;
use inflight_sync::time::Instant;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PwqLevel {
    pub(crate) queued: u64,
    pub(crate) started: u64,
    pub(crate) completed: u64,
    pub(crate) cancelled: u64,
    pub(crate) executing: usize,
    pub(crate) waiting: usize,
}

impl PwqLevel {
    pub(crate) fn in_flight(&self) -> usize {
        self.executing + self.waiting
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            queued: self.queued + other.queued,
            started: self.started + other.started,
            completed: self.completed + other.completed,
            cancelled: self.cancelled + other.cancelled,
            executing: self.executing + other.executing,
            waiting: self.waiting + other.waiting,
        }
    }
}

/// Guests are in none of the numbers of workers: who steals counts in its own pool.
#[derive(Debug)]
pub(crate) struct PoolReport {
    pub(crate) workers: usize,
    pub(crate) idle: usize,
    pub(crate) blocked: usize,
    pub(crate) running: usize,
    pub(crate) target: usize,
    /// Entries that could run now, with enough workers.
    pub(crate) ready: usize,
    pub(crate) creating: bool,
    pub(crate) users: usize,
}

impl PoolState {
    /// The entry that a worker runs, by its number in the batch.
    fn running_entry(&self, worker: WorkerId) -> Option<u32> {
        let next = self.known_thread(worker)?.shared.batch.next();
        self.running_before(worker, next)
    }

    /// The same, if its batch was seen at `next`.
    fn running_before(&self, worker: WorkerId, next: u32) -> Option<u32> {
        // In this order: a worker sets `function` before it starts an entry.
        let thread = self.known_thread(worker)?;
        let w = self.core.workers.get(worker);
        // The entry at which a recall began is not the worker's, even if it was started: the worker
        // checks under the lock before it runs it. Others may have run and settled it.
        let is_others = |(from, _): (u32, u32)| next == from.wrapping_add(1);
        let begun = next != w.settled && !w.recalled.is_some_and(is_others);
        (begun && thread.shared.function.is_some()).then(|| next.wrapping_sub(1))
    }

    pub(super) fn running(&self, worker: WorkerId) -> Option<Arc<Pwq>> {
        let i = self.running_entry(worker)?;
        let taken = self.thread(worker).shared.batch.get(i);
        // SAFETY: an entry that is not settled keeps it alive.
        Some(self.pwq(unsafe { taken.pwq.as_ref() }.index).clone())
    }

    pub(crate) fn level(&self, index: PwqIndex) -> PwqLevel {
        let pwq = self.core.pwq(index);
        let (mut executing, mut ended, mut ran, mut uncounted) = (pwq.inline, 0, 0, 0);
        for (worker, w) in self.core.workers.iter() {
            let Some(thread) = self.known_thread(worker) else {
                continue;
            };
            let batch = &thread.shared.batch;
            // Read once: an entry started meanwhile has not ended.
            let next = batch.next();
            let running = self.running_before(worker, next);
            for (i, taken) in self.entries(worker) {
                // SAFETY: an entry that is not settled keeps it alive.
                if unsafe { taken.pwq.as_ref() }.index != index {
                    continue;
                }
                let counted = taken.entry.is_counted() || w.counted_later & bit(i) != 0;
                uncounted += usize::from(!counted);
                let begun = i.wrapping_sub(w.settled) < next.wrapping_sub(w.settled);
                if running == Some(i) {
                    executing += 1;
                } else if begun {
                    ended += 1;
                    ran += usize::from(!batch.is_skipped(i));
                }
            }
        }
        let in_flight = pwq.in_flight() + uncounted - ended;
        let reruns = self.pwq(index).reruns();
        let counters = pwq.counters();
        let completed = counters.ended + ran as u64 + reruns;
        PwqLevel {
            queued: counters.queued + uncounted as u64 + reruns,
            started: completed + executing as u64,
            completed,
            cancelled: counters.cancelled,
            executing,
            waiting: in_flight.saturating_sub(executing),
        }
    }

    /// Notes what workers run: recording each item's start would take longer than many items.
    pub(super) fn note_running(&mut self, now: Instant) {
        for worker in 0..self.threads.len() {
            let entry = self.running_entry(worker);
            if let Some(thread) = &mut self.threads[worker] {
                let before = thread.runs_since.filter(|(i, _)| Some(*i) == entry);
                thread.runs_since = before.or(entry.map(|i| (i, now)));
            }
        }
    }

    pub(super) fn busy_worker(&self, worker: WorkerId, now: Instant) -> Option<BusyWorker> {
        let i = self.running_entry(worker)?;
        let pwq = self.running(worker)?;
        let thread = self.thread(worker);
        let shared = &thread.shared;
        let function = shared.function.get().map_or("", Function::name);
        let since = thread.runs_since.filter(|(seen, _)| *seen == i);
        let told = shared.told.lock();
        let is_poller = self.is_poller(worker);
        let busy = BusyWorker {
            queue: pwq.wq.name.to_owned(),
            item: told.name(i).unwrap_or_else(|| function.to_owned()),
            description: told.description(i),
            running_for: since.map_or(Duration::ZERO, |(_, since)| now - since),
            thread_name: shared.thread_name.as_deref().map(str::to_owned),
            thread: thread.number.filter(|_| !is_poller),
            stack: None,
        };
        // The worker may have continued meanwhile.
        (self.running_entry(worker) == Some(i)).then_some(busy)
    }

    /// The workers that run items of the pwqs that `of` accepts.
    pub(crate) fn busy_workers(
        &mut self,
        now: Instant,
        of: impl Fn(PwqIndex) -> bool,
    ) -> Vec<BusyWorker> {
        self.note_running(now);
        let workers = self.core.workers.iter().map(|(worker, _)| worker);
        let chosen = workers.filter(|w| self.running(*w).is_some_and(|pwq| of(pwq.index)));
        chosen.filter_map(|w| self.busy_worker(w, now)).collect()
    }
}

impl WorkerPool {
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        state.note_running(now);
        let index = state.core.worklist().next()?;
        let pwq = state.pwq(index);
        let item = state.core.pwq(index).fifo.front()?.item;
        // SAFETY: its entry is in the queue, and the lock is held.
        let item = unsafe { item.name() };
        Some(Waiting {
            id: StallSite::Pool(self.id),
            // Relaxed: a later tick sees it.
            progress: state.core.progress() + self.touched.load(Ordering::Relaxed),
            stall: Stall {
                place: format!("pool {}", self.attrs.name(self.id)),
                item: format!("{}: {item}", pwq.wq.name),
                waiting: state.core.listed(),
                running: state.busy_workers(now, |_| true),
                since: Duration::ZERO,
            },
        })
    }

    /// An item that runs here makes progress. Relaxed: a later tick of the watchdog sees it.
    pub(crate) fn touch(&self) {
        self.touched.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> PoolReport {
        let state = self.lock();
        let workers = &state.core.workers;
        let mut phases = workers.iter().map(|(_, w)| w.phase);
        // A poller is a worker without a thread, and is not on the list of idle workers.
        let idle_poller = state.is_poller_idle();
        let own_blocked = |w: &Worker| w.is_blocked() && !w.is_guest();
        PoolReport {
            workers: workers.nr_workers(),
            idle: workers.nr_idle() + usize::from(idle_poller),
            blocked: workers.iter().filter(|(_, w)| own_blocked(w)).count(),
            running: workers.nr_running(),
            target: workers.target(),
            ready: state.core.ready(),
            creating: phases.any(|phase| phase == WorkerPhase::Creating),
            users: state.users,
        }
    }

    pub(crate) fn busy_workers(&self) -> Vec<BusyWorker> {
        let now = self.shared.clock.now();
        let mut busy = self.lock().busy_workers(now, |_| true);
        busy.iter_mut().for_each(BusyWorker::read_stack);
        busy
    }

    /// Whether the pool is in use: by a queue, a worker, a poller or remaining entries.
    pub(crate) fn is_in_use(&self) -> bool {
        let state = self.lock();
        let has_worker = state.core.workers.nr_workers() > 0;
        state.users > 0 || has_worker || !state.is_empty()
    }

    /// Lets the timer read the CPU time of the workers from now on.
    pub(crate) fn begin_metering(&self) {
        if self.shared.metering.is_on() && self.meter.arm() {
            self.do_after(cpu_time::PERIOD, Self::read_meter);
        }
    }

    /// Charges the CPU time of the workers, and plans the next reading if one of them runs.
    pub(crate) fn read_meter(&self) {
        let later = self.meter.read(&self.shared.metering, || self.metered());
        if let Some(later) = later.filter(|_| self.meter.arm()) {
            self.do_after(later, Self::read_meter);
        }
    }

    /// The workers whose CPU time can be read, and whether a thread is being created.
    fn metered(&self) -> (Vec<Metered>, bool) {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        state.note_running(now);
        let workers = state.core.workers.iter().filter_map(|(worker, w)| {
            let thread = state.known_thread(worker)?;
            if thread.own.is_some() {
                return None; // It is read in its own pool.
            }
            if state.is_poller(worker) {
                return None; // Any thread may poll; its time is its caller's.
            }
            Some(Metered {
                worker,
                idle: w.phase == WorkerPhase::Idle,
                blocked: w.is_blocked(),
                turn: state.core.progress(),
                thread: thread.number?,
                queue: thread.running_as().charged.queue(),
                before: thread.shared.charged.before,
            })
        });
        let metered = workers.collect();
        let mut workers = state.core.workers.iter();
        let coming = workers.any(|(_, w)| w.phase == WorkerPhase::Creating);
        (metered, coming)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::current::Context;
    use crate::test_support::{Rigged, Signal, until};

    #[test]
    fn a_worker_whose_thread_is_being_made_is_metered_when_it_has_come() {
        let sys = Rigged::new("core:1", |builder| builder);
        let wq = sys.0.workqueue("late").bound().build().unwrap();
        let pool = &wq.inner().pwq_of(0).unwrap().pool;
        let coming = pool.lock().core.workers.create();
        let (metered, comes) = pool.metered();
        assert!(comes && metered.is_empty());
        pool.lock().core.workers.remove(coming);
        assert!(!pool.metered().1);
    }

    /// The thread that made the poller may do something else meanwhile.
    #[test]
    fn the_maker_of_a_poller_is_not_metered() {
        let sys = Rigged::new("core:1", |builder| builder);
        let wq = sys.0.workqueue("polled").bh().build().unwrap();
        let mut poller = sys.0.bh_poller(0, || ()).unwrap();
        wq.spawn_on(0, || ()).detach();
        assert_eq!(poller.poll(1).ran, 1);
        let pool = &wq.inner().pwq_of(0).unwrap().pool;
        assert!(pool.metered().0.is_empty());
        drop(poller);
        let coming = pool.lock().core.workers.create();
        assert!(pool.metered().0.is_empty(), "it has the poller's number");
        pool.lock().core.workers.remove(coming);
    }

    /// Others may run and settle the entry, and its queue may be removed, before its worker checks.
    #[test]
    fn what_was_recalled_before_it_ran_is_not_running() {
        let sys = Rigged::new("core:1", |builder| builder);
        let wq = sys.0.workqueue("recalled").bound().build().unwrap();
        let [begun, open] = [(); 2].map(|()| Signal::default());
        let first = wq.spawn(until(&begun, &open, 1));
        begun.wait(1);
        let second = wq.spawn(|| ());
        let pool = &wq.inner().pwq_of(0).unwrap().pool;
        let mut state = pool.lock();
        let context = Context::attach(pool, &mut state, None, None);
        let (guest, shared) = (context.me, &context.shared);
        assert_eq!(state.take(guest, &shared.batch).entries, 1);
        let entry = shared.batch.next();
        state.recall(&[guest]);
        shared.function.set_unknown();
        let started = shared.batch.start(entry);
        let running = state.running(guest).is_some();
        shared.function.clear();
        drop(state);
        context.detach();
        open.raise();
        first.wait().unwrap();
        second.wait().unwrap();
        assert!(!started, "it was recalled");
        assert!(!running, "it may be somebody else's");
    }

    /// The CPU time that a worker uses for another pool's item is charged to that item's queue,
    /// also if it is first read when the worker is back.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_stolen_item_is_charged_to_its_queue() {
        use crate::Attrs;
        use inflight_sync::thread;
        use inflight_topology::Scope;

        let sys = Rigged::new("core:2", |builder| builder);
        let attrs = Attrs::new().scope(Scope::Cpu);
        let wq = sys.0.workqueue("stolen").unbound(attrs).build().unwrap();
        let [busy, thief] = [0, 1].map(|cpu| wq.inner().pwq_of(cpu).unwrap().pool.clone());
        let [begun, open] = [(); 2].map(|()| Signal::default());
        let [first, second] = [1, 2].map(|number| {
            let item = wq.spawn_on(0, until(&begun, &open, 3 - number));
            begun.wait(number);
            // The next item takes long, and there is another pool.
            busy.lock().core.note_service(1 << 40);
            item
        });
        let charged = || thief.metered().0[0].queue;
        assert_eq!(charged(), wq.inner().number);
        open.raise();
        second.wait().unwrap();
        while thief.lock().core.workers.nr_idle() == 0 {
            thread::yield_now();
        }
        assert_eq!(charged(), wq.inner().number);
        open.raise();
        first.wait().unwrap();
        assert_eq!(wq.stats().stolen, 1);
    }
}
