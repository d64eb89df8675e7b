//! The threads of a system: their start, their CPUs, and what timer and report thread do.

use crate::panics::{contained, dispose, notify_all};
use crate::proc;
use crate::reporter::{Report, WAITING_MAX};
use crate::system_shared::SystemShared;
use crate::threads::{self, End};
use crate::timer_queue::{Delayed, Due, Job, NotSet, TimerKey};
use crate::trace::{TraceEvent, TraceStep, emit};
use inflight_sync::atomic::Ordering;
use inflight_sync::thread::{Builder, JoinHandle};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, cpu};
use inflight_topology::CpuSet;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;

impl SystemShared {
    pub(crate) fn start_thread(
        self: &Arc<Self>,
        name: String,
        f: impl FnOnce() -> End + Send + 'static,
    ) -> io::Result<()> {
        // The lock is held during the start: a shutdown joins this thread or prevents it.
        let mut threads = self.threads.lock();
        if threads.stopped {
            return Err(io::Error::other("the workqueue system has been shut down"));
        }
        let id = threads.started;
        let shared = self.clone();
        let builder = Builder::new().name(name).faults(&self.faults);
        let handle = builder.spawn(move || {
            threads::begin(shared.address());
            let end = f();
            shared.threads.lock().over += 1;
            notify_all(&shared.thread_over);
            if end == End::Early {
                let before = shared.threads.lock().leave(id);
                if let Some(Err(payload)) = before.map(JoinHandle::join) {
                    dispose(payload);
                }
            }
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
        threads::is_of(self.address())
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
        self.timers.thread.start(|| self.start_timer_thread())
    }

    fn start_timer_thread(self: &Arc<Self>) -> io::Result<()> {
        let me = self.clone();
        self.start_thread("inflight/timer".to_owned(), move || run_timer(&me))
    }

    /// Sets a delayed item. For `make` see
    /// [`TimerQueue::set`](crate::timer_queue::TimerQueue::set).
    pub(crate) fn set_delayed<E>(
        self: &Arc<Self>,
        at: Instant,
        make: impl FnOnce() -> Result<Box<dyn Delayed>, E>,
    ) -> Result<Result<TimerKey, E>, NotSet> {
        let make = || make().map(Job::Delayed);
        let start = || self.start_timer_thread();
        self.timers.set(at, true, start, make)
    }

    /// `false` if it will not be done: for a pool only after the system's end, because the timer's
    /// thread starts before any worker.
    pub(crate) fn set_duty(
        self: &Arc<Self>,
        at: Instant,
        duty: impl FnOnce() + Send + 'static,
    ) -> bool {
        let make = || Ok::<_, Infallible>(Job::Duty(Box::new(duty)));
        let start = || self.start_timer_thread();
        self.timers.set(at, false, start, make).is_ok()
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
        let Some(tracer) = &self.tracing.tracer else {
            return emit(&event);
        };
        if !self.timers.is_own_thread() {
            emit(&event);
            contained(|| tracer(&event));
            return;
        }
        // The timer thread does not wait for the user's code.
        let tracer = tracer.clone();
        let (queue, item) = (queue.to_owned(), item.to_owned());
        self.report(move || {
            let event = TraceEvent {
                queue: &queue,
                item: &item,
                step,
                cpu,
            };
            emit(&event);
            tracer(&event);
        });
    }
}

fn run_timer(shared: &Arc<SystemShared>) -> End {
    let parker = shared.timers.arrive();
    let mut settled = None;
    while let Some(due) = shared.timers.due(shared.clock.now()) {
        shared.settle_housekeeper(0, &mut settled);
        match due {
            // Dropping the last reference to an item runs the user's code.
            Due::Now(key, job) => drop(contained(|| match job {
                Job::Delayed(delayed) => delayed.expire(key),
                Job::Duty(duty) => duty(),
            })),
            // Looks again, whether it was woken or the time has passed.
            Due::At(at) => drop(parker.park_until(&shared.clock, at)),
            Due::Nothing => parker.park(),
        }
    }
    End::WithSystem
}

fn run_reporter(shared: &Arc<SystemShared>) -> End {
    let mut settled = None;
    let settle = || shared.settle_housekeeper(0, &mut settled);
    let tell = |report: Report| {
        contained(report);
    };
    shared.reporter.inbox.serve(settle, tell);
    End::WithSystem
}
