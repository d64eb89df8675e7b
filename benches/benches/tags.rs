//! Requests in flight: pairs and round trips of tokens beside what one would write without a tag
//! set; shares, visits and freezes.
//!
//! `xtask ratios --only token`, `tenants`, `iter` and `freeze` compare them in turns.

#![allow(missing_docs, reason = "criterion_group makes a public function")]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use inflight_benches::tags::{freeze_idle, freeze_loaded, iterate, ours, rivals, share_error};
use inflight_tags::SharePolicy;

fn tokens(c: &mut Criterion) {
    for contender in ours().into_iter().chain(rivals()) {
        for depth in [64, 1024] {
            let all = (contender.make)(depth);
            assert!(!all.is_fooled(), "{}", contender.name);
            let mut load = |name: &str, run: &dyn Fn(u64) -> std::time::Duration| {
                let mut group = c.benchmark_group(format!("tags/{name}"));
                group.bench_function(BenchmarkId::new(contender.name, depth), |b| {
                    b.iter_custom(run);
                });
            };
            load("pair", &|n| all.pairs(n));
            load("round trip", &|n| all.round_trips(n));
        }
    }
}

fn sets(c: &mut Criterion) {
    let mut group = c.benchmark_group("tags");
    group.sample_size(10);
    group.bench_function("tenants", |b| {
        b.iter(|| share_error(Some(SharePolicy::default()), 5_000));
    });
    group.bench_function("visits", |b| b.iter(|| iterate(5_000)));
    group.bench_function("freeze, idle", |b| b.iter(|| freeze_idle(1)));
    group.bench_function("freeze, loaded", |b| b.iter(|| freeze_loaded(5)));
}

criterion_group!(benches, tokens, sets);
criterion_main!(benches);
