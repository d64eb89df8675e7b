//! The threads of a system, from their start until they are joined: their names, their CPUs, and
//! what the timer and the report thread do.
//!
//! The report thread calls the user's report functions: a slow one delays only later reports, and
//! destructors that would delay the timer.

use crate::inbox::Inbox;
use crate::panics::{contained, dispose};
use crate::proc;
use crate::system_shared::SystemShared;
use crate::timer_queue::{Due, Job};
use crate::trace::{TraceEvent, TraceStep};
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::thread::{Builder, JoinHandle};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, cpu, thread};
use inflight_topology::CpuSet;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;

inflight_sync::thread_local! {
    /// The address of the thread's system, valid until the last of its locals is destroyed.
    static SYSTEM: Cell<usize> = const { Cell::new(0) };
    /// The name that a system gave this thread when it started it.
    static NAME: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

pub(crate) fn name() -> Option<Arc<str>> {
    // A thread whose locals are being destroyed has no name.
    NAME.try_with(|name| name.borrow().clone()).ok().flatten()
}

#[derive(Default)]
pub(crate) struct Threads {
    running: BTreeMap<u64, JoinHandle<()>>,
    started: u64,
    /// The thread that ended last. The next one to end joins it, or the system.
    pub(crate) left: Option<JoinHandle<()>>,
    /// No more threads are started.
    pub(crate) stopped: bool,
    /// Somebody joins the last thread.
    pub(crate) joining: bool,
}

impl Threads {
    /// A thread ends. Returns the one that ended before it, to be joined.
    fn leave(&mut self, id: u64) -> Option<JoinHandle<()>> {
        let own = self.running.remove(&id)?;
        self.left.replace(own)
    }
}

/// Joins a thread whose function has returned.
pub(crate) fn join(thread: Option<JoinHandle<()>>) {
    if let Some(Err(payload)) = thread.map(JoinHandle::join) {
        dispose(payload);
    }
}

/// The most reports that wait; further ones are dropped.
const WAITING_MAX: usize = 1_024;

/// One call of a user's function.
pub(crate) type Report = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Reporter {
    pub(crate) inbox: Inbox<Report>,
    /// Dropped because too many waited, or there was no thread. Relaxed: a statistic.
    pub(crate) dropped: AtomicU64,
}

impl SystemShared {
    pub(crate) fn start_thread(
        self: &Arc<Self>,
        name: String,
        f: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        // The lock is held during the start: a shutdown waits for this thread or prevents it.
        let mut threads = self.threads.lock();
        if threads.stopped {
            return Err(io::Error::other("the workqueue system has been shut down"));
        }
        let id = threads.started;
        let shared = self.clone();
        let builder = Builder::new().name(name).faults(&self.faults);
        self.ended.add();
        let handle = builder.spawn(move || {
            SYSTEM.with(|system| system.set(shared.address()));
            NAME.with(|name| name.replace(thread::current_name().map(Into::into)));
            f();
            let before = shared.threads.lock().leave(id);
            join(before);
            shared.ended.done();
        });
        let handle = handle.inspect_err(|_| {
            self.ended.done();
        })?;
        threads.started += 1;
        threads.running.insert(id, handle);
        Ok(())
    }

    /// Why there is no thread: the system has ended, which may have been meanwhile, or `refused`.
    pub(crate) fn no_thread<E>(
        &self,
        ended: E,
        refused: fn(io::ErrorKind) -> E,
    ) -> impl FnOnce(io::Error) -> E {
        move |e| {
            if self.threads.lock().stopped {
                ended
            } else {
                refused(e.kind())
            }
        }
    }

    pub(crate) fn is_own_thread(&self) -> bool {
        let system = SYSTEM.try_with(Cell::get);
        system.is_ok_and(|system| system == self.address())
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Sets the calling thread's CPUs and priority, as far as the system permits.
    pub(crate) fn settle_thread(&self, cpus: &CpuSet, nice: i32) {
        // If pinning is refused, the thread runs elsewhere; what it queues stays in its group.
        let _ = self.machine().pin_current_thread_for_good(cpus);
        if let Err(why) = proc::set_nice(nice, self.base_nice) {
            *self.nice_refused.lock() = Some(why);
        }
    }

    /// The same for threads of the whole system, which use the CPUs of unbound queues.
    pub(crate) fn settle_housekeeper(&self, nice: i32, settled: &mut Option<usize>) {
        self.settle_if_moved(settled, || {
            let cpus = self.unbound_cpus.lock().clone();
            self.settle_thread(&cpus, nice);
        });
    }

    /// Starts the timer's thread. Models have none: their timers expire on request.
    pub(crate) fn start_timer(self: &Arc<Self>) -> io::Result<()> {
        self.timers.thread.start(|| {
            let me = self.clone();
            self.start_thread("inflight/timer".to_owned(), move || run_timer(&me))
        })
    }

    /// `false` if it will not be done: for a pool only after the system's end, because the timer's
    /// thread starts before any worker.
    pub(crate) fn set_duty(
        self: &Arc<Self>,
        at: Instant,
        duty: impl FnOnce() + Send + 'static,
    ) -> bool {
        let make = || Ok::<_, Infallible>(Job::Duty(Box::new(duty)));
        self.start_timer().is_ok() && self.timers.set(at, false, make).is_ok()
    }

    pub(crate) fn report(self: &Arc<Self>, report: impl FnOnce() + Send + 'static) {
        if self.push_report(Box::new(report), WAITING_MAX).is_err() {
            self.reporter.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs `f`, which may run the user's destructors. On the timer's thread, which may not be
    /// delayed, it is a report.
    pub(crate) fn apart(self: &Arc<Self>, f: impl FnOnce() + Send + 'static) {
        if !self.timers.is_own_thread() {
            return f();
        }
        if let Err(f) = self.push_report(Box::new(f), usize::MAX) {
            f();
        }
    }

    fn push_report(self: &Arc<Self>, report: Report, most: usize) -> Result<(), Report> {
        let start = || {
            let me = self.clone();
            self.start_thread("inflight/report".to_owned(), move || run_reporter(&me))
        };
        let may = |waiting: &VecDeque<Report>| waiting.len() < most;
        self.reporter.inbox.push(report, may, start)
    }

    /// Reports a step on this CPU to the user's code: no lock may be held.
    pub(crate) fn trace(self: &Arc<Self>, queue: &str, item: &str, step: TraceStep) {
        self.trace_on(queue, item, step, cpu::current());
    }

    /// The same, for the given CPU.
    pub(crate) fn trace_on(self: &Arc<Self>, queue: &str, item: &str, step: TraceStep, cpu: usize) {
        let event = TraceEvent {
            queue,
            item,
            step,
            cpu,
        };
        if self.tracing.is_recording() {
            self.tracing.push(self.clock.now(), &event);
        }
        if self.tracing.tracer.is_none() || !self.timers.is_own_thread() {
            return self.tracing.tell(&event);
        }
        // The timer thread does not wait for the user's code.
        let (me, queue, item) = (self.clone(), queue.to_owned(), item.to_owned());
        self.report(move || {
            me.tracing.tell(&TraceEvent {
                queue: &queue,
                item: &item,
                step,
                cpu,
            });
        });
    }
}

fn run_timer(shared: &Arc<SystemShared>) {
    let parker = shared.timers.arrive();
    let mut settled = None;
    while let Some(due) = shared.timers.due(shared.clock.now()) {
        shared.settle_housekeeper(0, &mut settled);
        match due {
            Due::Now(job) => job.run(),
            // Looks again, whether it was woken or the time has passed.
            Due::At(at) => drop(parker.park_until(&shared.clock, at)),
            Due::Nothing => parker.park(),
        }
    }
}

fn run_reporter(shared: &Arc<SystemShared>) {
    let mut settled = None;
    let settle = || shared.settle_housekeeper(0, &mut settled);
    let tell = |report: Report| {
        contained(report);
    };
    shared.reporter.inbox.serve(settle, tell);
}
