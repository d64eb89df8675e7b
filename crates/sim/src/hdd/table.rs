//! All runs of a command: job counts by policies, beside the published figures.

use super::measure::Outcome;
use super::policy::Policy;
use super::published::{Published, split_io};
use super::scenario::{RunError, Scenario};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt;

/// The results of job counts by policies.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Table {
    /// One for each job count.
    pub rows: Vec<Row>,
}

/// The results for one job count.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// Jobs.
    pub jobs: usize,
    /// What the source says, if it does.
    pub published: Option<Published>,
    /// How far `preempt` is from the published v5.18, in percent, if both are there.
    pub error_percent: Option<f64>,
    /// How far `as_posted` is from the published patched kernel, in percent, if both are there.
    pub patched_error_percent: Option<f64>,
    /// What was simulated.
    #[serde(serialize_with = "by_name")]
    pub policies: Vec<(Policy, Outcome)>,
}

fn by_name<S: Serializer>(policies: &[(Policy, Outcome)], to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(policies.len()))?;
    for (policy, outcome) in policies {
        map.serialize_entry(policy.name(), outcome)?;
    }
    map.end()
}

impl Row {
    /// The outcome under `policy`, if it was simulated.
    #[must_use]
    pub fn of(&self, policy: Policy) -> Option<&Outcome> {
        let mut found = self.policies.iter().filter(|(p, _)| *p == policy);
        found.next().map(|(_, outcome)| outcome)
    }
}

impl Table {
    /// Runs what `scenario` makes of each pair, job counts outermost. `done` is called after each
    /// run.
    ///
    /// # Errors
    ///
    /// The first error of a run.
    pub fn run(
        jobs: &[usize],
        policies: &[Policy],
        scenario: impl Fn(usize, Policy) -> Scenario,
        mut done: impl FnMut(),
    ) -> Result<Self, RunError> {
        let published = split_io();
        let mut rows = Vec::new();
        for &jobs in jobs {
            let mut outcomes = Vec::new();
            for &policy in policies {
                outcomes.push((policy, scenario(jobs, policy).run()?));
                done();
            }
            let published = published.iter().find(|row| row.jobs == jobs).copied();
            let mut row = Row {
                jobs,
                published,
                error_percent: None,
                patched_error_percent: None,
                policies: outcomes,
            };
            let error = |policy, published: fn(Published) -> f64| {
                let ours = row.of(policy)?.mib_s;
                Some((ours / published(row.published?) - 1.0) * 100.0)
            };
            let v5_18 = error(Policy::Preempt, |row| row.v5_18);
            let patched = error(Policy::AsPosted, |row| row.patched);
            (row.error_percent, row.patched_error_percent) = (v5_18, patched);
            rows.push(row);
        }
        Ok(Self { rows })
    }

    /// The row of a job count.
    #[must_use]
    pub fn row(&self, jobs: usize) -> Option<&Row> {
        self.rows.iter().find(|row| row.jobs == jobs)
    }

    fn policies(&self) -> impl Iterator<Item = Policy> + '_ {
        let first = self.rows.first();
        first
            .into_iter()
            .flat_map(|row| row.policies.iter().map(|(policy, _)| *policy))
    }

    /// Of a column: a name, and a blank before it.
    fn width(&self) -> usize {
        let names = self.policies().map(|policy| policy.name().len() + 1);
        names.max().unwrap_or(0).max(12)
    }

    fn head(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        write!(f, "\n{what}\n jobs")?;
        if what == THROUGHPUT {
            write!(f, "  v5.18  patched")?;
        }
        for policy in self.policies() {
            write!(f, "{policy:>0$}", self.width())?;
        }
        if what == THROUGHPUT {
            write!(f, "   errors: preempt, as_posted")?;
        }
        writeln!(f)
    }
}

const THROUGHPUT: &str = "MiB/s: published, and ours with each policy";

/// One thing that is shown of every run.
type Figure = (&'static str, usize, fn(&Outcome) -> f64);

const FIGURES: [Figure; 4] = [
    ("wakes/s of jobs that wait for a tag", 0, |o| o.wakes_per_s),
    (
        "part of the requests that continue the one before",
        3,
        |o| o.sequential,
    ),
    ("longest wait for a tag of a large IO, s", 3, |o| {
        o.longest_wait_s
    }),
    ("Jain's index over the large IOs of the jobs", 4, |o| o.jain),
];

const SMALL: [Figure; 2] = [
    ("longest wait for a tag of a small IO, s", 3, |o| {
        o.small_longest_wait_s
    }),
    ("mean wait for a tag of a small IO, s", 4, |o| {
        o.small_mean_wait_s
    }),
];

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.width();
        self.head(f, THROUGHPUT)?;
        for row in &self.rows {
            write!(f, "{:>5}", row.jobs)?;
            match row.published {
                Some(p) => write!(f, "{:>7.1}{:>9.1}", p.v5_18, p.patched)?,
                None => write!(f, "{:>7}{:>9}", "-", "-")?,
            }
            for (_, outcome) in &row.policies {
                write!(f, "{:>width$.1}", outcome.mib_s)?;
            }
            for (error, width) in [(row.error_percent, 16), (row.patched_error_percent, 10)] {
                match error {
                    Some(error) => write!(f, "{error:>+width$.1} %")?,
                    None => write!(f, "{:>1$}", "-", width + 2)?,
                }
            }
            writeln!(f)?;
        }
        let mut outcomes = self.rows.iter().flat_map(|row| &row.policies);
        let small = outcomes.any(|(_, outcome)| outcome.small_ios > 0);
        let more = if small { &SMALL[..] } else { &[] };
        for (what, digits, figure) in FIGURES.iter().chain(more) {
            self.head(f, what)?;
            for row in &self.rows {
                write!(f, "{:>5}", row.jobs)?;
                for (_, outcome) in &row.policies {
                    write!(f, "{:>width$.digits$}", figure(outcome))?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

impl Serialize for Published {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(2))?;
        map.serialize_entry("v5_18", &self.v5_18)?;
        map.serialize_entry("patched", &self.patched)?;
        map.end()
    }
}
