//! The loads of one thread.

use crate::cell::{Cell, Plan, alone};
use crate::report::{Goal, Row};
use inflight_benches::{Contender, Loads, Part, batchers, ours, rivals};

/// All that hand out `0..depth`.
pub(crate) fn bounded(mut all: Vec<Contender<dyn Loads>>) -> Vec<Contender<dyn Loads>> {
    all.retain(|contender| contender.part != Part::Apart);
    ours().into_iter().chain(all).collect()
}

fn per(time: std::time::Duration, n: u64) -> f64 {
    time.as_secs_f64() * 1e9 / n as f64
}

pub(crate) fn taken(depth: usize, percent: usize) -> String {
    format!("{depth} ids, {percent} % taken")
}

pub(crate) fn pair(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let n = 50_000 / plan.divisor;
    let mut cells = Vec::new();
    for depth in [64, 256, 1024, 10_240] {
        for percent in [0, 90, 99] {
            cells.push(alone(
                plan,
                ("get+put pair", taken(depth, percent)),
                &bounded(rivals()),
                depth,
                |ids| ids.occupy(depth, percent),
                |ids, _| per(ids.pairs(n), n),
            ));
        }
    }
    let what = "get+put pair";
    let rows = vec![
        Row::worst(what, &cells, "SbitmapQueue", None, Goal::AtMost(0.30)),
        Row::worst(what, &cells, TRUSTED, None, Goal::AtMost(0.22)),
        Row::worst(what, &cells, "SbitmapQueue", CRATE, Goal::AtMost(0.17)),
        Row::worst(what, &cells, TRUSTED, CRATE, Goal::AtMost(0.12)),
        Row::worst(what, &cells, "Sbitmap", CRATE, Goal::AtMost(1.1)),
        Row::worst(what, &cells, "Sbitmap", RING, Goal::AtMost(1.1)),
    ];
    (cells, rows)
}

pub(crate) const TRUSTED: &str = "SbitmapQueue, trusted";
pub(crate) const CRATE: Option<&str> = Some("crate sbitmap");
pub(crate) const RING: Option<&str> = Some("ArrayQueue");

pub(crate) fn churn(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let n = 50_000 / plan.divisor;
    let mut cells = Vec::new();
    for depth in [64, 1024, 10_240] {
        for percent in [50, 90, 99] {
            cells.push(alone(
                plan,
                ("churn", taken(depth, percent)),
                &bounded(rivals()),
                depth,
                |ids| ids.occupy(depth, percent),
                |ids, held| per(ids.churn(held, n), n),
            ));
        }
    }
    let what = "churn: put any held id, get";
    let rows = vec![
        Row::worst(what, &cells, "SbitmapQueue", None, Goal::AtMost(0.35)),
        Row::worst(what, &cells, TRUSTED, None, Goal::AtMost(0.28)),
    ];
    (cells, rows)
}

pub(crate) fn mask(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let times = 20_000 / plan.divisor;
    let mut rows = Vec::new();
    let mut cells = Vec::new();
    for n in [8, 32] {
        let cell = alone(
            plan,
            ("ids at once and back, per id", n.to_string()),
            &batchers(),
            1024,
            |_| Vec::new(),
            |ids, _| per(ids.batches(n, times), times * n as u64),
        );
        let what = format!("try_get_mask({n}) and put_mask, per id");
        let one = std::slice::from_ref(&cell);
        for ours in ["SbitmapQueue, mask", "Sbitmap, mask"] {
            rows.push(Row::worst(&what, one, ours, CRATE, Goal::AtMost(0.6)));
        }
        cells.push(cell);
    }
    (cells, rows)
}
