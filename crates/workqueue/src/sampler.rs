//! Which workers sleep without having said so, or compute for long, while items wait behind them.
//! `act_on_sampler` acts on the result, if it is still true.
//!
//! A pool is sampled from the moment an item has to wait because others run, until none has had to
//! wait for some ticks. The sampler reads the thread's state and its CPU time from `/proc`. Without
//! `/proc` there is no sampling.

use crate::pool_core::{Worker, WorkerPhase};
use crate::proc;
use std::collections::BTreeMap;
use std::time::Duration;

/// The time between two ticks after something was found, and at first.
pub(crate) const SOON: Duration = Duration::from_micros(50);

/// The time between two ticks when nothing has been found for long.
pub(crate) const SLOW: Duration = Duration::from_millis(1);

/// Sampling ends after so many slow ticks in a row without a waiting item.
const QUIET_TICKS: u32 = 20;

/// For how many workers files stay open: opening one takes as long as ten reads.
const MAX_OPEN: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    pub(crate) on: bool,
    /// An item that has used so much CPU time is CPU-intensive; zero: none is.
    pub(crate) intensive: Duration,
}

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
    looks: u32,
    /// The CPU time when the turn was seen for the second time. Most turns are not.
    used: Option<Duration>,
}

pub(crate) struct Candidate {
    pub(crate) worker: usize,
    /// Its position in its batch.
    pub(crate) turn: u32,
    pub(crate) thread: u32,
}

/// Whether to sample it: it runs an item, and nothing lets others run beside it.
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
    /// Nothing waits. Returns whether that has been so for long.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.quiet += 1;
        self.quiet > QUIET_TICKS
    }

    /// Looks at the candidates. Returns the verdicts on workers, each for a turn.
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

    /// When to look again, depending on whether this look was news.
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
    /// Reuses the files of the tick before, if it is the same thread.
    fn of(before: Option<Self>, candidate: &Candidate) -> Option<Self> {
        let before = before.filter(|b| b.thread == candidate.thread);
        if before.as_ref().is_some_and(|b| b.turn == candidate.turn) {
            return before;
        }
        let files = match before {
            Some(before) => before.files,
            None => proc::Files::open(candidate.thread)?,
        };
        Some(Self {
            turn: candidate.turn,
            thread: candidate.thread,
            files,
            looks: 0,
            used: None,
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
