//! Numbers of CPUs by scopes.

use super::machine::{Model, Outcome, run};
use super::published::{CPUS, Published, shard_bench};
use inflight_topology::Scope;
use std::fmt;

/// The results of numbers of CPUs by scopes.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Table {
    /// One for each pair, scopes innermost.
    pub rows: Vec<Row>,
}

/// The result for one pair.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// CPUs, and submitters.
    pub cpus: usize,
    /// Scope.
    #[serde(serialize_with = "name")]
    pub scope: Scope,
    /// What was simulated.
    #[serde(flatten)]
    pub seen: Outcome,
    /// Items a second in the source.
    pub published_items_per_s: Option<f64>,
    /// The median call in the source.
    pub published_call_p50_ns: Option<f64>,
}

fn name<S: serde::Serializer>(scope: &Scope, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(scope)
}

impl Table {
    /// Runs the model for each pair. `done` is called after each.
    pub fn run(
        model: &Model,
        cpus: &[usize],
        scopes: &[Scope],
        seed: u64,
        mut done: impl FnMut(),
    ) -> Self {
        let published = shard_bench();
        let mut rows = Vec::new();
        for &cpus in cpus {
            for &scope in scopes {
                let known = published
                    .iter()
                    .find(|row| cpus == CPUS && row.scope == scope);
                let known: Option<&Published> = known;
                rows.push(Row {
                    cpus,
                    scope,
                    seen: run(model, cpus, scope, seed),
                    published_items_per_s: known.map(|row| row.items_per_s),
                    published_call_p50_ns: known.map(|row| row.call_p50_ns),
                });
                done();
            }
        }
        Self { rows }
    }

    /// The row of a pair.
    #[must_use]
    pub fn row(&self, cpus: usize, scope: Scope) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| (row.cpus, row.scope) == (cpus, scope))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blank = "";
        writeln!(
            f,
            "\n{blank:>19}thousand items/s{blank:>10}ns of a call, median"
        )?;
        writeln!(
            f,
            "cpus  scope          ours  published      ours  published      p95"
        )?;
        for row in &self.rows {
            let Outcome {
                items_per_s,
                call_p50_ns,
                call_p95_ns,
            } = row.seen;
            let published = |value: Option<f64>| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
            };
            writeln!(
                f,
                "{:>4}  {:<12}{:>7.0}{:>11}{call_p50_ns:>10}{:>11}{call_p95_ns:>9}",
                row.cpus,
                row.scope.to_string(),
                items_per_s / 1e3,
                published(row.published_items_per_s.map(|items| items / 1e3)),
                published(row.published_call_p50_ns),
            )?;
        }
        Ok(())
    }
}
