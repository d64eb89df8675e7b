//! Several queues and submitters over one pool, and what disturbs them.

use super::{Beside, Class, Load, PER_ITEM, Turn, Wanted, measure, per, pools, spec};
use crate::cell::{Cell, Plan};
use crate::report::{Goal, Row};
use inflight_benches::pools::{Bystander, Queues};

/// Long enough that a bystander comes by several times.
const ITEMS: u64 = 100_000;

/// Of the plain spawn, as in its own row: all of them may wait at once.
const PLAIN_ITEMS: u64 = 20_000;

const PLAIN: &str = "unbound";

/// Beside our own plain spawn: no rival has queues over one pool, and none can be flushed.
pub(crate) fn queues(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let (n, plain) = (ITEMS / plan.divisor, PLAIN_ITEMS / plan.divisor);
    let nobody = Bystander::default();
    let who = |flushes, traces, dumps| {
        Some(Bystander {
            flushes,
            traces,
            dumps,
        })
    };
    let cases = [
        ("4 x 2", "", None, Goal::AtMost(1.3)),
        (
            "4 x 2, disturbed",
            ", flushed, traced, dumped",
            who(true, true, true),
            Goal::AtMost(1.5),
        ),
        (
            "4 x 2, flushed",
            ", flushed",
            who(true, false, false),
            Goal::None,
        ),
        (
            "4 x 2, traced",
            ", traced",
            who(false, true, false),
            Goal::None,
        ),
        (
            "4 x 2, dumped",
            ", dumped",
            who(false, false, true),
            Goal::None,
        ),
        (
            "4 x 2, looked at",
            ", a bystander who does nothing",
            Some(nobody),
            Goal::None,
        ),
    ];
    let specs = cases.map(|(ours, text, _, goal)| {
        let what = format!("4 queues x 2 submitters, one pool{text} / plain spawn");
        spec(&what, ours, Beside::Own(PLAIN), goal)
    });
    let wanted = Wanted::new(plan, specs.into());
    let load = Load {
        name: "4 queues x 2 submitters, one pool".into(),
        measures: PER_ITEM,
        class: Class::Pinned,
    };
    measure(plan, &load, &wanted, || {
        let mut turns = pools(&wanted, |pool| move || per(plain)(pool.spawn(plain, true)));
        for (name, _, bystander, _) in cases {
            if wanted.own(name) {
                let queues = Queues::new(4, bystander);
                turns.push(Turn::own(name, move || per(n)(queues.run(n))));
            }
        }
        turns
    })
}
