//! Small items: what a queueing and a run cost.

use super::{Beside, Class, Load, PER_ITEM, Spec, Turn, Wanted, measure, per, pools, spec};
use crate::cell::{Cell, Plan};
use crate::report::{Goal, Row};
use inflight_benches::pools::{Again, Kind, PoolLoads, Reusable, Spent};

/// Items of a sample: some ms.
const ITEMS: u64 = 20_000;

/// Works that are queued by turns, so that they stay in the cache.
const WORKS: u64 = 1_024;

const UNBOUND: &str = "unbound";
const REUSABLE: &str = "reusable";
const REUSABLE_ORDERED: &str = "reusable, ordered";
const REQUEUE: &str = "requeues itself";
const AGAIN: &str = "says again";

fn load(name: &str) -> Load {
    Load {
        name: name.to_owned(),
        measures: PER_ITEM,
        class: Class::Pinned,
    }
}

/// Closures of 32 bytes, and works beside the rivals' closures: no rival has works.
pub(crate) fn spawn(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let n = ITEMS / plan.divisor;
    let row = |what: &str, ours, beside, goal| spec(what, ours, beside, Goal::AtMost(goal));
    let rivals = Beside::Rivals;
    let wanted = Wanted::new(
        plan,
        vec![
            row("spawn 32 B, unbound", UNBOUND, rivals, 0.45),
            row(
                "spawn 32 B, bound, submitter on the other CPU",
                "bound, other CPU",
                rivals,
                0.5,
            ),
            row("spawn 32 B, ordered", "ordered", Beside::OneThread, 0.4),
            row("reusable work / best closure", REUSABLE, rivals, 0.33),
            row(
                "reusable work, ordered / best closure",
                REUSABLE_ORDERED,
                rivals,
                0.33,
            ),
            row(
                "self-requeue of a work / best closure",
                REQUEUE,
                rivals,
                0.25,
            ),
            row(
                "a work that says \"again\" / best closure",
                AGAIN,
                rivals,
                0.1,
            ),
        ],
    );
    measure(
        plan,
        &load("closures of 32 bytes, and works"),
        &wanted,
        || {
            let mut turns = pools(&wanted, |pool| move || per(n)(pool.spawn(n, true)));
            for (name, kind) in [(REUSABLE, Kind::Unbound), (REUSABLE_ORDERED, Kind::Ordered)] {
                if wanted.own(name) {
                    let works = Reusable::new(kind, WORKS);
                    let rounds = (n / WORKS).max(1) as u32;
                    let items = u64::from(rounds) * WORKS;
                    turns.push(Turn::own(name, move || per(items)(works.run(rounds))));
                }
            }
            for (name, make) in [
                (REQUEUE, Again::queued as fn() -> Again),
                (AGAIN, Again::said),
            ] {
                if wanted.own(name) {
                    let again = make();
                    turns.push(Turn::own(name, move || per(n)(again.run(n))));
                }
            }
            turns
        },
    )
}

/// One load of ours, unbound, beside the rivals.
fn beside_rivals(
    plan: &Plan,
    name: &str,
    goal: f64,
    sample: fn(&dyn PoolLoads, u64) -> Spent,
) -> (Vec<Cell>, Vec<Row>) {
    let n = ITEMS / plan.divisor;
    let spec: Spec = spec(name, UNBOUND, Beside::Rivals, Goal::AtMost(goal));
    let wanted = Wanted::new(plan, vec![spec]);
    measure(plan, &load(name), &wanted, || {
        pools(&wanted, |pool| move || per(n)(sample(&*pool, n)))
    })
}

pub(crate) fn producers(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    beside_rivals(plan, "spawn 32 B, 2 producers", 0.9, |pool, n| {
        pool.two_producers(n)
    })
}

pub(crate) fn empty(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    beside_rivals(plan, "empty closure, handle dropped", 1.0, |pool, n| {
        pool.spawn(n, false)
    })
}

pub(crate) fn wait(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    beside_rivals(plan, "spawn, wait for each handle", 0.2, |pool, n| {
        pool.spawn_and_wait(n)
    })
}

pub(crate) fn chain(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    beside_rivals(plan, "chain of closures, a hop", 0.45, |pool, n| {
        pool.chain(n)
    })
}
