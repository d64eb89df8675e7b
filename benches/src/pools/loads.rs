//! The loads, for any pool.

use super::Pool;
use crate::machine::process_cpu_time;
use inflight_sync::CachePadded;
use std::cell::Cell;
use std::fmt;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Items that have run. One load runs at a time in a process.
static DONE: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));

/// How long a load took.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// From the first item queued to the last one ended.
    pub wall: Duration,
    /// How many CPUs the process used meanwhile.
    pub cpus: f64,
}

/// What a burst of sleeping items gave.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// See [`Spent::wall`].
    pub wall: Duration,
    /// The most threads beside those that were there before the pool.
    pub peak: usize,
    /// How many of them were left a second later.
    pub later: usize,
}

/// The loads, for any contender: the inner loop knows its type.
pub trait PoolLoads: fmt::Debug + Send + Sync {
    /// `n` items that count themselves, from so many producers. They capture 32 bytes, or nothing.
    fn empty(&self, n: u64, producers: usize, capture: bool) -> Spent;

    /// An item that queues itself `hops` times.
    fn chain(&self, hops: u64) -> Spent;

    /// Submit, done, the submitter wakes: so many times, with a busy pause before each. In ns.
    fn ping(&self, times: usize, pause: Duration) -> Vec<u32>;

    /// `n` items that compute for `each`.
    fn fan_out(&self, n: u64, each: Duration) -> Spent;

    /// 64 items that sleep for 1 ms, in between 448 that compute for 20 us. `None` if the items
    /// were to say that they sleep and cannot.
    fn mixed(&self, say: bool) -> Option<Spent>;

    /// 1,000 items that sleep for 1 ms. `base` threads were there before the pool.
    fn burst(&self, say: bool, base: usize) -> Option<Burst>;

    /// Queues `n` items while `workers` others keep all threads, and then calls `queued`.
    fn hold(&self, workers: usize, n: usize, queued: &mut dyn FnMut());
}

/// A pool that lives as long as the process, so that items may refer to it.
#[derive(Debug)]
pub(super) struct Lasting<P: Pool>(&'static P);

/// Boxes one for the table.
pub(super) fn lasting<P: Pool>(pool: P) -> Box<dyn PoolLoads> {
    Box::new(Lasting(Box::leak(Box::new(pool))))
}

pub(super) fn done() {
    // Ordering: Release, pairs with the load of whoever waits for the count.
    DONE.fetch_add(1, Ordering::Release);
}

/// Runs `start`, then waits until `n` items have called [`done`].
pub(super) fn until_done(n: u64, wait: impl Fn(), start: impl FnOnce()) -> Spent {
    DONE.store(0, Ordering::Relaxed);
    let (begin, cpu) = (Instant::now(), process_cpu_time());
    start();
    // Ordering: Acquire, pairs with `done`.
    while DONE.load(Ordering::Acquire) < n {
        wait();
    }
    let wall = begin.elapsed();
    Spent {
        wall,
        cpus: (process_cpu_time() - cpu).as_secs_f64() / wall.as_secs_f64(),
    }
}

/// A short wait that leaves the CPU to the workers.
pub(super) fn nap() {
    thread::sleep(Duration::from_micros(50));
}

pub(crate) fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}

const SLEEP: Duration = Duration::from_millis(1);

fn sleeping<P: Pool>(say: bool) {
    if say {
        P::may_sleep(|| thread::sleep(SLEEP));
    } else {
        thread::sleep(SLEEP);
    }
    done();
}

fn hop<P: Pool>(pool: &'static P, left: u64) {
    if left == 0 {
        return done();
    }
    pool.spawn(move || hop(pool, left - 1));
}

impl<P: Pool> PoolLoads for Lasting<P> {
    fn empty(&self, n: u64, producers: usize, capture: bool) -> Spent {
        let each = n / producers as u64;
        let produce = || {
            for _ in 0..each {
                if capture {
                    let captured = black_box([1_u64, 2, 3, 4]);
                    self.0.spawn(move || {
                        black_box(&captured);
                        done();
                    });
                } else {
                    self.0.spawn(done);
                }
            }
        };
        until_done(each * producers as u64, thread::yield_now, || {
            if producers == 1 {
                return produce();
            }
            thread::scope(|scope| {
                for _ in 0..producers {
                    scope.spawn(produce);
                }
            });
        })
    }

    fn chain(&self, hops: u64) -> Spent {
        until_done(1, nap, || hop(self.0, hops))
    }

    fn ping(&self, times: usize, pause: Duration) -> Vec<u32> {
        static REACHED: AtomicBool = AtomicBool::new(false);
        let ping = |_| {
            compute(pause);
            REACHED.store(false, Ordering::Relaxed);
            let me = thread::current();
            let start = Instant::now();
            self.0.spawn(move || {
                // Ordering: Release, pairs with the load below.
                REACHED.store(true, Ordering::Release);
                me.unpark();
            });
            // Ordering: Acquire, pairs with the store above.
            while !REACHED.load(Ordering::Acquire) {
                thread::park();
            }
            start.elapsed().as_nanos() as u32
        };
        (0..times).map(ping).collect()
    }

    fn fan_out(&self, n: u64, each: Duration) -> Spent {
        until_done(n, nap, || {
            for _ in 0..n {
                self.0.spawn(move || {
                    compute(each);
                    done();
                });
            }
        })
    }

    fn mixed(&self, say: bool) -> Option<Spent> {
        if say && !P::CAN_SAY {
            return None;
        }
        let spent = until_done(512, nap, || {
            for i in 0..512 {
                if i % 8 == 0 {
                    self.0.spawn(move || sleeping::<P>(say));
                } else {
                    self.0.spawn(|| {
                        compute(Duration::from_micros(20));
                        done();
                    });
                }
            }
        });
        Some(spent)
    }

    fn burst(&self, say: bool, base: usize) -> Option<Burst> {
        if say && !P::CAN_SAY {
            return None;
        }
        let (naps, peak) = (Cell::new(0_usize), Cell::new(0));
        let look = || {
            // Rarely: to count them takes a good part of a nap.
            if naps.get() % 16 == 0 {
                peak.set(thread_count().max(peak.get()));
            }
            naps.set(naps.get() + 1);
            nap();
        };
        let spent = until_done(1000, look, || {
            for _ in 0..1000 {
                self.0.spawn(move || sleeping::<P>(say));
            }
        });
        peak.set(thread_count().max(peak.get()));
        thread::sleep(Duration::from_secs(1));
        Some(Burst {
            wall: spent.wall,
            peak: peak.get().saturating_sub(base),
            later: thread_count().saturating_sub(base),
        })
    }

    fn hold(&self, workers: usize, n: usize, queued: &mut dyn FnMut()) {
        static HELD: AtomicBool = AtomicBool::new(true);
        static HOLDING: AtomicU64 = AtomicU64::new(0);
        HOLDING.store(0, Ordering::Relaxed);
        // Ordering: Release, here and below, pairs with the holders' loads.
        HELD.store(true, Ordering::Release);
        until_done((workers + n) as u64, nap, || {
            for _ in 0..workers {
                self.0.spawn(|| {
                    HOLDING.fetch_add(1, Ordering::Relaxed);
                    // Ordering: Acquire, pairs with the stores outside.
                    while HELD.load(Ordering::Acquire) {
                        nap();
                    }
                    done();
                });
            }
            // Relaxed: a count, nothing is handed over.
            while HOLDING.load(Ordering::Relaxed) < workers as u64 {
                nap();
            }
            for _ in 0..n {
                let captured = black_box([1_u64, 2, 3, 4]);
                self.0.spawn(move || {
                    black_box(&captured);
                    done();
                });
            }
            queued();
            HELD.store(false, Ordering::Release);
        });
    }
}

/// How many threads this process has.
#[must_use]
pub fn thread_count() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, |dir| dir.count())
}
