//! What is printed.

use crate::cell::{At, Cell};
use inflight_benches::distance::State;
use inflight_benches::machine::Machine;
use inflight_benches::phase::Phase;
use serde::{Deserialize, Serialize};
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

/// A contender and its figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Side {
    pub(crate) name: String,
    /// In the row's unit; `None` if there is none.
    pub(crate) value: Option<f64>,
}

impl Side {
    pub(crate) fn new(name: &str, value: f64) -> Self {
        Self {
            name: name.to_owned(),
            value: value.is_finite().then_some(value),
        }
    }

    fn text(&self, unit: &str) -> String {
        let value = self.value.map_or_else(String::new, short);
        let words = [self.name.as_str(), &value, unit];
        let said = words.into_iter().filter(|word| !word.is_empty());
        let said: Vec<_> = said.take(if value.is_empty() { 1 } else { 3 }).collect();
        said.join(" ")
    }
}

/// The rival of a row that asks for the best one, whichever it is.
pub(crate) const BEST: &str = "best";

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Its position in the table, set when the rows are collected.
    #[serde(skip_deserializing)]
    pub(crate) group: &'static str,
    #[serde(skip_deserializing)]
    pub(crate) section: &'static str,
    pub(crate) workload: String,
    /// Of the load's cases the one with the worst ratio, which is the row's.
    pub(crate) worst_case: String,
    /// Where the two CPUs were, if it matters.
    pub(crate) at: Option<At>,
    /// A line and a wake, before and after the whole section; `None` until that is over.
    pub(crate) phase: Option<Phase>,
    /// How many samples of both sides count, or of ours alone.
    pub(crate) samples: String,
    pub(crate) unit: String,
    pub(crate) ours: Side,
    /// The rival that is asked for: its name, [`BEST`], or nothing. Two rows of one load and one
    /// contender of ours differ in it.
    pub(crate) beside: String,
    /// The first is the one in the ratio, if there is a ratio; the others stand beside it.
    pub(crate) rivals: Vec<Side>,
    /// Why nothing could be compared.
    pub(crate) why: String,
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
            return vec![Self::missing(workload, ours, MOVED, goal).asked(rival)];
        }
        rows
    }

    /// With the rival that was asked for: this one, or the best.
    pub(crate) fn asked(mut self, rival: Option<&str>) -> Self {
        rival.unwrap_or(BEST).clone_into(&mut self.beside);
        self
    }

    fn new(workload: &str, ours: Side, goal: String) -> Self {
        Self {
            group: "",
            section: "",
            workload: workload.to_owned(),
            worst_case: String::new(),
            at: None,
            phase: None,
            samples: String::new(),
            unit: String::new(),
            ours,
            beside: String::new(),
            rivals: Vec::new(),
            why: String::new(),
            ratio: None,
            goal,
            met: None,
        }
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
        let Some((cell, figure, best, _)) = compared.max_by(|a, b| a.3.total_cmp(&b.3)) else {
            return Self::missing(workload, ours, "nothing to compare", goal).asked(rival);
        };
        let sides = [(ours, figure.median), (&*best.name, best.median)];
        let row = Self::of(workload, sides[0], sides[1], &cell.unit, goal);
        Self {
            worst_case: cell.case.clone(),
            at: cell.at,
            samples: format!("{}, {}", figure.samples, best.samples),
            ..row.asked(rival)
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
        let row = Self::new(workload, Side::new(ours.0, ours.1), goal.text());
        Self {
            unit: unit.to_owned(),
            rivals: vec![Side::new(rival.0, rival.1)],
            ratio: Some(ratio),
            met: goal.is_met(ratio),
            ..row.asked(Some(rival.0))
        }
    }

    /// A value with a limit of its own.
    pub(crate) fn absolute(workload: &str, ours: (&str, f64), unit: &str, goal: Goal) -> Self {
        let text = match goal {
            Goal::None => goal.text(),
            _ => format!("{} {unit}", goal.text()).trim_end().to_owned(),
        };
        Self {
            unit: unit.to_owned(),
            met: goal.is_met(ours.1),
            ..Self::new(workload, Side::new(ours.0, ours.1), text)
        }
    }

    /// Shows what a rival gave beside a value whose goal is not a ratio.
    pub(crate) fn stands_beside(&mut self, cell: &Cell, rival: &str) {
        if let Some(figure) = cell.of(rival) {
            self.rivals.push(Side::new(rival, figure.median));
        }
    }

    fn rival(&self) -> String {
        let sides: Vec<_> = self.rivals.iter().map(|s| s.text(&self.unit)).collect();
        sides.join("; ") + &self.why
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
            self.ours.text(&self.unit),
            self.rival(),
            self.ratio.map_or_else(|| "-".into(), |r| format!("{r:.3}")),
            self.goal.clone(),
            self.met
                .map_or("-", |met| if met { "yes" } else { "NO" })
                .to_owned(),
        ]
    }

    /// Whether it stands for a load that could not be measured because the CPUs moved.
    fn has_moved(&self) -> bool {
        self.why == MOVED
    }

    /// Nothing measured, and why.
    pub(crate) fn missing(workload: &str, ours: &str, why: &str, goal: Goal) -> Self {
        Self {
            why: why.to_owned(),
            met: Some(false),
            ..Self::new(workload, Side::new(ours, f64::NAN), goal.text())
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

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
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
        let wakes = self.rows.iter().filter_map(|row| row.phase);
        let wakes = wakes.map(|phase| phase.wake_us);
        let (least, most) = (wakes.clone().reduce(f64::min), wakes.reduce(f64::max));
        if let Some((least, most)) = least.zip(most) {
            println!("a wake took {} to {} us", short(least), short(most));
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
    fn a_row_shows_ours_and_all_rivals() {
        let ours = ("unbound", 8.512);
        let mut row = Row::of("mixed", ours, ("floor", 5.48), "ms", Goal::AtMost(1.2));
        row.rivals.push(Side::new("tokio", 7.69));
        let line = row.line();
        assert_eq!(
            line[5..8],
            ["unbound 8.51 ms", "floor 5.48 ms; tokio 7.69 ms", "1.553"]
        );
        let row = Row::missing("mixed", "unbound", "one CPU only", Goal::AtMost(1.2));
        let line = row.line();
        assert_eq!(
            line[5..10],
            ["unbound", "one CPU only", "-", "<= 1.2", "NO"]
        );
        let row = Row::absolute("even", ("Fair", f64::INFINITY), "", Goal::AtMost(1.2));
        assert_eq!((&*row.line()[5], row.met), ("Fair", Some(false)));
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
