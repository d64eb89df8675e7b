//! More threads than ids: how fast ids go round, how long one waits, and how evenly.
//!
//! Each worker waits for an id and passes it to a completer, which gives it back: the shape of an
//! IO engine whose queue is full.

use crate::rounds::{median, quantile};
use crate::waiting::WaitIds;
use crossbeam::queue::ArrayQueue;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Barrier, mpsc};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A rotation gives each thread this many ids, ours its turn; evenness is judged over ten.
const TURN: usize = 16;

/// What the completer does when nothing is to be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Looks again, after lending its CPU.
    Polls,
    /// Sleeps until told.
    Sleeps,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many threads want ids.
    pub threads: usize,
    /// How many ids there are.
    pub depth: usize,
    /// The completer's habit.
    pub idle: Idle,
    /// How long ids go round before anything counts.
    pub warm: Duration,
    /// How long it counts.
    pub window: Duration,
}

/// What a load gave.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Ids taken in a second.
    pub per_second: f64,
    /// Ids of the luckiest thread for each one of the unluckiest, in the middle one of the pieces
    /// of the time in which each might have had 160.
    pub spread: f64,
    /// The mean wait, in microseconds.
    pub mean: f64,
    /// The wait that half stay below, in microseconds.
    pub p50: f64,
    /// The wait that 99 of 100 stay below, in microseconds.
    pub p99: f64,
    /// The longest wait, in microseconds.
    pub longest: f64,
}

/// Puts the load on `ids`. `None` if they did not all come home, or not all threads: then somebody
/// was left waiting for ever, and its threads are left behind.
#[must_use]
pub fn run(ids: Box<dyn WaitIds>, load: Load) -> Option<Outcome> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let outcome = Run::new(ids, load).go();
        // An error: the receiver has given up.
        let _ = send.send(outcome);
    });
    let patience = Duration::from_secs(10) + load.window * 2;
    receive.recv_timeout(patience).ok()
}

const WARM: u8 = 0;
const COUNT: u8 = 1;
const STOP: u8 = 2;

struct Run {
    ids: Arc<dyn WaitIds>,
    load: Load,
    phase: AtomicU8,
    working: AtomicUsize,
    done: ArrayQueue<usize>,
    asleep: AtomicBool,
    epoch: Instant,
    ready: Barrier,
}

/// When an id was had, since the beginning, and how long that took.
struct Wait {
    end: Duration,
    wait: Duration,
}

impl Run {
    fn new(ids: Box<dyn WaitIds>, load: Load) -> Arc<Self> {
        Arc::new(Self {
            ids: ids.into(),
            load,
            phase: AtomicU8::new(WARM),
            working: AtomicUsize::new(load.threads),
            done: ArrayQueue::new(load.depth.next_power_of_two()),
            asleep: AtomicBool::new(false),
            epoch: Instant::now(),
            ready: Barrier::new(load.threads + 1),
        })
    }

    fn go(self: Arc<Self>) -> Outcome {
        let completer = {
            let run = self.clone();
            thread::spawn(move || run.complete())
        };
        let spawn = |_| {
            let (run, completer) = (self.clone(), completer.thread().clone());
            let thread = thread::Builder::new().stack_size(1 << 17);
            let body = move || run.work(&completer);
            thread.spawn(body).expect("threads can be had")
        };
        let workers: Vec<_> = (0..self.load.threads).map(spawn).collect();
        self.ready.wait();
        thread::sleep(self.load.warm);
        self.phase.store(COUNT, Ordering::Relaxed);
        let start = Instant::now();
        thread::sleep(self.load.window);
        self.phase.store(STOP, Ordering::Relaxed);
        let elapsed = start.elapsed();
        let waits: Vec<_> = workers
            .into_iter()
            .map(|w| w.join().expect("no panic"))
            .collect();
        completer.thread().unpark();
        completer.join().expect("no panic");
        self.check();
        outcome(elapsed, &waits)
    }

    fn work(&self, completer: &Thread) -> Vec<Wait> {
        let mut waits = Vec::with_capacity(1 << 12);
        self.ready.wait();
        loop {
            let before = Instant::now();
            let id = self.ids.wait();
            let wait = before.elapsed();
            let phase = self.phase.load(Ordering::Relaxed);
            if phase == COUNT {
                let end = before.duration_since(self.epoch) + wait;
                waits.push(Wait { end, wait });
            }
            self.done.push(id).expect("room for all ids");
            self.ring(completer);
            if phase == STOP {
                break;
            }
        }
        self.working.fetch_sub(1, Ordering::Release);
        waits
    }

    /// Wakes a completer that sleeps.
    fn ring(&self, completer: &Thread) {
        if self.load.idle == Idle::Sleeps {
            // Either this sees that the completer is about to sleep, or it sees the id.
            fence(Ordering::SeqCst);
            if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
                completer.unpark();
            }
        }
    }

    fn complete(&self) {
        loop {
            if let Some(id) = self.done.pop() {
                self.ids.give(id);
            } else if self.working.load(Ordering::Acquire) == 0 && self.done.is_empty() {
                break;
            } else if self.load.idle == Idle::Polls {
                thread::yield_now();
            } else {
                self.asleep.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if self.done.is_empty() && self.working.load(Ordering::Acquire) > 0 {
                    thread::park();
                }
                self.asleep.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Every id is there, once.
    fn check(&self) {
        let mut all: Vec<_> = (0..self.load.depth).map(|_| self.ids.wait()).collect();
        all.sort_unstable();
        let as_made = all.iter().copied().eq(0..self.load.depth);
        assert!(as_made, "ids were lost or doubled");
        all.into_iter().for_each(|id| self.ids.give(id));
    }
}

/// The most for each one of the least.
pub(crate) fn spread_of(counts: &[u64]) -> f64 {
    let most = counts.iter().max().copied().unwrap_or(0);
    let least = counts.iter().min().copied().unwrap_or(0);
    most as f64 / least.max(1) as f64
}

/// Cuts the time into pieces of ten rotations; the spread in the middle one.
fn spread(waits: &[Vec<Wait>]) -> f64 {
    let piece = 10 * TURN * waits.len();
    let ends = |(thread, waits): (usize, &Vec<Wait>)| -> Vec<_> {
        waits.iter().map(|wait| (wait.end, thread)).collect()
    };
    let mut had: Vec<_> = waits.iter().enumerate().flat_map(ends).collect();
    had.sort_unstable();
    let count = |part: &[(Duration, usize)]| {
        let mut counts = vec![0; waits.len()];
        part.iter().for_each(|&(_, thread)| counts[thread] += 1);
        spread_of(&counts)
    };
    let mut pieces: Vec<_> = had.chunks_exact(piece).map(count).collect();
    if pieces.is_empty() {
        pieces.push(count(&had));
    }
    median(pieces)
}

fn outcome(elapsed: Duration, waits: &[Vec<Wait>]) -> Outcome {
    let micros: Vec<f64> = waits
        .iter()
        .flatten()
        .map(|had| had.wait.as_secs_f64() * 1e6)
        .collect();
    let below = |part| match micros.len() {
        0 => 0.0,
        _ => quantile(micros.iter().copied(), part),
    };
    Outcome {
        per_second: micros.len() as f64 / elapsed.as_secs_f64(),
        spread: spread(waits),
        mean: micros.iter().sum::<f64>() / micros.len().max(1) as f64,
        p50: below(0.5),
        p99: below(0.99),
        longest: micros.iter().copied().fold(0.0, f64::max),
    }
}
