//! What the table must show, and whether it does.

use super::measure::Outcome;
use super::model::Model;
use super::policy::{Policy, Rule};
use super::table::{Row, Table};
use crate::goal::{Goal, Margin, goal};

/// The largest error of `preempt` beside the published v5.18, in percent.
const FIT_PERCENT: f64 = 6.0;
/// From so many jobs on, what corrects a rule of the posted series must show.
const CONTENDED: usize = 128;
/// The part of sequential requests at 512 jobs: published as about a fifth.
const SEQUENTIAL: std::ops::RangeInclusive<f64> = 0.15..=0.25;
/// MiB/s that our policy gives at least, with any number of jobs.
const OURS_MIB_S: f64 = 66.5;
/// Wakes a second of our policy with 512 jobs, at most.
const OURS_WAKES: f64 = 110.0;
const MANY: usize = 512;

fn at(row: &Row) -> String {
    format!("{} jobs", row.jobs)
}

impl Table {
    fn rows_of(&self, policy: Policy) -> impl Iterator<Item = (&Row, &Outcome)> {
        self.rows
            .iter()
            .filter_map(move |row| Some((row, row.of(policy)?)))
    }

    fn has_small(&self) -> bool {
        let mut outcomes = self.rows.iter().flat_map(|row| &row.policies);
        outcomes.any(|(_, outcome)| outcome.small_ios > 0)
    }

    /// Whether the model is that of the published disk: by `preempt` alone.
    #[must_use]
    pub fn fit(&self) -> Vec<Goal> {
        let errors = self.rows.iter().filter_map(|row| {
            let error = row.error_percent?;
            Some(Margin::at_most(
                "|error| in %",
                &at(row),
                error.abs(),
                FIT_PERCENT,
            ))
        });
        let sequential = |(row, outcome): (&Row, &Outcome)| {
            let seen = outcome.sequential;
            [
                Margin::at_least("ratio", &at(row), seen, *SEQUENTIAL.start()),
                Margin::at_most("ratio", &at(row), seen, *SEQUENTIAL.end()),
            ]
        };
        let many = self
            .rows_of(Policy::Preempt)
            .filter(|(row, _)| row.jobs == MANY);
        let goals = [
            goal("preempt is within 6 % of the published v5.18", errors),
            goal(
                "with preempt a fifth of the requests is sequential at 512 jobs",
                many.flat_map(sequential),
            ),
        ];
        goals.into_iter().flatten().collect()
    }

    /// What the posted series must show, and which of its rules is the cause.
    fn posted(&self) -> Vec<Goal> {
        let errors = self.rows.iter().filter_map(|row| {
            let error = row.patched_error_percent?.abs();
            Some(Margin::at_most(
                "|error| in %",
                &at(row),
                error,
                FIT_PERCENT,
            ))
        });
        let beside = |policy: Policy, margin: fn(&str, &str, f64, f64) -> Margin, part: f64| {
            let rows = self.rows.iter().filter(|row| row.jobs >= CONTENDED);
            rows.filter_map(move |row| {
                let posted = row.of(Policy::AsPosted)?.mib_s;
                let seen = row.of(policy)?.mib_s;
                Some(margin("MiB/s", &at(row), seen, posted * part))
            })
        };
        let never = Policy::Switched(Rule::NeverForced);
        let worse = [Rule::Barging, Rule::LaterPiecesWait, Rule::PerWaiter];
        let worse = worse.map(Policy::Switched).into_iter();
        let goals = [
            goal("as_posted is within 6 % of the published patched", errors),
            goal(
                "with newcomers never let past at least 12 % more from 128 jobs on",
                beside(never, Margin::at_least, 1.12),
            ),
            goal(
                "without patch 4, 6, or 7 and 8, at most 0.97 times as much from 128 jobs on",
                worse.flat_map(|policy| beside(policy, Margin::at_most, 0.97)),
            ),
        ];
        goals.into_iter().flatten().collect()
    }

    /// Where no IO is split: what a policy does about split ones does not matter.
    #[must_use]
    pub fn unsplit_goals(&self) -> Vec<Goal> {
        let same = self.rows.iter().filter_map(|row| {
            let rates = || row.policies.iter().map(|(_, outcome)| outcome.mib_s);
            let (least, most) = (rates().reduce(f64::min)?, rates().reduce(f64::max)?);
            Some(Margin::at_least("MiB/s", &at(row), least, most * 0.98))
        });
        goal("without splits all policies are within 2 %", same)
            .into_iter()
            .collect()
    }

    /// What the policies must show. A table with small IOs is about those; it is not comparable to
    /// the published ones.
    #[must_use]
    pub fn goals(&self) -> Vec<Goal> {
        if self.has_small() {
            return self.small_goals();
        }
        let mut goals = self.fit();
        goals.extend(self.posted());
        goals.extend(self.ours());
        goals.extend(self.ranking());
        goals
    }

    fn ours(&self) -> Vec<Goal> {
        let pieces = Model::default().pieces() as f64;
        let throughput = self
            .rows_of(Policy::Ours)
            .map(|(row, outcome)| Margin::at_least("MiB/s", &at(row), outcome.mib_s, OURS_MIB_S));
        let wait = self.rows_of(Policy::Ours).map(|(row, outcome)| {
            let per_s = outcome.mib_s * pieces;
            let limit = row.jobs as f64 * pieces / per_s;
            Margin::at_most("s", &at(row), outcome.longest_wait_s, limit)
        });
        let many = self
            .rows_of(Policy::Ours)
            .filter(|(row, _)| row.jobs == MANY);
        let wakes = many.map(|(row, outcome)| {
            Margin::at_most("wakes/s", &at(row), outcome.wakes_per_s, OURS_WAKES)
        });
        let goals = [
            goal("ours gives at least 66.5 MiB/s", throughput),
            goal(
                "with ours no tag takes longer than jobs x pieces / throughput",
                wait,
            ),
            goal("ours wakes at most 110 times a second at 512 jobs", wakes),
        ];
        goals.into_iter().flatten().collect()
    }

    fn ranking(&self) -> Vec<Goal> {
        let patched = self.rows_of(Policy::PerTag).filter_map(|(row, outcome)| {
            let published = row.published?.patched;
            Some(Margin::at_least(
                "MiB/s",
                &at(row),
                outcome.mib_s,
                published,
            ))
        });
        let contended = || self.rows.iter().filter(|row| row.jobs > 16);
        let above = |high: Policy, low: Policy, part: f64| {
            contended().filter_map(move |row| {
                let (high, low) = (row.of(high)?.mib_s, row.of(low)?.mib_s);
                Some(Margin::at_least("MiB/s", &at(row), high, low * part))
            })
        };
        let order = contended().filter_map(|row| {
            let preempt = row.of(Policy::Preempt)?.sequential;
            let seen = row.of(Policy::PerWaiter)?.sequential;
            Some(Margin::at_most("ratio", &at(row), seen, preempt))
        });
        let goals = [
            goal("per_tag gives at least the published patched", patched),
            goal(
                "waking by waiters alone makes the order less sequential than preempt",
                order,
            ),
            goal(
                "what is gained comes from waking by tags",
                above(Policy::PerTag, Policy::PerWaiter, 1.03),
            ),
            goal(
                "elastic is as good as per_tag",
                above(Policy::Elastic, Policy::PerTag, 0.99),
            ),
            goal(
                "ours is as good as elastic",
                above(Policy::Ours, Policy::Elastic, 1.0),
            ),
        ];
        goals.into_iter().flatten().collect()
    }

    fn small_goals(&self) -> Vec<Goal> {
        let below = |other: Policy, wait: fn(&Outcome) -> f64| {
            self.rows.iter().filter_map(move |row| {
                let (ours, other) = (row.of(Policy::Ours)?, row.of(other)?);
                // Where nobody waits there is nothing to compare.
                (ours.small_ios > 0 && wait(other) > 0.0)
                    .then(|| Margin::at_most("s", &at(row), wait(ours), wait(other)))
            })
        };
        let no_preempt = [Policy::PerWaiter, Policy::PerTag];
        let goals = no_preempt.into_iter().flat_map(|policy| {
            [
                goal(
                    &format!("no small IO waits longer than the longest does under {policy}"),
                    below(policy, |o| o.small_longest_wait_s),
                ),
                goal(
                    &format!("small IOs wait no longer in the mean than under {policy}"),
                    below(policy, |o| o.small_mean_wait_s),
                ),
            ]
        });
        goals.flatten().collect()
    }
}
