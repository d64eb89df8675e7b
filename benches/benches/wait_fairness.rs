//! More threads than ids: how fast ids go round, and how evenly.
//!
//! Each worker waits for an id and passes it to a completer, which gives it back: the shape of an
//! IO engine whose queue is full. Contenders run in turn, several rounds of all of them.

use crossbeam::channel::unbounded;
use inflight_benches::{ChannelList, CondvarList, SemaphoreList, WaitIds};
use inflight_sbitmap::SbitmapQueue;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

type Make = fn(usize) -> Box<dyn WaitIds>;

const CONTENDERS: [(&str, Make); 4] = [
    ("SbitmapQueue", |d| {
        Box::new(SbitmapQueue::builder(d).build().expect("valid"))
    }),
    ("parking_lot Mutex + Condvar", |d| {
        Box::new(CondvarList::new(d))
    }),
    ("tokio Semaphore + ArrayQueue", |d| {
        Box::new(SemaphoreList::new(d))
    }),
    ("crossbeam bounded channel", |d| {
        Box::new(ChannelList::new(d))
    }),
];

/// One run of one contender.
struct Outcome {
    ops_per_second: f64,
    /// Operations of the luckiest thread for each one of the unluckiest.
    spread: f64,
    longest_wait: Duration,
}

fn run(ids: &dyn WaitIds, threads: usize, depth: usize, total: u64) -> Outcome {
    let (done, completions) = unbounded::<usize>();
    let left = AtomicU64::new(total);
    let start = Instant::now();
    let worker = |done: crossbeam::channel::Sender<usize>| {
        let (mut ops, mut longest) = (0_u64, Duration::ZERO);
        let take_one = |n: u64| n.checked_sub(1);
        // Relaxed: only the count matters.
        while left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one)
            .is_ok()
        {
            let before = Instant::now();
            let id = ids.wait();
            longest = longest.max(before.elapsed());
            ops += 1;
            done.send(id).expect("the completer listens");
        }
        (ops, longest)
    };
    let results: Vec<_> = thread::scope(|scope| {
        let worker = &worker;
        let workers: Vec<_> = (0..threads)
            .map(|_| done.clone())
            .map(|done| scope.spawn(move || worker(done)))
            .collect();
        drop(done);
        completions.iter().for_each(|id| ids.give(id));
        workers
            .into_iter()
            .map(|w| w.join().expect("no panic"))
            .collect()
    });
    let elapsed = start.elapsed();
    check(ids, depth);
    let ops = results.iter().map(|&(ops, _)| ops);
    assert_eq!(ops.clone().sum::<u64>(), total);
    let (most, least) = (ops.clone().max().unwrap_or(0), ops.min().unwrap_or(0));
    Outcome {
        ops_per_second: total as f64 / elapsed.as_secs_f64(),
        spread: most as f64 / least.max(1) as f64,
        longest_wait: results
            .iter()
            .map(|&(_, wait)| wait)
            .max()
            .unwrap_or_default(),
    }
}

/// Every id is there, once.
fn check(ids: &dyn WaitIds, depth: usize) {
    let mut all: Vec<_> = (0..depth).map(|_| ids.wait()).collect();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..depth), "ids were lost or doubled");
    all.into_iter().for_each(|id| ids.give(id));
}

fn median<T: PartialOrd + Copy>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<_> = values.collect();
    values.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    values[values.len() / 2]
}

fn main() {
    let test =
        std::env::args().all(|arg| arg != "--bench") || std::env::args().any(|arg| arg == "--test");
    let (rounds, total) = if test { (1, 2_000) } else { (7, 200_000) };
    println!("{rounds} rounds of {total} operations; medians, and the worst wait of all rounds");
    for (threads, depth) in [(8, 2), (32, 8), (64, 32)] {
        let mut outcomes: Vec<Vec<Outcome>> = CONTENDERS.iter().map(|_| Vec::new()).collect();
        for _ in 0..rounds {
            for (i, (_, make)) in CONTENDERS.iter().enumerate() {
                outcomes[i].push(run(&*make(depth), threads, depth, total));
            }
        }
        println!("\n{threads} threads, {depth} ids");
        println!(
            "{:30} {:>10} {:>10} {:>14} {:>14}",
            "", "kops/s", "max/min", "longest wait", "worst"
        );
        for ((name, _), outcomes) in CONTENDERS.iter().zip(&outcomes) {
            let worst = outcomes
                .iter()
                .map(|o| o.longest_wait)
                .max()
                .unwrap_or_default();
            println!(
                "{name:30} {:10.0} {:10.2} {:>14.1?} {:>14.1?}",
                median(outcomes.iter().map(|o| o.ops_per_second)) / 1e3,
                median(outcomes.iter().map(|o| o.spread)),
                median(outcomes.iter().map(|o| o.longest_wait)),
                worst,
            );
        }
    }
}
