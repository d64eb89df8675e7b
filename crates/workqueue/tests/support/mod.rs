//! What the black-box tests share: systems of known shape, and levels that a test raises.
#![allow(dead_code, reason = "each test file uses its part")]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::fault::Faults;
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{Attrs, DelayedWork, SystemBuilder, Work, Workqueue, WorkqueueSystem};
#[cfg(unix)]
use std::io::Read;
use std::ops::{ControlFlow, Deref};
#[cfg(unix)]
use std::os::unix::net::UnixStream;

/// A system on [`four_cpus`].
/// Numbers of workers are exact only if nobody is taken for asleep: a thread that waits for a lock
/// looks so. Sampling has tests of its own.
pub(crate) fn system() -> WorkqueueSystem {
    builder().sampling(false).build().unwrap()
}

/// For a system on [`four_cpus`].
pub(crate) fn builder() -> SystemBuilder {
    WorkqueueSystem::builder().topology(four_cpus())
}

/// For a system where one item runs at a time, or one worker, unless it blocks.
pub(crate) fn one_cpu() -> SystemBuilder {
    WorkqueueSystem::builder().topology(Topology::synthetic("core:1").unwrap())
}

/// A system that can be refused threads, and whose time the test moves.
pub(crate) fn rigged(builder: SystemBuilder) -> (Rigged, Faults, Clock) {
    let clock = Clock::manual();
    let (sys, faults) = refusable(builder.clock(clock.clone()));
    (sys, faults, clock)
}

/// A system that can be refused threads.
pub(crate) fn refusable(builder: SystemBuilder) -> (Rigged, Faults) {
    let faults = Faults::new();
    let sys = builder.faults(&faults).build().unwrap();
    (Rigged(sys), faults)
}

/// A system whose items may wait for a thread, or a time, that a test which has failed does not let
/// come. It is then not shut down: that would wait, and the test would not say how it has failed.
pub(crate) struct Rigged(WorkqueueSystem);

impl Deref for Rigged {
    type Target = WorkqueueSystem;
    fn deref(&self) -> &WorkqueueSystem {
        &self.0
    }
}

impl Drop for Rigged {
    fn drop(&mut self) {
        if thread::panicking() {
            std::mem::forget(self.0.clone());
        }
    }
}

/// For items that are to be small: for an interpreter every one is long, unless its clock stands.
pub(crate) fn small_items(builder: SystemBuilder) -> SystemBuilder {
    if cfg!(miri) {
        return builder.clock(Clock::manual());
    }
    builder
}

/// So many times; an interpreter does less.
pub(crate) const fn times(n: usize) -> usize {
    if cfg!(miri) { n.div_ceil(20) } else { n }
}

/// Two caches of two CPUs each, whatever the machine is.
pub(crate) fn four_cpus() -> Topology {
    Topology::synthetic("cache:2 core:2").unwrap()
}

pub(crate) fn bound(sys: &WorkqueueSystem) -> Workqueue {
    sys.workqueue("bound").bound().build().unwrap()
}

/// A queue of each kind. Those named `bound`, `unbound` and `ordered` are freezable.
pub(crate) fn every_kind(sys: &WorkqueueSystem) -> Vec<Workqueue> {
    let attrs = Attrs::new().scope(Scope::Cache);
    let unbound = |name, attrs: &Attrs| sys.workqueue(name).unbound(attrs.clone());
    let builders = [
        sys.workqueue("bound").bound().freezable(),
        sys.workqueue("high").bound().highpri(),
        unbound("unbound", &attrs).max_active(2).freezable(),
        unbound("strict", &attrs.clone().strict(true)),
        sys.workqueue("ordered").ordered().freezable(),
        sys.workqueue("bh").bh(),
        unbound("reclaim", &attrs).mem_reclaim(),
    ];
    builders.into_iter().map(|b| b.build().unwrap()).collect()
}

/// A number that threads wait for. Waiting on a worker counts as blocking.
#[derive(Clone, Default)]
pub(crate) struct Level(Arc<(AtomicUsize, Event)>);

impl Level {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn raise(&self) {
        // Ordering: Release, pairs with the Acquire in `get`.
        self.0.0.fetch_add(1, Ordering::Release);
        self.0.1.notify_all();
    }

    pub(crate) fn get(&self) -> usize {
        // Ordering: Acquire, pairs with the Release in `raise`.
        self.0.0.load(Ordering::Acquire)
    }

    pub(crate) fn wait(&self, at_least: usize) {
        self.0.1.wait_while(|| self.get() < at_least);
    }

    /// Waits without the pool knowing: the worker stays counted as running.
    pub(crate) fn wait_silently(&self, at_least: usize) {
        while self.get() < at_least {
            thread::yield_now();
        }
    }
}

/// A work that counts its runs in `runs`, after `release` has been raised once for each.
pub(crate) fn held_work() -> (Work, Level, Level) {
    let (release, begun) = (Level::new(), Level::new());
    let work = Work::new({
        let (release, begun) = (release.clone(), begun.clone());
        move || {
            begun.raise();
            release.wait(begun.get());
        }
    });
    (work, release, begun)
}

/// A delayed work that counts its runs.
pub(crate) fn delayed_counting() -> (DelayedWork, Level) {
    let runs = Level::new();
    let work = DelayedWork::new({
        let runs = runs.clone();
        move || runs.raise()
    });
    (work, runs)
}

/// A work that counts its runs.
pub(crate) fn counting(runs: &Level) -> Work {
    let runs = runs.clone();
    Work::new(move || runs.raise())
}

/// So many looks, and somebody hangs: far more than it can take where a CPU is lost for seconds.
/// Each yields, so on a busy machine they take longer.
pub(crate) const LOOKS: usize = 50_000_000;

/// Waits until it is so, by looking. If it never is, says what there is instead.
pub(crate) fn until(mut is_so: impl FnMut() -> bool, or: impl Fn() -> String) {
    let mut looks = 0;
    while !is_so() {
        looks += 1;
        assert!(looks < LOOKS, "{}", or());
        thread::yield_now();
    }
}

/// Waits until all have ended, by looking. `news` moves with each step of anybody; if it does not
/// for long, says what there is.
pub(crate) fn watch(
    news: &AtomicUsize,
    threads: Vec<thread::JoinHandle<()>>,
    or: impl Fn() -> String,
) {
    let (mut seen, mut looks) = (0, 0);
    while threads.iter().any(|thread| !thread.is_finished()) {
        // Relaxed: the number alone is looked at.
        let now = news.load(Ordering::Relaxed);
        looks = if now == seen { looks + 1 } else { 0 };
        seen = now;
        assert!(looks < 2 * LOOKS, "hangs: {}", or());
        thread::yield_now();
    }
    for thread in threads {
        thread.join().unwrap_or_else(|_| panic!("{}", or()));
    }
}

/// Fills CPU 0's pool with an item that does not tell that it waits.
pub(crate) fn plug(wq: &Workqueue) -> Level {
    let (open, begun) = (Level::new(), Level::new());
    let plug = Work::new({
        let (open, begun) = (open.clone(), begun.clone());
        move || {
            begun.raise();
            open.wait_silently(1);
        }
    });
    assert!(wq.queue_on(0, &plug).unwrap().is_queued());
    begun.wait(1);
    open
}

/// A work that runs until it is stopped, and counts.
pub(crate) fn endless(runs: &Level) -> Work {
    let runs = runs.clone();
    Work::repeating("endless", move || {
        runs.raise();
        ControlFlow::Continue(())
    })
}

/// A work that runs so many times whenever it is queued. `each` is told which run that is, from 1.
pub(crate) fn so_often(times: usize, each: impl Fn(usize) + Send + Sync + 'static) -> Work {
    let runs = AtomicUsize::new(0);
    Work::repeating("so often", move || {
        // Relaxed: it runs once at a time.
        let run = runs.fetch_add(1, Ordering::Relaxed) % times + 1;
        each(run);
        if run < times {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })
}

/// What happened, in order.
#[derive(Clone, Default)]
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone> Log<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())))
    }

    pub(crate) fn push(&self, entry: T) {
        self.0.lock().push(entry);
    }

    pub(crate) fn entries(&self) -> Vec<T> {
        self.0.lock().clone()
    }
}

/// How many are inside at once, and how many ever were.
#[derive(Clone, Default)]
pub(crate) struct Inside(Arc<(AtomicUsize, AtomicUsize)>);

impl Inside {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn enter(&self) {
        // Relaxed: the counts alone are looked at.
        let now = self.0.0.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.1.fetch_max(now, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn most(&self) -> usize {
        self.0.1.load(Ordering::Relaxed)
    }
}

/// What one end reads ends when the other one is dropped.
#[cfg(unix)]
pub(crate) fn pipe() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

/// A worker sleeps, and does not say so.
#[cfg(unix)]
pub(crate) fn sleep_silently(mut end: &UnixStream) {
    assert_eq!(end.read(&mut [0]).unwrap(), 0, "the other end is dropped");
}
