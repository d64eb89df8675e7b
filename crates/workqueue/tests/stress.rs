//! All of it at once, seeded: works and delayed works through queues of every kind, cancelled,
//! disabled, moved, panicking, sleeping silently, while limits change and threads are refused; and
//! items that sleep until a later one wakes them.
//!
//! `ci/workqueue-stress.sh` runs it for longer, by two variables of the environment.
#![cfg(all(unix, not(any(loom, shuttle))))]

mod support;

use inflight_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use inflight_sync::fault::Faults;
use inflight_sync::{Arc, thread};
use inflight_workqueue::{
    Attrs, DelayedWork, JoinError, JoinHandle, Modified, Queued, Workqueue, WorkqueueStats,
    WorkqueueSystem, blocking,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::time::Duration;
use support::{builder, until};

/// How many items are accepted at least with each seed, unless `INFLIGHT_STRESS_ITEMS` says
/// otherwise.
const ITEMS: u64 = 4_000;
/// Unless `INFLIGHT_STRESS_SEED` names one.
const SEEDS: [u64; 4] = [0x9e37_79b9_7f4a_7c15, 11, 3_333, 44_444];
const WORKS: usize = 60;

fn parameter(name: &str) -> Option<u64> {
    let given = std::env::var(name).ok();
    given.map(|text| text.parse().expect("a number"))
}

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

/// What one work did and what was done to it.
#[derive(Default)]
struct Counts {
    runs: AtomicU64,
    panics: AtomicU64,
    overlaps: AtomicU64,
    accepted: AtomicU64,
    cancelled: AtomicU64,
}

/// Relaxed: counts, looked at when all has ended.
fn add(count: &AtomicU64) -> u64 {
    count.fetch_add(1, Ordering::Relaxed)
}

fn of(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// A work, and its account.
struct Subject {
    work: DelayedWork,
    counts: Arc<Counts>,
}

impl Subject {
    /// One in so many runs panics, sleeps without saying so, or blocks.
    fn new(number: u64) -> Self {
        let (counts, inside) = (Arc::new(Counts::default()), AtomicBool::new(false));
        let work = DelayedWork::named(format!("work {number}"), {
            let counts = counts.clone();
            move || {
                // Relaxed: the workqueue orders the runs, and this is to notice if it does not.
                if inside.swap(true, Ordering::Relaxed) {
                    add(&counts.overlaps);
                }
                let run = number + add(&counts.runs);
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
                    add(&counts.panics);
                    resume_unwind(Box::new("on purpose"));
                }
            }
        });
        Self { work, counts }
    }

    /// Each accepted queueing ran once or was taken back once, and no two runs overlapped.
    fn check(&self) {
        let (counts, name) = (&self.counts, self.work.name());
        assert_eq!(of(&counts.overlaps), 0, "{name} ran twice at once");
        let ended = of(&counts.runs) + of(&counts.cancelled);
        assert_eq!(of(&counts.accepted), ended, "{name}");
    }
}

fn queues(sys: &WorkqueueSystem) -> Vec<Workqueue> {
    let builders = [
        sys.workqueue("bound").bound().max_active(3),
        sys.workqueue("unbound").unbound(Attrs::new()).max_active(5),
        sys.workqueue("ordered").ordered(),
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

/// An item that sleeps, without saying so, until a later item of the same bound pool lets it go.
fn sleeper(wq: &Workqueue, cpu: usize) -> JoinHandle<bool> {
    let (mut sleeps, mut wakes) = UnixStream::pair().unwrap();
    let handle = wq.spawn_on(cpu, move || sleeps.read_exact(&mut [0]).is_ok());
    drop(wq.spawn_on(cpu, move || wakes.write_all(&[1]).unwrap()));
    handle
}

/// What all drivers share.
struct Rig {
    subjects: Vec<Subject>,
    queues: Vec<Workqueue>,
    /// For sleepers: nothing takes a slot of it from the item that wakes.
    free: Workqueue,
    faults: Faults,
    accepted: AtomicU64,
}

impl Rig {
    fn accept(&self, counts: &Counts) {
        add(&counts.accepted);
        add(&self.accepted);
    }

    /// One thread's part: random calls, each of whose answers is counted.
    fn drive(&self, seed: u64, items: u64) {
        let mut random = Random(seed);
        while of(&self.accepted) < items {
            self.step(&mut random);
        }
    }

    fn step(&self, random: &mut Random) {
        let pick = |n: u64| usize::try_from(n).unwrap();
        let Subject { work, counts } = &self.subjects[pick(random.below(WORKS as u64))];
        let wq = &self.queues[pick(random.below(self.queues.len() as u64))];
        let cpu = pick(random.below(4));
        let delay = Duration::from_micros(random.below(3) * random.below(500));
        match random.below(400) {
            0..250 => {
                // A refusal for want of threads is an answer, too.
                if wq.queue_delayed_on(cpu, work, delay) == Ok(Queued::Queued) {
                    self.accept(counts);
                }
            }
            250..300 => {
                if wq.mod_delayed_on(cpu, work, delay) == Ok(Modified::Queued) {
                    self.accept(counts);
                }
            }
            300..330 if work.cancel() => drop(add(&counts.cancelled)),
            330..340 if work.cancel_sync_blocking().unwrap() => drop(add(&counts.cancelled)),
            340..350 => {
                if work.disable().unwrap() {
                    add(&counts.cancelled);
                }
                work.enable().unwrap();
            }
            // Ordered queues refuse.
            350..360 => drop(wq.set_max_active(1 + cpu)),
            360..370 => self.faults.fail_next_spawns(cpu + 1),
            370..380 => drop(work.flush_blocking()),
            380 => match sleeper(&self.free, cpu).wait() {
                Ok(woken) => assert!(woken, "the later item has not run"),
                // The pool's first worker was refused.
                Err(refused) => assert!(matches!(refused, JoinError::Rejected(_)), "{refused}"),
            },
            _ => thread::yield_now(),
        }
    }

    /// All has ended, and all adds up.
    fn finish(&self) {
        self.faults.fail_next_spawns(0);
        for Subject { work, counts } in &self.subjects {
            if work.cancel_sync_blocking().unwrap() {
                add(&counts.cancelled);
            }
        }
        self.queues
            .iter()
            .for_each(|wq| wq.flush_blocking().unwrap());
        self.free.flush_blocking().unwrap();
        self.subjects.iter().for_each(Subject::check);
        let sum = |f: fn(&Counts) -> &AtomicU64| {
            let all = self.subjects.iter().map(|s| of(f(&s.counts)));
            all.sum::<u64>()
        };
        let stats = |f: fn(&WorkqueueStats) -> u64| {
            let all = self.queues.iter().map(|wq| f(&wq.stats()));
            all.sum::<u64>()
        };
        // I.30: no count has been lost.
        assert_eq!(stats(|s| s.completed), sum(|t| &t.runs));
        assert_eq!(stats(|s| s.started), sum(|t| &t.runs));
        assert_eq!(stats(|s| s.panicked), sum(|t| &t.panics));
        // A timer whose time has come may only now queue what has been cancelled meanwhile.
        let sides = || {
            let each = self.queues.iter().map(Workqueue::stats);
            each.fold((0, 0), |(l, r), s| {
                (l + s.queued, r + s.completed + s.cancelled)
            })
        };
        until(|| sides().0 == sides().1, || format!("{:?}", sides()));
        println!(
            "{} accepted, {} ran, {} taken back; {} panicked, {} found asleep, {} rescued",
            sum(|t| &t.accepted),
            sum(|t| &t.runs),
            sum(|t| &t.cancelled),
            sum(|t| &t.panics),
            stats(|s| s.found_asleep),
            stats(|s| s.rescued),
        );
    }
}

/// Each accepted item ran once or was taken back once, no work ran twice at once, every sleeper was
/// woken by the item behind it, and nothing hung.
#[test]
fn i30_nothing_is_lost_or_doubled() {
    let items = parameter("INFLIGHT_STRESS_ITEMS").unwrap_or(ITEMS);
    let seed = parameter("INFLIGHT_STRESS_SEED");
    let seeds = seed.map_or(SEEDS.to_vec(), |seed| vec![seed]);
    seeds.into_iter().for_each(|seed| stress(items, seed));
}

fn stress(items: u64, seed: u64) {
    // Shown if it fails.
    println!("ci/workqueue-stress.sh {items} {seed}");
    let faults = Faults::new();
    let builder = builder().faults(&faults);
    let sys = builder
        .idle_timeout(Duration::from_millis(1))
        .build()
        .unwrap();
    let rig = Arc::new(Rig {
        subjects: (0..WORKS as u64).map(Subject::new).collect(),
        queues: queues(&sys),
        free: sys.workqueue("free").bound().build().unwrap(),
        faults,
        accepted: AtomicU64::new(0),
    });
    let drivers: Vec<_> = (1..=3)
        .map(|n| {
            let rig = rig.clone();
            // Zero would stay zero.
            let seed = seed.wrapping_mul(n) | 1 << 63;
            thread::spawn(move || rig.drive(seed, items))
        })
        .collect();
    drivers
        .into_iter()
        .for_each(|driver| driver.join().unwrap());
    rig.finish();
    drop(sys);
}
