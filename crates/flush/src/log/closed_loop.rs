//! Committers that come back after a pause, in virtual time, on the group as it is shipped.
//!
//! Compared with a published model of such a loop: how many commits share a flush, and that none
//! waits for more than two.

use super::LogOptions;
use super::group::{Durability, Group, Key, Next};
use super::pace::Pace;
use inflight_sync::time::Instant;
use inflight_sync::wait::Notify;
use std::task::{Poll, Waker};
use std::time::Duration;

const FLUSH: u64 = 1_000_000;
const COMMITS: u64 = 40_000;

struct Committer {
    wakes: u64,
    key: Option<Key>,
    since: u64,
}

struct Outcome {
    commits_per_flush: f64,
    commits_per_flush_time: f64,
    longest: f64,
}

/// Exponential with this mean.
fn pause(rng: &mut fastrand::Rng, mean: f64) -> u64 {
    (-(1.0 - rng.f64()).ln() * mean) as u64
}

fn closed_loop(options: &LogOptions, committers: usize, think: f64, seed: u64) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mean = think * FLUSH as f64;
    let (mut group, mut pace) = (Group::new(0), Pace::default());
    let mut all: Vec<Committer> = (0..committers)
        .map(|_| Committer {
            wakes: pause(&mut rng, mean),
            key: None,
            since: 0,
        })
        .collect();
    let (mut end, mut commits, mut flushes, mut longest) = (0, 0, 0, 0);
    // The flush in flight: when it ends, and what it covers.
    let mut flush: Option<(u64, u64)> = None;
    // Until when the leader waits for others.
    let mut gathers: Option<u64> = None;
    let mut now = 0;
    while commits < COMMITS {
        let next = all.iter().enumerate().filter(|(_, c)| c.key.is_none());
        let next = next
            .min_by_key(|(_, c)| c.wakes)
            .map(|(at, c)| (c.wakes, at));
        let ends = flush.map(|(ends, _)| ends).or(gathers);
        now = match (next, flush) {
            (Some((wakes, at)), _) if ends.is_none_or(|ends| wakes < ends) => {
                end += 1;
                pace.commit_begins(Instant::from_nanos(wakes));
                let key = group.join(Instant::from_nanos(wakes), end, Durability::Flushed);
                (all[at].key, all[at].since) = (Some(key), wakes);
                wakes
            }
            (_, Some((ends, cover))) => {
                group.durable = cover;
                let waiting = group.waiting_beyond(cover);
                let flush_time = Duration::from_nanos(FLUSH);
                pace.flushed(Instant::from_nanos(ends), flush_time, waiting);
                drop(group.step_down(Instant::from_nanos(ends)));
                flush = None;
                ends
            }
            (_, None) => gathers.expect("a member leads while others wait"),
        };
        // The next leader runs before the commits that were released with it leave.
        for key in all.iter().filter_map(|committer| committer.key) {
            let (looked, _) = group.look(key, Notify::Task(Waker::noop().clone()));
            if !matches!(looked, Poll::Ready(Next::Lead)) || flush.is_some() {
                continue;
            }
            let wait = pace.delay(options.max_delay, options.min_siblings);
            let wait = wait.map(|limit| limit.as_nanos() as u64);
            let until = *gathers.get_or_insert(now + wait.unwrap_or(0));
            if now < until && !pace.all_are_back() {
                continue;
            }
            gathers = None;
            group.written = end;
            flush = Some((now + FLUSH, group.written));
            flushes += 1;
        }
        for committer in &mut all {
            let Some(key) = committer.key else { continue };
            let (looked, _) = group.look(key, Notify::Task(Waker::noop().clone()));
            if let Poll::Ready(Next::Ended(result)) = looked {
                result.expect("nothing fails");
                longest = longest.max(now - committer.since);
                drop(group.leave(Instant::from_nanos(now), key));
                pace.commit_ends(true);
                committer.key = None;
                committer.wakes = now + pause(&mut rng, mean);
                commits += 1;
            }
        }
    }
    Outcome {
        commits_per_flush: commits as f64 / flushes as f64,
        commits_per_flush_time: commits as f64 * FLUSH as f64 / now as f64,
        longest: longest as f64 / FLUSH as f64,
    }
}

#[test]
fn as_many_share_a_flush_as_published() {
    for (think, committers, published) in [
        (0.1, 1, 1.0),
        (0.1, 8, 4.0),
        (0.1, 32, 15.98),
        (1.0, 8, 3.11),
        (1.0, 32, 12.4),
        (5.0, 32, 4.9),
    ] {
        let outcome = closed_loop(&LogOptions::new(), committers, think, 7);
        let off = outcome.commits_per_flush / published - 1.0;
        assert!(
            off.abs() < 0.1,
            "{committers} committers, think {think}: {} for {published}",
            outcome.commits_per_flush
        );
        assert!(outcome.longest <= 2.0 + 1e-6, "{}", outcome.longest);
    }
}

/// Fewer than 0.35 flushes for a commit of eight committers: the promise of the log's page.
#[test]
fn eight_committers_share_by_three_or_more() {
    for seed in 0..20 {
        let outcome = closed_loop(&LogOptions::new(), 8, 0.1, seed);
        assert!(1.0 / outcome.commits_per_flush < 0.35);
    }
}

/// With `max_delay` a leader waits for the commits that were released with it. If they come back
/// soon, all share one flush. Nothing changes for a single committer, and little is lost if they
/// come back late.
#[test]
fn those_who_come_back_soon_share_one_flush() {
    let waits = LogOptions::new().max_delay(Duration::MAX).min_siblings(1);
    for (think, committers, least_share, least_gain) in [
        (0.02, 2, 1.9, 1.5),
        (0.1, 2, 1.8, 1.2),
        (0.02, 8, 7.5, 1.5),
        (0.1, 8, 6.5, 1.2),
        (0.1, 1, 1.0, 1.0),
        (0.4, 2, 1.0, 0.95),
        (1.0, 8, 1.0, 0.95),
        (5.0, 32, 1.0, 0.95),
    ] {
        let [none, some] =
            [&LogOptions::new(), &waits].map(|options| closed_loop(options, committers, think, 7));
        let gain = some.commits_per_flush_time / none.commits_per_flush_time;
        let share = some.commits_per_flush;
        assert!(
            share >= least_share && gain >= least_gain,
            "{committers} committers, think {think}: {share} for each flush, {gain} as fast"
        );
        // The rest of the flush in flight, the leader's wait, and its own.
        assert!(some.longest <= 2.5 + 1e-6, "{}", some.longest);
    }
}

/// By default no leader waits for others: a commit takes at most two flushes.
#[test]
fn by_default_a_leader_waits_for_nobody() {
    for think in [0.02, 0.1, 0.4, 1.0] {
        for committers in [2, 8, 32] {
            let outcome = closed_loop(&LogOptions::new(), committers, think, 7);
            assert!(outcome.longest <= 2.0 + 1e-6, "{}", outcome.longest);
        }
    }
}
