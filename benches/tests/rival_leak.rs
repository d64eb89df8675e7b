//! Batches of neighbours under contention: what the `sbitmap` crate loses, and ours does not.
//!
//! That crate's batch get sets all bits of a range at once. If another thread had just taken one
//! of them it looks elsewhere, but leaves the others set: nobody owns them.

use inflight_benches::every_queue;
use inflight_sbitmap::Sbitmap;
use std::sync::Barrier;
use std::thread;

/// Rounds of two threads, each of many batches.
const ROUNDS: usize = 200;
/// The rival leaks in the first of these, if both threads run at once. On a busy machine they may
/// not for long.
const RIVAL_ROUNDS: usize = 100_000;
const BATCHES: usize = 500;

/// Two threads take and give back batches of 1 to 6 at the same time.
fn storm(batch: impl Fn(usize, usize) + Sync) {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        for me in 0..2 {
            let (start, batch) = (&start, &batch);
            scope.spawn(move || {
                start.wait();
                (0..BATCHES).for_each(|i| batch(me, 1 + (i + 3 * me) % 6));
            });
        }
    });
}

#[test]
fn the_rival_leaks() {
    if thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
        println!("skipped: it leaks where two threads run at once, and there is one CPU");
        return;
    }
    let map = sbitmap::Sbitmap::new(64, Some(6), false);
    let leaked = (0..RIVAL_ROUNDS).any(|_| {
        storm(|_, n| {
            let hint = &mut 0;
            // When the leak has eaten the map there is nothing to be had.
            if let Some(first) = map.get_batch(n, hint) {
                map.put_batch(first, n, hint);
            }
        });
        map.weight() > 0
    });
    assert!(leaked, "it no longer leaks: say so in docs/benchmarks.md");
}

#[test]
fn masks_of_ours_never_leak() {
    let map = Sbitmap::builder(64).shift(6).build().unwrap();
    for _ in 0..ROUNDS {
        storm(|_, n| {
            // None if the free neighbours are too few just now.
            if let Some(bits) = map.try_get_mask(n) {
                map.put_mask(bits).unwrap();
            }
        });
        assert_eq!(map.weight(), 0, "given back by all, and still taken");
    }
    // The whole word can be had at once: no bit is lost.
    assert_eq!(map.try_get_mask(64).map(|bits| bits.count()), Some(64));
}

#[test]
fn batches_of_ours_never_leak() {
    for (name, queue) in every_queue(64) {
        for _ in 0..ROUNDS {
            storm(|_, n| {
                let mut bits = Vec::with_capacity(n);
                let got = queue.try_get_batch(n, &mut bits);
                assert_eq!(got, n, "{name}: 12 of 64 are in use at most");
                queue.put_batch(&bits).unwrap();
            });
            assert_eq!(
                queue.weight(),
                0,
                "{name}: given back by all, and still taken"
            );
        }
        let mut bits = Vec::new();
        assert_eq!(queue.try_get_batch(64, &mut bits), 64);
        bits.sort_unstable();
        assert!(bits.into_iter().eq(0..64));
    }
}
