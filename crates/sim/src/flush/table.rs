//! Both journals beside the published rows.

use super::journal::{Outcome, run};
use super::model::{Journal, Model};
use super::published::{FLUSH_RATIO, Published, cil_flush};
use crate::seeds::Seeds;
use std::fmt;

/// The results.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Table {
    /// Flushes of the eager journal for each of the other, over all rows: in the same time.
    pub flush_ratio: f64,
    /// One for each published row.
    pub rows: Vec<Row>,
}

/// One machine with one number of clients.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// The machine.
    pub machine: String,
    /// Clients.
    pub clients: usize,
    /// How much longer the good journal takes, in percent.
    pub published_gain_pct: f64,
    /// The same, simulated: flush-before against eager.
    pub gain_pct: f64,
    /// Times of the published journals, in ms.
    pub published_good_ms: f64,
    /// The bad one's.
    pub published_bad_ms: f64,
    /// The flush-before journal.
    pub flush_before: Outcome,
    /// The eager one.
    pub eager: Outcome,
}

impl Table {
    /// Runs the models for every published row, means over the seeds. `done` is called after each
    /// row.
    ///
    /// # Panics
    ///
    /// If there is no seed, or no model of a published machine.
    pub fn run(models: &[Model], seeds: Seeds, mut done: impl FnMut()) -> Self {
        let rows: Vec<Row> = cil_flush()
            .iter()
            .map(|published| {
                let of = |model: &&Model| model.machine == published.machine;
                let model = models.iter().find(of).expect("a model of the machine");
                let row = row(model, published, seeds);
                done();
                row
            })
            .collect();
        let sum = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>();
        Self {
            flush_ratio: sum(|row| row.eager.flushes_per_commit)
                / sum(|row| row.flush_before.flushes_per_commit),
            rows,
        }
    }
}

fn row(model: &Model, published: &Published, seeds: Seeds) -> Row {
    let mean = |journal| {
        let run = |seed| run(model, journal, published.clients, seed);
        let outcomes: Vec<Outcome> = seeds.iter().map(run).collect();
        let runs = outcomes.len() as f64;
        let mean = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / runs;
        Outcome {
            file_ms: mean(|o| o.file_ms),
            flushes_per_commit: mean(|o| o.flushes_per_commit),
            flushes_per_s: mean(|o| o.flushes_per_s),
            merged: mean(|o| o.merged),
        }
    };
    let (flush_before, eager) = (mean(Journal::FlushBefore), mean(Journal::Eager));
    Row {
        machine: published.machine.clone(),
        clients: published.clients,
        published_gain_pct: published.gain_pct(),
        gain_pct: (flush_before.file_ms - eager.file_ms) / eager.file_ms * 100.0,
        published_good_ms: published.good_ms,
        published_bad_ms: published.bad_ms,
        flush_before,
        eager,
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blank = "";
        writeln!(
            f,
            "\n{blank:>24}flush-before, ms{blank:>9}eager, ms{blank:>14}gain, %{blank:>12}\
             flushes per commit"
        )?;
        writeln!(
            f,
            "machine         clients    ours published     ours published     ours published   \
             before  eager  ratio"
        )?;
        for row in &self.rows {
            let (before, eager) = (row.flush_before, row.eager);
            writeln!(
                f,
                "{:<15} {:>7} {:>7.1} {:>9.1} {:>8.1} {:>9.1} {:>8.1} {:>9.1} {:>8.2} {:>6.2} \
                 {:>6.2}",
                row.machine,
                row.clients,
                before.file_ms,
                row.published_good_ms,
                eager.file_ms,
                row.published_bad_ms,
                row.gain_pct,
                row.published_gain_pct,
                before.flushes_per_commit,
                eager.flushes_per_commit,
                eager.flushes_per_commit / before.flushes_per_commit,
            )?;
        }
        writeln!(
            f,
            "\nflush ratio {:.2} (published {FLUSH_RATIO:.2}); mean error of the times {:.1} %",
            self.flush_ratio,
            self.mean_error_pct()
        )
    }
}

impl Table {
    /// How far the simulated times are from the published ones, in percent, on average.
    #[must_use]
    pub fn mean_error_pct(&self) -> f64 {
        let errors = self.rows.iter().flat_map(|row| {
            [
                row.flush_before.file_ms / row.published_good_ms - 1.0,
                row.eager.file_ms / row.published_bad_ms - 1.0,
            ]
        });
        errors.map(f64::abs).sum::<f64>() / (2 * self.rows.len()) as f64 * 100.0
    }
}
