//! Loads of what only ours has: reusable works, several queues over one pool, cancel and flush.

use super::count::{Items, Spent, ran, ran_so_far, until_ran};
use super::loads::{captured, compute, nap, use_captured};
use super::ours::OwnWork;
use super::{Kind, Own, Pool};
use crate::machine::{cpus, outrank, pin};
use crate::rng::Rng;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Works that are queued again and again.
#[derive(Debug)]
pub struct Reusable {
    own: Own,
    works: Vec<OwnWork>,
}

impl Reusable {
    /// This many works for a queue of this kind.
    #[must_use]
    pub fn new(kind: Kind, works: u64) -> Self {
        Self {
            own: Own::new(kind),
            works: (0..works).map(|i| OwnWork::new(move || ran(i))).collect(),
        }
    }

    /// Queues each of them once, `rounds` times over. Gives the sum of the rounds.
    #[must_use]
    pub fn run(&self, rounds: u32) -> Spent {
        let items = Items::indexed(self.works.len() as u64);
        let round = |_| {
            until_ran(items, thread::yield_now, || {
                self.works.iter().for_each(|work| work.queue(&self.own));
            })
        };
        let add = |a: Spent, b: Spent| Spent {
            wall: a.wall + b.wall,
            cpus: (a.cpus + b.cpus) / 2.0,
        };
        (0..rounds).map(round).reduce(add).expect("a round")
    }
}

/// A work that runs again and again.
#[derive(Debug)]
pub struct Again {
    own: Own,
    left: Arc<AtomicU64>,
    work: OwnWork,
}

/// One hop less; `false` if there is none left. As in a chain, the last one counts.
fn hops_on(left: &AtomicU64) -> bool {
    // Relaxed: a work does not run twice at once, and the queue orders its runs.
    let hops = left.load(Ordering::Relaxed);
    left.store(hops.wrapping_sub(1), Ordering::Relaxed);
    if hops == 0 {
        ran(0);
    }
    hops != 0
}

impl Again {
    /// On an unbound queue: it queues itself.
    ///
    /// # Panics
    ///
    /// If the machine has no topology.
    #[must_use]
    pub fn queued() -> Self {
        let own = Own::new(Kind::Unbound);
        let left = Arc::new(AtomicU64::new(0));
        let me: Arc<OnceLock<OwnWork>> = Arc::default();
        let work = OwnWork::new({
            let (own, left, me) = (own.clone(), left.clone(), me.clone());
            move || {
                if hops_on(&left) {
                    me.get().expect("set before the first run").queue(&own);
                }
            }
        });
        me.set(work.clone()).expect("only here");
        Self { own, left, work }
    }

    /// On an unbound queue: it says so.
    ///
    /// # Panics
    ///
    /// If the machine has no topology.
    #[must_use]
    pub fn said() -> Self {
        let own = Own::new(Kind::Unbound);
        let left = Arc::new(AtomicU64::new(0));
        let work = OwnWork::repeating({
            let left = left.clone();
            move || match hops_on(&left) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        Self { own, left, work }
    }

    /// `hops` times.
    #[must_use]
    pub fn run(&self, hops: u64) -> Spent {
        self.left.store(hops, Ordering::Relaxed);
        until_ran(Items::alike(1), nap, || self.work.queue(&self.own))
    }
}

/// What somebody does beside the submitters, again and again while they are at work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bystander {
    /// Flushes the queues, one after the other.
    pub flushes: bool,
    /// Has the steps of items counted, for some time, and then not.
    pub traces: bool,
    /// Dumps the system.
    pub dumps: bool,
}

/// Between two acts of a bystander.
const PAUSE: Duration = Duration::from_micros(250);

/// How many items of a submitter may wait.
const WINDOW: u64 = 1_024;

/// Several queues over one pool, and two submitters.
#[derive(Debug)]
pub struct Queues {
    queues: Vec<Own>,
    bystander: Option<Bystander>,
}

impl Queues {
    /// This many queues, and what disturbs them.
    #[must_use]
    pub fn new(queues: usize, bystander: Option<Bystander>) -> Self {
        let traceable = bystander.is_some_and(|b| b.traces);
        Self {
            queues: Own::sharing_a_pool(queues, traceable),
            bystander,
        }
    }

    /// Two submitters, on the first two CPUs, queue half of `n` items each, by turns to all queues.
    ///
    /// # Panics
    ///
    /// If an item did not run once, or the bystander did nothing.
    #[must_use]
    pub fn run(&self, n: u64) -> Spent {
        let half = n / 2;
        let over = &AtomicBool::new(false);
        thread::scope(|scope| {
            let disturbed = self
                .bystander
                .map(|bystander| scope.spawn(move || self.disturb(bystander, over)));
            let spent = until_ran(Items::indexed(half * 2), thread::yield_now, || {
                thread::scope(|scope| {
                    for cpu in 0..2 {
                        scope.spawn(move || {
                            pin(cpu % cpus());
                            self.submit(cpu as u64 * half, half);
                        });
                    }
                });
            });
            // Relaxed: he sees it soon, and no more is asked.
            over.store(true, Ordering::Relaxed);
            if let Some(disturbed) = disturbed {
                let acts = disturbed.join().expect("he only looks");
                assert!(acts > 0, "nothing was disturbed");
            }
            spent
        })
    }

    fn submit(&self, first: u64, n: u64) {
        for i in 0..n {
            // The other one has done as much, more or less, so twice as many have been queued.
            while i % 64 == 0 && i * 2 > ran_so_far() + WINDOW * 2 {
                thread::yield_now();
            }
            let captured = captured(first + i);
            let queue = &self.queues[i as usize % self.queues.len()];
            queue.spawn(move || use_captured(&captured));
        }
    }

    /// How often he has done what he does; he begins and ends with it.
    fn disturb(&self, what: Bystander, over: &AtomicBool) -> usize {
        // Or he would wait for a submitter's time to be up.
        outrank();
        let own = &self.queues[0];
        let mut acts = 0;
        while !over.load(Ordering::Relaxed) {
            let traced = own.traced();
            own.trace(what.traces);
            if what.dumps {
                assert!(own.dump() > 0, "a dump says something");
            }
            if what.flushes {
                self.queues[acts % self.queues.len()].flush();
            }
            thread::sleep(PAUSE);
            own.trace(false);
            acts += usize::from(!what.traces || own.traced() > traced);
            if what.traces {
                thread::sleep(PAUSE);
            }
        }
        acts
    }
}

/// Works that are queued and cannot run yet.
#[derive(Debug)]
pub struct Pending {
    /// Over one pool. The works go to them by turns.
    queues: Vec<Own>,
    works: Vec<OwnWork>,
}

impl Pending {
    /// This many, on one queue.
    #[must_use]
    pub fn new(works: u64) -> Self {
        Self::on(Own::unsampled(1), works)
    }

    /// This many, on a queue each.
    ///
    /// # Panics
    ///
    /// If the machine has no topology.
    #[must_use]
    pub fn apart(works: u64) -> Self {
        Self::on(Own::unsampled(works as usize), works)
    }

    fn on(queues: Vec<Own>, works: u64) -> Self {
        let works = (0..works).map(|i| OwnWork::new(move || ran(i))).collect();
        Self { queues, works }
    }

    fn queue(&self) {
        let queues = self.queues.iter().cycle();
        let each = self.works.iter().zip(queues);
        each.for_each(|(work, queue)| work.queue(queue));
    }

    fn flush_queues(&self) {
        self.queues.iter().for_each(Own::flush);
    }

    /// Queues them behind items that hold all workers, then takes each one back, in no order.
    /// The time of the latter.
    ///
    /// # Panics
    ///
    /// If one of them ran.
    #[must_use]
    pub fn cancel(&self) -> Duration {
        let mut order: Vec<_> = self.works.iter().collect();
        let mut rng = Rng::new(order.len() as u64);
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i + 1));
        }
        let held = Arc::new(AtomicBool::new(true));
        let holding = Arc::new(AtomicU64::new(0));
        // As many as run at once.
        let holders: Vec<_> = (0..cpus())
            .map(|_| {
                let (held, holding) = (held.clone(), holding.clone());
                self.queues[0].spawn_waited(move || {
                    holding.fetch_add(1, Ordering::Relaxed);
                    // Ordering: Acquire, pairs with the store below; hands nothing over.
                    while held.load(Ordering::Acquire) {
                        nap();
                    }
                    0
                })
            })
            .collect();
        // Relaxed: a count, nothing is handed over.
        while holding.load(Ordering::Relaxed) < holders.len() as u64 {
            nap();
        }
        let mut spent = Duration::ZERO;
        until_ran(Items::alike(0), nap, || {
            self.queue();
            let start = Instant::now();
            let all = order.iter().all(|work| work.cancel());
            spent = start.elapsed();
            assert!(all, "they could not run");
            // Ordering: Release, pairs with the holders' loads.
            held.store(false, Ordering::Release);
            holders.into_iter().for_each(|wait| assert_eq!(wait(), 0));
            // What is left in the queue would run now, and be counted.
            self.flush_queues();
        });
        spent
    }

    /// Queues them and waits for each.
    #[must_use]
    pub fn flush_each(&self) -> Spent {
        until_ran(
            Items::indexed(self.works.len() as u64),
            || (),
            || {
                self.queue();
                self.works.iter().for_each(OwnWork::flush);
                assert_eq!(ran_so_far(), self.works.len() as u64, "flushed too early");
            },
        )
    }

    /// Queues them and waits for all.
    #[must_use]
    pub fn flush(&self) -> Spent {
        until_ran(
            Items::indexed(self.works.len() as u64),
            || (),
            || {
                self.queue();
                self.flush_queues();
                assert_eq!(ran_so_far(), self.works.len() as u64, "flushed too early");
            },
        )
    }
}

/// How long each of this many flushes of one queue takes, with an item before each, while another
/// queue of the same pool has a stream of items of 1 us. In ns.
///
/// # Panics
///
/// If a flush returns before the item has ended.
pub fn flush_latency() -> impl Fn(usize) -> Vec<u32> {
    let queues = Own::sharing_a_pool(2, false);
    move |times| {
        let over = AtomicBool::new(false);
        let (queued, ended) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
        let stream = || {
            pin(1 % cpus());
            while !over.load(Ordering::Relaxed) {
                let n = queued.fetch_add(1, Ordering::Relaxed) + 1;
                let end = ended.clone();
                queues[1].spawn(move || {
                    compute(Duration::from_micros(1));
                    end.fetch_add(1, Ordering::Relaxed);
                });
                // Relaxed, as all here: counts, nothing is handed over but by the flush.
                while n % 64 == 0 && n > ended.load(Ordering::Relaxed) + WINDOW {
                    thread::yield_now();
                }
            }
        };
        let flush = |_| {
            let ran = Arc::new(AtomicBool::new(false));
            let mark = ran.clone();
            queues[0].spawn(move || mark.store(true, Ordering::Relaxed));
            let start = Instant::now();
            queues[0].flush();
            let nanos = start.elapsed().as_nanos() as u32;
            assert!(ran.load(Ordering::Relaxed), "flushed too early");
            thread::sleep(PAUSE);
            nanos
        };
        let nanos = thread::scope(|scope| {
            scope.spawn(stream);
            let nanos = (0..times).map(flush).collect();
            over.store(true, Ordering::Relaxed);
            nanos
        });
        queues[1].flush();
        let (queued, ended) = (queued.into_inner(), ended.load(Ordering::Relaxed));
        assert_eq!(queued, ended, "each item of the stream ran once");
        nanos
    }
}
