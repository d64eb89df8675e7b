//! Items that compute or sleep for a while.

use super::memory::asked;
use super::{
    Beside, Class, Load, Measure, Turn, WORKERS, Wanted, measure, millis, one_sleep, pools, spec,
};
use crate::cell::{Cell, Plan};
use crate::report::{Goal, Row};
use inflight_benches::Part;
use inflight_benches::pools::{Burst, PoolContender, growing_rivals, ours, rivals, thread_count};
use std::time::Duration;

const UNBOUND: &str = "unbound";

pub(crate) fn fanout(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let (mut out, mut rows) = (Vec::new(), Vec::new());
    for (n, text, micros) in [(10_000, "10,000 x 1 us", 1), (2_000, "2,000 x 10 us", 10)] {
        let n = n / plan.divisor;
        let cpus = plan.machine.cpus.min(WORKERS) as f64;
        let ideal = (n * micros) as f64 / 1e6 / cpus;
        let what = format!("fan-out {text}, x ideal");
        let spec = spec(&what, UNBOUND, Beside::Rivals, Goal::AtMost(1.0));
        let wanted = Wanted::new(plan, vec![spec]);
        let load = Load {
            name: what,
            measures: [("", "x"), ("CPUs used", "CPUs")],
            class: Class::Pinned,
        };
        let (cells, more) = measure(plan, &load, &wanted, || {
            pools(&wanted, |pool| {
                move || {
                    let spent = pool.fan_out(n, Duration::from_micros(micros));
                    [spent.wall.as_secs_f64() / ideal, spent.cpus]
                }
            })
        });
        out.extend(cells);
        rows.extend(more);
    }
    (out, rows)
}

/// Ours, where items say that they sleep.
const SAID: &str = "unbound, blocking()";

/// Ours, in a system that has not learned yet that the function sleeps.
const FIRST_TIME: &str = "unbound, first time";

const MILLIS: [Measure; 2] = [("", "ms"), ("CPUs used", "CPUs")];

pub(crate) fn mixed(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    // The last sleeper is item 504 of 512: its 441 busy predecessors take so long on two CPUs.
    let floor = 441.0 * 0.020 / WORKERS as f64 + one_sleep();
    let mut specs = Vec::new();
    for (how, name, goal) in [
        ("blocking()", SAID, 1.21),
        ("first time", FIRST_TIME, 1.5),
        ("learned", UNBOUND, 1.25),
    ] {
        let what = format!("mixed load, {how}, x FIFO floor");
        specs.push(spec(&what, name, Beside::Floor(floor), Goal::AtMost(goal)));
        let what = format!("mixed load, {how}, x best rival");
        specs.push(spec(&what, name, Beside::Rivals, Goal::AtMost(1.0)));
    }
    let wanted = Wanted::new(plan, specs);
    let load = Load {
        name: "64 x sleep 1 ms with 448 x 20 us".into(),
        measures: MILLIS,
        class: Class::Free,
    };
    measure(plan, &load, &wanted, || {
        let mut turns: Vec<Turn> = Vec::new();
        let mut turn = |contender: PoolContender, name: &str, say: bool| {
            let pool = (contender.make)(WORKERS);
            turns.push(Turn {
                name: name.to_owned(),
                part: contender.part,
                sample: Box::new(move || millis(pool.mixed(say).expect("it can say so"))),
            });
        };
        for contender in ours() {
            if contender.name == UNBOUND {
                turn(contender, UNBOUND, false);
                turn(contender, SAID, true);
            }
        }
        if wanted.beside(Beside::Rivals) {
            for contender in rivals().into_iter().chain(growing_rivals()) {
                turn(contender, contender.name, false);
                if contender.name == "tokio" {
                    turn(contender, "tokio, block_in_place", true);
                }
            }
        }
        let brief = ours().into_iter().find(|c| c.name == FIRST_TIME);
        if let Some(brief) = brief.filter(|c| wanted.own(c.name)) {
            // A system of its own each time: it knows no function yet.
            turns.push(Turn::own(FIRST_TIME, move || {
                millis(
                    (brief.make)(WORKERS)
                        .mixed(false)
                        .expect("it need not say so"),
                )
            }));
        }
        turns.retain(|turn| turn.part == Part::Rival || wanted.own(&turn.name));
        turns
    })
}

const SLEEPS: u64 = 1_000;

/// 1,000 sleeps of 1 ms, each time in a process of its own, so that its threads are made within
/// the time and none is left of the time before. Of the rivals those that make threads: the others
/// can do it, in 500 ms.
pub(crate) fn burst(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let mut specs = Vec::new();
    let cases = [
        ("64 active, blocking()", "max_active 64", 64, true, 1.2),
        ("64 active, nothing said", "max_active 64", 64, false, 1.2),
        ("128 active, blocking()", "max_active 128", 128, true, 1.5),
        (
            "128 active, nothing said",
            "max_active 128",
            128,
            false,
            1.5,
        ),
    ];
    let sleep = one_sleep();
    for (name, _, active, _, goal) in cases {
        let floor = SLEEPS.div_ceil(active) as f64 * sleep;
        let what = format!("burst of 1,000 x 1 ms, {name}, x floor");
        specs.push(spec(&what, name, Beside::Floor(floor), Goal::AtMost(goal)));
    }
    let wanted = Wanted::new(plan, specs);
    let load = Load {
        name: "1,000 x sleep 1 ms".into(),
        measures: [("", "ms"), ("threads", "")],
        class: Class::Free,
    };
    measure(plan, &load, &wanted, || {
        let own = cases.into_iter().filter(|case| wanted.own(case.0));
        let own = own
            .map(|(name, contender, _, say, _)| Turn::own(name, move || burst_of(contender, say)));
        let rivals = growing_rivals().into_iter().map(|rival| Turn {
            name: rival.name.to_owned(),
            part: Part::Rival,
            sample: Box::new(move || burst_of(rival.name, false)),
        });
        own.chain(rivals).collect()
    })
}

/// Time and threads of a burst in another process.
fn burst_of(contender: &str, say: bool) -> [f64; 2] {
    let said = if say { "said" } else { "silent" };
    asked(&format!("burst:{said}:{contender}"))
}

/// What the other process does.
pub(super) fn burst_here(contender: &str, say: bool) -> [f64; 2] {
    let base = thread_count();
    let mut all = ours().into_iter().chain(growing_rivals());
    let contender = all.find(|c| c.name == contender).expect("one of the table");
    let pool = (contender.make)(WORKERS);
    let Burst { wall, threads } = pool.burst(SLEEPS, say, base).expect("it can say so");
    [wall.as_secs_f64() * 1e3, threads as f64]
}
