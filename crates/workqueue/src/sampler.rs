//! Which workers sleep without having said so, or compute for long, while items wait behind them:
//! who is looked at, and what a look says of it. `act_on_sampler` acts on it, if it is still true.
//!
//! Only then: a pool is looked at from the moment an item has to wait because others run, and until
//! none has had to for some looks. What is looked at is the thread's state and the CPU time it has
//! used, as `/proc` tells them. Where there is no `/proc`, nobody is looked at.

use crate::pool_core::{Worker, WorkerPhase};
use crate::proc;
use std::collections::BTreeMap;
use std::time::Duration;

/// Between two ticks when something has just been found, and at first.
pub(crate) const SOON: Duration = Duration::from_micros(50);

/// Between two ticks when nothing has been found for long.
pub(crate) const SLOW: Duration = Duration::from_millis(1);

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
pub(crate) struct Sampler {
    watched: BTreeMap<usize, Watched>,
    period: Duration,
    quiet: u32,
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

/// Whether a worker is looked at, of a pool in which something waits: it runs an item, and nothing
/// is known of it that would let others run beside it.
pub(crate) fn is_candidate(worker: &Worker, runs_item: bool) -> bool {
    worker.phase == WorkerPhase::Active && worker.may_hold_others_back() && runs_item
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Asleep,
    /// It has used so much CPU time.
    Intensive(Duration),
}

impl Sampler {
    /// Nothing waits. Whether that has been so for long.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.quiet += 1;
        self.quiet > QUIET_TICKS
    }

    /// Looks at the candidates. Returns what was seen of workers in some turns.
    pub(crate) fn look(
        &mut self,
        candidates: Vec<Candidate>,
        intensive: Duration,
    ) -> Vec<(usize, u32, Verdict)> {
        self.quiet = 0;
        let watched = &mut self.watched;
        if watched.len() + candidates.len() > MAX_OPEN {
            let is_candidate = |worker| candidates.iter().any(|s| s.worker == worker);
            watched.retain(|worker, _| is_candidate(*worker));
        }
        let mut verdicts = Vec::new();
        for candidate in candidates {
            let before = watched.remove(&candidate.worker);
            let Some(mut now) = Watched::of(before, &candidate) else {
                continue;
            };
            if let Some(verdict) = now.tick(intensive) {
                verdicts.push((candidate.worker, candidate.turn, verdict));
            }
            watched.insert(candidate.worker, now);
        }
        verdicts
    }

    /// When to look again, after a look that was news, or not.
    pub(crate) fn next_look(&mut self, news: bool) -> Duration {
        self.period = if news {
            SOON
        } else {
            (self.period * 2).clamp(SOON, SLOW)
        };
        self.period
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
