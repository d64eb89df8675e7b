//! What the random schedules share: small systems, threads on their CPUs, and counts of what ran.
//!
//! A panic inside an item is the workqueue's to count, not the test's to see. So items write down
//! what they find wrong, and the counts are looked at in the end.
#![allow(dead_code, reason = "each file uses its part")]

#[path = "../../../sync/tests/shuttle_support/mod.rs"]
mod all_crates;

pub(crate) use all_crates::Threads;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::fault::Faults;
use inflight_sync::model::{check_pct, check_random};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::Topology;
use inflight_workqueue::{Attrs, JoinError, QueueError, Workqueue, WorkqueueSystem, blocking};
use std::time::Duration;

/// When the timer looks first at a pool in which something waits.
pub(crate) const LOOK: Duration = Duration::from_micros(50);
pub(crate) const MS: Duration = Duration::from_millis(1);
/// After how long idle workers leave.
pub(crate) const IDLE: Duration = Duration::from_millis(20);

/// Schedules of each kind, for each mode.
const RUNS: usize = 40;

/// The machine, and whether workers take several items at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode(pub(crate) &'static str, pub(crate) bool);

const MODES: [Mode; 3] = [
    Mode("core:2", false),
    Mode("core:1", true),
    Mode("cache:2 core:1", true),
];

/// Both ways to choose schedules, for each mode.
pub(crate) fn check(name: &str, model: fn(Mode)) {
    for mode in MODES {
        let name = format!("{name}/{mode:?}");
        check_random(&name, RUNS, move || model(mode));
        check_pct(&name, RUNS, 3, move || model(mode));
    }
}

/// A system, its clock and who can be refused threads.
pub(crate) struct World {
    pub(crate) sys: WorkqueueSystem,
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
}

impl World {
    pub(crate) fn new(Mode(machine, batches): Mode) -> Self {
        let (clock, faults) = (Clock::manual(), Faults::new());
        let builder = WorkqueueSystem::builder()
            .topology(Topology::synthetic(machine).unwrap())
            .clock(clock.clone())
            .faults(&faults)
            .idle_timeout(IDLE)
            .sampling(batches);
        Self {
            sys: builder.build().unwrap(),
            clock,
            faults,
        }
    }

    /// An unbound queue of so many at once.
    pub(crate) fn unbound(&self, name: &str, max_active: usize) -> Workqueue {
        let draft = self.sys.workqueue(name).unbound(Attrs::new());
        draft.max_active(max_active).build().unwrap()
    }

    /// CPUs that both machines have.
    pub(crate) fn cpu(&self, n: usize) -> usize {
        n % self.sys.topology().cpus().len()
    }
}

/// Moves the time so often by so much, while others run.
pub(crate) fn tick(clock: &Clock, times: usize, by: Duration) {
    for _ in 0..times {
        clock.advance(by);
        thread::yield_now();
    }
}

/// What an item does before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    /// The pool is not told.
    Yield,
    Block,
}

/// Kinds by turns.
pub(crate) const fn act(n: usize) -> Act {
    match n % 3 {
        0 => Act::Block,
        1 => Act::Nothing,
        _ => Act::Yield,
    }
}

impl Act {
    fn run(self) {
        match self {
            Self::Nothing => {}
            Self::Yield => thread::yield_now(),
            Self::Block => blocking(thread::yield_now),
        }
    }
}

#[derive(Default)]
struct State {
    /// Accepted queueings, by number.
    queued: Vec<usize>,
    begun: Vec<usize>,
    ended: Vec<usize>,
    wrong: Vec<String>,
}

/// What was queued on a queue, began and ended, how many are inside, and what was wrong.
#[derive(Clone)]
pub(crate) struct RunCounts {
    state: Arc<Mutex<State>>,
    inside: Arc<AtomicUsize>,
    limit: Arc<AtomicUsize>,
}

impl RunCounts {
    /// Of a queue that may run so many at once.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            state: Arc::default(),
            inside: Arc::new(AtomicUsize::new(0)),
            limit: Arc::new(AtomicUsize::new(limit)),
        }
    }

    /// What begins from now on finds at most so many inside, itself too.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn wrong(&self, what: impl Into<String>) {
        self.state.lock().wrong.push(what.into());
    }

    /// Item `number` runs.
    pub(crate) fn run(&self, number: usize, act: Act) {
        self.state.lock().begun.push(number);
        let inside = self.inside.fetch_add(1, Ordering::Relaxed) + 1;
        let limit = self.limit.load(Ordering::Relaxed);
        if inside > limit {
            self.wrong(format!("{inside} inside, {limit} are allowed"));
        }
        act.run();
        self.inside.fetch_sub(1, Ordering::Relaxed);
        self.state.lock().ended.push(number);
    }

    pub(crate) fn queued(&self, number: usize) {
        self.state.lock().queued.push(number);
    }

    /// Spawns item `number` and then does `more`; the number is written down if it is taken.
    pub(crate) fn spawn_with(
        &self,
        wq: &Workqueue,
        cpu: usize,
        number: usize,
        more: impl FnOnce() + Send + 'static,
    ) -> Result<inflight_workqueue::JoinHandle<usize>, QueueError> {
        let run_counts = self.clone();
        let spawned = wq.try_spawn_on(cpu, move || {
            run_counts.run(number, act(number));
            more();
            number
        });
        match spawned {
            Ok(handle) => {
                self.queued(number);
                Ok(handle)
            }
            Err(rejected) => Err(rejected.error()),
        }
    }

    pub(crate) fn spawn(
        &self,
        wq: &Workqueue,
        cpu: usize,
        number: usize,
    ) -> Result<inflight_workqueue::JoinHandle<usize>, QueueError> {
        self.spawn_with(wq, cpu, number, || ())
    }

    /// What has been queued until now and is known to be.
    pub(crate) fn known(&self) -> Vec<usize> {
        self.state.lock().queued.clone()
    }

    pub(crate) fn begun(&self) -> usize {
        self.state.lock().begun.len()
    }

    pub(crate) fn ended(&self) -> usize {
        self.state.lock().ended.len()
    }

    /// All of these have ended: a flush or a drain that began after they were queued has.
    pub(crate) fn assert_ended(&self, numbers: &[usize]) {
        let state = self.state.lock();
        for number in numbers {
            assert!(state.ended.contains(number), "{number} has not ended");
        }
    }

    /// Nobody has found anything wrong.
    pub(crate) fn assert_right(&self) {
        let state = self.state.lock();
        assert!(state.wrong.is_empty(), "{:?}", state.wrong);
    }

    /// Everything accepted ran once, and nothing was wrong.
    pub(crate) fn assert_all_ran(&self) {
        self.assert_right();
        let state = self.state.lock();
        let sorted = |numbers: &[usize]| {
            let mut numbers = numbers.to_vec();
            numbers.sort_unstable();
            numbers
        };
        let queued = sorted(&state.queued);
        assert_eq!(sorted(&state.begun), queued, "begun");
        assert_eq!(sorted(&state.ended), queued, "ended");
    }

    /// Numbers of one hundred, which one thread has queued, began in their order.
    pub(crate) fn assert_in_order(&self) {
        let state = self.state.lock();
        let mut last = [None; 8];
        for number in &state.begun {
            let last = &mut last[number / 100];
            assert!(Some(*number) > *last, "out of order: {:?}", state.begun);
            *last = Some(*number);
        }
    }
}

/// What a queue says of itself in the end.
pub(crate) fn assert_settled(wq: &Workqueue) {
    let stats = wq.stats();
    assert_eq!((stats.active, stats.inactive), (0, 0), "{stats:?}");
    assert_eq!(stats.started, stats.completed, "{stats:?}");
    assert_eq!(stats.queued, stats.completed + stats.cancelled, "{stats:?}");
}

/// The number, or that the queue took nothing any more.
pub(crate) fn resolved(number: usize, result: Result<usize, JoinError>) -> bool {
    match result {
        Ok(result) => {
            assert_eq!(result, number);
            true
        }
        Err(JoinError::Rejected(_)) => false,
        Err(error) => panic!("{error:?}"),
    }
}
