//! How soon a worker runs that was sent a message.

use super::{Beside, Class, Load, Measure, Turn, Wanted, measure, spec};
use crate::cell::{Cell, Plan};
use crate::report::{Goal, Row};
use inflight_benches::wakeup::{self, LOADS, contenders};

/// How many messages by each message thread make a sample.
const MESSAGES: usize = 1_000;

/// From the message to the worker that runs, and the time of a message when they are many.
const MEASURES: [Measure; 2] = [("p99", "us"), ("a message", "us")];

/// The queues of ours that a user would choose from, and for how many of the measures. Wake rules
/// are to shorten the wait.
const OURS: [(&str, usize); 3] = [("unbound", 2), ("bound", 2), ("bound, placed", 1)];

pub(crate) fn wakeup(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let messages = MESSAGES / plan.divisor as usize;
    let (mut out, mut rows) = (Vec::new(), Vec::new());
    for load in LOADS {
        let name = format!("wakeup, {load}");
        let specs = OURS.into_iter().flat_map(|(ours, measures)| {
            let goals = [Goal::AtMost(1.0), Goal::None].into_iter();
            goals.enumerate().take(measures).map({
                let name = &name;
                move |(measure, goal)| {
                    let what = format!("{name}, {}, {ours}", MEASURES[measure].0);
                    let mut spec = spec(&what, ours, Beside::Rivals, goal);
                    spec.measure = measure;
                    spec
                }
            })
        });
        let wanted = Wanted::new(plan, specs.collect());
        let shown = Load {
            name,
            measures: MEASURES,
            class: Class::Free,
        };
        let (cells, more) = measure(plan, &shown, &wanted, || {
            let all = contenders().into_iter();
            let turn = |contender: wakeup::Contender| Turn {
                name: contender.name.to_owned(),
                part: contender.part,
                sample: Box::new(move || {
                    let outcome = wakeup::run(&*contender.target, load, messages);
                    [outcome.p99, 1e6 / outcome.per_second]
                }),
            };
            all.map(turn).collect()
        });
        out.extend(cells);
        rows.extend(more);
    }
    (out, rows)
}
