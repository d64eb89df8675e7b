//! What ids cost when two threads, each pinned to a CPU of its own, want them at once.
#![allow(
    missing_docs,
    reason = "criterion_group! makes a public function without any"
)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use inflight_benches::machine::Machine;
use inflight_benches::{Completer, Contender, Loads, Part, Together, ours, rivals_together};
use std::time::Duration;

/// Measures a load on every contender, and tells how much of the time both threads ran.
fn group(
    c: &mut Criterion,
    name: &str,
    cases: &[(usize, usize)],
    load: impl Fn(&dyn Loads, u64) -> Together,
) {
    let contenders: Vec<Contender<dyn Loads>> =
        ours().into_iter().chain(rivals_together()).collect();
    let mut group = c.benchmark_group(name);
    for &(depth, percent) in cases {
        for contender in &contenders {
            let ids = (contender.make)(depth);
            let held = ids.occupy(depth, percent);
            let mut share = f64::INFINITY;
            let id = BenchmarkId::new(contender.name, format!("{depth}, {percent}% taken"));
            group.bench_function(id, |b| {
                b.iter_custom(|n| {
                    let together = load(&*ids, n);
                    share = share.min(together.share);
                    Duration::from_secs_f64(together.ns * n as f64 / 1e9)
                });
            });
            ids.release(&held);
            if contender.part != Part::Apart {
                ids.check(depth);
            }
            println!("both threads ran at least {share:.3} of the time");
        }
    }
}

fn two(c: &mut Criterion) {
    if Machine::prepare().cpus < 2 {
        println!("skipped: two threads need two CPUs");
        return;
    }
    let cases = [
        (64, 0),
        (256, 0),
        (1024, 0),
        (10_240, 0),
        (64, 95),
        (1024, 95),
    ];
    group(c, "slots_contended/own pairs", &cases, |ids, n| {
        ids.two_pairs(n)
    });
    let ring = |ids: &dyn Loads, n| ids.ring(n, Completer::Single);
    let cases = [(64, 0), (256, 0), (1024, 0)];
    group(c, "slots_contended/freed by the other", &cases, ring);
    let ring = |ids: &dyn Loads, n| ids.ring(n, Completer::Batch);
    group(c, "slots_contended/freed in batches", &cases, ring);
}

/// Bursts that together pass the depth; the time is per id.
fn demand(c: &mut Criterion) {
    if Machine::prepare().cpus >= 2 {
        let bursts = |ids: &dyn Loads, n: u64| ids.demand(40, n.div_ceil(20));
        group(c, "slots_contended/demand past depth", &[(64, 0)], bursts);
    }
}

criterion_group!(benches, two, demand);
criterion_main!(benches);
