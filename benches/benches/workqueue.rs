//! The loads of pools that run closures: ours and the rivals'.
//!
//! `xtask ratios --only workqueue` compares them, round by round and by the distance of the CPUs.

#![allow(missing_docs, reason = "criterion_group makes a public function")]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use inflight_benches::machine::Machine;
use inflight_benches::pools::{
    Again, Bystander, Kind, Pending, Queues, Reusable, flush_latency, growing_rivals, ours, rivals,
    thread_count,
};
use std::time::Duration;

const ITEMS: u64 = 5_000;

fn run<T>(c: &mut Criterion, load: &str, contender: &str, mut sample: impl FnMut() -> T) {
    c.bench_function(&format!("{load}/{contender}"), |b| {
        b.iter_batched(|| (), |()| sample(), BatchSize::PerIteration);
    });
}

/// Each load verifies that each item ran once.
fn pools(c: &mut Criterion) {
    println!("{}", Machine::prepare());
    for contender in ours().into_iter().chain(rivals()) {
        let pool = (contender.make)(2);
        let name = contender.name;
        run(c, "spawn", name, || pool.spawn(ITEMS, true));
        run(c, "empty", name, || pool.spawn(ITEMS, false));
        run(c, "2 producers", name, || pool.two_producers(ITEMS));
        run(c, "spawn and wait", name, || pool.spawn_and_wait(ITEMS));
        run(c, "32 at a time", name, || pool.windows(ITEMS, 32));
        run(c, "chain", name, || pool.chain(ITEMS));
        run(c, "fan-out", name, || {
            pool.fan_out(200, Duration::from_micros(10));
        });
        run(c, "ping", name, || {
            pool.ping(20, Duration::from_micros(10));
        });
        run(c, "mixed", name, || {
            pool.mixed(false).expect("it need not say so");
        });
    }
    for contender in ours().into_iter().chain(growing_rivals()) {
        let pool = (contender.make)(2);
        run(c, "burst", contender.name, || {
            let burst = pool.burst(100, false, thread_count());
            assert!(burst.is_some(), "it need not say so");
        });
    }
}

/// What only ours has.
fn works(c: &mut Criterion) {
    for (name, kind) in [("unbound", Kind::Unbound), ("ordered", Kind::Ordered)] {
        let works = Reusable::new(kind, ITEMS);
        run(c, "reusable", name, || works.run(1));
    }
    let (queued, said) = (Again::queued(), Again::said());
    run(c, "again", "requeues itself", || queued.run(ITEMS));
    run(c, "again", "says again", || said.run(ITEMS));
    let disturbed = Bystander {
        flushes: true,
        traces: true,
        dumps: true,
    };
    for (name, bystander) in [("4 x 2", None), ("4 x 2, disturbed", Some(disturbed))] {
        let queues = Queues::new(4, bystander);
        run(c, "queues", name, || queues.run(4 * ITEMS));
    }
    let pending = Pending::new(ITEMS);
    run(c, "pending", "cancel", || pending.cancel());
    let apart = Pending::apart(ITEMS / 10);
    run(c, "pending", "cancel, a queue each", || apart.cancel());
    run(c, "pending", "flush each", || pending.flush_each());
    run(c, "pending", "flush", || pending.flush());
    let latency = flush_latency();
    run(c, "flush", "while another queue streams", || {
        drop(latency(20))
    });
}

criterion_group!(benches, pools, works);
criterion_main!(benches);
