//! Waiting on real threads, in all three ways, in every mode.
#![cfg(not(any(loom, shuttle)))]

use inflight_sbitmap::{Fairness, SbitmapQueue};
use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, thread};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

const MODES: [Fairness; 3] = [Fairness::fair(), Fairness::fifo(), Fairness::batched()];

/// A queue, and for each bit who holds it.
struct Owned {
    queue: SbitmapQueue,
    owners: Vec<AtomicUsize>,
}

impl Owned {
    fn new(queue: SbitmapQueue) -> Arc<Self> {
        let owners = (0..queue.depth()).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self { queue, owners })
    }

    fn of(mode: Fairness, depth: usize) -> Arc<Self> {
        let builder = SbitmapQueue::builder(depth).fairness(mode);
        Self::new(builder.build().unwrap())
    }

    // Relaxed: the queue alone must order one owner's write before the next owner's.
    fn use_and_put(&self, bit: usize) {
        let set_owner = |from, to| {
            let owner = &self.owners[bit];
            owner.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
        };
        assert_eq!(set_owner(0, 1), Ok(0), "bit {bit} has two owners");
        thread::yield_now();
        assert_eq!(set_owner(1, 0), Ok(1));
        self.queue.put(bit).unwrap();
    }

    fn assert_all_back(&self) {
        assert_eq!(self.queue.weight(), 0);
        let snapshot = self.queue.snapshot();
        assert_eq!(snapshot.ws_active, 0);
        assert!(snapshot.waiters.iter().all(|&n| n == 0));
        let mut bits = Vec::new();
        let depth = self.queue.depth();
        assert_eq!(
            self.queue.try_get_batch(depth, &mut bits),
            depth,
            "a bit was lost"
        );
        self.queue.put_batch(&bits).unwrap();
    }
}

fn each_with<const N: usize>(depths: [usize; N]) -> impl Iterator<Item = (Fairness, usize)> {
    let with = move |mode| depths.map(|depth| (mode, depth));
    MODES.into_iter().flat_map(with)
}

fn spawn_all(
    owned: &Arc<Owned>,
    threads: usize,
    f: impl Fn(&Owned, usize) + Copy + Send + 'static,
) -> Vec<thread::JoinHandle<()>> {
    let spawn = |i| {
        let owned = owned.clone();
        thread::spawn(move || f(&owned, i))
    };
    (0..threads).map(spawn).collect()
}

fn join_all(threads: Vec<thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|t| t.join().unwrap());
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// Polls a few times and gives up, as a `select!` would.
fn cancelled_get(queue: &SbitmapQueue, polls: usize) -> Option<usize> {
    let mut get = pin!(queue.get());
    let mut left = polls;
    block_on(poll_fn(move |cx| match get.as_mut().poll(cx) {
        Poll::Ready(bit) => Poll::Ready(bit.ok()),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }))
}

/// More threads than bits, stopped and started over again: a lost wake-up is a test that hangs.
fn stop_cycles(
    cycles: usize,
    threads: usize,
    depth: usize,
    get: fn(&SbitmapQueue, usize) -> usize,
) {
    for mode in MODES {
        stop_cycles_of(&Owned::of(mode, depth), cycles, threads, get);
    }
}

fn stop_cycles_of(
    owned: &Arc<Owned>,
    cycles: usize,
    threads: usize,
    get: fn(&SbitmapQueue, usize) -> usize,
) {
    for _ in 0..cycles {
        let shared = Arc::new((AtomicBool::new(false), AtomicUsize::new(0)));
        let run = |i: usize| {
            let (owned, shared) = (owned.clone(), shared.clone());
            thread::spawn(move || {
                while !shared.0.load(Ordering::Relaxed) {
                    owned.use_and_put(get(&owned.queue, i));
                    shared.1.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        wait_until(|| shared.1.load(Ordering::Relaxed) >= 2 * threads);
        shared.0.store(true, Ordering::Relaxed);
        join_all(running);
        owned.assert_all_back();
    }
}

fn blocking(queue: &SbitmapQueue, _: usize) -> usize {
    queue.get_blocking().unwrap()
}

fn asynchronous(queue: &SbitmapQueue, _: usize) -> usize {
    block_on(queue.get()).unwrap()
}

fn mixed(queue: &SbitmapQueue, i: usize) -> usize {
    match i % 4 {
        0 => queue.get_blocking().unwrap(),
        1 => block_on(queue.get()).unwrap(),
        2 => loop {
            if let Ok(bit) = queue.get_timeout(Duration::from_micros(20)) {
                return bit;
            }
        },
        _ => loop {
            if let Some(bit) = cancelled_get(queue, 2) {
                return bit;
            }
        },
    }
}

#[test]
fn stop_cycles_of_blocking_threads() {
    stop_cycles(300, 6, 1, blocking);
    stop_cycles(200, 6, 2, blocking);
}

#[test]
fn stop_cycles_of_tasks() {
    stop_cycles(300, 6, 1, asynchronous);
    stop_cycles(200, 6, 3, asynchronous);
}

#[test]
fn stop_cycles_of_all_kinds() {
    stop_cycles(150, 8, 2, mixed);
    stop_cycles(100, 8, 3, mixed);
}

/// A batch of two and of eight, and more waiters than bits.
#[test]
fn stop_cycles_with_larger_wake_batches() {
    for (cycles, threads, depth, batch) in [(100, 24, 16, 2), (10, 80, 64, 8)] {
        let owned = Owned::of(Fairness::batched(), depth);
        assert_eq!(owned.queue.snapshot().wake_batch, batch);
        stop_cycles_of(&owned, cycles, threads, mixed);
    }
}

#[test]
fn stop_cycles_in_turn() {
    for depth in [2, 16] {
        let builder = SbitmapQueue::builder(depth).shift(4).round_robin(true);
        let owned = Owned::new(builder.build().unwrap());
        for _ in 0..100 {
            let run =
                |owned: &Owned, i| (0..5).for_each(|_| owned.use_and_put(mixed(&owned.queue, i)));
            join_all(spawn_all(&owned, depth + 4, run));
            owned.assert_all_back();
        }
    }
}

#[test]
fn a_put_wakes_a_sleeping_thread() {
    for mode in MODES {
        let owned = Owned::of(mode, 1);
        let bit = owned.queue.get_blocking().unwrap();
        let sleepers = spawn_all(&owned, 3, |owned, _| {
            owned.use_and_put(owned.queue.get_blocking().unwrap())
        });
        wait_until(|| owned.queue.snapshot().waiters.iter().sum::<usize>() == 3);
        owned.queue.put(bit).unwrap();
        join_all(sleepers);
        assert!(owned.queue.stats().wakeups >= 3);
        owned.assert_all_back();
    }
}

/// A clock that stands still, a queue on it whose only bit is taken.
fn taken(mode: Fairness) -> (Clock, Arc<SbitmapQueue>) {
    let clock = Clock::manual();
    let queue = SbitmapQueue::builder(1)
        .fairness(mode)
        .clock(clock.clone())
        .build()
        .unwrap();
    assert_eq!(queue.try_get(), Some(0));
    (clock, Arc::new(queue))
}

fn timed(queue: &Arc<SbitmapQueue>, timeout: Duration) -> thread::JoinHandle<Option<usize>> {
    let queue = queue.clone();
    thread::spawn(move || queue.get_timeout(timeout).ok())
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_timed_waiter_leaves_when_its_time_has_come() {
    for mode in MODES {
        let (clock, queue) = taken(mode);
        let waiter = timed(&queue, 2 * SECOND);
        wait_until(|| clock.sleepers() == 1);
        clock.advance(2 * SECOND - Duration::from_nanos(1));
        // Not yet due. A watchdog may be up to look, and goes back to sleep.
        wait_until(|| (clock.sleepers(), queue.snapshot().ws_active) == (1, 1));
        clock.advance(Duration::from_nanos(1));
        assert_eq!(waiter.join().unwrap(), None);
        assert_eq!(queue.snapshot().ws_active, 0);
        queue.put(0).unwrap();
        assert_eq!(queue.try_get(), Some(0));
    }
}

#[test]
fn a_timed_waiter_gets_the_bit_that_comes_in_time() {
    for mode in MODES {
        let (clock, queue) = taken(mode);
        for timeout in [SECOND, Duration::MAX] {
            let waiter = timed(&queue, timeout);
            wait_until(|| clock.sleepers() == 1);
            queue.put(0).unwrap();
            assert_eq!(waiter.join().unwrap(), Some(0));
            assert_eq!((clock.sleepers(), queue.snapshot().ws_active), (0, 0));
        }
    }
}

/// The wake came just before the deadline: the waiter uses it, late as it may run.
#[test]
fn a_wake_that_comes_just_in_time_is_used() {
    for mode in MODES {
        let (clock, queue) = taken(mode);
        for _ in 0..100 {
            let waiter = timed(&queue, SECOND);
            wait_until(|| clock.sleepers() == 1);
            queue.put(0).unwrap();
            clock.advance(SECOND);
            assert_eq!(waiter.join().unwrap(), Some(0));
        }
    }
}

/// The deadline passes, then a bit comes: it goes to the waiter or stays free, and is never lost.
#[test]
fn a_put_after_the_deadline_is_not_lost() {
    for mode in MODES {
        let (clock, queue) = taken(mode);
        for _ in 0..100 {
            let late = timed(&queue, SECOND);
            wait_until(|| clock.sleepers() == 1);
            let patient = timed(&queue, Duration::MAX);
            wait_until(|| queue.snapshot().ws_active == 2);
            clock.advance(SECOND);
            queue.put(0).unwrap();
            if let Some(bit) = late.join().unwrap() {
                queue.put(bit).unwrap();
            }
            assert_eq!(patient.join().unwrap(), Some(0));
            assert_eq!(queue.snapshot().ws_active, 0);
        }
    }
}

#[test]
fn timeouts_race_with_puts() {
    for (mode, depth) in each_with([1, 2, 16]) {
        let owned = Owned::of(mode, depth);
        join_all(spawn_all(&owned, depth + 6, |owned, i| {
            let mut rng = fastrand::Rng::with_seed(i as u64);
            for _ in 0..1_000 {
                let timeout = Duration::from_nanos(rng.u64(0..60_000));
                if let Ok(bit) = owned.queue.get_timeout(timeout) {
                    owned.use_and_put(bit);
                }
            }
        }));
        owned.assert_all_back();
    }
}

#[test]
fn cancelled_futures_race_with_puts() {
    for (mode, depth) in each_with([1, 2, 16]) {
        let owned = Owned::of(mode, depth);
        join_all(spawn_all(&owned, depth + 6, |owned, i| {
            let mut rng = fastrand::Rng::with_seed(i as u64);
            for _ in 0..2_000 {
                match cancelled_get(&owned.queue, rng.usize(0..3)) {
                    Some(bit) => owned.use_and_put(bit),
                    None => owned.use_and_put(owned.queue.get_blocking().unwrap()),
                }
            }
        }));
        owned.assert_all_back();
    }
}

/// Waiters of single bits among users who take and give back many at once.
#[test]
fn batches_race_with_waiters() {
    for (mode, depth) in each_with([4, 32]) {
        let owned = Owned::of(mode, depth);
        join_all(spawn_all(&owned, depth + 4, |owned, i| {
            for _ in 0..300 {
                if i % 4 == 0 {
                    let mut bits = Vec::new();
                    owned
                        .queue
                        .try_get_batch(owned.queue.depth() / 2, &mut bits);
                    owned.queue.put_batch(&bits).unwrap();
                } else {
                    owned.use_and_put(mixed(&owned.queue, i));
                }
            }
        }));
        owned.assert_all_back();
    }
}

/// Needless wakes of everybody cost time, nothing else.
#[test]
fn wake_all_races_with_everything() {
    for mode in MODES {
        let owned = Owned::of(mode, 2);
        join_all(spawn_all(&owned, 7, |owned, i| {
            for _ in 0..500 {
                if i == 0 {
                    owned.queue.wake_all();
                    thread::yield_now();
                } else {
                    owned.use_and_put(mixed(&owned.queue, i));
                }
            }
        }));
        owned.assert_all_back();
    }
}

/// What one owner wrote, the next owner reads, though no lock guards it.
#[test]
fn the_next_owner_sees_what_the_last_one_wrote() {
    for mode in MODES {
        const EACH: usize = 2_000;
        let owned = Owned::of(mode, 1);
        let total = Arc::new(AtomicUsize::new(0));
        let add = |_| {
            let (owned, total) = (owned.clone(), total.clone());
            thread::spawn(move || {
                for _ in 0..EACH {
                    let bit = owned.queue.get_blocking().unwrap();
                    // Load and store on purpose: two owners at once would lose an addition.
                    total.store(total.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    owned.queue.put(bit).unwrap();
                }
            })
        };
        join_all((0..4).map(add).collect());
        assert_eq!(total.load(Ordering::Relaxed), 4 * EACH);
    }
}
