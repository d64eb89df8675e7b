//! Looks for workers that sleep without having said so, or compute for long, while items wait
//! behind them.
//!
//! Only then: a pool is looked at from the moment an item has to wait because others run, and until
//! none has had to for some looks. What is looked at is the thread's state and the CPU time it has
//! used, as `/proc` tells them. Where there is no `/proc`, nobody is looked at.

use crate::proc;
use inflight_sync::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two ticks when something has just been found, and at first.
pub(crate) const SOON: Duration = Duration::from_micros(50);

/// Between two ticks when nothing has been found for long.
const SLOW: Duration = Duration::from_millis(1);

/// So many slow ticks in a row without an item that waits end it.
const QUIET_TICKS: u32 = 20;

/// The files of so many workers of a pool stay open from one tick to the next: to open one takes
/// as long as ten looks at it.
const MAX_OPEN: usize = 32;

/// How systems look at their workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    pub(crate) on: bool,
    /// An item that has used so much CPU time computes for long; zero: none does.
    pub(crate) intensive: Duration,
}

/// What the timer remembers of a pool from one tick to the next.
#[derive(Default)]
pub(crate) struct Sampler(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    watched: BTreeMap<usize, Watched>,
    period: Duration,
    quiet: u32,
    /// Room for those that are looked at.
    candidates: Vec<Candidate>,
}

struct Watched {
    turn: u32,
    thread: u32,
    files: proc::Files,
    /// How often the turn has been looked at.
    looks: u32,
    /// CPU time when the turn was seen for the second time: most are not.
    used: Option<Duration>,
}

/// A worker that may hold others back.
pub(crate) struct Candidate {
    pub(crate) worker: usize,
    /// How far it was in its batch.
    pub(crate) turn: u32,
    pub(crate) thread: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Asleep,
    /// It has used so much CPU time.
    Intensive(Duration),
}

/// A pool, as far as it is looked at.
pub(crate) trait Sampled {
    /// The workers that hold others back. `false`: nothing waits.
    fn candidates(&self, candidates: &mut Vec<Candidate>) -> bool;

    /// What was seen of workers in some turns. Returns whether any of it was news.
    fn found(&self, verdicts: Vec<(usize, u32, Verdict)>) -> bool;

    /// Nothing has had to wait for long. `false` if something waits now.
    fn end_watch(&self) -> bool;
}

impl Sampler {
    /// One look at the pool. Returns when to look again, `None` if that is not needed.
    pub(crate) fn tick(&self, pool: &impl Sampled, sampling: Sampling) -> Option<Duration> {
        let mut memory = self.0.lock();
        let mut candidates = std::mem::take(&mut memory.candidates);
        if !pool.candidates(&mut candidates) {
            memory.candidates = candidates;
            memory.quiet += 1;
            if memory.quiet > QUIET_TICKS && pool.end_watch() {
                *memory = Memory::default();
                return None;
            }
            return Some(SLOW);
        }
        memory.quiet = 0;
        let mut verdicts = Vec::new();
        if memory.watched.len() + candidates.len() > MAX_OPEN {
            let is_candidate = |worker| candidates.iter().any(|s| s.worker == worker);
            memory.watched.retain(|worker, _| is_candidate(*worker));
        }
        for candidate in candidates.drain(..) {
            let before = memory.watched.remove(&candidate.worker);
            let Some(mut now) = Watched::of(before, &candidate) else {
                continue;
            };
            if let Some(verdict) = now.tick(sampling.intensive) {
                verdicts.push((candidate.worker, candidate.turn, verdict));
            }
            memory.watched.insert(candidate.worker, now);
        }
        memory.candidates = candidates;
        memory.period = if pool.found(verdicts) {
            SOON
        } else {
            (memory.period * 2).clamp(SOON, SLOW)
        };
        Some(memory.period)
    }
}

impl Watched {
    /// With the files of the tick before, if it is the same thread.
    fn of(before: Option<Self>, candidate: &Candidate) -> Option<Self> {
        let before = before.filter(|b| b.thread == candidate.thread);
        let Some(before) = before else {
            return Some(Self {
                turn: candidate.turn,
                thread: candidate.thread,
                files: proc::Files::open(candidate.thread)?,
                looks: 0,
                used: None,
            });
        };
        if before.turn == candidate.turn {
            return Some(before);
        }
        Some(Self {
            turn: candidate.turn,
            looks: 0,
            used: None,
            ..before
        })
    }

    fn tick(&mut self, intensive: Duration) -> Option<Verdict> {
        self.looks += 1;
        if self.files.is_asleep() {
            return Some(Verdict::Asleep);
        }
        if intensive.is_zero() || self.looks == 1 {
            return None;
        }
        let now = self.files.cpu_time()?;
        let used = now.saturating_sub(*self.used.get_or_insert(now));
        (used >= intensive).then_some(Verdict::Intensive(used))
    }
}
