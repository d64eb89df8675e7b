//! All of it at once, seeded: works and delayed works through queues of every kind, cancelled,
//! disabled, moved, panicking, sleeping silently, while limits change and threads are refused.
#![cfg(all(unix, not(any(loom, shuttle))))]

mod support;

use inflight_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use inflight_sync::fault::Faults;
use inflight_sync::{Arc, thread};
use inflight_workqueue::{
    Attrs, DelayedWork, Modified, Queued, Workqueue, WorkqueueSystem, blocking,
};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::time::Duration;
use support::four_cpus;

const STEPS: u64 = 6_000;
const WORKS: usize = 60;

/// Small, and the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// What the items did and what was done to them.
#[derive(Default)]
struct Tally {
    runs: AtomicU64,
    panics: AtomicU64,
    overlaps: AtomicU64,
    accepted: AtomicU64,
    cancelled: AtomicU64,
}

fn add(count: &AtomicU64) -> u64 {
    // Relaxed: counts, looked at when all has ended.
    count.fetch_add(1, Ordering::Relaxed)
}

/// One in so many runs panics, sleeps without saying so, or blocks.
fn work(tally: &Arc<Tally>, name: usize) -> DelayedWork {
    let (tally, inside) = (tally.clone(), AtomicBool::new(false));
    DelayedWork::named(format!("work {name}"), move || {
        // Relaxed: the workqueue orders the runs, and this is to notice if it does not.
        if inside.swap(true, Ordering::Relaxed) {
            add(&tally.overlaps);
        }
        let run = add(&tally.runs);
        if run % 97 == 0 {
            let (mut end, _other) = UnixStream::pair().unwrap();
            end.set_read_timeout(Some(Duration::from_millis(1)))
                .unwrap();
            let _ = end.read(&mut [0]);
        } else if run % 13 == 0 {
            blocking(thread::yield_now);
        }
        inside.store(false, Ordering::Relaxed);
        if run % 31 == 0 {
            add(&tally.panics);
            resume_unwind(Box::new("on purpose"));
        }
    })
}

fn queues(sys: &WorkqueueSystem) -> Vec<Workqueue> {
    let builders = [
        sys.workqueue("bound").bound().max_active(3),
        sys.workqueue("unbound").unbound(Attrs::new()).max_active(5),
        sys.workqueue("ordered").ordered(Attrs::new()),
        sys.workqueue("highpri").bound().highpri(),
        sys.workqueue("reclaim").bound().mem_reclaim(),
        sys.workqueue("intensive")
            .bound()
            .cpu_intensive()
            .max_active(2),
    ];
    builders
        .into_iter()
        .map(|builder| builder.build().unwrap())
        .collect()
}

/// One thread's part: random calls, each of whose answers is counted.
fn drive(seed: u64, works: &[DelayedWork], queues: &[Workqueue], tally: &Tally, faults: &Faults) {
    let mut random = Random(seed);
    for _ in 0..STEPS {
        let work = &works[usize::try_from(random.below(WORKS as u64)).unwrap()];
        let wq = &queues[usize::try_from(random.below(queues.len() as u64)).unwrap()];
        let cpu = usize::try_from(random.below(4)).unwrap();
        let delay = Duration::from_micros(random.below(3) * random.below(500));
        match random.below(40) {
            0..=24 => {
                // A refusal for want of threads is an answer, too.
                if wq.queue_delayed_on(cpu, work, delay) == Ok(Queued::Queued) {
                    add(&tally.accepted);
                }
            }
            25..=29 => {
                if wq.mod_delayed_on(cpu, work, delay) == Ok(Modified::Queued) {
                    add(&tally.accepted);
                }
            }
            30..=32 if work.cancel() => drop(add(&tally.cancelled)),
            33 if work.cancel_sync().unwrap() => drop(add(&tally.cancelled)),
            34 => {
                if work.disable().unwrap() {
                    add(&tally.cancelled);
                }
                work.enable().unwrap();
            }
            // Ordered queues refuse.
            35 => drop(wq.set_max_active(1 + cpu)),
            36 => faults.fail_next_spawns(cpu + 1),
            37 => drop(work.flush()),
            _ => thread::yield_now(),
        }
    }
}

/// Each accepted item ran once or was taken back once, no work ran twice at once, and nothing hung.
#[test]
fn nothing_is_lost_or_doubled() {
    for seed in [3_u64, 0x9e37_79b9_7f4a_7c15] {
        let faults = Faults::new();
        let builder = WorkqueueSystem::builder()
            .topology(four_cpus())
            .faults(&faults);
        let sys = builder
            .idle_timeout(Duration::from_millis(1))
            .build()
            .unwrap();
        let (tally, queues) = (Arc::new(Tally::default()), Arc::new(queues(&sys)));
        let works: Arc<Vec<_>> = Arc::new((0..WORKS).map(|n| work(&tally, n)).collect());
        let drivers: Vec<_> = (1..=3)
            .map(|n| {
                let (works, queues) = (works.clone(), queues.clone());
                let (tally, faults) = (tally.clone(), faults.clone());
                thread::spawn(move || drive(seed.wrapping_mul(n), &works, &queues, &tally, &faults))
            })
            .collect();
        drivers
            .into_iter()
            .for_each(|driver| driver.join().unwrap());
        faults.fail_next_spawns(0);
        for work in works.iter() {
            if work.cancel_sync().unwrap() {
                add(&tally.cancelled);
            }
        }
        queues.iter().for_each(|wq| wq.flush().unwrap());
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!(of(&tally.overlaps), 0);
        assert_eq!(of(&tally.accepted), of(&tally.runs) + of(&tally.cancelled));
        let sum = |f: fn(&inflight_workqueue::WorkqueueStats) -> u64| {
            queues.iter().map(|wq| f(&wq.stats())).sum::<u64>()
        };
        assert_eq!(sum(|s| s.completed), of(&tally.runs));
        assert_eq!(sum(|s| s.panicked), of(&tally.panics));
        assert_eq!(sum(|s| s.queued), sum(|s| s.completed + s.cancelled));
        drop(sys);
    }
}
