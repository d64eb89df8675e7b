//! The loads of many threads and of many tasks.

use crate::cell::{Cell, Figure, Plan};
use crate::report::{Goal, Row};
use inflight_benches::rounds::{median, rotate};
use inflight_benches::scarce::{self, Idle};
use inflight_benches::{Contender, Part, WaitIds, ours_waiting, tasks, waiting_rivals};
use std::time::Duration;

/// A contender that spreads less is called fair.
const FAIR: f64 = 2.0;

/// The rounds of one contender.
struct Rounds<O> {
    name: &'static str,
    part: Part,
    outcomes: Vec<O>,
    /// How often a thread or a task was left waiting for ever.
    stranded: usize,
}

impl<O> Rounds<O> {
    /// The median over the rounds; `None` if there was no round, or somebody was left behind.
    fn middle(&self, f: impl Fn(&O) -> f64) -> Option<f64> {
        let all = self.stranded == 0 && !self.outcomes.is_empty();
        all.then(|| median(self.outcomes.iter().map(f)))
    }

    fn figure(&self, f: impl Fn(&O) -> f64) -> Option<Figure> {
        let samples: Vec<_> = self.outcomes.iter().map(f).collect();
        (!samples.is_empty()).then(|| Figure::new(self.name, self.part, &samples))
    }
}

/// One contender after the other. One that leaves waiters behind is not run again.
fn in_turn<T: ?Sized, O>(
    contenders: &[Contender<T>],
    rounds: usize,
    depth: usize,
    run: impl Fn(Box<T>) -> Option<O>,
) -> Vec<Rounds<O>> {
    let mut stranded = vec![0; contenders.len()];
    let samples = rotate(contenders.len(), rounds, |i| {
        if stranded[i] > 0 {
            return None;
        }
        let outcome = run((contenders[i].make)(depth));
        stranded[i] += usize::from(outcome.is_none());
        outcome
    });
    let samples = samples.into_iter().zip(stranded);
    let each = contenders.iter().zip(samples);
    each.map(|(contender, (outcomes, stranded))| Rounds {
        name: contender.name,
        part: contender.part,
        outcomes: outcomes.into_iter().flatten().collect(),
        stranded,
    })
    .collect()
}

type Scarce = [Rounds<scarce::Outcome>];

fn named<'a>(all: &'a Scarce, name: &str) -> Option<&'a Rounds<scarce::Outcome>> {
    all.iter().find(|rounds| rounds.name == name)
}

/// The rival with the highest throughput among those that are fair.
fn best_fair(all: &Scarce) -> Option<&Rounds<scarce::Outcome>> {
    let rate = |rounds: &&Rounds<scarce::Outcome>| rounds.middle(|o| o.per_second).unwrap_or(0.0);
    let rivals = all.iter().filter(|rounds| rounds.part == Part::Rival);
    let fair = rivals.filter(|rounds| rounds.middle(|o| o.spread).is_some_and(|s| s < FAIR));
    fair.max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

pub(crate) fn scarce(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let contenders: Vec<Contender<dyn WaitIds>> =
        ours_waiting().into_iter().chain(waiting_rivals()).collect();
    let (mut cells, mut rows) = (Vec::new(), Vec::new());
    for (idle, habit) in [(Idle::Polls, "polling"), (Idle::Sleeps, "sleeping")] {
        let window = if plan.quick { 30 } else { 120 };
        let load = scarce::Load {
            threads: 64,
            depth: 16,
            idle,
            warm: Duration::from_millis(15),
            window: Duration::from_millis(window),
        };
        let rounds = if plan.quick { 3 } else { 7 };
        let all = in_turn(&contenders, rounds, load.depth, |ids| {
            scarce::run(ids, load)
        });
        let what = format!("64 threads, 16 ids, completer {habit}");
        cells.extend(scarce_cells(&what, &all));
        fair_rows(&what, idle, &all, &mut rows);
    }
    (cells, rows)
}

fn scarce_cells(what: &str, all: &Scarce) -> Vec<Cell> {
    type Of = fn(&scarce::Outcome) -> f64;
    let kinds: [(&str, &str, Of); 6] = [
        ("throughput", "ids/s", |o| o.per_second),
        ("max/min per thread over ten rotations", "", |o| o.spread),
        ("mean wait", "us", |o| o.mean),
        ("wait p50", "us", |o| o.p50),
        ("wait p99", "us", |o| o.p99),
        ("longest wait", "us", |o| o.longest),
    ];
    kinds
        .map(|(kind, unit, of)| Cell {
            load: what.to_owned(),
            case: kind.to_owned(),
            unit: unit.into(),
            results: all.iter().filter_map(|rounds| rounds.figure(of)).collect(),
            overlap: None,
            at: None,
            lacking: vec![],
            aside: 0,
        })
        .into()
}

/// A unit, and what has it.
type Measure = (&'static str, fn(&scarce::Outcome) -> f64);

const TOKIO: &str = "tokio Semaphore + ArrayQueue";

/// Compares one of ours with one rival, by one measure.
fn against(
    what: &str,
    ours: Option<&Rounds<scarce::Outcome>>,
    rival: Option<&Rounds<scarce::Outcome>>,
    measure: Measure,
    goal: Goal,
) -> Row {
    let (unit, of) = measure;
    let value = |rounds: Option<&Rounds<scarce::Outcome>>| {
        rounds.and_then(|rounds| Some((rounds.name, rounds.middle(of)?)))
    };
    match (value(ours), value(rival)) {
        (Some(ours), Some(rival)) => Row::of(what, ours, rival, unit, goal),
        (None, _) => Row::missing(what, "ours left waiters behind", "", goal),
        (_, None) => Row::missing(what, "", "no rival finished", goal),
    }
}

fn fair_rows(what: &str, idle: Idle, all: &Scarce, rows: &mut Vec<Row>) {
    let (fair, polls, fifo) = ("Fair", "Fair, completer_polls", "Fifo");
    let best = best_fair(all);
    let tokio = named(all, TOKIO);
    let text = |measure: &str| format!("{what}: {measure}");
    let mut row = |measure: &str, ours, rival, of, goal| {
        let row = against(&text(measure), named(all, ours), rival, of, goal);
        let is_tokio = !measure.ends_with("best fair rival");
        rows.push(row.asked(is_tokio.then_some(TOKIO)));
    };
    let rate: Measure = ("ids/s", |o| o.per_second);
    let rated = "throughput, best fair rival";
    match idle {
        Idle::Polls => {
            row(rated, fair, best, rate, Goal::AtLeast(1.3));
            row(rated, polls, best, rate, Goal::AtLeast(3.0));
        }
        Idle::Sleeps => row(rated, fair, best, rate, Goal::AtLeast(1.8)),
    }
    let longest: Measure = ("us", |o| o.longest);
    row(
        "longest wait, best fair rival",
        fair,
        best,
        longest,
        Goal::AtMost(2.0),
    );
    row(
        "mean wait, tokio",
        fair,
        tokio,
        ("us", |o| o.mean),
        Goal::AtMost(0.6),
    );
    row(rated, fifo, best, rate, Goal::AtLeast(0.9));
    row(
        "wait p99, best fair rival",
        fifo,
        best,
        ("us", |o| o.p99),
        Goal::AtMost(1.5),
    );
    let even = if idle == Idle::Polls {
        &[fair, polls][..]
    } else {
        &[fair]
    };
    for name in even {
        let spread = named(all, name).and_then(|rounds| rounds.middle(|o| o.spread));
        let ours = (*name, spread.unwrap_or(f64::INFINITY));
        rows.push(Row::absolute(&text("max/min"), ours, "", Goal::AtMost(1.2)));
    }
}

pub(crate) fn tasks(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let load = tasks::Load {
        tasks: 10_000,
        depth: 64,
        workers: 2,
        warm: Duration::from_millis(30),
        window: Duration::from_millis(if plan.quick { 60 } else { 200 }),
    };
    let rounds = if plan.quick { 2 } else { 7 };
    let all = in_turn(&tasks::contenders(), rounds, load.depth, |ids| {
        ids.run(load)
    });
    let what = "10,000 tasks, 64 ids, 2 workers";
    type Of = fn(&tasks::Outcome) -> f64;
    let kinds: [(&str, &str, Of); 4] = [
        ("throughput", "ids/s", |o| o.per_second),
        ("max/min per task", "", |o| o.spread),
        ("wait p99", "us", |o| o.p99),
        ("longest wait", "us", |o| o.longest),
    ];
    let cells = kinds.map(|(kind, unit, of)| Cell {
        load: what.to_owned(),
        case: kind.to_owned(),
        unit: unit.into(),
        results: all.iter().filter_map(|rounds| rounds.figure(of)).collect(),
        overlap: None,
        at: None,
        lacking: vec![],
        aside: 0,
    });
    let middle = |name: &str, of: Of| {
        let found = all.iter().find(|rounds| rounds.name == name);
        found
            .and_then(|rounds| rounds.middle(of))
            .unwrap_or(f64::NAN)
    };
    let (ours, tokio) = ("Fair", TOKIO);
    let row = |kind: usize, goal| {
        let (measure, unit, of) = kinds[kind];
        let sides = [ours, tokio].map(|name| (name, middle(name, of)));
        Row::of(
            &format!("{what}: {measure}"),
            sides[0],
            sides[1],
            unit,
            goal,
        )
    };
    let spread = (ours, middle(ours, kinds[1].2));
    let rows = vec![
        row(0, Goal::AtLeast(1.4)),
        Row::absolute(&format!("{what}: max/min"), spread, "", Goal::AtMost(1.2)),
        row(2, Goal::AtMost(0.6)),
    ];
    (cells.into(), rows)
}
