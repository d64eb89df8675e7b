//! The kernel's documented execution scenarios in real time, ten times as long.
//!
//! ```console
//! $ cargo run --release -p inflight-workqueue --example timelines -- [TOLERANCE_MS [ATTEMPTS]]
//! ```
//!
//! Items burn CPU time and sleep; all are queued at once to one CPU. Each event is printed with
//! when it was to be and when it was. What a loaded machine delays is tried again, so often; status
//! 1 if a scenario never came out. The exact numbers, in virtual time, are tests of the crate.

use inflight_sync::Parker;
use inflight_sync::time::Clock;
use inflight_topology::{CpuSet, Topology};
use inflight_workqueue::{Workqueue, WorkqueueSystem};
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Real ms for one of a scenario's.
const SCALE: u32 = 10;

struct Queue {
    max_active: usize,
    intensive: bool,
}

/// What an item does in turn, in the scenario's ms: burn, sleep, burn, ...
struct Item {
    queue: usize,
    phases: &'static [u32],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Starts,
    Sleeps,
    Wakes,
    Ends,
}

use What::{Ends, Sleeps, Starts, Wakes};

/// Item, event, from when and until when.
type Expected = (usize, What, u32, u32);

struct Scenario {
    name: &'static str,
    queues: &'static [Queue],
    items: &'static [Item],
    /// CPU time after which an item is found to compute.
    threshold: Option<u32>,
    /// The items do not say that they sleep.
    silent: bool,
    expected: &'static [Expected],
}

const fn bound(max_active: usize) -> Queue {
    Queue {
        max_active,
        intensive: false,
    }
}

const fn intensive(max_active: usize) -> Queue {
    Queue {
        max_active,
        intensive: true,
    }
}

const fn item(queue: usize, phases: &'static [u32]) -> Item {
    Item { queue, phases }
}

const THREE: &[Item] = &[item(0, &[5, 10, 5]), item(0, &[5, 10]), item(0, &[5, 10])];

const ROOM_FOR_ALL: &[Expected] = &[
    (0, Starts, 0, 0),
    (0, Sleeps, 5, 5),
    (1, Starts, 5, 5),
    (1, Sleeps, 10, 10),
    (2, Starts, 10, 10),
    (2, Sleeps, 15, 15),
    (0, Wakes, 15, 15),
    (0, Ends, 20, 20),
    (1, Ends, 20, 20),
    (2, Ends, 25, 25),
];

/// Where two burn at once the CPU is shared, which the tables with one item after the other do not
/// have: a range says so.
const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a workqueue with one worker (max_active 1)",
        queues: &[bound(1)],
        items: THREE,
        threshold: None,
        silent: false,
        expected: &[
            (0, Starts, 0, 0),
            (0, Sleeps, 5, 5),
            (0, Wakes, 15, 15),
            (0, Ends, 20, 20),
            (1, Starts, 20, 20),
            (1, Sleeps, 25, 25),
            (1, Ends, 35, 35),
            (2, Starts, 35, 35),
            (2, Sleeps, 40, 40),
            (2, Ends, 50, 50),
        ],
    },
    Scenario {
        name: "max_active 3",
        queues: &[bound(3)],
        items: THREE,
        threshold: None,
        silent: false,
        expected: ROOM_FOR_ALL,
    },
    Scenario {
        name: "max_active 3, nobody says that he sleeps",
        queues: &[bound(3)],
        items: THREE,
        threshold: None,
        silent: true,
        expected: ROOM_FOR_ALL,
    },
    Scenario {
        name: "max_active 2",
        queues: &[bound(2)],
        items: THREE,
        threshold: None,
        silent: false,
        expected: &[
            (0, Starts, 0, 0),
            (0, Sleeps, 5, 5),
            (1, Starts, 5, 5),
            (1, Sleeps, 10, 10),
            (0, Wakes, 15, 15),
            (0, Ends, 20, 20),
            (1, Ends, 20, 25),
            (2, Starts, 20, 20),
            (2, Sleeps, 25, 25),
            (2, Ends, 35, 35),
        ],
    },
    Scenario {
        name: "the second and third of an intensive queue",
        queues: &[bound(1024), intensive(1024)],
        items: &[item(0, &[5, 10, 5]), item(1, &[5, 10]), item(1, &[5, 10])],
        threshold: None,
        silent: false,
        expected: &[
            (0, Starts, 0, 0),
            (0, Sleeps, 5, 5),
            (1, Starts, 5, 5),
            (1, Sleeps, 10, 15),
            (2, Starts, 5, 10),
            (2, Sleeps, 10, 15),
            (0, Wakes, 15, 15),
            (0, Ends, 20, 20),
            (1, Ends, 20, 25),
            (2, Ends, 20, 25),
        ],
    },
    Scenario {
        name: "the same, the intensive queue with max_active 1",
        queues: &[bound(1024), intensive(1)],
        items: &[item(0, &[5, 10, 5]), item(1, &[5, 10]), item(1, &[5, 10])],
        threshold: None,
        silent: false,
        expected: &[
            (0, Ends, 20, 20),
            (1, Starts, 5, 5),
            (1, Sleeps, 10, 10),
            (1, Ends, 20, 20),
            (2, Starts, 20, 20),
            (2, Sleeps, 25, 25),
            (2, Ends, 35, 35),
        ],
    },
    Scenario {
        name: "three burns",
        queues: &[bound(1024)],
        items: &[item(0, &[5]), item(0, &[5]), item(0, &[5])],
        threshold: None,
        silent: false,
        expected: &[
            (0, Ends, 5, 5),
            (1, Starts, 5, 5),
            (1, Ends, 10, 10),
            (2, Starts, 10, 10),
            (2, Ends, 15, 15),
        ],
    },
    Scenario {
        name: "a long burn and a short one",
        queues: &[bound(1024)],
        items: &[item(0, &[25]), item(0, &[5])],
        threshold: None,
        silent: false,
        expected: &[(0, Ends, 25, 25), (1, Starts, 25, 25), (1, Ends, 30, 30)],
    },
    Scenario {
        name: "the same, found to compute after 10",
        queues: &[bound(1024)],
        items: &[item(0, &[25]), item(0, &[5])],
        threshold: Some(10),
        silent: false,
        expected: &[(1, Starts, 10, 10), (1, Ends, 15, 20), (0, Ends, 30, 30)],
    },
];

type Seen = Vec<(usize, What, Duration)>;
type Log = Arc<Mutex<Seen>>;

/// CPU time of the calling thread.
#[cfg(target_os = "linux")]
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// Where it cannot be had: as if nobody else used the CPU.
#[cfg(not(target_os = "linux"))]
fn cpu_time() -> Duration {
    Clock::system().now() - inflight_sync::time::Instant::default()
}

fn burn(time: Duration) {
    let end = cpu_time() + time;
    while cpu_time() < end {
        std::hint::spin_loop();
    }
}

fn sleep(time: Duration, silent: bool) {
    if silent {
        std::thread::sleep(time);
        return;
    }
    // The pool is told by the parker.
    let clock = Clock::system();
    let end = clock.now() + time;
    while Parker::current().park_until(&clock, end) {}
}

fn play(log: &Log, begin: Instant, number: usize, phases: &[u32], silent: bool) {
    let tell = |what| log.lock().unwrap().push((number, what, begin.elapsed()));
    tell(Starts);
    for (n, ms) in phases.iter().enumerate() {
        let time = Duration::from_millis(u64::from(ms * SCALE));
        if n % 2 == 0 {
            burn(time);
        } else {
            tell(Sleeps);
            sleep(time, silent);
            tell(Wakes);
        }
    }
    tell(Ends);
}

/// Runs it once, on one CPU, and returns what happened when.
fn run(scenario: &Scenario, cpu: &CpuSet) -> Result<Seen, Box<dyn Error>> {
    let threshold = scenario.threshold.unwrap_or(0) * SCALE;
    let sys = WorkqueueSystem::builder()
        .topology(Topology::synthetic("core:1")?)
        .intensive_threshold(Duration::from_millis(threshold.into()))
        .build()?;
    let queues: Vec<Workqueue> = scenario
        .queues
        .iter()
        .map(|queue| {
            let builder = sys
                .workqueue("timeline")
                .bound()
                .max_active(queue.max_active);
            let builder = if queue.intensive {
                builder.cpu_intensive()
            } else {
                builder
            };
            builder.build()
        })
        .collect::<Result<_, _>>()?;
    // The first worker inherits the CPU, and the others from it.
    let pinned = Topology::discover()?.pin_current_thread(cpu);
    queues[0].spawn(|| ()).wait()?;
    drop(pinned);

    let (log, begin) = (Log::default(), Instant::now());
    let handles: Vec<_> = scenario
        .items
        .iter()
        .enumerate()
        .map(|(number, item)| {
            let (log, phases, silent) = (log.clone(), item.phases, scenario.silent);
            queues[item.queue].spawn(move || play(&log, begin, number, phases, silent))
        })
        .collect();
    handles.into_iter().try_for_each(|handle| handle.wait())?;
    let log = log.lock().unwrap().clone();
    Ok(log)
}

/// Prints each event that was to be, and says whether all were in time.
fn judge(scenario: &Scenario, log: &[(usize, What, Duration)], tolerance: Duration) -> bool {
    let mut good = true;
    for &(number, what, from, until) in scenario.expected {
        let of = |ms: u32| Duration::from_millis(u64::from(ms * SCALE));
        let seen = log.iter().find(|e| (e.0, e.1) == (number, what));
        let in_time = seen
            .is_some_and(|(.., at)| *at + tolerance >= of(from) && *at <= of(until) + tolerance);
        good &= in_time;
        let expected = if from == until {
            format!("{}", from * SCALE)
        } else {
            format!("{} to {}", from * SCALE, until * SCALE)
        };
        let seen = seen.map_or("never".to_owned(), |e| {
            format!("{:.1}", e.2.as_secs_f64() * 1e3)
        });
        let mark = if in_time { "" } else { "   <-- off" };
        let what = format!("{what:?}").to_lowercase();
        println!("   w{number} {what:7} expected {expected:>10} ms, seen {seen:>7} ms{mark}");
    }
    good
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let tolerance = args.next().map_or(Ok(25), |a| a.parse())?;
    let attempts = args.next().map_or(Ok(3), |a| a.parse::<u32>())?;
    let tolerance = Duration::from_millis(tolerance);
    let cpu: CpuSet = Topology::discover()?.cpus().iter().take(1).collect();
    let mut failed = 0;
    for scenario in SCENARIOS {
        let mut good = false;
        for attempt in 1..=attempts {
            println!("{} (attempt {attempt})", scenario.name);
            good = judge(scenario, &run(scenario, &cpu)?, tolerance);
            if good {
                break;
            }
        }
        failed += u32::from(!good);
    }
    println!(
        "{failed} of {} scenarios off by more than {tolerance:?}",
        SCENARIOS.len()
    );
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
