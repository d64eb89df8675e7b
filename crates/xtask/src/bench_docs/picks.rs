//! Which run of a row a table shows: for each machine the one in the middle, of the newest commit
//! that has enough of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::record::{Row, Run};

/// The least number of runs of a row for a median.
pub(super) const ENOUGH: usize = 5;

/// What tells a row from others of its run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) section: String,
    pub(super) load: String,
    pub(super) ours: String,
    pub(super) beside: String,
    pub(super) state: String,
}

impl Key {
    fn of(row: &Row) -> Self {
        Self {
            section: row.section.clone(),
            load: row.load.clone(),
            ours: row.ours.name.clone(),
            beside: row.beside.clone(),
            state: row.state.clone(),
        }
    }
}

/// The run in the middle, and what the others gave.
#[derive(Debug)]
pub(super) struct Picked {
    pub(super) row: Row,
    /// The groups that its run measured.
    pub(super) groups: BTreeSet<String>,
    /// How many runs there were.
    pub(super) runs: usize,
    /// The extremes of what is compared: the ratio, or ours.
    pub(super) least: f64,
    pub(super) most: f64,
}

/// All rows of one machine that count.
#[derive(Debug)]
pub(super) struct Records {
    /// What the machine is, in words.
    pub(super) machine: String,
    pub(super) picked: BTreeMap<Key, Picked>,
    /// Rows with too few runs, and groups they are of.
    pub(super) few: BTreeMap<Key, String>,
}

/// What is compared: the ratio, or ours where there is none.
pub(super) fn figure(row: &Row) -> Option<f64> {
    if row.beside.is_empty() {
        row.ours.value
    } else {
        row.ratio()
    }
}

pub(super) fn more_is_better(row: &Row) -> bool {
    row.goal.starts_with(">=") || row.unit.ends_with("/s")
}

/// The rows of each machine; first the one with the newest run.
pub(super) fn by_machine(rows: Vec<Row>) -> Result<Vec<Records>> {
    let mut machines: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in rows {
        machines.entry(machine(&row.run)).or_default().push(row);
    }
    let newest = |rows: &Vec<Row>| rows.iter().map(|row| row.run.start.clone()).max();
    let mut machines: Vec<_> = machines.into_iter().collect();
    machines.sort_by_key(|(name, rows)| (std::cmp::Reverse(newest(rows)), name.clone()));
    let records = |(machine, rows)| Records::new(machine, rows);
    machines.into_iter().map(records).collect()
}

fn machine(run: &Run) -> String {
    let Run {
        cpu, cpus, engine, ..
    } = run;
    let engine = match engine.as_str() {
        "Rseq" => "restartable sequences".to_owned(),
        other => format!("the engine `{other}`"),
    };
    format!("{cpu} with {cpus} CPUs and {engine}")
}

impl Records {
    fn new(machine: String, rows: Vec<Row>) -> Result<Self> {
        // A load that the newest run of its section does not know is no more.
        let mut newest: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
        for row in &rows {
            let (start, loads) = newest.entry(row.section.clone()).or_default();
            if *start < row.run.start {
                (*start, *loads) = (row.run.start.clone(), BTreeSet::new());
            }
            if *start == row.run.start {
                loads.insert(row.load.clone());
            }
        }
        let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for row in &rows {
            let of_run = groups.entry(row.run.start.clone()).or_default();
            of_run.insert(row.group.clone());
        }
        // By row, by commit, by run.
        type Runs = BTreeMap<String, Row>;
        let mut all: BTreeMap<Key, BTreeMap<String, Runs>> = BTreeMap::new();
        for row in rows {
            if figure(&row).is_none() || !newest[&row.section].1.contains(&row.load) {
                continue;
            }
            let sets = all.entry(Key::of(&row)).or_default();
            let (commit, start) = (row.run.commit.clone(), row.run.start.clone());
            let twice = sets.entry(commit).or_default().insert(start.clone(), row);
            if let Some(row) = twice {
                anyhow::bail!("the run of {start} has two rows of \"{}\"", row.load);
            }
        }
        let (mut picked, mut few) = (BTreeMap::new(), BTreeMap::new());
        for (key, sets) in all {
            let group = sets.values().flat_map(BTreeMap::values).next();
            let group = group.map_or_else(String::new, |row| row.group.clone());
            let enough = sets.into_values().filter(|runs| runs.len() >= ENOUGH);
            let last = |runs: &Runs| runs.keys().next_back().cloned();
            let newest = enough.max_by_key(last);
            match newest {
                Some(runs) => {
                    let middle = middle(runs.into_values().collect(), &groups);
                    picked.insert(key, middle);
                }
                None => drop(few.insert(key, group)),
            }
        }
        Ok(Self {
            machine,
            picked,
            few,
        })
    }
}

/// The run whose figure is in the middle; of an even number of runs the worse one of the two.
fn middle(mut runs: Vec<Row>, groups: &BTreeMap<String, BTreeSet<String>>) -> Picked {
    let of = |row: &Row| figure(row).unwrap_or(f64::NAN);
    let up = |a: &Row, b: &Row| of(a).total_cmp(&of(b)).then(a.run.start.cmp(&b.run.start));
    runs.sort_by(up);
    let (least, most) = (of(&runs[0]), of(&runs[runs.len() - 1]));
    if more_is_better(&runs[0]) {
        runs.reverse();
    }
    let count = runs.len();
    let row = runs.swap_remove(count / 2);
    Picked {
        groups: groups[&row.run.start].clone(),
        row,
        runs: count,
        least,
        most,
    }
}
