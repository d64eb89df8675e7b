//! The loads, for any pool.

use super::Pool;
use super::count::{Items, Spent, ran, until_ran};
use crate::machine::pin;
use inflight_sync::CachePadded;
use std::cell::Cell;
use std::fmt;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a burst of sleeping items gave.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// See [`Spent::wall`].
    pub wall: Duration,
    /// The most threads beside those that were there before the pool.
    pub threads: usize,
}

/// The loads, for any contender: the inner loop knows its type. Each verifies that each item ran
/// once, and panics if not.
pub trait PoolLoads: fmt::Debug + Send + Sync {
    /// `n` items that count themselves. They capture 32 bytes, or nothing.
    fn spawn(&self, n: u64, capture: bool) -> Spent;

    /// `n` items of 32 bytes from two threads, one on each of the first two CPUs.
    fn two_producers(&self, n: u64) -> Spent;

    /// `n` items of 32 bytes, 1,000 at a time; their results are waited for one by one.
    fn spawn_and_wait(&self, n: u64) -> Spent;

    /// `n` items of 32 bytes, `window` at a time. The submitter sleeps until the last one of a
    /// window to end wakes it.
    fn windows(&self, n: u64, window: u64) -> Spent;

    /// A closure that queues the next one, `hops` times.
    fn chain(&self, hops: u64) -> Spent;

    /// The times from a submission until the submitter knows of its end, in ns. Each comes after a
    /// busy pause.
    fn ping(&self, times: usize, pause: Duration) -> Vec<u32>;

    /// `n` items that compute for `each`.
    fn fan_out(&self, n: u64, each: Duration) -> Spent;

    /// 64 items that sleep for 1 ms, in between 448 that compute for 20 us. `None` if the items
    /// were to say that they sleep and cannot.
    fn mixed(&self, say: bool) -> Option<Spent>;

    /// `n` items that sleep for 1 ms. `base` threads were there before the pool.
    fn burst(&self, n: u64, say: bool, base: usize) -> Option<Burst>;

    /// Queues `n` items while `workers` others keep all threads, and then calls `queued`.
    fn hold(&self, workers: usize, n: u64, queued: &mut dyn FnMut());
}

/// A pool that lives as long as the process, so that items may refer to it.
#[derive(Debug)]
pub(super) struct Lasting<P: Pool>(&'static P);

/// Boxes one for the table.
pub(super) fn lasting<P: Pool>(pool: P) -> Box<dyn PoolLoads> {
    Box::new(Lasting(Box::leak(Box::new(pool))))
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

/// What the items capture: 32 bytes, the index among them.
pub(super) fn captured(index: u64) -> [u64; 4] {
    black_box([index, 2, 3, 4])
}

/// What the items do with it.
pub(super) fn use_captured(captured: &[u64; 4]) {
    ran(black_box(captured)[0]);
}

const SLEEP: Duration = Duration::from_millis(1);

fn sleeping<P: Pool>(say: bool, index: u64) {
    if say {
        P::may_sleep(|| thread::sleep(SLEEP));
    } else {
        thread::sleep(SLEEP);
    }
    ran(index);
}

fn hop<P: Pool>(pool: &'static P, left: u64) {
    if left == 0 {
        return ran(0);
    }
    pool.spawn(move || hop(pool, left - 1));
}

fn produce<P: Pool>(pool: &P, indices: std::ops::Range<u64>) {
    for index in indices {
        let captured = captured(index);
        pool.spawn(move || use_captured(&captured));
    }
}

impl<P: Pool> PoolLoads for Lasting<P> {
    fn spawn(&self, n: u64, capture: bool) -> Spent {
        if capture {
            until_ran(Items::indexed(n), thread::yield_now, || {
                produce(self.0, 0..n)
            })
        } else {
            until_ran(Items::alike(n), thread::yield_now, || {
                for _ in 0..n {
                    self.0.spawn(|| ran(0));
                }
            })
        }
    }

    fn two_producers(&self, n: u64) -> Spent {
        until_ran(Items::indexed(n), thread::yield_now, || {
            thread::scope(|scope| {
                for (cpu, indices) in [0..n / 2, n / 2..n].into_iter().enumerate() {
                    scope.spawn(move || {
                        pin(cpu);
                        produce(self.0, indices);
                    });
                }
            });
        })
    }

    fn spawn_and_wait(&self, n: u64) -> Spent {
        // Indices count the waits: each handle gives the result of its own item.
        until_ran(
            Items::indexed(n),
            || (),
            || {
                let mut handles = Vec::with_capacity(1_000);
                for first in (0..n).step_by(1_000) {
                    let indices = first..n.min(first + 1_000);
                    handles.extend(indices.clone().map(|index| {
                        let captured = captured(index);
                        self.0.spawn_waited(move || black_box(&captured)[0])
                    }));
                    for (index, wait) in indices.zip(handles.drain(..)) {
                        let result = wait();
                        assert_eq!(result, index, "the result of another item");
                        ran(result);
                    }
                }
            },
        )
    }

    fn windows(&self, n: u64, window: u64) -> Spent {
        /// How many items of the window have not ended.
        static LEFT: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));
        let submitter = thread::current();
        until_ran(Items::indexed(n), nap, || {
            for first in (0..n).step_by(window as usize) {
                let indices = first..n.min(first + window);
                // Relaxed: the pool hands it over with the items.
                LEFT.store(indices.end - first, Ordering::Relaxed);
                for index in indices {
                    let (captured, submitter) = (captured(index), submitter.clone());
                    self.0.spawn(move || {
                        use_captured(&captured);
                        // Ordering: Release, pairs with the submitter's load.
                        if LEFT.fetch_sub(1, Ordering::Release) == 1 {
                            submitter.unpark();
                        }
                    });
                }
                // Ordering: Acquire, pairs with the items: they have run when the next ones come.
                while LEFT.load(Ordering::Acquire) > 0 {
                    thread::park();
                }
            }
        })
    }

    fn chain(&self, hops: u64) -> Spent {
        // The last one counts: it has come if and only if each hop was made, once if each was.
        until_ran(Items::alike(1), nap, || hop(self.0, hops))
    }

    fn ping(&self, times: usize, pause: Duration) -> Vec<u32> {
        let ping = |_| {
            compute(pause);
            let start = Instant::now();
            self.0.ping();
            start.elapsed().as_nanos() as u32
        };
        (0..times).map(ping).collect()
    }

    fn fan_out(&self, n: u64, each: Duration) -> Spent {
        until_ran(Items::indexed(n), nap, || {
            for index in 0..n {
                self.0.spawn(move || {
                    compute(each);
                    ran(index);
                });
            }
        })
    }

    fn mixed(&self, say: bool) -> Option<Spent> {
        if say && !P::CAN_SAY {
            return None;
        }
        let spent = until_ran(Items::indexed(512), nap, || {
            for index in 0..512 {
                if index % 8 == 0 {
                    self.0.spawn(move || sleeping::<P>(say, index));
                } else {
                    self.0.spawn(move || {
                        compute(Duration::from_micros(20));
                        ran(index);
                    });
                }
            }
        });
        Some(spent)
    }

    fn burst(&self, n: u64, say: bool, base: usize) -> Option<Burst> {
        if say && !P::CAN_SAY {
            return None;
        }
        let (naps, most) = (Cell::new(0_usize), Cell::new(0));
        let look = || {
            // Rarely: to count them takes a good part of a nap.
            if naps.get() % 16 == 0 {
                most.set(thread_count().max(most.get()));
            }
            naps.set(naps.get() + 1);
            nap();
        };
        let spent = until_ran(Items::indexed(n), look, || {
            for index in 0..n {
                self.0.spawn(move || sleeping::<P>(say, index));
            }
        });
        Some(Burst {
            wall: spent.wall,
            threads: thread_count().max(most.get()).saturating_sub(base),
        })
    }

    fn hold(&self, workers: usize, n: u64, queued: &mut dyn FnMut()) {
        static HELD: AtomicBool = AtomicBool::new(true);
        static HOLDING: AtomicU64 = AtomicU64::new(0);
        HOLDING.store(0, Ordering::Relaxed);
        // Ordering: Release, here and below, pairs with the holders' loads.
        HELD.store(true, Ordering::Release);
        until_ran(Items::indexed(n + workers as u64), nap, || {
            for index in 0..workers as u64 {
                self.0.spawn(move || {
                    HOLDING.fetch_add(1, Ordering::Relaxed);
                    // Ordering: Acquire, pairs with the stores outside.
                    while HELD.load(Ordering::Acquire) {
                        nap();
                    }
                    ran(n + index);
                });
            }
            // Relaxed: a count, nothing is handed over.
            while HOLDING.load(Ordering::Relaxed) < workers as u64 {
                nap();
            }
            produce(self.0, 0..n);
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
