//! How long it takes until somebody knows.

use super::{Beside, Class, Load, Measure, PER_ITEM, Turn, Wanted, measure, per, pools, spec};
use crate::cell::{Cell, Plan};
use crate::report::{Goal, Row};
use inflight_benches::pools::flush_latency;
use inflight_benches::rounds::quantile;
use std::time::Duration;

/// How many make a sample.
const TIMES: usize = 200;

const QUANTILES: [Measure; 2] = [("p50", "us"), ("p99", "us")];

/// Both quantiles of the same times, in us.
fn quantiles(nanos: Vec<u32>) -> [f64; 2] {
    [0.5, 0.99].map(|part| f64::from(quantile(nanos.iter().copied(), part)) / 1e3)
}

pub(crate) fn ping(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let times = TIMES / plan.divisor as usize;
    let (mut out, mut rows) = (Vec::new(), Vec::new());
    let (bound, unbound) = ("bound, own CPU", "unbound");
    let row = |what: &str, ours, measure, goal| {
        let mut spec = spec(what, ours, Beside::Rivals, goal);
        spec.measure = measure;
        spec
    };
    let most = Goal::AtMost;
    let back_to_back = vec![
        row("ping back to back, p50, bound", bound, 0, most(0.8)),
        row("ping back to back, p50, unbound", unbound, 0, most(0.5)),
        row("ping back to back, p99, bound", bound, 1, Goal::None),
        row("ping back to back, p99, unbound", unbound, 1, Goal::None),
    ];
    let after_a_pause = vec![
        row("ping after 100 us, p50, bound", bound, 0, most(1.0)),
        row("ping after 100 us, p50, unbound", unbound, 0, most(1.0)),
        row("ping after 100 us, p99, bound", bound, 1, most(1.0)),
        row("ping after 100 us, p99, unbound", unbound, 1, most(1.0)),
    ];
    for (name, pause, specs) in [
        ("ping back to back", 0, back_to_back),
        ("ping after 100 us", 100, after_a_pause),
    ] {
        let wanted = Wanted::new(plan, specs);
        let load = Load {
            name: name.to_owned(),
            measures: QUANTILES,
            class: Class::PinnedNormal,
        };
        let pause = Duration::from_micros(pause);
        let (cells, more) = measure(plan, &load, &wanted, || {
            pools(&wanted, |pool| move || quantiles(pool.ping(times, pause)))
        });
        out.extend(cells);
        rows.extend(more);
    }
    (out, rows)
}

/// Ours alone: no rival can be flushed.
pub(crate) fn flush(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let times = TIMES / plan.divisor as usize;
    let name = "flush while another queue streams";
    let ours = "flush";
    let specs = [Goal::None, Goal::AtMost(1000.0)].into_iter().enumerate();
    let specs = specs.map(|(measure, goal)| {
        let what = format!("{name}, {}", QUANTILES[measure].0);
        let mut spec = spec(&what, ours, Beside::Nothing, goal);
        spec.measure = measure;
        spec
    });
    let wanted = Wanted::new(plan, specs.collect());
    let load = Load {
        name: name.to_owned(),
        measures: QUANTILES,
        class: Class::PinnedNormal,
    };
    measure(plan, &load, &wanted, || {
        let flush = flush_latency();
        vec![Turn::own(ours, move || quantiles(flush(times)))]
    })
}

/// How many items each sample of windows has.
const WINDOWED: u64 = 8_192;

/// Some items at a time, and then a sleep until all have run.
pub(crate) fn windows(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let n = WINDOWED / plan.divisor;
    let (mut out, mut rows) = (Vec::new(), Vec::new());
    for window in [1, 8, 32, 256] {
        let row = |ours: &'static str, how: &str| {
            let what = format!("{window} at a time, then a sleep, {how}");
            spec(&what, ours, Beside::Rivals, Goal::AtMost(1.0))
        };
        let specs = vec![row("unbound", "unbound"), row("bound, own CPU", "bound")];
        let wanted = Wanted::new(plan, specs);
        let load = Load {
            name: format!("{window} at a time"),
            measures: PER_ITEM,
            class: Class::PinnedNormal,
        };
        // Few at a time take long.
        let n = n.min(1_024 * window);
        let (cells, more) = measure(plan, &load, &wanted, || {
            pools(&wanted, |pool| move || per(n)(pool.windows(n, window)))
        });
        out.extend(cells);
        rows.extend(more);
    }
    (out, rows)
}
