//! Limits, by what they count.

use super::machine::{Outcome, run};
use super::model::{Counted, Model};
use super::published::max_active;
use std::fmt;

/// The results of limits by what they count.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Table {
    /// One for each pair, limits innermost.
    pub rows: Vec<Row>,
}

/// The result for one pair.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// What the limit counts.
    pub counted: Counted,
    /// The limit that is asked for.
    pub max_active: usize,
    /// What was simulated.
    #[serde(flatten)]
    pub seen: Outcome,
    /// MiB/s in the source.
    pub published_mib_s: Option<f64>,
    /// How far `mib_s` is from that, in percent.
    pub error_pct: Option<f64>,
}

impl Table {
    /// Runs the model for each pair. `done` is called after each.
    pub fn run(
        model: &Model,
        counted: &[Counted],
        limits: &[usize],
        seed: u64,
        mut done: impl FnMut(),
    ) -> Self {
        let published = max_active();
        let mut rows = Vec::new();
        for &counted in counted {
            for &max_active in limits {
                let seen = run(model, counted, max_active, seed);
                let known = published
                    .iter()
                    .find(|row| (row.counted, row.max_active) == (counted, max_active));
                rows.push(Row {
                    counted,
                    max_active,
                    seen,
                    published_mib_s: known.map(|row| row.mib_s),
                    error_pct: known.map(|row| (seen.mib_s / row.mib_s - 1.0) * 100.0),
                });
                done();
            }
        }
        Self { rows }
    }

    /// The row of a pair.
    #[must_use]
    pub fn row(&self, counted: Counted, max_active: usize) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| (row.counted, row.max_active) == (counted, max_active))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\ncounted  max_active    MiB/s  published    diff  most running  threads  asleep"
        )?;
        for row in &self.rows {
            let seen = row.seen;
            let published = row
                .published_mib_s
                .map_or_else(|| "-".to_owned(), |mib_s| format!("{mib_s:.0}"));
            let error = row
                .error_pct
                .map_or_else(|| "-".to_owned(), |error| format!("{error:+.1} %"));
            writeln!(
                f,
                "{:<9}{:>10}{:>9.0}{published:>11}{error:>8}{:>14}{:>9}{:>8.0}",
                row.counted,
                row.max_active,
                seen.mib_s,
                seen.most_running,
                seen.threads,
                seen.asleep
            )?;
        }
        Ok(())
    }
}
