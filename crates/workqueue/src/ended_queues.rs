//! The counts of queues that have ended, for the metrics: a counter never goes down.

use crate::stats::{COUNTERS, WorkqueueStats};
use inflight_sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many names have counts of their own. The counts of others are those of [`OTHERS`].
const NAMES: usize = 128;

pub(crate) const OTHERS: &str = "others";

/// By the name of the queue: those with the same name are one line.
pub(crate) type Lines = BTreeMap<String, Line>;

/// What the recorder is told of a name.
#[derive(Clone, Default)]
pub(crate) struct Line {
    pub(crate) counts: [u64; COUNTERS.len()],
    pub(crate) cpu_time: Duration,
    pub(crate) active: usize,
    pub(crate) inactive: usize,
    pub(crate) max_active: Option<usize>,
}

impl Line {
    pub(crate) fn add(&mut self, stats: &WorkqueueStats, limit: Option<usize>) {
        self.count(stats);
        self.active += stats.active;
        self.inactive += stats.inactive;
        if let Some(limit) = limit {
            *self.max_active.get_or_insert(0) += limit;
        }
    }

    /// The line once no queue has the name: what never goes down stays.
    pub(crate) fn gone(self) -> Self {
        Self {
            active: 0,
            inactive: 0,
            max_active: self.max_active.map(|_| 0),
            ..self
        }
    }

    /// Adds what never goes down.
    fn count(&mut self, stats: &WorkqueueStats) {
        for (sum, (_, _, read)) in self.counts.iter_mut().zip(COUNTERS) {
            *sum += read(stats);
        }
        self.cpu_time += stats.cpu_time.unwrap_or_default();
    }
}

#[derive(Default)]
pub(crate) struct EndedQueues(Mutex<Lines>);

impl EndedQueues {
    /// While it is held, no queue ends: each is either counted here or still exists.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock()
    }

    /// Adds the counts of a queue, with its limit, if `ends` says that it ends now. Whether it did.
    pub(crate) fn add(
        &self,
        name: &str,
        ends: impl FnOnce() -> Option<(WorkqueueStats, Option<usize>)>,
    ) -> bool {
        let mut lines = self.lock();
        let Some((stats, limit)) = ends() else {
            return false;
        };
        let is_full = lines.len() >= NAMES && !lines.contains_key(name);
        let name = if is_full { OTHERS } else { name };
        let line = lines.entry(name.to_owned()).or_default();
        line.count(&stats);
        line.max_active = line.max_active.or(limit.map(|_| 0));
        true
    }
}
