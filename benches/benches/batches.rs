//! What several ids at once cost; the time is of the whole batch.
#![allow(
    missing_docs,
    reason = "criterion_group! makes a public function without any"
)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use inflight_benches::batchers;

fn batches(c: &mut Criterion) {
    let mut group = c.benchmark_group("batches");
    for n in [8, 32] {
        group.throughput(Throughput::Elements(n as u64));
        for contender in batchers() {
            let ids = (contender.make)(1024);
            group.bench_function(BenchmarkId::new(contender.name, n), |b| {
                b.iter_custom(|times| ids.batches(n, times));
            });
        }
    }
}

criterion_group!(benches, batches);
criterion_main!(benches);
