//! Whether grouping pays, and how long a leader waits for others.

use super::options::GroupMode;
use inflight_sync::time::Instant;
use std::time::Duration;

/// Grouping pays if it is expected to be faster by this factor, or more.
const LEAST_GAIN: f64 = 1.2;
/// Each new value counts for this share of the average.
const WEIGHT: f64 = 1.0 / 16.0;

/// An average in which old values fade.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    value: f64,
    known: bool,
}

impl Average {
    fn add(&mut self, value: f64) {
        if self.known {
            self.value += (value - self.value) * WEIGHT;
        } else {
            (self.value, self.known) = (value, true);
        }
    }
}

/// What the commits of a log have been like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Commits under way.
    under_way: usize,
    /// As many were under way when the last flush ended: they are expected back.
    expected: usize,
    /// Those that wait, or have come since. Who is released leaves later, so `under_way` does not
    /// say it.
    here: usize,
    /// Their average.
    siblings: Average,
    flush: Average,
    /// From the end of a flush to the moment at which the next leader runs.
    wake: Average,
    /// From the end of a flush to the next commit.
    think: Average,
    last_flush: Instant,
}

impl Pace {
    pub(super) fn commit_begins(&mut self, now: Instant) {
        self.under_way += 1;
        self.here += 1;
        if self.flush.known {
            self.think.add((now - self.last_flush).as_secs_f64());
        }
    }

    pub(super) fn commit_ends(&mut self) {
        self.under_way -= 1;
    }

    /// A flush has ended that `waiting` commits needed more than.
    pub(super) fn flushed(&mut self, now: Instant, took: Duration, waiting: usize) {
        self.flush.add(took.as_secs_f64());
        self.last_flush = now;
        self.expected = self.under_way;
        self.here = waiting;
        self.siblings.add(self.under_way as f64);
    }

    pub(super) fn woken(&mut self, after: Duration) {
        self.wake.add(after.as_secs_f64());
    }

    /// Whether the next commit waits for a leader.
    pub(super) fn groups(&self, mode: GroupMode) -> bool {
        match mode {
            GroupMode::Off => false,
            GroupMode::Leader => true,
            // N in lock-step share by N / 2, and one more comes early; or all of them, if the
            // leader waits for them. A round is a flush and the wake of the next leader.
            GroupMode::Auto => {
                let shared = if self.come_back_soon() {
                    self.siblings.value
                } else {
                    (self.siblings.value + 1.0) / 2.0
                };
                let round = self.flush.value + self.wake.value;
                shared * self.flush.value > LEAST_GAIN * round
            }
        }
    }

    /// Whether commits come sooner after a flush than half of the next one takes.
    fn come_back_soon(&self) -> bool {
        self.think.known && self.think.value < self.flush.value / 2.0
    }

    /// Whether those are here that the last flush has released.
    pub(super) const fn all_are_back(&self) -> bool {
        self.here >= self.expected
    }

    /// How long a leader waits for those that the last flush has released. If one does not come,
    /// fewer are expected the next time; a single committer never waits.
    pub(super) fn regroup(&self, mode: GroupMode) -> Option<Duration> {
        let pays = mode == GroupMode::Auto && !self.all_are_back() && self.come_back_soon();
        pays.then(|| Duration::from_secs_f64(self.flush.value / 2.0))
    }

    /// How long a leader waits as it was told to: only for enough others, who come
    /// sooner than a flush takes.
    pub(super) fn delay(&self, most: Duration, min_siblings: usize) -> Option<Duration> {
        let others = self.under_way.saturating_sub(1);
        let pays = others >= min_siblings.max(1) && self.think.value < self.flush.value;
        (pays && !most.is_zero()).then(|| most.min(Duration::from_secs_f64(self.flush.value / 2.0)))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// `count` commits that are always `at_once` at a time.
    fn pace(at_once: usize, flush: Duration, wake: Duration) -> Pace {
        let mut pace = Pace::default();
        for _ in 0..100 {
            for _ in 0..at_once {
                pace.commit_begins(pace.last_flush + MS / 100);
            }
            pace.flushed(pace.last_flush + MS / 100 + flush, flush, 0);
            for _ in 0..at_once {
                pace.woken(wake);
                pace.commit_ends();
            }
        }
        pace
    }

    #[test]
    fn grouping_is_for_several_commits_and_flushes_that_take_their_time() {
        let auto = GroupMode::Auto;
        assert!(!pace(1, MS, MS / 100).groups(auto), "nobody to share with");
        assert!(pace(8, MS, MS / 100).groups(auto));
        assert!(
            pace(8, MS / 100, MS / 100).groups(auto),
            "a wake costs as much"
        );
        assert!(
            !pace(2, MS / 100, MS / 100).groups(auto),
            "too much for few"
        );
        assert!(
            !pace(8, MS / 100, MS / 10).groups(auto),
            "flushes are cheap"
        );
        assert!(pace(1, MS, MS).groups(GroupMode::Leader));
        assert!(!pace(8, MS, MS / 100).groups(GroupMode::Off));
    }

    #[test]
    fn a_leader_waits_for_those_it_has_released() {
        let auto = GroupMode::Auto;
        let mut two = pace(2, MS, MS / 100);
        assert!(two.groups(auto));
        two.commit_begins(two.last_flush + MS / 100);
        two.commit_begins(two.last_flush + MS / 100);
        two.flushed(two.last_flush + 2 * MS, MS, 0);
        // One begins again before the other has left.
        two.commit_ends();
        two.commit_begins(two.last_flush + MS / 100);
        let delay = two.regroup(auto).unwrap();
        assert!(delay > MS / 3 && delay <= MS / 2, "{delay:?}");
        assert_eq!(two.regroup(GroupMode::Leader), None, "not asked for");
        two.commit_ends();
        two.commit_begins(two.last_flush + MS / 100);
        assert!(two.all_are_back() && two.regroup(auto).is_none());
        two.commit_ends();
        // The other one has not come: the next leader does not wait for it.
        two.flushed(two.last_flush + 2 * MS, MS, 0);
        two.commit_ends();
        two.commit_begins(two.last_flush + MS / 100);
        assert_eq!(two.regroup(auto), None);
        let mut alone = pace(1, MS, MS / 100);
        alone.commit_begins(alone.last_flush);
        assert_eq!(alone.regroup(auto), None, "never for one");
        let mut slow = pace(2, MS / 100, MS / 100);
        slow.commit_begins(slow.last_flush);
        assert_eq!(slow.regroup(auto), None, "a flush is over before they come");
    }

    #[test]
    fn a_leader_waits_for_siblings_only() {
        let mut many = pace(8, MS, MS / 100);
        assert_eq!(many.delay(MS, 5), None, "none is under way");
        (0..8).for_each(|_| many.commit_begins(many.last_flush));
        let delay = many.delay(MS, 5).unwrap();
        assert!(
            delay > MS / 3 && delay <= MS / 2,
            "half of a flush: {delay:?}"
        );
        assert_eq!(many.delay(MS, 8), None, "too few");
        assert_eq!(many.delay(Duration::ZERO, 5), None, "not asked for");
        let mut alone = pace(1, MS, MS / 100);
        alone.commit_begins(alone.last_flush);
        assert_eq!(alone.delay(MS, 0), None, "never for one");
    }
}
