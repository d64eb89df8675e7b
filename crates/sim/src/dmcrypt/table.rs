//! All runs of a command: issuers by scopes, beside the published figures.

use super::measure::Summary;
use super::published::{Published, dmcrypt_scopes};
use super::scenario::{Scenario, Scope};
use std::fmt;

/// The results of numbers of issuers by scopes.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Table {
    /// One for each pair, scopes innermost.
    pub rows: Vec<Row>,
}

/// The result for one pair.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// Issuers.
    pub issuers: usize,
    /// Scope.
    pub scope: Scope,
    /// What was simulated: the mean over the seeds.
    #[serde(flatten)]
    pub seen: Summary,
    /// What the source says, if it does.
    pub published: Option<Published>,
    /// How far `mib_s` is from the published, in percent.
    pub error_pct: Option<f64>,
    /// How far `cpu_pct` is from the published, in points.
    pub cpu_error: Option<f64>,
}

impl Table {
    /// Runs what `scenario` makes of each pair, with seeds from 1. `done` is called after each.
    pub fn run(
        issuers: &[usize],
        scopes: &[Scope],
        seeds: u64,
        scenario: impl Fn(usize, Scope) -> Scenario,
        mut done: impl FnMut(),
    ) -> Self {
        let published = dmcrypt_scopes();
        let mut rows = Vec::new();
        for &issuers in issuers {
            for &scope in scopes {
                let seen = scenario(issuers, scope).mean(seeds);
                let known = published
                    .iter()
                    .find(|row| (row.issuers, row.scope) == (issuers, scope));
                rows.push(Row {
                    issuers,
                    scope,
                    error_pct: known.map(|p| (seen.mean.mib_s / p.mib_s - 1.0) * 100.0),
                    cpu_error: known.map(|p| seen.mean.cpu_pct - p.cpu_pct),
                    published: known.copied(),
                    seen,
                });
                done();
            }
        }
        Self { rows }
    }

    /// Without what was published, because it was another machine or another load.
    #[must_use]
    pub fn of_another_machine(mut self) -> Self {
        for row in &mut self.rows {
            (row.published, row.error_pct, row.cpu_error) = (None, None, None);
        }
        self
    }

    /// The row of a pair.
    #[must_use]
    pub fn row(&self, issuers: usize, scope: Scope) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| (row.issuers, row.scope) == (issuers, scope))
    }

    /// The largest errors beside the published: of MiB/s in percent, of CPU in points.
    #[must_use]
    pub fn worst(&self) -> Option<(f64, f64)> {
        let errors = self
            .rows
            .iter()
            .filter_map(|row| row.error_pct.zip(row.cpu_error));
        errors.reduce(|a, b| (a.0.abs().max(b.0.abs()), a.1.abs().max(b.1.abs())))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nissuers  scope             MiB/s    sd  published   diff |  CPU %  published  diff \
             | us/IO  off home   takes   pulls  repatr.  busy by cache"
        )?;
        for row in &self.rows {
            let o = &row.seen.mean;
            write!(f, "{:>7}  {:<14}", row.issuers, row.scope)?;
            write!(f, "{:>9.1} {:>5.1}", o.mib_s, row.seen.mib_s_sd)?;
            let missing = "-";
            match (row.published, row.error_pct, row.cpu_error) {
                (Some(p), Some(error), Some(cpu)) => {
                    write!(f, "{:>11.1}{error:>+6.1} %", p.mib_s)?;
                    write!(f, " |{:>7.2}{:>11.2}{cpu:>+6.1}", o.cpu_pct, p.cpu_pct)?;
                }
                _ => {
                    write!(f, "{missing:>11}{missing:>8}")?;
                    write!(f, " |{:>7.2}{missing:>11}{missing:>6}", o.cpu_pct)?;
                }
            }
            write!(f, " |{:>7.1}{:>9.3}", o.cpu_us_per_io, o.off_home)?;
            write!(
                f,
                "{:>9.4}{:>8.4}{:>9.3}",
                o.takes, o.pulls, o.repatriations
            )?;
            writeln!(f, "   {:.2}..{:.2}", o.cache_busy.0, o.cache_busy.1)?;
        }
        match self.worst() {
            Some((mib_s, cpu)) => writeln!(
                f,
                "\nworst beside the published: {mib_s:.1} % of MiB/s, {cpu:.1} points of CPU"
            ),
            None => Ok(()),
        }
    }
}
