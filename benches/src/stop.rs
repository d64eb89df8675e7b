//! More waiters than ids, everybody stops, all must finish: again and again.

use inflight_sbitmap::SbitmapQueue;
use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the cycles.
const LOOK: Duration = Duration::from_millis(5);

/// After so many looks without a finished cycle, some 30 seconds, somebody waits for ever. Looks,
/// not time: a process that is stopped and goes on has not waited.
const PATIENCE: u32 = 6_000;

struct Stop {
    queue: Arc<SbitmapQueue>,
    /// The last cycle that is to stop.
    stopped: AtomicUsize,
    /// How many cycles have come to their end.
    finished: AtomicUsize,
    gate: Barrier,
}

/// Runs the cycles: `waiters` threads wait by turns in each of the ways there are. How long they
/// took.
///
/// # Errors
///
/// The number of the cycle that did not end; its threads are left behind.
///
/// # Panics
///
/// If an id is in use after a cycle.
pub fn cycles(queue: &Arc<SbitmapQueue>, waiters: usize, cycles: usize) -> Result<Duration, usize> {
    let stop = Arc::new(Stop {
        queue: queue.clone(),
        stopped: AtomicUsize::new(0),
        finished: AtomicUsize::new(0),
        gate: Barrier::new(waiters + 1),
    });
    for me in 0..waiters {
        let stop = stop.clone();
        thread::spawn(move || (1..=cycles).for_each(|cycle| stop.wait_through(me, cycle)));
    }
    let driver = {
        let (stop, watchdog) = (stop.clone(), thread::current());
        thread::spawn(move || {
            let start = Instant::now();
            (1..=cycles).for_each(|cycle| stop.drive(cycle));
            let took = start.elapsed();
            watchdog.unpark();
            took
        })
    };
    let (mut seen, mut looks) = (0, 0);
    while !driver.is_finished() {
        thread::park_timeout(LOOK);
        let finished = stop.finished.load(Ordering::Relaxed);
        looks = if finished > seen { 0 } else { looks + 1 };
        if looks > PATIENCE {
            return Err(seen + 1);
        }
        seen = finished;
    }
    Ok(driver.join().expect("all ids come back"))
}

impl Stop {
    /// One waiter's part of a cycle.
    fn wait_through(&self, me: usize, cycle: usize) {
        self.gate.wait();
        loop {
            let id = match me % 3 {
                0 => self.queue.get_blocking(),
                1 => inflight_sync::block_on(self.queue.get()),
                _ => Ok(self.in_time()),
            };
            let id = id.expect("never closed");
            self.queue.put(id).expect("held");
            // Relaxed: only the number counts.
            if self.stopped.load(Ordering::Relaxed) >= cycle {
                break;
            }
        }
        self.gate.wait();
    }

    /// Gives up and comes again until there is one.
    fn in_time(&self) -> usize {
        loop {
            if let Ok(id) = self.queue.get_timeout(Duration::from_micros(100)) {
                return id;
            }
        }
    }

    fn drive(&self, cycle: usize) {
        self.gate.wait();
        // Now and then there is time for everybody to fall asleep, and now and then for none.
        for _ in 0..cycle % 7 * 300 {
            hint::spin_loop();
        }
        self.stopped.store(cycle, Ordering::Relaxed);
        self.gate.wait();
        assert_eq!(
            self.queue.weight(),
            0,
            "cycle {cycle}: an id is still in use"
        );
        self.finished.store(cycle, Ordering::Relaxed);
    }
}
