//! The loads of tag sets.

use crate::cell::{Cell, Figure, Plan, alone_by, together_by};
use crate::pair::one_cpu;
use crate::report::{Goal, Row};
use inflight_benches::rounds::median;
use inflight_benches::tags::{
    TagLoads, bare_pair, compare_exchange, freeze_idle, freeze_loaded, iterate, ours, rivals,
    share_error,
};
use inflight_benches::{Contender, Part};
use inflight_sbitmap::SbitmapQueue;
use inflight_tags::SharePolicy;
use std::sync::atomic::AtomicU64;

const OURS: &str = "TagSet";
const NO_AGES: &str = "TagSet, ages(false)";
const BARE: &str = "bare bitmap pair";
const EXCHANGE: &str = "compare-exchange";
const DEPTH: usize = 1024;

fn all() -> Vec<Contender<dyn TagLoads>> {
    ours().into_iter().chain(rivals()).collect()
}

pub(crate) fn token(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let n = 50_000 / plan.divisor;
    let contenders = all();
    let made: Vec<_> = contenders.iter().map(|c| (c.make)(DEPTH)).collect();
    for (contender, loads) in contenders.iter().zip(&made) {
        let small = (contender.make)(64);
        assert!(!small.is_fooled(), "{}", contender.name);
        loads.round_trips(n); // Warm.
    }
    let names: Vec<_> = contenders.iter().map(|c| (c.name, c.part)).collect();
    let mut with_floor = names.clone();
    with_floor.extend([BARE, EXCHANGE].map(|name| (name, Part::Apart)));
    let bitmap = SbitmapQueue::builder(DEPTH).trusted(true).build();
    let (bitmap, word) = (bitmap.expect("valid"), AtomicU64::new(0));
    let (pair, trip) = ("tag: alloc, write, free", "token round trip");
    let case = || format!("{DEPTH} tags, one thread");
    let pairs = alone_by(plan, (pair, case()), &names, |i| made[i].pairs(n), n);
    let sample = |i: usize| match i.checked_sub(made.len()) {
        None => made[i].round_trips(n),
        Some(0) => bare_pair(&bitmap, n),
        Some(_) => compare_exchange(&word, n),
    };
    let trips = alone_by(plan, (trip, case()), &with_floor, sample, n);
    let mut rows = Vec::new();
    for ours in [OURS, NO_AGES] {
        let one = std::slice::from_ref(&pairs);
        rows.push(Row::worst(pair, one, ours, None, Goal::AtMost(0.7)));
    }
    let of = |name| trips.of(name).map_or(f64::NAN, |figure| figure.median);
    let floor = 1.5f64.mul_add(of(EXCHANGE), of(BARE));
    for ours in [OURS, NO_AGES] {
        let one = std::slice::from_ref(&trips);
        rows.push(Row::worst(trip, one, ours, None, Goal::AtMost(0.7)));
        rows.push(Row::of(
            &format!("{trip}, against its parts"),
            (ours, of(ours)),
            ("bare pair + 1.5 compare-exchanges", floor),
            "ns",
            Goal::AtMost(1.0),
        ));
    }
    let mut cells = vec![pairs, trips];
    for (what, tokens) in [
        ("tag: alloc, write, free, two threads", false),
        ("token round trip, two threads", true),
    ] {
        if let Some((_, missing)) = one_cpu(plan, what) {
            rows.extend(missing);
            continue;
        }
        let load = (what, format!("{DEPTH} tags"));
        let by_state = together_by(plan, load, &names, |i| made[i].two(n, tokens));
        for ours in [OURS, NO_AGES] {
            let goal = Goal::AtMost(0.7);
            rows.extend(Row::by_state(what, &by_state, ours, None, goal));
        }
        cells.extend(by_state);
    }
    (cells, rows)
}

pub(crate) fn tenants(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let what = "8 tenants of unequal greed, 64 tags: error of the others' shares";
    if let Some(nothing) = one_cpu(plan, what) {
        return nothing;
    }
    let steps = 60_000 / plan.divisor;
    let policies = [
        ("Fair", Part::Ours, Some(SharePolicy::default())),
        ("SharePolicy::None", Part::Apart, Some(SharePolicy::None)),
        ("a set for each", Part::Apart, None),
    ];
    let names = policies.map(|(name, part, _)| (name, part));
    let samples = inflight_benches::rounds::rotate(policies.len(), plan.rounds, |i| {
        share_error(policies[i].2, steps)
    });
    let cell = |load: &str, unit: &str, of: fn(&inflight_benches::tags::Shares) -> f64| Cell {
        load: load.to_owned(),
        case: String::new(),
        unit: unit.to_owned(),
        results: names
            .iter()
            .zip(&samples)
            .map(|((name, part), s)| {
                Figure::new(name, *part, &s.iter().map(of).collect::<Vec<_>>())
            })
            .collect(),
        overlap: None,
        at: None,
        lacking: vec![],
        aside: 0,
    };
    let errors = cell(what, "%", |s| s.error);
    let speed = "8 tenants of unequal greed: completions of all";
    let speeds = cell(speed, "/s", |s| s.per_second);
    let median = |cell: &Cell, name| cell.of(name).map_or(f64::NAN, |f| f.median);
    let mut row = Row::absolute(
        what,
        ("Fair", median(&errors, "Fair")),
        "%",
        Goal::AtMost(2.0),
    );
    row.stands_beside(&errors, "SharePolicy::None");
    let beside = |other| {
        Row::of(
            speed,
            ("Fair", median(&speeds, "Fair")),
            (other, median(&speeds, other)),
            "/s",
            Goal::None,
        )
    };
    let rows = vec![row, beside("SharePolicy::None"), beside("a set for each")];
    (vec![errors, speeds], rows)
}

pub(crate) fn iter(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let samples: Vec<_> = (0..plan.rounds)
        .map(|_| iterate(1_000_000 / plan.divisor))
        .collect();
    let middle = |of: fn(&inflight_benches::tags::Visits) -> f64| median(samples.iter().map(of));
    let visit = "visit of 10240 slots while 2 threads complete, per slot";
    let slowed = "round trip of the 2 threads meanwhile, and without visitor";
    let rows = vec![
        Row::absolute(
            visit,
            ("for_each_in_flight", middle(|s| s.ns_per_slot)),
            "ns",
            Goal::None,
        ),
        Row::of(
            slowed,
            ("visited", middle(|s| s.ns_per_round_trip)),
            ("not visited", middle(|s| s.alone)),
            "ns",
            Goal::None,
        ),
    ];
    (vec![], rows)
}

pub(crate) fn freeze(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let idle = median((0..plan.rounds).map(|_| freeze_idle(1_000 / plan.divisor)));
    let (middle, late) = freeze_loaded((1_000 / plan.divisor) as usize);
    let row =
        |what: &str, (name, value), unit| Row::absolute(what, (name, value), unit, Goal::None);
    let loaded = "freeze while 2 threads make round trips";
    let rows = vec![
        row("freeze and thaw, idle", ("TagSet", idle), "ns"),
        row(loaded, ("p50", middle), "us"),
        row(loaded, ("p99", late), "us"),
    ];
    (vec![], rows)
}
