//! Empty items, self-requeueing, fan-out and a load of sleepers: ours and the rivals' pools.
//!
//! `xtask ratios --only spawn` and its other parts compare more, process by process.

#![allow(missing_docs, reason = "criterion_group makes a public function")]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use inflight_benches::machine::Machine;
use inflight_benches::pools::{Again, Reusable, ours, rivals};
use std::time::Duration;

const ITEMS: u64 = 5_000;

fn pools(c: &mut Criterion) {
    println!("{}", Machine::prepare());
    let all = ours().into_iter().chain(rivals()).filter(|c| !c.grows);
    for contender in all {
        let pool = (contender.make)(2);
        let mut load = |name: &str, run: &dyn Fn()| {
            let id = format!("{name}/{}", contender.name);
            c.bench_function(&id, |b| {
                b.iter_batched(|| (), |()| run(), BatchSize::PerIteration)
            });
        };
        load("empty", &|| {
            pool.empty(ITEMS, 1, true);
        });
        load("chain", &|| {
            pool.chain(ITEMS);
        });
        load("fan-out", &|| {
            pool.fan_out(200, Duration::from_micros(10));
        });
        load("mixed", &|| {
            pool.mixed(false).expect("it need not say so");
        });
    }
    let (reusable, again) = (Reusable::new(false, ITEMS as usize), Again::queued());
    c.bench_function("empty/reusable", |b| b.iter(|| reusable.run()));
    c.bench_function("chain/reusable", |b| b.iter(|| again.run(ITEMS)));
    let repeats = Again::said();
    c.bench_function("chain/says again", |b| b.iter(|| repeats.run(ITEMS)));
}

criterion_group!(benches, pools);
criterion_main!(benches);
