//! Message threads that wake workers, as the scheduler's benchmark schbench has them: how long it
//! takes until a worker runs that was sent a message, and how many messages are answered.
//!
//! Each message thread has workers of its own. It sends a message to each that has answered the
//! one before, and sleeps until one answers. A worker that has a message notes how long that took,
//! computes, and answers. The way to the worker is the contender's; the way back is the same for
//! all.

mod contenders;
mod replies;

pub use contenders::{Contender, contenders};

use crate::rounds::quantile;
use replies::Replies;
use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// The number of threads, and what a message costs.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Message threads.
    pub messengers: usize,
    /// Workers of each.
    pub workers: usize,
    /// What a worker computes for an answer: so much of the CPU's time, however long it takes.
    pub compute: Duration,
    /// How long a message thread sleeps before it sends again.
    pub pause: Duration,
}

/// The loads of the tables.
pub const LOADS: [Load; 7] = [
    Load::new(1, 1, 5, 0),
    Load::new(1, 4, 5, 0),
    Load::new(2, 2, 5, 0),
    Load::new(2, 8, 5, 0),
    Load::new(2, 16, 20, 0),
    Load::new(1, 4, 5, 200),
    Load::new(2, 8, 20, 1000),
];

impl Load {
    /// Times in us.
    const fn new(messengers: usize, workers: usize, compute: u64, pause: u64) -> Self {
        Self {
            messengers,
            workers,
            compute: Duration::from_micros(compute),
            pause: Duration::from_micros(pause),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (messengers, workers) = (self.messengers, self.workers);
        write!(
            f,
            "{messengers} x {workers}, {} us",
            self.compute.as_micros()
        )?;
        if !self.pause.is_zero() {
            write!(f, ", pause {} us", self.pause.as_micros())?;
        }
        Ok(())
    }
}

/// What one contender gave.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// From a message to the worker that runs, in us: half of the messages took no longer.
    pub p50: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1,000.
    pub p999: f64,
    /// Messages answered in a second.
    pub per_second: f64,
}

/// A worker, as the contenders see it.
#[derive(Debug)]
pub struct Worker {
    index: u32,
    /// In turns of a loop.
    compute: u64,
    epoch: Instant,
    /// When the message was sent that has not been taken, in ns and one more; 0 for none.
    sent: AtomicU64,
    /// What the last message took, in ns.
    took: AtomicU32,
    /// How often it has run. Relaxed: read when no thread runs it any more.
    runs: AtomicU64,
    replies: Arc<Replies>,
}

impl Worker {
    /// It has a message and runs: called once for each.
    ///
    /// # Panics
    ///
    /// If it has none.
    pub fn run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        // Ordering: Acquire, pairs with the Release of the sender: the message is its own.
        let sent = self.sent.swap(0, Ordering::Acquire);
        assert_ne!(sent, 0, "a worker runs once for each message");
        let took = self.now() - (sent - 1);
        // Relaxed: `reply` hands it over.
        self.took
            .store(took.min(u64::from(u32::MAX)) as u32, Ordering::Relaxed);
        turns(self.compute);
        self.replies.push(self.index);
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn send(&self) {
        // Ordering: Release, pairs with the Acquire in `run`.
        let before = self.sent.swap(self.now() + 1, Ordering::Release);
        assert_eq!(before, 0, "it has answered the message before");
    }
}

/// Wakes workers.
pub trait Target: fmt::Debug + Send + Sync {
    /// For a message thread, whose workers those are. They are gone when it is dropped.
    fn messenger(&self, workers: &[Arc<Worker>]) -> Box<dyn Messenger + '_>;
}

/// One message thread's way to its workers.
pub trait Messenger {
    /// The worker has a message: has it [run](Worker::run).
    fn wake(&mut self, worker: usize);
}

/// Sends this many messages by each message thread, after a quarter as many that do not count.
///
/// # Panics
///
/// If a message is answered twice. One that is not answered is waited for.
#[must_use]
pub fn run(target: &dyn Target, load: Load, messages: usize) -> Outcome {
    let start = Barrier::new(load.messengers);
    let epoch = Instant::now();
    let one = || {
        let replies = Arc::new(Replies::of_this_thread());
        let worker = |index| {
            Arc::new(Worker {
                index,
                compute: load.compute.as_nanos() as u64 * turns_per_us() / 1_000,
                epoch,
                sent: AtomicU64::new(0),
                took: AtomicU32::new(0),
                runs: AtomicU64::new(0),
                replies: replies.clone(),
            })
        };
        let workers: Vec<_> = (0..load.workers as u32).map(worker).collect();
        let mut messenger = target.messenger(&workers);
        start.wait();
        let answered = send_and_receive(&mut *messenger, &workers, &replies, load, messages);
        drop(messenger);
        let runs = workers.iter().map(|w| w.runs.load(Ordering::Relaxed));
        assert_eq!(runs.sum::<u64>(), answered.sent, "a run for each message");
        answered
    };
    let answered: Vec<Answered> = thread::scope(|scope| {
        let threads: Vec<_> = (0..load.messengers).map(|_| scope.spawn(one)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect()
    });
    let per_second = answered
        .iter()
        .map(|a| a.took.len() as f64 / a.within.as_secs_f64())
        .sum();
    let took: Vec<_> = answered.into_iter().flat_map(|a| a.took).collect();
    let part = |part| f64::from(quantile(took.iter().copied(), part)) / 1e3;
    Outcome {
        p50: part(0.5),
        p99: part(0.99),
        p999: part(0.999),
        per_second,
    }
}

/// The messages of one message thread that count.
struct Answered {
    /// What each took to its worker, in ns.
    took: Vec<u32>,
    within: Duration,
    /// How many were sent in all.
    sent: u64,
}

fn send_and_receive(
    messenger: &mut dyn Messenger,
    workers: &[Arc<Worker>],
    replies: &Replies,
    load: Load,
    messages: usize,
) -> Answered {
    let warm = messages / 4;
    let mut took = Vec::with_capacity(warm + messages + workers.len());
    let (mut begin, mut sent) = (Instant::now(), 0);
    let mut idle: Vec<u32> = (0..workers.len() as u32).collect();
    while took.len() < warm + messages {
        for worker in idle.drain(..) {
            workers[worker as usize].send();
            messenger.wake(worker as usize);
            sent += 1;
        }
        replies.wait(&mut idle);
        if !load.pause.is_zero() {
            thread::sleep(load.pause);
            replies.take(&mut idle);
        }
        let before = took.len();
        // Relaxed: the answer has handed it over.
        let of = |worker: &u32| workers[*worker as usize].took.load(Ordering::Relaxed);
        took.extend(idle.iter().map(of));
        if (before..took.len()).contains(&warm) {
            begin = Instant::now();
        }
    }
    let within = begin.elapsed();
    let mut left = workers.len() - idle.len();
    while left > 0 {
        idle.clear();
        replies.wait(&mut idle);
        left -= idle.len();
    }
    let untaken = |worker: &&Arc<Worker>| worker.sent.load(Ordering::Relaxed) != 0;
    assert_eq!(
        workers.iter().filter(untaken).count(),
        0,
        "all have been answered"
    );
    took.drain(..warm);
    Answered { took, within, sent }
}

/// Uses the CPU.
fn turns(turns: u64) {
    let mut x = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..turns {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x);
}

/// How many of them take a microsecond: the fastest of some tries.
fn turns_per_us() -> u64 {
    static TURNS: OnceLock<u64> = OnceLock::new();
    const TRIED: u64 = 100_000;
    *TURNS.get_or_init(|| {
        let try_once = |_| {
            let start = Instant::now();
            turns(TRIED);
            start.elapsed()
        };
        let least = (0..20).map(try_once).min().expect("some tries");
        TRIED * 1_000 / least.as_nanos().max(1) as u64
    })
}
