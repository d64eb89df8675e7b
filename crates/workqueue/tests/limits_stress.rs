//! Limits from 3 to 768 while works are queued and cancelled, freezes come and go and the limit
//! moves: never more run than it lets, and each ran once or was taken back once. A few thousand
//! items of each; `INFLIGHT_STRESS_ITEMS` says how many, `INFLIGHT_STRESS_SEED` with which seed,
//! and `INFLIGHT_STRESS_LIMIT` with which one limit.
#![cfg(not(any(loom, shuttle, miri)))]

mod support;

use inflight_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use inflight_sync::{Arc, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{Attrs, Share, Work, Workqueue, WorkqueueSystem, blocking};
use support::{Inside, Level, watch};

/// Unless `INFLIGHT_STRESS_ITEMS` says otherwise.
const ITEMS: u64 = 4_000;

fn parameter(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

/// What a queue lets through, and what has come of each accepted item. Relaxed, all of these: they
/// are compared when everything has ended.
#[derive(Default)]
struct Counts {
    accepted: AtomicU64,
    ran: AtomicU64,
    cancelled: AtomicU64,
    inside: Inside,
    news: AtomicUsize,
}

impl Counts {
    fn add(&self, count: &AtomicU64, n: u64) {
        count.fetch_add(n, Ordering::Relaxed);
        self.news.fetch_add(1, Ordering::Relaxed);
    }
}

fn of(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// Some end at once, some let another worker run meanwhile.
fn works(counts: &Arc<Counts>, count: usize) -> Vec<Work> {
    let work = |n: usize| {
        let counts = counts.clone();
        Work::new(move || {
            counts.inside.enter();
            if n % 8 == 0 {
                blocking(thread::yield_now);
            }
            counts.inside.leave();
            counts.add(&counts.ran, 1);
        })
    };
    (0..count).map(work).collect()
}

/// As many run at once as the limit lets: each waits for so many.
fn fill(wq: &Workqueue, counts: &Arc<Counts>, limit: usize) {
    let begun = Level::new();
    for n in 0..limit + 50 {
        let (counts, begun) = (counts.clone(), begun.clone());
        let fills = move || {
            counts.inside.enter();
            begun.raise();
            begun.wait(limit);
            counts.inside.leave();
        };
        wq.spawn_on(n % 8, fills).detach();
    }
    wq.flush_blocking().unwrap();
    assert_eq!(counts.inside.most(), limit);
}

/// Queues and cancels until so many have been accepted.
fn submit(wq: &Workqueue, counts: &Counts, works: &[Work], seed: u64, items: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    while of(&counts.accepted) < items {
        let work = &works[rng.usize(..works.len())];
        match rng.u8(..10) {
            0..=6 => {
                let queued = wq.queue_on(rng.usize(..8), work).unwrap().is_queued();
                counts.add(&counts.accepted, u64::from(queued));
            }
            7 => counts.add(&counts.cancelled, u64::from(work.cancel())),
            8 if rng.u8(..8) == 0 => {
                let cancelled = work.cancel_sync_blocking().unwrap();
                counts.add(&counts.cancelled, u64::from(cancelled));
            }
            _ => thread::yield_now(),
        }
    }
}

/// Moves the limit below its largest value, and freezes, until it is over.
fn change(sys: &WorkqueueSystem, wq: &Workqueue, counts: &Counts, limit: usize, items: u64) {
    let mut rng = fastrand::Rng::with_seed(limit as u64);
    while of(&counts.accepted) < items {
        wq.set_max_active(rng.usize(1..=limit)).unwrap();
        if rng.u8(..16) == 0 {
            let frozen = sys.freeze();
            thread::yield_now();
            drop(frozen);
        }
        thread::yield_now();
    }
    wq.set_max_active(limit).unwrap();
}

fn stress(limit: usize, items: u64, seed: u64) {
    let topo = Topology::synthetic("numa:4 core:2").unwrap();
    let sys = WorkqueueSystem::builder().topology(topo).build().unwrap();
    // One count for all nodes: with parts the limit is not exact.
    let wq = sys
        .workqueue("limited")
        .unbound(Attrs::new().scope(Scope::Numa));
    let wq = wq.share(Share::Lend).max_active(limit).freezable();
    let wq = wq.build().unwrap();
    let counts = Arc::new(Counts::default());
    fill(&wq, &counts, limit);
    let before = wq.stats().completed;
    let works = Arc::new(works(&counts, 2 * limit.max(64)));
    let mut threads: Vec<_> = (0..3)
        .map(|n| {
            let (wq, counts, works) = (wq.clone(), counts.clone(), works.clone());
            thread::spawn(move || submit(&wq, &counts, &works, seed + n, items))
        })
        .collect();
    threads.push(thread::spawn({
        let (sys, wq, counts) = (sys.clone(), wq.clone(), counts.clone());
        move || change(&sys, &wq, &counts, limit, items)
    }));
    watch(&counts.news, threads, || sys.dump());
    wq.flush_blocking().unwrap();
    assert_eq!(counts.inside.most(), limit, "never more");
    assert_eq!(
        of(&counts.accepted),
        of(&counts.ran) + of(&counts.cancelled)
    );
    let stats = wq.stats();
    assert_eq!((stats.active, stats.inactive), (0, 0));
    assert_eq!(stats.queued - before, of(&counts.accepted));
    assert_eq!(stats.completed - before, of(&counts.ran));
}

#[test]
fn never_more_run_than_the_limit_lets() {
    let items = parameter("INFLIGHT_STRESS_ITEMS").unwrap_or(ITEMS);
    let seed = parameter("INFLIGHT_STRESS_SEED").unwrap_or(1);
    let only = parameter("INFLIGHT_STRESS_LIMIT").map(|limit| vec![limit as usize]);
    for limit in only.unwrap_or_else(|| vec![3, 8, 64, 768]) {
        // Shown if it fails.
        println!("{items} items, seed {seed}, limit {limit}");
        stress(limit, items, seed);
    }
}

/// Items that a worker has taken, and those that wait with a slot, begin no more once the limit is
/// used up by what runs: otherwise it would be a batch of them. In one pool and in two.
#[test]
fn nothing_begins_beyond_a_limit_that_was_lowered() {
    for round in 0..20 {
        let scope = [Scope::System, Scope::Cpu][round % 2];
        let topology = Topology::synthetic("core:2").unwrap();
        let sys = WorkqueueSystem::builder().topology(topology);
        let sys = sys.build().unwrap();
        let wq = sys.workqueue("lowered").unbound(Attrs::new().scope(scope));
        let wq = wq.max_active(8).build().unwrap();
        // Small items make large batches.
        (0..300).for_each(|_| wq.spawn_on(0, || ()).detach());
        wq.flush_blocking().unwrap();
        let [runs, reached, lowered, ended, beyond] = [(); 5].map(|()| Level::new());
        let long = wq.spawn_on(1, {
            let (runs, ended) = (runs.clone(), ended.clone());
            move || {
                runs.raise();
                ended.wait(1);
            }
        });
        runs.wait(1);
        let items = (0..60).map(|k| {
            let (reached, lowered) = (reached.clone(), lowered.clone());
            let (ended, beyond) = (ended.clone(), beyond.clone());
            wq.spawn_on(0, move || {
                if lowered.get() > 0 && ended.get() == 0 {
                    beyond.raise();
                }
                if k == 5 {
                    reached.raise();
                    lowered.wait_silently(1);
                }
            })
        });
        let items: Vec<_> = items.collect();
        reached.wait(1);
        wq.set_max_active(1).unwrap();
        lowered.raise();
        // A worker that goes on does so at once: this is a chance for it, not a proof.
        (0..200).for_each(|_| thread::yield_now());
        let begun = beyond.get();
        ended.raise();
        long.wait().unwrap();
        items.into_iter().for_each(|item| item.wait().unwrap());
        // Another worker may have begun an item and not have come to its first line.
        assert!(begun <= 2, "{scope:?}: {begun}");
    }
}
