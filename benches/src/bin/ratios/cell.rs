//! One load with all its contenders.

use inflight_benches::distance::State;
use inflight_benches::machine::Machine;
use inflight_benches::rounds::{ENOUGH, by_state, median, rotate, rotate_probed};
use inflight_benches::{Contender, Loads, Part, Together};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) machine: Machine,
    pub(crate) quick: bool,
    /// Rounds of the loads of one and two threads.
    pub(crate) rounds: usize,
    /// Divides the work of a sample.
    pub(crate) divisor: u64,
    /// Only rows of pools with this in their name.
    pub(crate) row: Option<String>,
}

impl Plan {
    pub(crate) fn new(machine: Machine, quick: bool, rounds: Option<usize>) -> Self {
        let (usual, divisor) = if quick { (3, 10) } else { (9, 1) };
        Self {
            machine,
            quick,
            rounds: rounds.unwrap_or(usual),
            divisor,
            row: None,
        }
    }
}

/// One load and what each contender gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) load: String,
    /// Which of the load's cases.
    pub(crate) case: String,
    pub(crate) unit: String,
    pub(crate) results: Vec<Figure>,
    /// The least part of the time in which both threads ran, over all samples that count.
    pub(crate) overlap: Option<f64>,
    /// Where the two CPUs were, if it matters.
    pub(crate) at: Option<At>,
    /// Rivals with too few samples for a figure: which of them is best is not known then.
    pub(crate) lacking: Vec<String>,
    /// How many samples of this load belong to no cell: the CPUs moved meanwhile. In one of them.
    pub(crate) aside: usize,
}

/// Where the two CPUs were in all samples of a cell.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct At {
    pub(crate) state: State,
    /// The middle of the distances, in ns; `None` with one CPU.
    pub(crate) distance: Option<f64>,
}

impl At {
    pub(crate) fn new(state: State, distance: f64) -> Self {
        let distance = distance.is_finite().then_some(distance);
        Self { state, distance }
    }
}

/// The samples of one contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) rival: bool,
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) samples: usize,
}

impl Figure {
    pub(crate) fn new(name: &str, part: Part, samples: &[f64]) -> Self {
        let extreme = |f: fn(f64, f64) -> f64| samples.iter().copied().reduce(f);
        Self {
            name: name.to_owned(),
            rival: part == Part::Rival,
            median: median(samples.iter().copied()),
            least: extreme(f64::min).unwrap_or_default(),
            most: extreme(f64::max).unwrap_or_default(),
            samples: samples.len(),
        }
    }
}

impl Cell {
    /// What this one gave.
    pub(crate) fn of(&self, name: &str) -> Option<&Figure> {
        self.results.iter().find(|figure| figure.name == name)
    }

    /// The rival with the least, if all have a figure.
    pub(crate) fn best_rival(&self) -> Option<&Figure> {
        if !self.lacking.is_empty() {
            return None;
        }
        let rivals = self.results.iter().filter(|figure| figure.rival);
        rivals.min_by(|a, b| a.median.total_cmp(&b.median))
    }
}

/// Every contender in turn on the first CPU. `sample` gives nanoseconds.
pub(crate) fn alone<T: ?Sized + Send + Sync>(
    plan: &Plan,
    (load, case): (&str, String),
    contenders: &[Contender<T>],
    depth: usize,
    setup: impl Fn(&T) -> Vec<usize> + Send + Sync,
    sample: impl Fn(&T, &mut Vec<usize>) -> f64 + Send + Sync,
) -> Cell {
    let samples = inflight_benches::machine::alone(|| {
        let mut all: Vec<_> = contenders
            .iter()
            .map(|contender| {
                let ids = (contender.make)(depth);
                let held = setup(&ids);
                (ids, held)
            })
            .collect();
        rotate(all.len(), plan.rounds, |i| {
            let (ids, held) = &mut all[i];
            sample(ids, held)
        })
    });
    let results = contenders.iter().zip(&samples);
    Cell {
        load: load.to_owned(),
        case,
        unit: "ns".into(),
        results: results
            .map(|(c, samples)| Figure::new(c.name, c.part, samples))
            .collect(),
        overlap: None,
        at: None,
        lacking: vec![],
        aside: 0,
    }
}

/// Below this both threads did not really run at the same time, and the sample is taken again.
const OVERLAP: f64 = 0.95;

/// The samples in which both threads ran; where those are too few, the best.
fn kept(mut samples: Vec<Together>) -> Vec<Together> {
    samples.sort_by(|a, b| b.share.total_cmp(&a.share));
    let good = samples.partition_point(|sample| sample.share >= OVERLAP);
    samples.truncate(good.max(ENOUGH));
    samples
}

/// Every contender in turn on two CPUs. A cell for each state.
pub(crate) fn together(
    plan: &Plan,
    (load, case): (&str, String),
    contenders: &[Contender<dyn Loads>],
    depth: usize,
    percent: usize,
    sample: impl Fn(&dyn Loads) -> Together,
) -> Vec<Cell> {
    let all: Vec<_> = contenders
        .iter()
        .map(|contender| {
            let ids = (contender.make)(depth);
            let held = ids.occupy(depth, percent);
            (ids, held)
        })
        .collect();
    let names: Vec<_> = contenders.iter().map(|c| (c.name, c.part)).collect();
    let cells = together_by(plan, (load, case), &names, |i| sample(&*all[i].0));
    for (contender, (ids, held)) in contenders.iter().zip(all) {
        ids.release(&held);
        if contender.part != Part::Apart {
            ids.check(depth);
        }
    }
    cells
}

/// Every contender in turn on two CPUs; `sample(i)` is of the one with the `i`-th name. A cell for
/// each state.
pub(crate) fn together_by(
    plan: &Plan,
    (load, case): (&str, String),
    names: &[(&str, Part)],
    sample: impl Fn(usize) -> Together,
) -> Vec<Cell> {
    let samples = rotate_probed(names.len(), plan.rounds, |i| {
        let tries = (0..4).map(|_| sample(i));
        let better = |a: Together, b: Together| if b.share > a.share { b } else { a };
        let mut best: Option<Together> = None;
        for tried in tries {
            best = Some(best.map_or(tried, |best| better(best, tried)));
            if tried.share >= OVERLAP {
                break;
            }
        }
        best.expect("at least one try")
    });
    let (groups, aside) = by_state(&samples);
    let cell = |group: inflight_benches::rounds::Group<Together>| {
        let at = At::new(group.state, group.distance);
        let samples: Vec<_> = group.samples.into_iter().map(kept).collect();
        let shares = samples.iter().flatten().map(|sample| sample.share);
        let overlap = shares.reduce(f64::min);
        let times = |samples: &[Together]| samples.iter().map(|s| s.ns).collect::<Vec<_>>();
        let (figured, lacking): (Vec<_>, Vec<_>) =
            names.iter().zip(&samples).partition(|(_, s)| !s.is_empty());
        Cell {
            load: load.to_owned(),
            case: case.clone(),
            unit: "ns".into(),
            results: figured
                .into_iter()
                .map(|((name, part), samples)| Figure::new(name, *part, &times(samples)))
                .collect(),
            overlap,
            at: Some(at),
            lacking: lacking
                .into_iter()
                .filter(|((_, part), _)| *part == Part::Rival)
                .map(|((name, _), _)| name.to_string())
                .collect(),
            aside: 0,
        }
    };
    let mut cells: Vec<_> = groups.into_iter().map(cell).collect();
    if let Some(first) = cells.first_mut() {
        first.aside = aside;
    }
    cells
}

/// Every contender in turn on the first CPU; `sample(i)` is the time of `n` operations of the one
/// with the `i`-th name.
pub(crate) fn alone_by(
    plan: &Plan,
    (load, case): (&str, String),
    names: &[(&str, Part)],
    sample: impl Fn(usize) -> Duration + Sync,
    n: u64,
) -> Cell {
    let samples = inflight_benches::machine::alone(|| {
        rotate(names.len(), plan.rounds, |i| {
            sample(i).as_secs_f64() * 1e9 / n as f64
        })
    });
    let results = names.iter().zip(&samples);
    Cell {
        load: load.to_owned(),
        case,
        unit: "ns".into(),
        results: results
            .map(|((name, part), samples)| Figure::new(name, *part, samples))
            .collect(),
        overlap: None,
        at: None,
        lacking: vec![],
        aside: 0,
    }
}
