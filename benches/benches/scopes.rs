//! Scopes and limits on this machine's cores: one pinned submitter for each CPU.
//!
//! Criterion's time is that of one item of one submitter while all submit at once. A further line
//! says how many items all of them got through in a second, and how long the queueing call took.

#![allow(missing_docs, reason = "criterion_group makes a public function")]

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use inflight_benches::machine::Machine;
use inflight_benches::pools::DEFAULT_MAX_ACTIVE;
use inflight_benches::scopes::{BURSTS, Load, Own, Rayon, TURNS, Target, Tokio, run};
use inflight_topology::Scope;

/// Each submitter's, for the line of percentiles.
const ITEMS: u64 = 50_000;

fn one(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    target: &dyn Target,
    load: Load,
    submitters: usize,
) {
    let mut ran = false;
    group.bench_function(name, |b| {
        ran = true;
        b.iter_custom(|items| run(target, load, submitters, items).wall);
    });
    if ran && !std::env::args().any(|arg| arg == "--test") {
        let run = run(target, load, submitters, ITEMS);
        println!(
            "{name}: {:.0} items/s, queueing p50 {} ns, p90 {} ns, p95 {} ns",
            run.rate(),
            run.percentile(50),
            run.percentile(90),
            run.percentile(95)
        );
    }
}

fn scopes(c: &mut Criterion) {
    let machine = Machine::prepare();
    println!("{machine}");
    let cpus = machine.cpus;
    let mut group = c.benchmark_group("scopes");
    for scope in Scope::ALL {
        let own = Own::of_scope(scope, DEFAULT_MAX_ACTIVE);
        one(&mut group, scope.name(), &own, TURNS, cpus);
    }
    one(&mut group, "rayon", &Rayon::new(cpus), TURNS, cpus);
    one(&mut group, "tokio", &Tokio::new(cpus, None), TURNS, cpus);
}

fn limits(c: &mut Criterion) {
    let cpus = Machine::prepare().cpus;
    for limit in [1, 8, 64] {
        let mut group = c.benchmark_group(format!("max_active {limit}"));
        for submitters in 1..=cpus {
            let own = Own::of_scope(Scope::System, limit);
            let name = format!("ours/{submitters}");
            one(&mut group, &name, &own, BURSTS, submitters);
            let name = format!("rayon, {limit} threads/{submitters}");
            one(&mut group, &name, &Rayon::new(limit), BURSTS, submitters);
            let name = format!("tokio, semaphore/{submitters}");
            let tokio = Tokio::new(cpus, Some(limit));
            one(&mut group, &name, &tokio, BURSTS, submitters);
        }
    }
}

criterion_group!(benches, scopes, limits);
criterion_main!(benches);
