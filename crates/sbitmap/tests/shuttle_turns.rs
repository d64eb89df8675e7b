//! Random schedules of the whole queue, in every mode: five to nine threads that get, get several,
//! put, put batches, time out, drop futures, resize and wake all.
//!
//! A lost wakeup or two collectors that wait for each other show as a deadlock, a bit with two
//! owners as a failed claim, a lost bit as a short count at the end.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sbitmap::tenancy::{Request, Tenancy};
use inflight_sbitmap::{Engine, Fairness, GetError, GetManyError, SbitmapQueue};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{check_pct, check_random};
use inflight_sync::percpu::pushes;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, cpu, thread};
use shuttle_support::{Threads, polled};
use std::time::Duration;

const RUNS: usize = 200;
const SECOND: Duration = Duration::from_secs(1);
const MODES: [Mode; 5] = [
    (Fairness::fair(), Engine::Local),
    (Fairness::fair(), Engine::Shared),
    (Fairness::fifo(), Engine::Local),
    (Fairness::fifo(), Engine::Shared),
    (Fairness::batched(), Engine::Shared),
];

type Mode = (Fairness, Engine);

/// Both ways to choose schedules, for each mode.
fn check(name: &str, model: fn(Mode)) {
    for mode in MODES {
        let name = format!("{name}/{mode:?}");
        let before = pushes();
        check_random(&name, RUNS, move || model(mode));
        check_pct(&name, RUNS, 4, move || model(mode));
        let stacks = mode.1 == Engine::Local;
        assert_eq!(pushes() > before, stacks, "whether ids went into stacks");
    }
}

/// With fewer ids the local engine opens no stack.
const FEWEST: usize = 4;

/// A queue, and for each bit whether somebody holds it.
struct Owned {
    queue: SbitmapQueue,
    /// Ids beyond what the model asks for, which stay out.
    kept: Vec<usize>,
    owners: Vec<AtomicUsize>,
    clock: Clock,
}

impl Owned {
    fn new(depth: usize, max_depth: usize, (fairness, engine): Mode) -> Arc<Self> {
        let clock = Clock::manual();
        let more = match engine {
            Engine::Local => FEWEST.saturating_sub(depth),
            _ => 0,
        };
        let queue = SbitmapQueue::builder(depth + more)
            .max_depth(max_depth + more)
            .fairness(fairness)
            .engine(engine)
            .clock(clock.clone());
        let queue = queue.build().unwrap();
        let kept = (0..more).map(|_| queue.try_get().unwrap()).collect();
        Arc::new(Self {
            queue,
            kept,
            owners: (0..max_depth + more).map(|_| AtomicUsize::new(0)).collect(),
            clock,
        })
    }

    fn resize(&self, depth: usize) {
        self.queue.resize(depth + self.kept.len()).unwrap();
    }

    fn depth(&self) -> usize {
        self.queue.depth() - self.kept.len()
    }

    fn weight(&self) -> usize {
        self.queue.weight() - self.kept.len()
    }

    fn claim(&self, bits: &[usize]) {
        for &bit in bits {
            let owners = self.owners[bit].swap(1, Ordering::Relaxed);
            assert_eq!(owners, 0, "bit {bit} has two owners");
        }
    }

    fn put(&self, bits: &[usize]) {
        for &bit in bits {
            assert_eq!(self.owners[bit].swap(0, Ordering::Relaxed), 1);
        }
        match *bits {
            [bit] => self.queue.put(bit).unwrap(),
            _ => self.queue.put_batch(bits).unwrap(),
        }
    }

    fn use_and_put(&self, bits: &[usize]) {
        self.claim(bits);
        thread::yield_now();
        self.put(bits);
    }

    fn assert_all_back(&self) {
        assert_eq!(self.queue.snapshot().ws_active, 0, "nobody waits any more");
        assert_eq!(self.weight(), 0);
        self.queue.put_batch(&self.kept).unwrap();
        let (depth, mut bits) = (self.queue.depth(), Vec::new());
        assert_eq!(
            self.queue.try_get_batch(depth, &mut bits),
            depth,
            "a bit was lost"
        );
    }
}

/// H6, H7, D25. One waiter of each kind, and two who want two at once, on two bits.
#[test]
fn d25_waiters_of_all_kinds_and_two_collectors() {
    check("d25_waiters_of_all_kinds_and_two_collectors", |mode| {
        let owned = Owned::new(2, 2, mode);
        let several = |o: &Arc<Owned>| {
            let bits = o.queue.get_many_blocking(2).unwrap();
            o.use_and_put(&bits);
        };
        let mut threads = Threads::default();
        threads.on(&owned, several);
        threads.on(&owned, move |o| {
            o.use_and_put(&block_on(o.queue.get_many(2)).unwrap());
        });
        threads.on(&owned, |o| {
            (0..2).for_each(|_| o.use_and_put(&[o.queue.get_blocking().unwrap()]));
        });
        threads.on(&owned, |o| {
            o.use_and_put(&[block_on(o.queue.get()).unwrap()])
        });
        threads.on(&owned, |o| {
            let get = o.queue.get_timeout(SECOND).ok();
            get.into_iter().for_each(|bit| o.use_and_put(&[bit]));
        });
        owned.clock.advance(SECOND);
        owned.clock.advance(SECOND);
        threads.join();
        owned.assert_all_back();
    });
}

/// H6. Those who leave pass on what they were granted: a dropped future, a dropped collector, a
/// collector that runs out of time. Those who stay keep their bits.
#[test]
fn h6_what_was_granted_to_those_who_leave_reaches_those_who_stay() {
    let name = "h6_what_was_granted_to_those_who_leave_reaches_those_who_stay";
    check(name, |mode| {
        let owned = Owned::new(2, 2, mode);
        let held = [
            owned.queue.get_blocking().unwrap(),
            owned.queue.get_blocking().unwrap(),
        ];
        let deadline = owned.clock.now() + SECOND;
        let mut threads = Threads::default();
        threads.on(&owned, |o| {
            let got = polled(o.queue.get(), 2);
            got.into_iter()
                .for_each(|bit| o.use_and_put(&[bit.unwrap()]));
        });
        threads.on(&owned, |o| {
            if let Some(bits) = polled(o.queue.get_many(2), 2) {
                o.use_and_put(&bits.unwrap());
            }
        });
        threads.on(&owned, move |o| {
            let mut waiter = o.queue.waiter(Request {
                want: 2,
                part: 2,
                ..Request::one(0)
            });
            let mut bits = Vec::new();
            match waiter.block_part(&o.queue, Some(deadline), &mut bits) {
                Ok(()) => o.use_and_put(&bits),
                Err(error) => assert_eq!(error, GetError::TimedOut),
            }
        });
        threads.on(&owned, |o| o.claim(&[o.queue.get_blocking().unwrap()]));
        threads.on(&owned, |o| o.claim(&[block_on(o.queue.get()).unwrap()]));
        owned.queue.put(held[0]).unwrap();
        owned.clock.advance(SECOND);
        owned.queue.put(held[1]).unwrap();
        threads.join();
        assert_eq!(owned.weight(), 2);
        held.iter().for_each(|&bit| owned.put(&[bit]));
        owned.assert_all_back();
    });
}

/// H20. The depth changes and everybody is woken while threads get and put.
#[test]
fn h20_resize_and_wake_all_under_load() {
    check("h20_resize_and_wake_all_under_load", |mode| {
        let owned = Owned::new(2, 4, mode);
        let twice = |o: &Arc<Owned>| {
            (0..2).for_each(|_| o.use_and_put(&[o.queue.get_blocking().unwrap()]));
        };
        let mut threads = Threads::default();
        threads.on(&owned, twice);
        threads.on(&owned, twice);
        threads.on(&owned, |o| match block_on(o.queue.get_many(2)) {
            Ok(bits) => o.use_and_put(&bits),
            Err(error) => assert!(matches!(error, GetManyError::TooMany { .. })),
        });
        threads.on(&owned, |o| {
            for depth in [4, 1, 3] {
                o.resize(depth);
            }
        });
        threads.on(&owned, |o| (0..2).for_each(|_| o.queue.wake_all()));
        threads.join();
        assert_eq!(owned.depth(), 3);
        owned.assert_all_back();
    });
}

/// H4. Puts of several bits at once, tries, and waiters who keep what they get.
#[test]
fn h4_batches_of_puts_wake_all_they_can() {
    check("h4_batches_of_puts_wake_all_they_can", |mode| {
        let owned = Owned::new(4, 4, mode);
        let mut held = Vec::new();
        assert_eq!(owned.queue.try_get_batch(4, &mut held), 4);
        let mut threads = Threads::default();
        threads.on(&owned, |o| o.claim(&[o.queue.get_blocking().unwrap()]));
        threads.on(&owned, |o| o.claim(&[block_on(o.queue.get()).unwrap()]));
        threads.on(&owned, |o| o.claim(&o.queue.get_many_blocking(2).unwrap()));
        threads.on(&owned, |o| {
            let got = o.queue.try_get();
            got.into_iter().for_each(|bit| o.use_and_put(&[bit]));
        });
        threads.on(&owned, |o| o.queue.put_batch(&[0, 1]).unwrap());
        owned.queue.put_batch(&[2, 3]).unwrap();
        threads.join();
        assert_eq!(owned.weight(), 4);
        (0..4).for_each(|bit| owned.put(&[bit]));
        owned.assert_all_back();
    });
}

/// H4, H6. Tasks come to wait on two CPUs and put on either, while some are dropped and a thread
/// and a collector come between them.
#[test]
fn h4_h6_tasks_wait_where_they_came() {
    check("h4_h6_tasks_wait_where_they_came", |mode| {
        let owned = Owned::new(2, 2, mode);
        let pairs = |cpus: [usize; 2]| {
            move |o: &Arc<Owned>| {
                for cpu in cpus {
                    let bit = block_on(o.queue.get()).unwrap();
                    cpu::set_current_for_thread(Some(cpu));
                    o.use_and_put(&[bit]);
                }
            }
        };
        let mut threads = Threads::default();
        threads.on(&owned, pairs([0, 1]));
        threads.on(&owned, pairs([1, 0]));
        threads.on(&owned, pairs([0, 0]));
        threads.on(&owned, |o| {
            cpu::set_current_for_thread(Some(1));
            let got = polled(o.queue.get(), 2);
            got.into_iter()
                .for_each(|bit| o.use_and_put(&[bit.unwrap()]));
        });
        threads.on(&owned, |o| {
            o.use_and_put(&[o.queue.get_blocking().unwrap()])
        });
        threads.on(&owned, |o| {
            o.use_and_put(&block_on(o.queue.get_many(2)).unwrap());
        });
        threads.join();
        owned.assert_all_back();
    });
}

/// Everything at once: eight threads, and a clock that moves.
#[test]
fn h6_h20_d25_eight_threads_do_everything_at_once() {
    let name = "h6_h20_d25_eight_threads_do_everything_at_once";
    check(name, |mode| {
        let owned = Owned::new(3, 4, mode);
        let keep = |o: &Owned, got: Option<usize>| {
            got.into_iter().for_each(|bit| o.use_and_put(&[bit]));
        };
        let mut threads = Threads::default();
        threads.on(&owned, |o| {
            (0..2).for_each(|_| o.use_and_put(&[o.queue.get_blocking().unwrap()]));
        });
        threads.on(&owned, |o| {
            o.use_and_put(&[block_on(o.queue.get()).unwrap()])
        });
        // The depth is never less than 2, so two can always be had.
        threads.on(&owned, |o| {
            o.use_and_put(&o.queue.get_many_blocking(2).unwrap());
        });
        threads.on(&owned, move |o| {
            keep(o, polled(o.queue.get(), 2).map(Result::unwrap))
        });
        threads.on(&owned, |o| {
            if let Some(bits) = polled(o.queue.get_many(2), 2) {
                o.use_and_put(&bits.unwrap());
            }
        });
        threads.on(&owned, move |o| keep(o, o.queue.get_timeout(SECOND).ok()));
        threads.on(&owned, move |o| {
            keep(o, o.queue.try_get());
            let mut bits = Vec::new();
            if o.queue.try_get_batch(2, &mut bits) > 0 {
                o.use_and_put(&bits);
            }
        });
        threads.on(&owned, |o| {
            o.resize(2);
            o.queue.wake_all();
            o.resize(4);
        });
        owned.clock.advance(SECOND);
        owned.clock.advance(SECOND);
        threads.join();
        assert_eq!(owned.depth(), 4);
        owned.assert_all_back();
    });
}
