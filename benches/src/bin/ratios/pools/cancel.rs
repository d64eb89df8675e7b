//! Taking back and waiting for works. Ours alone: no rival takes a queued item back.

use super::{Beside, Class, Load, PER_ITEM, Turn, Wanted, measure, per, spec};
use crate::cell::{Cell, Plan};
use crate::report::{Goal, Row};
use inflight_benches::pools::{Pending, Spent};
use std::time::Duration;

const FEW: u64 = 250;
const MORE: u64 = 1_900;
const MANY: u64 = 10_000;

const CANCEL_FEW: &str = "cancel, 250 wait";
const CANCEL_MORE: &str = "cancel, 1,900 wait";
const CANCEL_MANY: &str = "cancel, 10,000 wait";
const CANCEL_FEW_APART: &str = "cancel, 250 queues wait";
const CANCEL_MORE_APART: &str = "cancel, 1,900 queues wait";
const FLUSH_EACH: &str = "flush each";
const FLUSH_ALL: &str = "flush the queue";

pub(crate) fn cancel(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let each = Goal::AtMost(1000.0);
    // 1,900 works have eight times the memory of 250, and one of them is cancelled in no order.
    let alike = Goal::AtMost(1.5);
    let wanted = Wanted::new(
        plan,
        vec![
            spec(
                "cancel one of 1,900 / one of 250",
                CANCEL_MORE,
                Beside::Own(CANCEL_FEW),
                alike,
            ),
            spec(
                "cancel the only one of one of 1,900 queues / of 250",
                CANCEL_MORE_APART,
                Beside::Own(CANCEL_FEW_APART),
                alike,
            ),
            spec(
                "10,000 works, each: cancel",
                CANCEL_MANY,
                Beside::Nothing,
                each,
            ),
            spec(
                "10,000 works, each: queue, flush each",
                FLUSH_EACH,
                Beside::Nothing,
                each,
            ),
            spec(
                "10,000 works, each: queue, flush the queue",
                FLUSH_ALL,
                Beside::Nothing,
                each,
            ),
        ],
    );
    let load = Load {
        name: "works that wait, per work".into(),
        measures: PER_ITEM,
        class: Class::Pinned,
    };
    let divisor = plan.divisor;
    measure(plan, &load, &wanted, || {
        let mut turns = Vec::new();
        for (name, works, make) in [
            (CANCEL_FEW, FEW, Pending::new as fn(u64) -> Pending),
            (CANCEL_MORE, MORE, Pending::new),
            (CANCEL_MANY, MANY / divisor, Pending::new),
            (CANCEL_FEW_APART, FEW, Pending::apart),
            (CANCEL_MORE_APART, MORE, Pending::apart),
        ] {
            let pending = make(works);
            // So that each sample takes back about as many.
            let times = (MORE / works).max(1);
            turns.push(Turn::own(name, move || {
                let spent: Duration = (0..times).map(|_| pending.cancel()).sum();
                [spent.as_secs_f64() * 1e9 / (times * works) as f64, 0.0]
            }));
        }
        let n = MANY / divisor;
        for (name, flush) in [
            (FLUSH_EACH, Pending::flush_each as fn(&Pending) -> Spent),
            (FLUSH_ALL, Pending::flush),
        ] {
            let pending = Pending::new(n);
            turns.push(Turn::own(name, move || per(n)(flush(&pending))));
        }
        turns.retain(|turn| wanted.own(&turn.name));
        turns
    })
}
