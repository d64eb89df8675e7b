//! What a get and a put cost one thread, in an empty and in a nearly full map.
#![allow(
    missing_docs,
    reason = "criterion_group! makes a public function without any"
)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use inflight_benches::{Count, Ids, MutexVec, RingQueue, check_ids};
use inflight_sbitmap::{Sbitmap, SbitmapQueue};
use std::hint::black_box;

const DEPTHS: [usize; 3] = [64, 256, 1024];

fn contenders(depth: usize) -> [(&'static str, Box<dyn Ids>); 5] {
    let map = Sbitmap::builder(depth);
    let queue = SbitmapQueue::builder(depth);
    [
        ("Sbitmap", Box::new(map.clone().build().expect("valid"))),
        (
            "Sbitmap trusted",
            Box::new(map.trusted(true).build().expect("valid")),
        ),
        ("SbitmapQueue", Box::new(queue.build().expect("valid"))),
        ("ArrayQueue", Box::new(RingQueue::new(depth))),
        ("Mutex<Vec>", Box::new(MutexVec::new(depth))),
    ]
}

fn get_and_put(c: &mut Criterion) {
    for occupancy in [0, 90] {
        let mut group = c.benchmark_group(format!("slots/{occupancy}% taken"));
        for depth in DEPTHS {
            for (name, ids) in contenders(depth) {
                let held = occupancy * depth / 100;
                let taken: Vec<_> = (0..held).map(|_| ids.get().expect("free")).collect();
                group.bench_function(BenchmarkId::new(name, depth), |b| {
                    b.iter(|| {
                        let id = ids.get().expect("some are free");
                        ids.put(black_box(id));
                    });
                });
                taken.into_iter().for_each(|id| ids.put(id));
                check_ids(&*ids, depth);
            }
        }
    }
}

/// A semaphore counts without naming an id: a lower bound, not a rival.
fn count_only(c: &mut Criterion) {
    let mut group = c.benchmark_group("slots/count only");
    for n in [1, 32] {
        let count = Count::new(64);
        group.bench_function(BenchmarkId::new("tokio Semaphore", n), |b| {
            b.iter(|| {
                assert!(count.get_many(black_box(n)));
                count.put_many(n);
            });
        });
        assert_eq!(count.left(), 64);
    }
    for n in [1, 32] {
        let map = Sbitmap::builder(64).build().expect("valid");
        let mut bits = Vec::with_capacity(n);
        group.bench_function(BenchmarkId::new("Sbitmap batch, for comparison", n), |b| {
            b.iter(|| {
                assert_eq!(map.try_get_batch(black_box(n), &mut bits), n);
                map.put_batch(&bits).expect("held");
                bits.clear();
            });
        });
        assert_eq!(map.weight(), 0);
    }
}

criterion_group!(benches, get_and_put, count_only);
criterion_main!(benches);
