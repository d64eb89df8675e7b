//! What it costs to look for workers that sleep without saying so, and how soon they are found.
//!
//! ```console
//! $ cargo run --release -p inflight-workqueue --example sampling
//! ```
//!
//! Latency: an item sleeps in foreign code until the next one of its CPU wakes it; the time from
//! its last step to the next one's first, the start of another worker included. Cost: CPU time of
//! the timer's thread while items compute and others wait all the time. On Linux only.

use inflight_topology::Topology;
use inflight_workqueue::{Workqueue, WorkqueueSystem, blocking};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How the first item goes to sleep.
#[derive(Clone, Copy)]
enum Sleep {
    Guarded,
    Silent,
    /// After it has run for some ms: by then it is looked at once in a ms.
    SilentLate,
}

fn system(cpus: usize) -> Outcome<(WorkqueueSystem, Workqueue)> {
    let topology = Topology::synthetic(&format!("cache:1 core:{cpus}"))?;
    let builder = WorkqueueSystem::builder().topology(topology);
    let sys = builder.intensive_threshold(Duration::ZERO).build()?;
    let wq = sys.workqueue("looked at").bound().build()?;
    Ok((sys, wq))
}

fn pair(listener: &TcpListener) -> Outcome<(TcpStream, TcpStream)> {
    let one = TcpStream::connect(listener.local_addr()?)?;
    Ok((one, listener.accept()?.0))
}

/// From the sleep of one item to the start of the next.
fn handshake(wq: &Workqueue, listener: &TcpListener, how: Sleep) -> Outcome<Duration> {
    let (mut sleeps, mut wakes) = pair(listener)?;
    let (queued, both_are) = mpsc::channel::<()>();
    let first = wq.spawn_on(0, move || {
        // The pool's other worker is not to be blamed for the time it takes to queue.
        while matches!(both_are.try_recv(), Err(mpsc::TryRecvError::Empty)) {
            std::hint::spin_loop();
        }
        let begin = Instant::now();
        while matches!(how, Sleep::SilentLate) && begin.elapsed().as_millis() < 5 {
            std::hint::spin_loop();
        }
        let asleep = Instant::now();
        let mut sleep = || sleeps.read_exact(&mut [0]).map(|()| asleep);
        match how {
            Sleep::Guarded => blocking(sleep),
            Sleep::Silent | Sleep::SilentLate => sleep(),
        }
    });
    let second = wq.spawn_on(0, move || {
        let started = Instant::now();
        wakes.write_all(&[1]).map(|()| started)
    });
    queued.send(())?;
    let asleep = first.wait()??;
    Ok(second.wait()??.saturating_duration_since(asleep))
}

/// In a new system each round nothing is known of the function; in one for all rounds it is soon
/// known to sleep, if it is found asleep.
fn latency(name: &str, how: Sleep, new: bool, rounds: usize) -> Outcome<()> {
    let (mut _sys, mut wq) = system(1)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        if new {
            (_sys, wq) = system(1)?;
            wq.spawn_on(0, || ()).wait()?;
        }
        // So that looking has ended each time.
        std::thread::sleep(Duration::from_millis(30));
        times.push(handshake(&wq, &listener, how)?);
    }
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!(
        "{name:32} p50 {:>9.1?}  p90 {:>9.1?}  p99 {:>9.1?}",
        at(50),
        at(90),
        at(99)
    );
    Ok(())
}

/// CPU time of the timer so far.
fn timer() -> Option<Duration> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let mut tasks = tasks.flatten().map(|task| task.path());
    let own = tasks.find(|path| {
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        name.trim() == "inflight/timer"
    })?;
    let text = std::fs::read_to_string(own.join("schedstat")).ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// One item computes on each of so many CPUs, and one waits behind each.
fn cost(workers: usize, time: Duration) -> Outcome<()> {
    let (_sys, wq) = system(workers)?;
    let stop = Arc::new(AtomicBool::new(false));
    for cpu in 0..2 * workers {
        let stop = stop.clone();
        drop(wq.spawn_on(cpu % workers, move || {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }));
    }
    std::thread::sleep(Duration::from_millis(50));
    let (before, begin) = (timer(), Instant::now());
    std::thread::sleep(time);
    let (after, took) = (timer(), begin.elapsed());
    stop.store(true, Ordering::Relaxed);
    let used = after.zip(before).map(|(after, before)| after - before);
    match used {
        Some(used) => println!(
            "{workers:2} workers looked at              {:>6.2} % of a CPU",
            used.as_secs_f64() / took.as_secs_f64() * 100.0
        ),
        None => println!("{workers:2} workers looked at              unknown here"),
    }
    wq.flush_blocking()?;
    Ok(())
}

fn main() -> Outcome<()> {
    latency("says so (blocking)", Sleep::Guarded, false, 200)?;
    latency("silent, known to sleep", Sleep::Silent, false, 200)?;
    latency("silent, not known", Sleep::Silent, true, 200)?;
    latency("not known, asleep after 5 ms", Sleep::SilentLate, true, 200)?;
    for workers in [1, 2, 4] {
        cost(workers, Duration::from_secs(2))?;
    }
    Ok(())
}
