//! What is printed.

use crate::cell::{At, Cell};
use inflight_benches::distance::State;
use inflight_benches::machine::Machine;
use serde::Serialize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What a ratio should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// Shown without one.
    None,
}

impl Goal {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtMost(limit) => Some(value <= limit),
            Self::AtLeast(limit) => Some(value >= limit),
            Self::None => None,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("<= {limit}"),
            Self::AtLeast(limit) => format!(">= {limit}"),
            Self::None => "-".to_owned(),
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) workload: String,
    /// Of the load's cases the one with the worst ratio, which is the row's.
    pub(crate) worst_case: String,
    /// Where the two CPUs were, if it matters.
    pub(crate) at: Option<At>,
    /// How many samples of both sides count, or of ours alone.
    pub(crate) samples: String,
    pub(crate) ours: String,
    pub(crate) rival: String,
    /// `None` where nothing could be compared; `rival` says why.
    pub(crate) ratio: Option<f64>,
    pub(crate) goal: String,
    /// `None` where there is no goal.
    pub(crate) met: Option<bool>,
}

impl Row {
    /// As [`worst`](Self::worst), a row for each state in which the two CPUs were.
    pub(crate) fn by_state(
        workload: &str,
        cells: &[Cell],
        ours: &str,
        rival: Option<&str>,
        goal: Goal,
    ) -> Vec<Self> {
        let rows = State::ALL.into_iter().filter_map(|state| {
            let here = |cell: &&Cell| cell.at.is_some_and(|at| at.state == state);
            let here: Vec<_> = cells.iter().filter(here).cloned().collect();
            let row = Self::worst(workload, &here, ours, rival, goal);
            row.ratio.is_some().then_some(row)
        });
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            return vec![Self::missing(workload, ours, MOVED, goal)];
        }
        rows
    }

    /// Of all these loads the one in which this contender of ours looks worst beside a rival: the
    /// named one, or the best.
    pub(crate) fn worst(
        workload: &str,
        cells: &[Cell],
        ours: &str,
        rival: Option<&str>,
        goal: Goal,
    ) -> Self {
        let compared = cells.iter().filter_map(|cell| {
            let ours = cell.of(ours)?;
            let rival = match rival {
                Some(name) => cell.of(name)?,
                None => cell.best_rival()?,
            };
            Some((cell, ours, rival, ours.median / rival.median))
        });
        let Some((cell, figure, rival, ratio)) = compared.max_by(|a, b| a.3.total_cmp(&b.3)) else {
            return Self::missing(workload, ours, "nothing to compare", goal);
        };
        let side = |name: &str, value: f64| format!("{name} {} {}", short(value), cell.unit);
        Self {
            workload: workload.to_owned(),
            worst_case: cell.case.clone(),
            at: cell.at,
            samples: format!("{}, {}", figure.samples, rival.samples),
            ours: side(ours, figure.median),
            rival: side(&rival.name, rival.median),
            ratio: Some(ratio),
            goal: goal.text(),
            met: goal.is_met(ratio),
        }
    }

    /// A comparison of two figures that came from elsewhere.
    pub(crate) fn of(
        workload: &str,
        ours: (&str, f64),
        rival: (&str, f64),
        unit: &str,
        goal: Goal,
    ) -> Self {
        let ratio = ours.1 / rival.1;
        let side = |(name, value): (&str, f64)| format!("{name} {} {unit}", short(value));
        Self {
            workload: workload.to_owned(),
            worst_case: String::new(),
            at: None,
            samples: String::new(),
            ours: side(ours),
            rival: side(rival),
            ratio: Some(ratio),
            goal: goal.text(),
            met: goal.is_met(ratio),
        }
    }

    /// A value with a limit of its own.
    pub(crate) fn absolute(workload: &str, ours: (&str, f64), unit: &str, goal: Goal) -> Self {
        Self {
            workload: workload.to_owned(),
            worst_case: String::new(),
            at: None,
            samples: String::new(),
            ours: format!("{} {} {unit}", ours.0, short(ours.1)),
            rival: String::new(),
            ratio: None,
            goal: match goal {
                Goal::None => goal.text(),
                _ => format!("{} {unit}", goal.text()).trim_end().to_owned(),
            },
            met: goal.is_met(ours.1),
        }
    }

    /// Shows what a rival gave beside a value whose goal is not a ratio.
    pub(crate) fn stands_beside(&mut self, cell: &Cell, rival: &str) {
        if let Some(figure) = cell.of(rival) {
            self.rival = format!("{rival} {} {}", short(figure.median), cell.unit);
        }
    }

    fn line(&self) -> [String; 10] {
        let distance = self.at.and_then(|at| at.distance);
        [
            self.workload.clone(),
            self.worst_case.clone(),
            self.at
                .map_or_else(|| "-".into(), |at| at.state.to_string()),
            distance.map_or_else(|| "-".into(), |ns| format!("{ns:.0} ns")),
            self.samples.clone(),
            self.ours.clone(),
            self.rival.clone(),
            self.ratio.map_or_else(|| "-".into(), |r| format!("{r:.3}")),
            self.goal.clone(),
            self.met
                .map_or("-", |met| if met { "yes" } else { "NO" })
                .to_owned(),
        ]
    }

    /// Whether it stands for a load that could not be measured because the CPUs moved.
    fn has_moved(&self) -> bool {
        self.rival == MOVED
    }

    /// Nothing measured, and why.
    pub(crate) fn missing(workload: &str, ours: &str, why: &str, goal: Goal) -> Self {
        Self {
            workload: workload.to_owned(),
            worst_case: String::new(),
            at: None,
            samples: String::new(),
            ours: ours.to_owned(),
            rival: why.to_owned(),
            ratio: None,
            goal: goal.text(),
            met: Some(false),
        }
    }
}

/// Why nothing could be compared.
pub(crate) const MOVED: &str = "too few samples in one state: the CPUs moved";

/// Three digits.
pub(crate) fn short(value: f64) -> String {
    match value {
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Everything measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: String,
    /// What keeps our ids in this process.
    engine: String,
    quick: bool,
    seconds: f64,
    /// The least overlap of the two threads among the samples that count.
    overlap: Option<f64>,
    /// Samples that belong to no cell.
    aside: usize,
    rows: Vec<Row>,
    cells: Vec<Cell>,
    #[serde(skip)]
    start: Instant,
}

impl Report {
    pub(crate) fn new(machine: Machine, quick: bool) -> Self {
        Self {
            machine: machine.to_string(),
            engine: format!("{:?}", inflight_benches::back_end()),
            quick,
            seconds: 0.0,
            overlap: None,
            aside: 0,
            rows: Vec::new(),
            cells: Vec::new(),
            start: Instant::now(),
        }
    }

    /// Adds rows; of a load that was measured before only those of states that it had not then.
    /// Whether all loads have a row of the near state by now, or need none.
    pub(crate) fn add(&mut self, cells: Vec<Cell>, rows: Vec<Row>) -> bool {
        self.cells.extend(cells);
        let names: Vec<_> = rows.iter().map(|row| row.workload.clone()).collect();
        let state = |row: &Row| row.at.map(|at| at.state);
        let is_same = |old: &Row, new: &Row| {
            old.workload == new.workload && (state(old) == state(new) || new.has_moved())
        };
        let had = |row: &Row| self.rows.iter().any(|old| is_same(old, row));
        let new: Vec<_> = rows.into_iter().filter(|row| !had(row)).collect();
        for row in new {
            let is_of = |old: &Row| old.workload == row.workload;
            match self.rows.iter().rposition(is_of) {
                Some(last) if self.rows[last].has_moved() => self.rows[last] = row,
                Some(last) => self.rows.insert(last + 1, row),
                None => self.rows.push(row),
            }
        }
        let in_near = |name: &String| {
            let mut of = self.rows.iter().filter(|row| row.workload == *name);
            of.any(|row| match row.at {
                Some(at) => matches!(at.state, State::Near | State::OneCpu),
                None => !row.has_moved(),
            })
        };
        names.iter().all(in_near)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn finish(&mut self) {
        for of_one in self.rows.chunk_by_mut(|a, b| a.workload == b.workload) {
            of_one.sort_by_key(|row| row.at.map(|at| at.state));
        }
        let overlaps = self.cells.iter().filter_map(|cell| cell.overlap);
        self.overlap = overlaps.reduce(f64::min);
        self.aside = self.cells.iter().map(|cell| cell.aside).sum();
        self.seconds = self.start.elapsed().as_secs_f64();
    }

    pub(crate) fn print(&self, cells: bool) {
        println!("{}; our engine: {}", self.machine, self.engine);
        if self.quick {
            println!("--quick: too little for a verdict");
        }
        if let Some(overlap) = self.overlap {
            println!("two threads: in every sample both ran at least {overlap:.3} of the time");
        }
        if self.aside > 0 {
            println!(
                "{} samples put aside: the CPUs moved between the probes before and after",
                self.aside
            );
        }
        println!();
        let head = [
            "load",
            "worst case",
            "state",
            "line",
            "samples",
            "ours",
            "best rival",
            "ratio",
            "goal",
            "met",
        ];
        let mut lines = vec![head.map(str::to_owned)];
        lines.extend(self.rows.iter().map(Row::line));
        print_table(&lines);
        if cells {
            self.print_cells();
        }
        let met = self.rows.iter().filter(|row| row.met == Some(true)).count();
        let goals = self.rows.iter().filter(|row| row.met.is_some()).count();
        println!("\n{met} of {goals} goals met, {:.0} s", self.seconds);
    }

    fn print_cells(&self) {
        for cell in &self.cells {
            let at = cell.at.map_or_else(String::new, |at| {
                let distance = at
                    .distance
                    .map_or_else(String::new, |ns| format!(" {ns:.0} ns"));
                format!(", {}{distance}", at.state)
            });
            println!("\n{}: {} ({}){at}", cell.load, cell.case, cell.unit);
            let mut figures: Vec<_> = cell.results.iter().collect();
            figures.sort_by(|a, b| a.median.total_cmp(&b.median));
            for figure in figures {
                println!(
                    "  {:34} {:>10}   {:>8} .. {:8} of {}",
                    figure.name,
                    short(figure.median),
                    short(figure.least),
                    short(figure.most),
                    figure.samples
                );
            }
        }
    }
}

/// Columns that say nothing are left out.
fn print_table<const N: usize>(lines: &[[String; N]]) {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let says = |line: &[String; N]| !matches!(line[column].as_str(), "" | "-");
        let cells = lines.iter().map(|line| line[column].chars().count());
        let said = lines.iter().skip(1).any(says);
        cells.max().filter(|_| said).unwrap_or(0)
    });
    for line in lines {
        let cells = line.iter().zip(widths).filter(|(_, width)| *width > 0);
        let line: String = cells.map(|(cell, w)| format!("{cell:<w$}  ")).collect();
        println!("{}", line.trim_end());
    }
}

/// Prints anything as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> ExitCode {
    match serde_json::to_string_pretty(value) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(load: &str, state: Option<State>) -> Row {
        let mut row = match state {
            Some(_) => Row::absolute(load, ("unbound", 1.0), "ns", Goal::AtMost(2.0)),
            None => Row::missing(load, "unbound", MOVED, Goal::AtMost(2.0)),
        };
        row.at = state.map(|state| At::new(state, 65.0));
        row
    }

    #[test]
    fn a_load_is_complete_when_it_has_a_row_of_the_near_state() {
        let machine = Machine {
            cpus: 2,
            realtime: false,
            raised: false,
        };
        let mut report = Report::new(machine, true);
        let (far, near) = (Some(State::Far), Some(State::Near));
        assert!(!report.add(vec![], vec![row("a", None), row("b", far)]));
        assert!(!report.add(vec![], vec![row("a", near), row("b", None), row("b", far)]));
        assert!(report.add(vec![], vec![row("a", far), row("b", near)]));
        let state = |row: &Row| row.at.map(|at| at.state);
        let rows: Vec<_> = report
            .rows
            .iter()
            .map(|r| (&*r.workload, state(r)))
            .collect();
        let expected = [("a", near), ("a", far), ("b", far), ("b", near)];
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_worst_case_is_of_one_state() {
        let figure = |name, part, value| crate::cell::Figure::new(name, part, &[value]);
        let cell = |case: &str, state, ours, rival| Cell {
            load: "load".into(),
            case: case.into(),
            unit: "ns".into(),
            results: vec![
                figure("ours", inflight_benches::Part::Ours, ours),
                figure("rival", inflight_benches::Part::Rival, rival),
            ],
            overlap: None,
            at: Some(At::new(state, 65.0)),
            lacking: vec![],
            aside: 0,
        };
        let mut cells = vec![
            cell("64", State::Near, 10.0, 20.0),
            cell("1024", State::Near, 30.0, 40.0),
            cell("64", State::Far, 90.0, 30.0),
        ];
        let rows = Row::by_state("load", &cells, "ours", None, Goal::AtMost(1.0));
        let text = |row: &Row| (row.worst_case.clone(), row.ratio, row.met);
        let rows: Vec<_> = rows.iter().map(text).collect();
        let expected = [
            ("1024".to_owned(), Some(0.75), Some(true)),
            ("64".to_owned(), Some(3.0), Some(false)),
        ];
        assert_eq!(rows, expected);
        cells[2].lacking.push("another rival".into());
        let rows = Row::by_state("load", &cells, "ours", None, Goal::AtMost(1.0));
        assert_eq!(
            rows.len(),
            1,
            "nobody knows the best rival of the far state"
        );
    }
}
