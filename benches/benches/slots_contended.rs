//! What a get and a put cost when two threads do it at once.
#![allow(
    missing_docs,
    reason = "criterion_group! makes a public function without any"
)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use inflight_benches::{Ids, MutexVec, RingQueue, check_ids};
use inflight_sbitmap::{Sbitmap, SbitmapQueue};
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 2;

fn contenders(depth: usize) -> [(&'static str, Box<dyn Ids>); 4] {
    let queue = SbitmapQueue::builder(depth).build().expect("valid");
    [
        (
            "Sbitmap",
            Box::new(Sbitmap::builder(depth).build().expect("valid")),
        ),
        ("SbitmapQueue", Box::new(queue)),
        ("ArrayQueue", Box::new(RingQueue::new(depth))),
        ("Mutex<Vec>", Box::new(MutexVec::new(depth))),
    ]
}

/// All threads start together; the time of the slowest counts.
fn run(ids: &dyn Ids, pairs: u64) -> Duration {
    let barrier = Barrier::new(THREADS);
    let worker = || {
        barrier.wait();
        let start = Instant::now();
        for _ in 0..pairs {
            let id = ids.get().expect("more ids than threads");
            ids.put(black_box(id));
        }
        start.elapsed()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        let times = threads.into_iter().map(|t| t.join().expect("no panic"));
        times.max().expect("at least one thread")
    })
}

fn contended(c: &mut Criterion) {
    let mut group = c.benchmark_group("slots_contended/2 threads");
    for depth in [8, 64, 1024] {
        for (name, ids) in contenders(depth) {
            group.bench_function(BenchmarkId::new(name, depth), |b| {
                b.iter_custom(|pairs| run(&*ids, pairs));
            });
            check_ids(&*ids, depth);
        }
    }
}

criterion_group!(benches, contended);
criterion_main!(benches);
