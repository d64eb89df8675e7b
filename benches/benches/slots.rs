//! What a get and a put cost one thread, in an empty and in a nearly full map.
#![allow(
    missing_docs,
    reason = "criterion_group! makes a public function without any"
)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use inflight_benches::{Contender, Loads, ours, rivals};

const DEPTHS: [usize; 4] = [64, 256, 1024, 10_240];
const PERCENTS: [usize; 4] = [0, 50, 90, 99];

/// All but the one that allocates nothing.
fn contenders() -> impl Iterator<Item = Contender<dyn Loads>> {
    let all = ours().into_iter().chain(rivals());
    all.filter(|contender| contender.name != "nothing")
}

/// Measures a load on every contender, depth and occupancy.
fn group(
    c: &mut Criterion,
    name: &str,
    percents: &[usize],
    load: impl Fn(&dyn Loads, &mut [usize], u64) -> std::time::Duration,
) {
    for percent in percents {
        let mut group = c.benchmark_group(format!("{name}/{percent}% taken"));
        for depth in DEPTHS {
            for contender in contenders() {
                let ids = (contender.make)(depth);
                let mut held = ids.occupy(depth, *percent);
                group.bench_function(BenchmarkId::new(contender.name, depth), |b| {
                    b.iter_custom(|n| load(&*ids, &mut held, n));
                });
                ids.release(&held);
                ids.check(depth);
            }
        }
    }
}

/// A get and a put of the same id.
fn pairs(c: &mut Criterion) {
    group(c, "slots/pair", &PERCENTS, |ids, _, n| ids.pairs(n));
}

/// A put of any id held, and a get.
fn churn(c: &mut Criterion) {
    let churn = |ids: &dyn Loads, held: &mut [usize], n| ids.churn(held, n);
    group(c, "slots/churn", &PERCENTS[1..], churn);
}

criterion_group!(benches, pairs, churn);
criterion_main!(benches);
