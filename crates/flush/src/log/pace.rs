//! Whether grouping pays, and how long a leader waits for others.

use super::options::GroupMode;
use inflight_sync::time::Instant;
use std::time::Duration;

/// Grouping pays if a flush serves at least this many commits,
const LEAST_MERGED: f64 = 1.2;
/// and if the flushes that it saves take at least as long as this many wakes.
const LEAST_WAKES: f64 = 2.0;
/// Wakes can be measured only while commits group. After this many flushes without a wake the
/// measurements are dropped, and grouping is tried again.
const BELIEVED: u32 = 1 << 14;
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

/// The median of the last times.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    last: [Duration; 16],
    /// The same, sorted.
    sorted: [Duration; 16],
    count: usize,
}

impl Times {
    fn add(&mut self, time: Duration) {
        let oldest = std::mem::replace(&mut self.last[self.count % self.last.len()], time);
        let mut at = self.count;
        if self.count >= self.last.len() {
            let position = self.sorted.iter().position(|&known| known == oldest);
            at = position.expect("the oldest time is among the sorted ones");
        }
        let known = self.count.min(self.last.len() - 1);
        while at > 0 && self.sorted[at - 1] > time {
            self.sorted[at] = self.sorted[at - 1];
            at -= 1;
        }
        while at < known && self.sorted[at + 1] < time {
            self.sorted[at] = self.sorted[at + 1];
            at += 1;
        }
        self.sorted[at] = time;
        self.count += 1;
    }

    /// Zero while there is none.
    const fn median(&self) -> Duration {
        let known = if self.count < self.last.len() {
            self.count
        } else {
            self.last.len()
        };
        self.sorted[known / 2]
    }
}

/// Measurements of the commits of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Commits under way.
    under_way: usize,
    /// How many were under way when the last flush ended: they are expected back.
    expected: usize,
    /// Commits that waited then, or have come since. `under_way` does not say it, because it still
    /// counts commits that were released and have not left.
    here: usize,
    /// Commits that were to be durable and have ended since the last flush.
    ended: usize,
    /// How many end for each flush.
    merged: Average,
    flush: Times,
    /// From the end of a flush to the moment at which the next leader runs.
    wake: Times,
    /// Flushes since that was measured.
    wake_age: u32,
    /// From the end of a flush to the next commit.
    think: Average,
    last_flush: Instant,
}

impl Pace {
    pub(super) fn commit_begins(&mut self, now: Instant) {
        self.under_way += 1;
        self.here += 1;
        if self.flush.count > 0 {
            self.think.add((now - self.last_flush).as_secs_f64());
        }
    }

    /// `flushed`: it was to be durable.
    pub(super) fn commit_ends(&mut self, flushed: bool) {
        self.under_way -= 1;
        self.ended += usize::from(flushed);
    }

    /// A flush has ended, and `waiting` commits wait for another one.
    pub(super) fn flushed(&mut self, now: Instant, took: Duration, waiting: usize) {
        if self.flush.count > 0 {
            self.merged.add(self.ended as f64);
        }
        self.ended = 0;
        self.flush.add(took);
        self.last_flush = now;
        self.expected = self.under_way;
        self.here = waiting;
        self.wake_age += 1;
        if self.wake_age > BELIEVED {
            (self.wake, self.wake_age) = (Times::default(), 0);
        }
    }

    pub(super) fn woken(&mut self, after: Duration) {
        self.wake.add(after);
        self.wake_age = 0;
    }

    /// Whether the next commit, which has begun, waits for a leader. Until wakes are measured, all
    /// commits that are under way count as those that could share a flush.
    pub(super) fn groups(&self, mode: GroupMode) -> bool {
        match mode {
            GroupMode::Off => false,
            GroupMode::Leader => true,
            GroupMode::Auto => {
                // A single late wake says nothing about the usual one.
                let (wake, shared) = if self.wake.count >= self.wake.last.len() / 2 {
                    (self.wake.median().as_secs_f64(), self.merged.value)
                } else {
                    (0.0, self.merged.value.max(self.under_way as f64))
                };
                let flush = self.flush.median().as_secs_f64();
                let takes_time = self.flush.count == 0 || flush > 0.0;
                let saves = flush * (shared - 1.0);
                shared >= LEAST_MERGED && takes_time && saves >= LEAST_WAKES * wake
            }
        }
    }

    /// Whether all commits that the last flush released have come back.
    pub(super) const fn all_are_back(&self) -> bool {
        self.here >= self.expected
    }

    /// How long a leader waits for the commits that the last flush released. It waits only if the
    /// options say so, for enough others, and if they come back sooner than a flush takes. If one
    /// does not come, fewer are expected the next time. A single committer never waits.
    pub(super) fn delay(&self, most: Duration, min_siblings: usize) -> Option<Duration> {
        let others = self.under_way.max(self.expected).saturating_sub(1);
        let flush = self.flush.median();
        let pays = others >= min_siblings.max(1)
            && !self.all_are_back()
            && self.think.value < flush.as_secs_f64();
        (pays && !most.is_zero()).then(|| most.min(flush / 2))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const AUTO: GroupMode = GroupMode::Auto;

    /// `at_once` commits share a flush, and each ends after its wake.
    fn round(pace: &mut Pace, at_once: usize, flush: Duration, wake: Option<Duration>) {
        for _ in 0..at_once {
            pace.commit_begins(pace.last_flush + MS / 100);
        }
        pace.flushed(pace.last_flush + MS / 100 + flush, flush, 0);
        for _ in 0..at_once {
            if let Some(wake) = wake {
                pace.woken(wake);
            }
            pace.commit_ends(true);
        }
    }

    /// A pace after 100 such rounds.
    fn pace(at_once: usize, flush: Duration, wake: Duration) -> Pace {
        let mut pace = Pace::default();
        for _ in 0..100 {
            round(&mut pace, at_once, flush, Some(wake));
        }
        pace
    }

    #[test]
    fn grouping_pays_if_the_flushes_that_it_saves_take_two_wakes() {
        assert!(!pace(1, MS, MS / 100).groups(AUTO), "nobody to share with");
        assert!(pace(2, MS, MS / 100).groups(AUTO));
        assert!(pace(2, MS, MS * 49 / 100).groups(AUTO));
        assert!(!pace(2, MS, MS * 51 / 100).groups(AUTO));
        assert!(pace(8, MS, 3 * MS).groups(AUTO), "a wake on a busy machine");
        assert!(!pace(8, MS, 4 * MS).groups(AUTO));
        assert!(pace(1, MS, MS).groups(GroupMode::Leader));
        assert!(!pace(8, MS, MS / 100).groups(GroupMode::Off));
    }

    /// What comes together at the start would wait in a row for flushes of its own.
    #[test]
    fn commits_that_begin_together_share_a_flush_from_the_first_on() {
        let mut pace = Pace::default();
        pace.commit_begins(Instant::default());
        assert!(!pace.groups(AUTO));
        pace.commit_begins(Instant::default());
        assert!(pace.groups(AUTO) && !pace.groups(GroupMode::Off));
        pace.commit_ends(true);
        assert!(!pace.groups(AUTO));
    }

    #[test]
    fn grouping_begins_at_six_commits_for_five_flushes() {
        for (merged, grouped) in [(1.19, false), (1.2, true)] {
            let mut pace = pace(8, MS, MS / 100);
            pace.merged.value = merged;
            assert_eq!(pace.groups(AUTO), grouped, "{merged}");
        }
    }

    #[test]
    fn the_median_is_that_of_the_last_16() {
        let mut times = Times::default();
        let mut all = Vec::new();
        assert_eq!(times.median(), Duration::ZERO);
        for number in 0..200_u32 {
            all.push(Duration::from_nanos(u64::from(number * 7919 % 23)));
            times.add(all[number as usize]);
            let mut last = all[all.len().saturating_sub(16)..].to_vec();
            last.sort_unstable();
            assert_eq!(times.median(), last[last.len() / 2], "after {number}");
        }
    }

    #[test]
    fn a_few_late_wakes_say_nothing() {
        let mut pace = Pace::default();
        round(&mut pace, 8, MS, Some(MS / 100));
        round(&mut pace, 8, MS, None);
        for _ in 0..7 {
            pace.woken(100 * MS);
        }
        assert!(pace.groups(AUTO), "half of the last 16 were short");
        for _ in 0..2 {
            pace.woken(100 * MS);
        }
        assert!(!pace.groups(AUTO));
    }

    /// Without groups no wake is measured, so old measurements are dropped after a while.
    #[test]
    fn grouping_is_tried_again() {
        let mut pace = pace(8, MS, 4 * MS);
        assert!(!pace.groups(AUTO));
        for _ in 0..BELIEVED {
            round(&mut pace, 8, MS, None);
        }
        assert!(!pace.groups(AUTO), "not yet");
        round(&mut pace, 8, MS, None);
        assert!(pace.groups(AUTO));
    }

    #[test]
    fn commits_that_need_no_flush_do_not_count_as_served() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            for flushed in [true, false, false] {
                pace.commit_begins(pace.last_flush);
                pace.commit_ends(flushed);
            }
            pace.flushed(pace.last_flush + MS, MS, 0);
        }
        assert!(!pace.groups(AUTO));
    }

    #[test]
    fn a_leader_that_was_told_to_waits_for_those_it_has_released() {
        let mut two = pace(2, MS, MS / 100);
        two.commit_begins(two.last_flush + MS / 100);
        two.commit_begins(two.last_flush + MS / 100);
        two.flushed(two.last_flush + 2 * MS, MS, 0);
        // One begins again before the other has left.
        two.commit_ends(true);
        two.commit_begins(two.last_flush + MS / 100);
        assert_eq!(two.delay(MS, 1), Some(MS / 2), "half of a flush at most");
        assert_eq!(two.delay(MS / 4, 1), Some(MS / 4));
        assert_eq!(two.delay(Duration::ZERO, 1), None, "not asked for");
        assert_eq!(two.delay(MS, 2), None, "too few");
        two.commit_ends(true);
        two.commit_begins(two.last_flush + MS / 100);
        assert!(two.all_are_back() && two.delay(MS, 1).is_none());
        two.commit_ends(true);
        // The other one has not come: the next leader does not wait for it.
        two.flushed(two.last_flush + 2 * MS, MS, 0);
        two.commit_ends(true);
        two.commit_begins(two.last_flush + MS / 100);
        assert_eq!(two.delay(MS, 1), None);
        let mut alone = pace(1, MS, MS / 100);
        alone.commit_begins(alone.last_flush);
        assert_eq!(alone.delay(MS, 0), None, "never for one");
        let mut slow = pace(8, MS / 200, MS / 100);
        slow.commit_begins(slow.last_flush);
        assert_eq!(slow.delay(MS, 1), None, "a flush is over before they come");
    }

    #[test]
    fn a_leader_waits_for_enough_siblings_only() {
        let mut many = pace(8, MS, MS / 100);
        many.commit_begins(many.last_flush + MS / 100);
        assert_eq!(many.delay(MS, 7), Some(MS / 2));
        assert_eq!(many.delay(MS, 8), None, "too few");
    }
}
