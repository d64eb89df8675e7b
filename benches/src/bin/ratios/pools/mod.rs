//! The loads of pools that run closures: their contenders and rows.

pub(crate) mod cancel;
pub(crate) mod latency;
pub(crate) mod long;
pub(crate) mod memory;
pub(crate) mod shared;
pub(crate) mod small;
pub(crate) mod wakeup;

use crate::cell::{At, Cell, Figure, Plan};
use crate::report::{Goal, MOVED, Row, Side};
use inflight_benches::Part;
use inflight_benches::distance::State;
use inflight_benches::machine;
use inflight_benches::pools::{PoolContender, PoolLoads, Spent, ours, rivals};
use inflight_benches::rounds::{Group, by_state, rotate_probed};
use std::time::Duration;

/// How many threads the pools have.
const WORKERS: usize = 2;

/// In the name of a rival that has one thread only, as an ordered queue runs one item at a time.
const ONE_THREAD: &str = ", 1 thread";

/// A row that is asked for.
struct Spec {
    load: String,
    /// Which contender is ours in it.
    ours: &'static str,
    /// Which of the load's two measures.
    measure: usize,
    beside: Beside,
    goal: Goal,
}

/// What ours stands beside.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    /// The best rival.
    Rivals,
    /// The best rival that has one thread.
    OneThread,
    /// Another contender of ours.
    Own(&'static str),
    /// The least that is possible, in the load's unit.
    Floor(f64),
    /// Nothing: the goal is in the load's unit.
    Nothing,
}

fn spec(load: &str, ours: &'static str, beside: Beside, goal: Goal) -> Spec {
    Spec {
        load: load.to_owned(),
        ours,
        measure: 0,
        beside,
        goal,
    }
}

impl Spec {
    /// In the far state ours must be no worse than the best rival. Of halves of one core nothing
    /// is asked.
    fn goal_at(&self, at: Option<At>) -> Goal {
        let rivals = matches!(self.beside, Beside::Rivals | Beside::OneThread);
        match (at.map(|at| at.state), self.goal) {
            (Some(State::OneCore), _) => Goal::None,
            (Some(State::Far), Goal::AtMost(goal)) if rivals => Goal::AtMost(goal.max(1.0)),
            (_, goal) => goal,
        }
    }

    /// The rival that is asked for, if it is not the best.
    fn rival(&self) -> Option<&'static str> {
        match self.beside {
            Beside::Rivals | Beside::OneThread => None,
            Beside::Own(name) => Some(name),
            Beside::Floor(_) => Some("floor"),
            Beside::Nothing => Some(""),
        }
    }

    /// `None` if this cell has too few samples of one of the sides.
    fn row(&self, cell: &Cell) -> Option<Row> {
        let ours = cell.of(self.ours)?;
        let best = match self.beside {
            Beside::OneThread => {
                let known = cell.lacking.is_empty();
                let one = |f: &&Figure| known && f.name.ends_with(ONE_THREAD);
                let one = cell.results.iter().filter(one);
                one.min_by(|a, b| a.median.total_cmp(&b.median))
            }
            Beside::Own(name) => cell.of(name),
            _ => cell.best_rival(),
        };
        let goal = self.goal_at(cell.at);
        let side = |figure: &Figure| (figure.name.clone(), figure.median);
        let mut samples = ours.samples.to_string();
        if let Some(best) = best.filter(|_| self.beside != Beside::Nothing) {
            samples += &format!(", {}", best.samples);
        }
        let ours = (self.ours, ours.median);
        let mut row = match self.beside {
            Beside::Nothing => Row::absolute(&self.load, ours, &cell.unit, goal),
            Beside::Floor(floor) => Row::of(&self.load, ours, ("floor", floor), &cell.unit, goal),
            _ => {
                let (name, median) = side(best?);
                let row = Row::of(&self.load, ours, (&name, median), &cell.unit, goal);
                row.asked(self.rival())
            }
        };
        if let (Beside::Floor(_) | Beside::Nothing, Some(best)) = (self.beside, best) {
            row.rivals.push(Side::new(&best.name, best.median));
        }
        row.at = cell.at;
        row.samples = samples;
        Some(row)
    }
}

/// The rows that are asked for, and with them the contenders.
struct Wanted(Vec<Spec>);

impl Wanted {
    fn new(plan: &Plan, mut specs: Vec<Spec>) -> Self {
        if let Some(part) = &plan.row {
            specs.retain(|spec| spec.load.contains(part.as_str()));
        }
        Self(specs)
    }

    /// Whether this contender of ours is in a row.
    fn own(&self, name: &str) -> bool {
        let beside = |spec: &Spec| matches!(spec.beside, Beside::Own(other) if other == name);
        let is_in = |spec: &Spec| spec.ours == name || beside(spec);
        self.0.iter().any(is_in)
    }

    fn beside(&self, beside: Beside) -> bool {
        self.0.iter().any(|spec| spec.beside == beside)
    }

    /// A row for each cell in which it can be made.
    fn rows(&self, cells: &[Cell], measures: &[Measure; 2]) -> Vec<Row> {
        let rows = self.0.iter().flat_map(|spec| {
            let case = measures[spec.measure].0;
            let cells = cells.iter().filter(|cell| cell.case == case);
            let rows: Vec<_> = cells.filter_map(|cell| spec.row(cell)).collect();
            if rows.is_empty() {
                let row = Row::missing(&spec.load, spec.ours, MOVED, spec.goal);
                return vec![row.asked(spec.rival())];
            }
            rows
        });
        rows.collect()
    }
}

/// What a sample gives: two figures.
type Sample = Box<dyn FnMut() -> [f64; 2] + Send>;

/// Name and unit of a figure.
type Measure = (&'static str, &'static str);

/// One of those that take turns.
struct Turn {
    name: String,
    part: Part,
    sample: Sample,
}

impl Turn {
    fn own(name: &'static str, sample: impl FnMut() -> [f64; 2] + Send + 'static) -> Self {
        let part = Part::Variant;
        let sample = Box::new(sample);
        Self {
            name: name.to_owned(),
            part,
            sample,
        }
    }
}

/// A load, and how it runs.
struct Load {
    name: String,
    measures: [Measure; 2],
    class: Class,
}

#[derive(Clone, Copy)]
enum Class {
    /// All in the real-time class, if permitted, and submitters pinned. Threads that a pool makes
    /// at its first load inherit no mask.
    Pinned,
    /// Submitters pinned, all in the class the process is in: for latencies.
    PinnedNormal,
    /// All as the process is: for items that sleep, and pools that make threads at any time, which
    /// would inherit the submitter's mask.
    Free,
}

/// Throughput: time for each item, and how many CPUs were used.
const PER_ITEM: [Measure; 2] = [("", "ns"), ("CPUs used", "CPUs")];

fn per(n: u64) -> impl Fn(Spent) -> [f64; 2] + Copy + Send {
    move |spent| [spent.wall.as_secs_f64() * 1e9 / n as f64, spent.cpus]
}

fn millis(spent: Spent) -> [f64; 2] {
    [spent.wall.as_secs_f64() * 1e3, spent.cpus]
}

/// Pools that are in a wanted row, each with a sample.
fn pools<F>(wanted: &Wanted, sample: impl Fn(Box<dyn PoolLoads>) -> F) -> Vec<Turn>
where
    F: FnMut() -> [f64; 2] + Send + 'static,
{
    let turn = |contender: PoolContender, workers: usize| Turn {
        name: contender.name.to_owned(),
        part: contender.part,
        sample: Box::new(sample((contender.make)(workers))),
    };
    let own = ours().into_iter().filter(|c| wanted.own(c.name));
    let mut turns: Vec<_> = own.map(|c| turn(c, WORKERS)).collect();
    if wanted.beside(Beside::Rivals) {
        turns.extend(rivals().into_iter().map(|c| turn(c, WORKERS)));
    }
    if wanted.beside(Beside::OneThread) {
        turns.extend(rivals().into_iter().map(|c| Turn {
            name: format!("{}{ONE_THREAD}", c.name),
            part: Part::Apart,
            ..turn(c, 1)
        }));
    }
    turns
}

/// Measures those that take turns, if a row wants them, and makes the rows.
fn measure(
    plan: &Plan,
    load: &Load,
    wanted: &Wanted,
    turns: impl FnOnce() -> Vec<Turn> + Send,
) -> (Vec<Cell>, Vec<Row>) {
    if wanted.0.is_empty() {
        return (vec![], vec![]);
    }
    // Pools last as long as the process, but their samples are dropped here.
    let body = || {
        let mut turns = turns();
        for turn in &mut turns {
            (turn.sample)(); // Threads are made, pages are there.
        }
        let names: Vec<_> = turns.iter().map(|t| (t.name.clone(), t.part)).collect();
        let mut rounds = || rotate_probed(turns.len(), plan.rounds, |i| (turns[i].sample)());
        let samples = match load.class {
            Class::Pinned => machine::alone(rounds),
            Class::PinnedNormal => machine::pinned(rounds),
            Class::Free => rounds(),
        };
        (names, samples)
    };
    let (names, samples) = match load.class {
        Class::Pinned => machine::realtime(body),
        Class::PinnedNormal | Class::Free => body(),
    };
    let (groups, aside) = by_state(&samples);
    let cells = groups.iter().flat_map(|group| cells(load, &names, group));
    let mut cells: Vec<_> = cells.collect();
    if let Some(first) = cells.first_mut() {
        first.aside = aside;
    }
    let rows = wanted.rows(&cells, &load.measures);
    (cells, rows)
}

/// A cell for each of the two measures.
fn cells(load: &Load, names: &[(String, Part)], group: &Group<[f64; 2]>) -> [Cell; 2] {
    [0, 1].map(|measure| {
        let each = names.iter().zip(&group.samples);
        let (results, lacking): (Vec<_>, Vec<_>) =
            each.partition(|(_, samples)| !samples.is_empty());
        // Ours has rows of its own.
        let rivals = lacking
            .into_iter()
            .filter(|((_, part), _)| *part != Part::Variant);
        let figure = |((name, part), samples): (&(String, Part), &Vec<[f64; 2]>)| {
            let values: Vec<_> = samples.iter().map(|sample| sample[measure]).collect();
            Figure::new(name, *part, &values)
        };
        let (case, unit) = load.measures[measure];
        Cell {
            load: load.name.clone(),
            case: case.to_owned(),
            unit: unit.to_owned(),
            results: results.into_iter().map(figure).collect(),
            overlap: None,
            at: Some(At::new(group.state, group.distance)),
            lacking: rivals.map(|((name, _), _)| name.clone()).collect(),
            aside: 0,
        }
    })
}

/// How long one sleep of 1 ms takes here, in ms.
fn one_sleep() -> f64 {
    let sleep = |_| {
        let start = std::time::Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        start.elapsed().as_secs_f64() * 1e3
    };
    inflight_benches::rounds::median((0..50).map(sleep))
}
