//! The loads of two threads.

use crate::alone::{CRATE, RING, TRUSTED, bounded, taken};
use crate::cell::{Cell, Plan, alone, together};
use crate::report::{Goal, Row};
use inflight_benches::{Completer, Contender, Loads, rivals_together};
use inflight_sbitmap::BackEnd;
use std::process::Command;

/// Says that two threads cannot overlap here.
pub(crate) fn one_cpu(plan: &Plan, what: &str) -> Option<(Vec<Cell>, Vec<Row>)> {
    let none = Goal::AtMost(0.0);
    (plan.machine.cpus < 2).then(|| (vec![], vec![Row::missing(what, "", "one CPU only", none)]))
}

/// Own pairs of two threads.
fn pairs_of_two(plan: &Plan, contenders: &[Contender<dyn Loads>]) -> Vec<Cell> {
    let n = 40_000 / plan.divisor;
    let cell = |(depth, percent)| {
        let load = ("two threads, own pairs", taken(depth, percent));
        together(plan, load, contenders, depth, percent, |ids| {
            ids.two_pairs(n)
        })
    };
    let cases = [(64, 0), (1024, 0), (10_240, 0), (64, 95), (1024, 95)];
    cases.into_iter().flat_map(cell).collect()
}

pub(crate) fn two(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let what = "two threads, own pairs";
    if let Some(nothing) = one_cpu(plan, what) {
        return nothing;
    }
    let cells = pairs_of_two(plan, &bounded(rivals_together()));
    let row = |ours, rival, goal| Row::by_state(what, &cells, ours, rival, Goal::AtMost(goal));
    let rows = [
        row(OURS, None, 0.2),
        row(TRUSTED, None, 0.16),
        row(OURS, CRATE, 0.2),
        row(OURS, RING, 0.015),
    ];
    let rows = rows.concat();
    (cells, rows)
}

pub(crate) fn ring(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let what = "get on one core, put on the other";
    if let Some(nothing) = one_cpu(plan, what) {
        return nothing;
    }
    let whole = "get on one core, put_batch on the other, against the ring alone";
    // Ours changes between two modes now and then: a sample must be long beside that.
    let n = 200_000 / plan.divisor;
    let one = |depth| {
        let load = (what, format!("{depth} ids"));
        let contenders = bounded(rivals_together());
        let one = |ids: &dyn Loads| ids.ring(n, Completer::Single);
        together(plan, load, &contenders, depth, 0, one)
    };
    let small = one(64);
    let large = [256, 1024].map(one).concat();
    let nothing = rivals_together()
        .into_iter()
        .filter(|c| c.name == "nothing");
    let with_batches: Vec<_> = inflight_benches::ours()
        .into_iter()
        .chain(nothing)
        .collect();
    let batch = [64, 256, 1024].map(|depth| {
        let load = (whole, format!("{depth} ids"));
        let all = |ids: &dyn Loads| ids.ring(n, Completer::Batch);
        together(plan, load, &with_batches, depth, 0, all)
    });
    let batch = batch.concat();
    let row = |what: &str, cells: &[Cell], rival, goal| {
        Row::by_state(what, cells, OURS, rival, Goal::AtMost(goal))
    };
    let rows = [
        row(&format!("{what}, 64 ids"), &small, None, 0.5),
        row(&format!("{what}, 256 ids and up"), &large, None, 0.35),
        row(whole, &batch, Some("nothing"), 1.4),
    ];
    ([small, large, batch].concat(), rows.concat())
}

const OURS: &str = "SbitmapQueue";

pub(crate) fn demand(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let n = 2_000 / plan.divisor;
    let misses = 20_000 / plan.divisor;
    let none = "get when none is free, 10240 ids";
    let missed = alone(
        plan,
        (none, "10240 ids".into()),
        &bounded(rivals_together()),
        10_240,
        |ids| ids.occupy(10_240, 100),
        |ids, _| ids.misses(misses).as_secs_f64() * 1e9 / misses as f64,
    );
    let ours = missed.of(OURS).map_or(f64::NAN, |figure| figure.median);
    let mut exact = Row::absolute(none, (OURS, ours), "ns", Goal::AtMost(10.0));
    exact.stands_beside(&missed, "ArrayQueue");
    let what = "demand past depth: two threads, bursts of 1..40 of 64 ids, per id";
    if let Some((_, mut rows)) = one_cpu(plan, what) {
        rows.push(exact);
        return (vec![missed], rows);
    }
    let contenders = bounded(rivals_together());
    let load = (what, "64 ids".into());
    let mut cells = together(plan, load, &contenders, 64, 0, |ids| ids.demand(40, n));
    let mut rows = Row::by_state(what, &cells, OURS, RING, Goal::AtMost(0.6));
    cells.push(missed);
    rows.push(exact);
    (cells, rows)
}

/// What a process without restartable sequences measures.
pub(crate) fn try_lock_cells(plan: &Plan) -> Vec<Cell> {
    let n = 50_000 / plan.divisor;
    let wanted = [OURS, "ArrayQueue"];
    assert_eq!(inflight_benches::back_end(), BackEnd::TryLock, "as asked");
    let all = bounded(rivals_together()).into_iter();
    let contenders: Vec<_> = all.filter(|c| wanted.contains(&c.name)).collect();
    let mut cells: Vec<_> = [64, 1024, 10_240]
        .map(|depth| {
            alone(
                plan,
                ("try-lock, get+put pair", taken(depth, 50)),
                &contenders,
                depth,
                |ids| ids.occupy(depth, 50),
                |ids, _| ids.pairs(n).as_secs_f64() * 1e9 / n as f64,
            )
        })
        .into();
    if plan.machine.cpus >= 2 {
        cells.extend(pairs_of_two(plan, &contenders));
    }
    cells
}

/// The fallback is what a process gets whose C library registers no restartable sequences: one is
/// started so.
pub(crate) fn try_lock(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let goals = [Goal::AtMost(1.25), Goal::AtMost(0.06)];
    let what = ["try-lock fallback, alone", "try-lock fallback, two threads"];
    let cells = match child(plan) {
        Ok(cells) => cells,
        Err(error) => {
            let why = format!("{error:#}");
            let rows = [0, 1].map(|i| Row::missing(what[i], OURS, &why, goals[i]));
            return (vec![], rows.into());
        }
    };
    let split = cells.iter().position(|cell| cell.overlap.is_some());
    let (one, two) = cells.split_at(split.unwrap_or(cells.len()));
    let mut rows = vec![Row::worst(what[0], one, OURS, RING, goals[0])];
    rows.extend(Row::by_state(what[1], two, OURS, RING, goals[1]));
    (cells, rows)
}

fn child(plan: &Plan) -> anyhow::Result<Vec<Cell>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", "--json"]);
    command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    if plan.quick {
        command.arg("--quick");
    }
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "the process without rseq failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}
