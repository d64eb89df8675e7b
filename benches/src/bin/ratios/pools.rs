//! The loads of pools that run closures.

use crate::cell::{Cell, Figure, Plan};
use crate::report::{Goal, Row};
use inflight_benches::Part;
use inflight_benches::pools::{
    Again, Burst, Memory, PoolContender, PoolLoads, Reusable, Spent, limited, memory_of,
    memory_of_queued, metered, ours, ping_bound, ping_call, rivals, thread_count,
};
use inflight_benches::rounds::{median, quantile, rotate};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::time::Duration;

const WORKERS: usize = 2;

/// The threads whose memory is measured, and the contender of ours that runs no more items.
const MANY: usize = 64;
const MEASURED: &str = "unbound, max_active 64";

/// Ours, in a system that has not learned yet that the function sleeps.
const FIRST_TIME: &str = "unbound, first time";

/// Samples of one contender, and how many CPUs were used meanwhile.
struct Sampled {
    name: &'static str,
    part: Part,
    values: Vec<f64>,
    cpus: Vec<f64>,
}

/// One of those that take turns: its name, its part, and one sample of it.
type Turn<'a> = (&'static str, Part, Box<dyn FnMut() -> (f64, f64) + 'a>);

fn in_turn(mut turns: Vec<Turn<'_>>, rounds: usize) -> Vec<Sampled> {
    for (_, _, sample) in &mut turns {
        sample(); // Threads are made, pages are there.
    }
    let samples = rotate(turns.len(), rounds, |i| turns[i].2());
    let each = turns.iter().zip(samples);
    each.map(|((name, part, _), samples)| {
        let (values, cpus) = samples.into_iter().unzip();
        Sampled {
            name,
            part: *part,
            values,
            cpus,
        }
    })
    .collect()
}

/// The figures, and how many CPUs each one used.
fn cells(load: &str, case: &str, unit: &str, sampled: &[Sampled]) -> [Cell; 2] {
    let cell = |case: String, unit: &str, of: fn(&Sampled) -> &Vec<f64>| Cell {
        load: load.to_owned(),
        case,
        unit: unit.to_owned(),
        results: sampled
            .iter()
            .map(|s| Figure::new(s.name, s.part, of(s)))
            .collect(),
        overlap: None,
    };
    [
        cell(case.to_owned(), unit, |s| &s.values),
        cell(
            format!("{case}: CPUs used")
                .trim_start_matches(": ")
                .to_owned(),
            "CPUs",
            |s| &s.cpus,
        ),
    ]
}

type Made = (PoolContender, Box<dyn PoolLoads>);

/// Each of these that is asked for, with threads.
fn made(wanted: impl Fn(&PoolContender) -> bool) -> Vec<Made> {
    let all = ours().into_iter().chain(rivals());
    let wanted = all.filter(wanted);
    wanted.map(|c| (c, (c.make)(WORKERS))).collect()
}

fn turns<'a>(
    all: &'a [Made],
    sample: impl Fn(&dyn PoolLoads) -> (f64, f64) + Copy + 'a,
) -> Vec<Turn<'a>> {
    let turn = |(contender, pool): &'a Made| -> Turn<'a> {
        let sample = Box::new(move || sample(&**pool));
        (contender.name, contender.part, sample)
    };
    all.iter().map(turn).collect()
}

fn per(n: u64) -> impl Fn(Spent) -> (f64, f64) + Copy {
    move |spent| (spent.wall.as_secs_f64() * 1e9 / n as f64, spent.cpus)
}

fn millis(spent: Spent) -> (f64, f64) {
    (spent.wall.as_secs_f64() * 1e3, spent.cpus)
}

pub(crate) fn spawn(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let n = 40_000 / plan.divisor;
    let all = made(|c| !c.grows);
    let mut reusable = [
        Reusable::new(false, n as usize),
        Reusable::new(true, n as usize),
    ]
    .map(|works| -> Box<dyn FnMut() -> (f64, f64)> { Box::new(move || per(n)(works.run())) });
    let (mut out, mut rows) = (Vec::new(), Vec::new());
    for (case, producers, capture) in [
        ("1 producer, 32 bytes", 1, true),
        ("2 producers, 32 bytes", 2, true),
        ("1 producer, nothing captured", 1, false),
    ] {
        let mut turns = turns(&all, |pool| per(n)(pool.empty(n, producers, capture)));
        if producers == 1 && capture {
            let names = ["reusable", "reusable, ordered"];
            for (name, works) in names.into_iter().zip(&mut reusable) {
                turns.push((name, Part::Variant, Box::new(works)));
            }
        }
        let [times, cpus] = cells("empty items", case, "ns", &in_turn(turns, plan.rounds));
        let one = std::slice::from_ref(&times);
        let mut row = |what: &str, ours, goal| {
            rows.push(Row::worst(what, one, ours, None, Goal::AtMost(goal)));
        };
        match (producers, capture) {
            (1, true) => {
                row("spawn, 1 producer", "unbound", 0.45);
                row("spawn, 1 producer, bound queue", "bound", 0.45);
                row("reusable Work, 1 producer", "reusable", 0.15);
                row("ordered queue, spawn", "ordered", 0.5);
                row("ordered queue, reusable", "reusable, ordered", 0.25);
            }
            (_, true) => row("spawn, 2 producers", "unbound", 0.45),
            _ => row("spawn, nothing captured", "unbound", 1.2),
        }
        out.extend([times, cpus]);
    }
    (out, rows)
}

pub(crate) fn requeue(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let hops = 40_000 / plan.divisor;
    let all = made(|c| !c.grows);
    let (again, repeats) = (Again::queued(), Again::said());
    let mut turns = turns(&all, |pool| per(hops)(pool.chain(hops)));
    let sample = Box::new(|| per(hops)(again.run(hops)));
    turns.push(("reusable", Part::Variant, sample));
    let sample = Box::new(|| per(hops)(repeats.run(hops)));
    turns.push(("says again", Part::Variant, sample));
    let sampled = in_turn(turns, plan.rounds);
    let cells = cells("an item that queues itself, per hop", "", "ns", &sampled);
    let one = &cells[..1];
    let rows = vec![
        Row::worst(
            "self-requeue, spawn",
            one,
            "unbound",
            None,
            Goal::AtMost(0.4),
        ),
        Row::worst(
            "self-requeue, reusable",
            one,
            "reusable",
            None,
            Goal::AtMost(0.4),
        ),
        Row::worst(
            "a work that says again",
            one,
            "says again",
            None,
            Goal::AtMost(0.25),
        ),
    ];
    (cells.into(), rows)
}

pub(crate) fn ping(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let times = 2_000 / plan.divisor as usize;
    let all = made(|c| !c.grows);
    let (bound, call) = (ping_bound(), ping_call());
    let (mut out, mut rows) = (Vec::new(), Vec::new());
    for (case, pause) in [("back to back", 0), ("after 100 us", 100)] {
        let pause = Duration::from_micros(pause);
        // Both quantiles of the same pings.
        let both = |nanos: Vec<u32>| {
            let at = |part| f64::from(quantile(nanos.iter().copied(), part)) / 1e3;
            (at(0.5), at(0.99))
        };
        let mut turns = turns(&all, |pool| both(pool.ping(times, pause)));
        let sample = Box::new(|| both(bound(times, pause)));
        turns.push(("bound pool of my CPU", Part::Variant, sample));
        let sample = Box::new(|| both(call(times, pause)));
        turns.push(("call()", Part::Variant, sample));
        let sampled = in_turn(turns, plan.rounds);
        for (of, name) in [(0, "p50"), (1, "p99")] {
            let mut cell = cells("ping", &format!("{case}, {name}"), "us", &sampled)[0].clone();
            if of == 1 {
                let results = sampled.iter().map(|s| Figure::new(s.name, s.part, &s.cpus));
                cell.results = results.collect();
            }
            let ours = "bound pool of my CPU";
            let what = format!("ping {case}, {name}");
            let one = std::slice::from_ref(&cell);
            rows.push(Row::worst(&what, one, ours, None, Goal::AtMost(1.0)));
            let called = ("call()", cell.of("call()").map_or(f64::NAN, |f| f.median));
            rows.push(Row::absolute(&what, called, "us", Goal::AtMost(0.1)));
            out.push(cell);
        }
    }
    (out, rows)
}

pub(crate) fn fanout(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let all = made(|c| !c.grows);
    let (mut out, mut rows) = (Vec::new(), Vec::new());
    for (n, micros) in [(10_000, 1), (2_000, 10)] {
        let n = n / plan.divisor;
        let cpus = plan.machine.cpus.min(WORKERS) as f64;
        let ideal = (n * micros) as f64 / 1e6 / cpus;
        let turns = turns(&all, |pool| {
            let spent = pool.fan_out(n, Duration::from_micros(micros));
            (spent.wall.as_secs_f64() / ideal, spent.cpus)
        });
        let case = format!("{n} x {micros} us");
        let both = cells("fan-out", &case, "x ideal", &in_turn(turns, plan.rounds));
        let what = format!("fan-out {case}");
        rows.push(Row::worst(
            &what,
            &both[..1],
            "unbound",
            None,
            Goal::AtMost(1.0),
        ));
        out.extend(both);
    }
    (out, rows)
}

/// How long one sleep of 1 ms takes here.
fn one_sleep() -> f64 {
    let sleep = |_| {
        let start = std::time::Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        start.elapsed().as_secs_f64() * 1e3
    };
    median((0..50).map(sleep))
}

pub(crate) fn mixed(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    // The last sleeper is item 504 of 512: its 441 busy predecessors take so long on two CPUs.
    let floor = 441.0 * 0.020 / WORKERS as f64 + one_sleep();
    let says = |name: &str| ["unbound", "tokio spawn"].contains(&name);
    let all = made(|c| c.part != Part::Variant);
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for (contender, pool) in &all {
        let (name, part) = (contender.name, contender.part);
        let silent = Box::new(|| millis(pool.mixed(false).expect("it need not say so")));
        turns.push((name, part, silent));
        if part == Part::Ours {
            // A system of its own each time: it knows no function yet.
            let first = || millis((contender.make)(WORKERS).mixed(false).expect("as above"));
            turns.push((FIRST_TIME, Part::Variant, Box::new(first)));
        }
        if says(name) {
            let said = if part == Part::Ours {
                "unbound, blocking()"
            } else {
                "tokio, block_in_place"
            };
            turns.push((
                said,
                part,
                Box::new(|| millis(pool.mixed(true).expect("it can"))),
            ));
        }
    }
    let sampled = in_turn(turns, plan.rounds);
    let cells = cells("64 x sleep 1 ms with 448 x 20 us", "", "ms", &sampled);
    let of = |name: &str| {
        cells[0]
            .of(name)
            .map_or(f64::NAN, |figure| figure.median / floor)
    };
    let floors = |name: &'static str, goal| {
        let what = format!("mixed load, times its floor of {floor:.2} ms: {name}");
        Row::absolute(&what, (name, of(name)), "x", Goal::AtMost(goal))
    };
    let rows = vec![
        floors("unbound, blocking()", 1.21),
        floors(FIRST_TIME, 1.5),
        floors("unbound", 1.25),
        Row::worst(
            "mixed load, blocking()",
            &cells[..1],
            "unbound, blocking()",
            None,
            Goal::AtMost(1.0),
        ),
        Row::worst(
            "mixed load, nothing said",
            &cells[..1],
            "unbound",
            None,
            Goal::AtMost(1.0),
        ),
    ];
    (cells.into(), rows)
}

/// What a process of its own measures, because threads and memory of others would count.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Alone {
    /// Time in ms, the most threads, threads a second later.
    burst: Option<[f64; 3]>,
    /// Bytes for each queued closure, for each thread.
    memory: Option<[f64; 2]>,
}

/// `what:said or silent:contender`, or a number of active items for `curve`.
pub(crate) fn child(what: &str) -> std::process::ExitCode {
    let mut parts = what.splitn(3, ':');
    let [what, say, name] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let contender = || {
        let mut all = ours().into_iter().chain(rivals());
        all.find(|c| c.name == name).expect("one of the table")
    };
    let alone = if what == "works" {
        Alone {
            burst: None,
            memory: Some([memory_of_queued(200_000), 0.0]),
        }
    } else if what == "memory" {
        let Memory { queued, thread } = memory_of(&contender(), MANY);
        Alone {
            burst: None,
            memory: Some([queued, thread]),
        }
    } else {
        let base = thread_count();
        let pool = match what {
            "curve" => limited(name.parse().expect("a number of active items")),
            _ => (contender().make)(WORKERS),
        };
        let burst = pool.burst(say == "said", base);
        let numbers = |b: Burst| [b.wall.as_secs_f64() * 1e3, b.peak as f64, b.later as f64];
        Alone {
            burst: burst.map(numbers),
            memory: None,
        }
    };
    crate::report::print_json(&alone)
}

fn asked(what: &str, say: bool, name: &str) -> Option<Alone> {
    let said = if say { "said" } else { "silent" };
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["--pool-child", &format!("{what}:{said}:{name}")]);
    let output = command.stderr(Stdio::inherit()).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

pub(crate) fn burst(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let contenders: Vec<_> = ours().into_iter().chain(rivals()).collect();
    let rounds = if plan.quick { 1 } else { 3 };
    let (mut out, mut rows) = (Vec::new(), Vec::new());
    let floor = 1000.0 / 64.0 * one_sleep();
    for say in [true, false] {
        let mut results: [Vec<Figure>; 3] = Default::default();
        for contender in &contenders {
            let samples: Vec<_> = (0..rounds)
                .filter_map(|_| asked("burst", say, contender.name)?.burst)
                .collect();
            if samples.is_empty() {
                continue; // It cannot say so.
            }
            for (i, results) in results.iter_mut().enumerate() {
                let samples: Vec<_> = samples.iter().map(|s| s[i]).collect();
                results.push(Figure::new(contender.name, contender.part, &samples));
            }
        }
        let said = if say { "said" } else { "nothing said" };
        let kinds = [
            ("time", "ms"),
            ("most threads", ""),
            ("threads 1 s later", ""),
        ];
        for ((kind, unit), results) in kinds.into_iter().zip(results) {
            out.push(Cell {
                load: "1,000 x sleep 1 ms".into(),
                case: format!("{said}: {kind}"),
                unit: unit.into(),
                results,
                overlap: None,
            });
        }
        let ours = "unbound, max_active 64";
        let figure = |i: usize| {
            out[out.len() - 3 + i]
                .of(ours)
                .map_or(f64::NAN, |f| f.median)
        };
        let what = format!("burst, 64 active, {said}: times its floor of {floor:.1} ms");
        let goal = Goal::AtMost(1.2);
        rows.push(Row::absolute(&what, (ours, figure(0) / floor), "x", goal));
        let what = format!("burst, {said}: threads 1 s later");
        rows.push(Row::absolute(
            &what,
            (ours, figure(2)),
            "",
            Goal::AtMost(4.0),
        ));
    }
    (out, rows)
}

/// The burst of ours alone: how long it takes, and how many threads, by the number of active items.
pub(crate) fn curve(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let rounds = if plan.quick { 1 } else { 5 };
    let sleep = one_sleep();
    let (mut out, mut rows) = (Vec::new(), Vec::new());
    for max in [4, 8, 16, 32, 64, 128, 256, 512] {
        for (said, text) in [(true, "said"), (false, "nothing said, first time")] {
            let name = max.to_string();
            let samples = (0..rounds).filter_map(|_| asked("curve", said, &name)?.burst);
            let samples: Vec<_> = samples.collect();
            let of = |i: usize| median(samples.iter().map(|s| s[i]));
            let workload = format!("burst, {max} active, {text}");
            let floor = (1000.0 / f64::from(max)).ceil() * sleep;
            let sides = (("took", of(0)), ("floor", floor));
            let mut row = Row::of(&workload, sides.0, sides.1, "ms", Goal::None);
            row.worst_case = format!("{} threads, {} a second later", of(1), of(2));
            rows.push(row);
            let times: Vec<_> = samples.iter().map(|s| s[0]).collect();
            out.push(Cell {
                load: "1,000 x sleep 1 ms".into(),
                case: workload,
                unit: "ms".into(),
                results: vec![Figure::new("unbound", Part::Ours, &times)],
                overlap: None,
            });
        }
    }
    (out, rows)
}

/// What it costs to measure the CPU time of items.
pub(crate) fn meter(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let small = 40_000 / plan.divisor;
    let all = [("unmetered", limited(2048)), ("metered", metered())];
    let (mut out, mut rows) = (Vec::new(), Vec::new());
    for (case, long) in [("empty items", 0), ("items of 10 us", 10)] {
        let n = if long == 0 { small } else { small / 20 };
        let turns = all.iter().map(|(name, pool)| -> Turn<'_> {
            let sample = move || match long {
                0 => per(n)(pool.empty(n, 1, true)),
                _ => per(n)(pool.fan_out(n, Duration::from_micros(long))),
            };
            (name, Part::Ours, Box::new(sample))
        });
        let sampled = in_turn(turns.collect(), plan.rounds * 3);
        let cells = cells("CPU time measured", case, "ns", &sampled);
        let of = |name: &str| cells[0].of(name).map_or(f64::NAN, |figure| figure.median);
        let sides = [("metered", of("metered")), ("unmetered", of("unmetered"))];
        let workload = format!("CPU time of items measured, {case}");
        rows.push(Row::of(&workload, sides[0], sides[1], "ns", Goal::None));
        out.extend(cells);
    }
    (out, rows)
}

pub(crate) fn memory(_: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let contenders = ours().into_iter().chain(rivals());
    // Those that grow take the items to new threads instead of letting them wait.
    let limited = |c: &PoolContender| c.part == Part::Rival || c.name == MEASURED;
    let measured: Vec<_> = contenders
        .filter(|c| !c.grows && c.name != "rusty_pool" && limited(c))
        .filter_map(|c| Some((c, asked("memory", false, c.name)?.memory?)))
        .collect();
    let kinds = ["a queued closure of 32 bytes", "an idle thread"];
    let cell = |i: usize| Cell {
        load: "resident memory".into(),
        case: kinds[i].into(),
        unit: "bytes".into(),
        results: measured
            .iter()
            .map(|(c, bytes)| Figure::new(c.name, c.part, &[bytes[i]]))
            .collect(),
        overlap: None,
    };
    let cells = vec![cell(0), cell(1)];
    let thread = cells[1]
        .of(MEASURED)
        .map_or(f64::NAN, |f| f.median / 1024.0);
    let works = asked("works", false, "").and_then(|alone| alone.memory);
    let rows = vec![
        Row::worst(
            "memory of a queued closure",
            &cells[..1],
            MEASURED,
            None,
            Goal::AtMost(1.0),
        ),
        Row::absolute(
            "memory of a queued Work",
            ("reusable", works.map_or(f64::NAN, |[bytes, _]| bytes)),
            "bytes",
            Goal::AtMost(0.0),
        ),
        Row::absolute(
            "memory of an idle worker",
            (MEASURED, thread),
            "KiB",
            Goal::AtMost(12.0),
        ),
    ];
    (cells, rows)
}

/// Ours alone: no rival takes a queued item back.
pub(crate) fn cancel(plan: &Plan) -> (Vec<Cell>, Vec<Row>) {
    let n = 10_000 / plan.divisor as usize;
    let pending = inflight_benches::pools::Pending::new(n);
    let turns: Vec<Turn<'_>> = vec![
        (
            "cancel",
            Part::Ours,
            Box::new(|| per(n as u64)(pending.cancel())),
        ),
        (
            "flush each",
            Part::Ours,
            Box::new(|| per(n as u64)(pending.flush_each())),
        ),
        (
            "flush the queue",
            Part::Ours,
            Box::new(|| per(n as u64)(pending.flush())),
        ),
    ];
    let sampled = in_turn(turns, plan.rounds);
    let cells = cells("pending works, per work", "", "ns", &sampled);
    let of = |name: &'static str| (name, cells[0].of(name).map_or(f64::NAN, |f| f.median));
    let rows = ["cancel", "flush each", "flush the queue"].map(|name| {
        let what = format!("{n} pending works, per work: {name}");
        Row::absolute(&what, of(name), "ns", Goal::AtMost(1000.0))
    });
    (cells.into(), rows.into())
}
