//! What queueing and running allocate. In a file of its own: the allocator counts for the whole
//! process.
#![cfg(not(any(loom, shuttle, miri)))]

mod support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_topology::Scope;
use inflight_workqueue::{Attrs, Work, Workqueue, blocking};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use support::{Level, bound, builder, system};

inflight_sync::thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// Where else what the thread allocates is counted.
    static TOTAL: Cell<Option<&'static AtomicUsize>> = const { Cell::new(None) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the count is a thread-local without
// a destructor, so it can be used at any time.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        if let Some(total) = TOTAL.with(Cell::get) {
            // Relaxed: read while those who are counted do nothing.
            total.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// By this thread.
fn allocations(f: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    f();
    ALLOCATIONS.with(Cell::get) - before
}

const MANY: usize = 1_000;

/// A count for each test that watches, and how many have one.
static TOTALS: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Works, and what is allocated by whoever has run one.
struct Watched {
    works: Vec<Work>,
    runs: Level,
    total: &'static AtomicUsize,
}

impl Watched {
    /// Each does this, by its number, when it runs.
    fn new(each: impl Fn(usize) + Clone + Send + Sync + 'static) -> Self {
        let runs = Level::new();
        let total = &TOTALS[TAKEN.fetch_add(1, Ordering::Relaxed)];
        let make = |n| {
            let (runs, each) = (runs.clone(), each.clone());
            Work::new(move || {
                TOTAL.with(|counted| counted.set(Some(total)));
                each(n);
                runs.raise();
            })
        };
        let works = (0..100).map(make).collect();
        Self { works, runs, total }
    }

    /// Lets each run once, and that again and again. Returns what the caller and the workers
    /// allocate.
    fn rounds(&self, rounds: usize, queue: impl Fn(usize, &Work)) -> usize {
        TOTAL.with(|counted| counted.set(Some(self.total)));
        let before = self.total.load(Ordering::Relaxed);
        for _ in 0..rounds {
            let all = self.runs.get() + self.works.len();
            for (n, work) in self.works.iter().enumerate() {
                queue(n, work);
            }
            self.runs.wait_silently(all);
        }
        TOTAL.with(|counted| counted.set(None));
        self.total.load(Ordering::Relaxed) - before
    }

    /// What is allocated for each run in the long run.
    fn by_each_run(&self, queue: impl Fn(usize, &Work)) -> f64 {
        self.rounds(10, &queue);
        self.rounds(20, queue) as f64 / (20 * self.works.len()) as f64
    }
}

fn queue_on(wq: &Workqueue, cpu: usize, work: &Work) {
    assert!(wq.queue_on(cpu, work).unwrap().is_queued());
}

/// A slot that pools share goes from one to the other after each run.
#[test]
fn a_shared_limit_that_pends_allocates_nothing() {
    let sys = system();
    let wq = sys.workqueue("w");
    let wq = wq.unbound(Attrs::new().scope(Scope::Cache).strict(true));
    let wq = wq.max_active(1).build().unwrap();
    let watched = Watched::new(|_| ());
    let made = watched.by_each_run(|n, work| queue_on(&wq, n % 2 * 3, work));
    assert!(made < 0.1, "{made} by each run");
}

#[test]
fn an_ordered_queue_allocates_nothing() {
    let sys = system();
    let wq = sys.workqueue("w").ordered().build().unwrap();
    let watched = Watched::new(|_| ());
    let made = watched.by_each_run(|n, work| queue_on(&wq, n % 4, work));
    assert!(made < 0.1, "{made} by each run");
}

/// What is behind an item that blocks goes back, and another worker takes it.
#[test]
fn a_block_allocates_nothing() {
    // Workers take many at once only where somebody looks after them.
    let sys = builder().build().unwrap();
    let wq = bound(&sys);
    let watched = Watched::new(|n| {
        if n % 2 == 1 {
            blocking(|| ());
        }
    });
    let made = watched.by_each_run(|_, work| queue_on(&wq, 0, work));
    assert!(made < 0.1, "{made} by each run");
}

/// To wake the one who waits for a flush takes one allocation, and nothing else does.
#[test]
fn a_flush_makes_workers_allocate_once() {
    let sys = system();
    for wq in [bound(&sys), sys.workqueue("w").ordered().build().unwrap()] {
        let (begun, open) = (Level::new(), Level::new());
        let watched = Watched::new({
            let (begun, open) = (begun.clone(), open.clone());
            move |_| {
                begun.raise();
                open.wait_silently(begun.get());
            }
        });
        let flushes = || {
            let before = watched.total.load(Ordering::Relaxed);
            for work in &watched.works {
                queue_on(&wq, 0, work);
                let flush = wq.flush();
                open.raise();
                inflight_sync::block_on(flush).unwrap();
            }
            watched.total.load(Ordering::Relaxed) - before
        };
        flushes();
        let (made, flushed) = (flushes(), watched.works.len());
        assert!(made <= flushed + flushed / 5, "{made} by {flushed}");
    }
}

/// As many as wait together again and again, up to a thousand in a pool, have their places.
#[test]
fn a_burst_allocates_nothing_the_second_time() {
    let sys = system();
    let wq = bound(&sys);
    let works: Vec<_> = (0..MANY).map(|_| Work::new(|| ())).collect();
    let burst = || {
        let open = support::plug(&wq);
        let made = allocations(|| works.iter().for_each(|work| queue_on(&wq, 0, work)));
        open.raise();
        wq.flush_blocking().unwrap();
        made
    };
    let first = burst();
    let second = burst();
    assert!(second == 0, "{first}, and then {second} by {MANY} works");
}

/// Works allocate when they are made, and never when they are queued, the first time neither. What
/// waits is kept in pieces of 64 entries.
#[test]
fn queueing_a_work_allocates_nothing() {
    let sys = system();
    let wq = bound(&sys);
    let once: Vec<_> = (0..MANY).map(|_| Work::new(|| ())).collect();
    let repeating = (0..MANY).map(|_| Work::repeating("ends", || ControlFlow::Break(())));
    for works in [once, repeating.collect()] {
        let made = allocations(|| {
            for work in &works {
                wq.queue_on(0, work).unwrap();
            }
        });
        wq.flush_blocking().unwrap();
        assert!(made < MANY / 10, "{made} by {MANY} works");
    }
}

/// A function that is spawned is one allocation, and none once as many have come to their end as
/// are under way, whoever drops the last handle. What waits is kept in pieces of 64 entries.
#[test]
fn spawning_allocates_nothing_in_the_long_run() {
    /// Few enough to be kept.
    const SOME: usize = 500;
    let sys = system();
    let wq = bound(&sys);
    let mut handles = Vec::with_capacity(SOME);
    for keeps_handles in [false, true] {
        let mut round = || {
            let made = allocations(|| {
                for n in 0..SOME {
                    let handle = wq.spawn_on(0, move || n);
                    if keeps_handles {
                        handles.push(handle);
                    }
                }
            });
            wq.flush_blocking().unwrap();
            handles.clear();
            made
        };
        let first = round();
        assert!(first < SOME + SOME / 10, "{first} by {SOME} functions");
        let made: usize = (0..20).map(|_| round()).skip(10).sum();
        if inflight_sync::blocks::CACHED > 0 {
            assert!(made < 10 * SOME / 50, "{made} by {} functions", 10 * SOME);
        }
    }
}
