//! How much CPU time the items of each queue use, as
//! [`SystemBuilder::cpu_time`](crate::SystemBuilder::cpu_time) says. Nothing is measured around an
//! item, because that would cost more than many items take.

use crate::proc;
use inflight_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, Weak};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time between two readings while workers use CPU time.
pub(crate) const PERIOD: Duration = Duration::from_millis(10);

/// The same while running workers use none: they sleep without having said so.
const SLOW: Duration = Duration::from_millis(100);

/// The state that the meters of a system share. Relaxed, here and below: statistics.
#[derive(Default)]
pub(crate) struct Metering {
    on: AtomicBool,
    next: AtomicU64,
    /// By queue number: what its items have used, in ns.
    queues: Mutex<BTreeMap<u64, Weak<AtomicU64>>>,
}

impl Metering {
    pub(crate) fn is_on(&self) -> bool {
        // Threads of a model have no CPU time.
        !cfg!(any(loom, shuttle)) && self.on.load(Ordering::Relaxed)
    }

    /// Returns whether it was off. Stays off without CPU times, and with a manual clock.
    pub(crate) fn switch_on(&self, clock: &Clock) -> bool {
        let possible = proc::used_here().is_some() && !clock.is_manual();
        possible && !self.on.swap(true, Ordering::Relaxed)
    }

    /// A number for a new queue. 0 means no queue.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn register(&self, number: u64, used_ns: &Arc<AtomicU64>) {
        let mut queues = self.queues.lock();
        queues.retain(|_, queue| queue.strong_count() > 0);
        queues.insert(number, Arc::downgrade(used_ns));
    }

    fn charge(&self, number: u64, used: Duration) {
        let queue = self.queues.lock().get(&number).and_then(Weak::upgrade);
        if let Some(used_ns) = queue {
            let ns = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
            used_ns.fetch_add(ns, Ordering::Relaxed);
        }
    }
}

pub(crate) struct Charged {
    /// The number of the queue whose item it runs, or ran last.
    queue: AtomicU64,
    /// What its thread had used when it became a worker, if the measurement was on.
    pub(crate) before: Option<Duration>,
}

impl Charged {
    pub(crate) fn new(metering: &Metering) -> Self {
        let before = metering.is_on().then(proc::used_here);
        Self {
            queue: AtomicU64::new(0),
            before: before.flatten(),
        }
    }

    pub(crate) fn set(&self, queue: u64) {
        if cfg!(any(loom, shuttle)) {
            return; // Models do not read it, and each step is expensive in a model.
        }
        self.queue.store(queue, Ordering::Relaxed);
    }

    pub(crate) fn queue(&self) -> u64 {
        self.queue.load(Ordering::Relaxed)
    }
}

pub(crate) struct Metered {
    pub(crate) worker: usize,
    pub(crate) idle: bool,
    pub(crate) blocked: bool,
    /// Batches that its pool has handed out.
    pub(crate) turn: u64,
    pub(crate) thread: u32,
    pub(crate) queue: u64,
    pub(crate) before: Option<Duration>,
}

#[derive(Default)]
pub(crate) struct Meter {
    /// Whether the timer has an entry for it.
    armed: AtomicBool,
    readings: Mutex<Readings>,
}

#[derive(Default)]
struct Readings {
    workers: BTreeMap<usize, Reading>,
    period: Duration,
}

struct Reading {
    thread: u32,
    turn: u64,
    idle: bool,
    clock: proc::CpuClock,
    used: Duration,
}

impl Reading {
    /// The earlier reading, if it is of the same thread.
    fn of(before: Option<Self>, worker: &Metered) -> Option<Self> {
        if let Some(known) = before.filter(|r| r.thread == worker.thread) {
            return Some(known);
        }
        let clock = proc::CpuClock::open(worker.thread)?;
        let used = match worker.before {
            Some(used) => used,
            None => clock.read()?, // What it used before was not asked for.
        };
        let thread = worker.thread;
        Some(Self {
            thread,
            turn: 0,
            idle: false,
            clock,
            used,
        })
    }

    /// What the thread has used since the last call.
    fn advance(&mut self, worker: &Metered) -> Duration {
        let rested = self.idle && worker.idle && self.turn == worker.turn;
        (self.idle, self.turn) = (worker.idle, worker.turn);
        // A worker without an item may begin one before its clock is read. What it has used by then
        // is read later, and charged to its first queue.
        if rested || worker.queue == 0 {
            return Duration::ZERO;
        }
        let Some(used) = self.clock.read() else {
            return Duration::ZERO;
        };
        let before = std::mem::replace(&mut self.used, used);
        used.saturating_sub(before)
    }
}

impl Meter {
    /// A worker is about to run. Returns whether the timer has to be set for it.
    ///
    /// Relaxed: the pool's lock orders this, which follows the worker's leaving the idle list, with
    /// the look of [`read`](Meter::read), which follows its clearing of `armed`.
    pub(crate) fn arm(&self) -> bool {
        !self.armed.load(Ordering::Relaxed) && !self.armed.swap(true, Ordering::Relaxed)
    }

    /// Reads and charges what the workers have used. `look` returns them, and whether more are
    /// coming. Returns when to read again, `None` if no worker runs or comes.
    pub(crate) fn read(
        &self,
        metering: &Metering,
        look: impl FnOnce() -> (Vec<Metered>, bool),
    ) -> Option<Duration> {
        self.armed.store(false, Ordering::Relaxed);
        let mut readings = self.readings.lock();
        let (workers, coming) = look();
        let mut before = std::mem::take(&mut readings.workers);
        let mut sum = Duration::ZERO;
        for worker in &workers {
            let before = before.remove(&worker.worker);
            if let Some(mut reading) = Reading::of(before, worker) {
                let used = reading.advance(worker);
                metering.charge(worker.queue, used);
                readings.workers.insert(worker.worker, reading);
                sum += used;
            }
        }
        let nobody_computes = sum < readings.period / 100;
        readings.period = if nobody_computes {
            (readings.period * 2).clamp(PERIOD, SLOW)
        } else {
            PERIOD
        };
        // They may use CPU time before their pool is called again.
        let running = coming || workers.iter().any(|w| !w.idle && !w.blocked);
        running.then_some(readings.period)
    }
}

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;

    /// This thread as a worker that runs an item of a queue; 0 if it has run none yet.
    fn this_thread(queue: u64) -> Metered {
        Metered {
            worker: 0,
            idle: false,
            blocked: false,
            turn: 1,
            thread: rustix::thread::gettid().as_raw_nonzero().get() as u32,
            queue,
            before: proc::used_here(),
        }
    }

    #[test]
    fn what_is_used_before_the_queue_is_known_is_charged_to_it() {
        let start = proc::used_here().unwrap();
        let mut reading = Reading::of(None, &this_thread(0)).unwrap();
        while proc::used_here().unwrap() - start < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        assert_eq!(reading.advance(&this_thread(0)), Duration::ZERO);
        assert!(reading.advance(&this_thread(1)) >= Duration::from_millis(4));
    }

    /// A thread that arrives does not arm the timer again.
    #[test]
    fn the_reading_before_a_thread_has_come_is_not_the_last() {
        let (meter, metering) = (Meter::default(), Metering::default());
        assert!(meter.read(&metering, || (Vec::new(), true)).is_some());
        assert_eq!(meter.read(&metering, || (Vec::new(), false)), None);
    }

    #[test]
    fn a_queue_is_charged_once() {
        let (metering, used) = (Metering::default(), Arc::<AtomicU64>::default());
        metering.register(7, &used);
        metering.charge(7, Duration::from_nanos(5));
        metering.charge(8, Duration::from_nanos(3));
        assert_eq!(used.load(Ordering::Relaxed), 5);
    }

    /// The timer is set once for each reading, and not for a worker that says that it sleeps.
    #[test]
    fn one_timer_is_set_for_those_that_run() {
        let (meter, metering) = (Meter::default(), Metering::default());
        assert_eq!([meter.arm(), meter.arm()], [true, false]);
        let sleeps = Metered {
            blocked: true,
            ..this_thread(1)
        };
        assert_eq!(meter.read(&metering, || (vec![sleeps], false)), None);
        assert!(meter.arm());
    }

    /// Readings become rare while nobody computes, and frequent again.
    #[test]
    fn who_sleeps_silently_is_read_seldom() {
        let (meter, metering) = (Meter::default(), Metering::default());
        let read = |worker| meter.read(&metering, || (vec![worker], true)).unwrap();
        let me = || this_thread(1);
        let asleep = || Metered { idle: true, ..me() };
        read(asleep());
        let periods = [(); 5].map(|()| read(asleep()).as_millis());
        assert_eq!(periods, [20, 40, 80, 100, 100]);
        let start = proc::used_here().unwrap();
        while proc::used_here().unwrap() - start < Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        assert_eq!(read(me()), PERIOD);
    }
}
