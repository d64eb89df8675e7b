//! Both sides beside the published rows.

use super::controls::{CLIENTS, Control};
use super::goals::POINTS;
use super::measure::Outcome;
use super::model::{Machine, Side};
use super::published::{Published, Which, published};
use super::run::run;
use crate::seeds::Seeds;
use std::fmt;

/// Two sides with one number of clients.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Pair {
    /// How much shorter a load file is on the second side, in percent.
    pub gain_pct: f64,
    /// The first side: before the patch.
    pub before: Outcome,
    /// The second side: with it.
    pub after: Outcome,
}

/// One published row.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// The table.
    pub table: &'static str,
    /// Clients.
    pub clients: usize,
    /// How much shorter a load file is with the patch, in percent.
    pub published_gain_pct: f64,
    /// Mean time of a load file before the patch, in ms.
    pub published_before_ms: f64,
    /// The same with it.
    pub published_after_ms: f64,
    /// What was simulated.
    #[serde(flatten)]
    pub ours: Pair,
}

/// One run of a [`Control`].
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ControlRow {
    /// Its name.
    pub control: &'static str,
    /// What the sides differ in.
    pub about: &'static str,
    /// Clients.
    pub clients: usize,
    /// What was simulated.
    #[serde(flatten)]
    pub ours: Pair,
}

/// The results.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Table {
    /// One for each published row.
    pub rows: Vec<Row>,
    /// Beside them.
    pub controls: Vec<ControlRow>,
}

impl Table {
    /// Runs the published rows with a number of clients that is `wanted`, the rules as `change`
    /// makes them of the published ones; means over the seeds. `done` is called after each row.
    ///
    /// # Panics
    ///
    /// If there is no seed.
    pub fn run(
        tables: &[Which],
        wanted: impl Fn(usize) -> bool,
        change: impl Fn(Side) -> Side,
        seeds: Seeds,
        mut done: impl FnMut(),
    ) -> Self {
        let rows = tables.iter().flat_map(|&table| published(table));
        let row = |published: Published| {
            let table = published.table;
            let sides = table.sides().map(&change);
            let ours = pair(&table.machine(), sides, published.clients, seeds);
            done();
            Row {
                table: table.name(),
                clients: published.clients,
                published_gain_pct: published.gain_pct(),
                published_before_ms: published.before_ms,
                published_after_ms: published.after_ms,
                ours,
            }
        };
        Self {
            rows: rows.filter(|row| wanted(row.clients)).map(row).collect(),
            controls: Vec::new(),
        }
    }

    /// Runs these beside the rows.
    #[must_use]
    pub fn with_controls(
        mut self,
        controls: &[Control],
        seeds: Seeds,
        mut done: impl FnMut(),
    ) -> Self {
        for control in controls {
            for clients in CLIENTS {
                self.controls.push(ControlRow {
                    control: control.name,
                    about: control.about,
                    clients,
                    ours: pair(&control.machine, control.sides, clients, seeds),
                });
                done();
            }
        }
        self
    }

    /// How many rows of how many have a gain within so many points of the published one.
    #[must_use]
    pub fn within(&self, points: f64) -> (usize, usize) {
        let near = |row: &&Row| row.points_off() <= points;
        (self.rows.iter().filter(near).count(), self.rows.len())
    }
}

impl Row {
    /// How far the gain is from the published one, in points.
    #[must_use]
    pub fn points_off(&self) -> f64 {
        (self.ours.gain_pct - self.published_gain_pct).abs()
    }
}

fn pair(machine: &Machine, sides: [Side; 2], clients: usize, seeds: Seeds) -> Pair {
    let mean = |side| {
        let runs: Vec<_> = seeds
            .iter()
            .map(|seed| run(machine, side, clients, seed))
            .collect();
        Outcome::mean(&runs)
    };
    let [before, after] = sides.map(mean);
    Pair {
        gain_pct: (1.0 - after.file_ms / before.file_ms) * 100.0,
        before,
        after,
    }
}

/// Of both sides, in columns of equal width.
fn figures(f: &mut fmt::Formatter<'_>, pair: &Pair) -> fmt::Result {
    let Pair { before, after, .. } = pair;
    write!(
        f,
        " {:>6.2} {:>5.2} {:>6.2} {:>5.2} {:>7.1} {:>5.1} {:>7.1} {:>5.1}",
        before.migrations_per_io,
        after.migrations_per_io,
        before.cross_node_per_io,
        after.cross_node_per_io,
        before.cpus_visited,
        after.cpus_visited,
        before.idle_exit_us_per_io,
        after.idle_exit_us_per_io,
    )
}

const FIGURES: [&str; 2] = [
    "migrations    to another   CPUs of a     idle exits   ",
    "    per IO    node per IO     client     us per IO    ",
];

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blank = "";
        writeln!(
            f,
            "\n{blank:>35}before, ms       after, ms        gain, %   {}",
            FIGURES[0]
        )?;
        writeln!(
            f,
            "{:<26} clients   ours publ.    ours publ.   ours publ.  {}",
            "table", FIGURES[1]
        )?;
        for row in &self.rows {
            let Pair { before, after, .. } = row.ours;
            write!(
                f,
                "{:<26} {:>7} {:>6.1} {:>6.1} {:>6.1} {:>6.1} {:>6.1} {:>5.1}",
                row.table,
                row.clients,
                before.file_ms,
                row.published_before_ms,
                after.file_ms,
                row.published_after_ms,
                row.ours.gain_pct,
                row.published_gain_pct,
            )?;
            figures(f, &row.ours)?;
            writeln!(f)?;
        }
        let (near, all) = self.within(POINTS);
        writeln!(
            f,
            "\n{near} of {all} gains are within 6 points of the published"
        )?;
        let mut last = "";
        for row in &self.controls {
            if row.control != last {
                writeln!(f, "\n{}: {}", row.control, row.about)?;
                writeln!(
                    f,
                    "clients  first, ms  second, ms  gain, %   {}",
                    FIGURES[0]
                )?;
            }
            last = row.control;
            let Pair {
                before,
                after,
                gain_pct,
            } = row.ours;
            write!(
                f,
                "{:>7} {:>10.1} {:>11.1} {gain_pct:>8.1}   ",
                row.clients, before.file_ms, after.file_ms
            )?;
            figures(f, &row.ours)?;
            writeln!(f)?;
        }
        Ok(())
    }
}
