//! What the machine is like at the moment: the time of a cache line between CPUs, and of a wake.
//!
//! A virtual machine's host changes both within minutes, by a factor of three, and what threads do
//! together with them. A record says what they were.

use crate::distance;
use crate::machine::{self, pin};
use crate::rounds::median;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

/// Wakes there and back between two looks at the clock.
const TRIPS: u32 = 10;

/// Looks at the clock: the middle one counts.
const LOOKS: usize = 9;

/// A line and a wake, at one time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// The time of a cache line one way, in ns; `None` with one CPU.
    pub line_ns: Option<f64>,
    /// The time from waking a thread on another CPU to that it runs, in us.
    pub wake_us: f64,
}

impl Phase {
    /// Measures both, for some milliseconds.
    ///
    /// # Panics
    ///
    /// If no thread can be had.
    #[must_use]
    pub fn now() -> Self {
        let line = distance::probe();
        Self {
            line_ns: line.is_finite().then_some(line),
            wake_us: wake(),
        }
    }

    /// The middle of two.
    #[must_use]
    pub fn between(self, other: Self) -> Self {
        let lines = self.line_ns.zip(other.line_ns);
        Self {
            line_ns: lines.map(|(a, b)| f64::midpoint(a, b)),
            wake_us: f64::midpoint(self.wake_us, other.wake_us),
        }
    }
}

/// Half of a round trip of two threads on two CPUs that wake each other and sleep.
fn wake() -> f64 {
    let last = TRIPS * (LOOKS as u32 + 1);
    let count = AtomicU32::new(0);
    // Relaxed, as all here: nothing is handed over but the number. Why a loop: a thread may be
    // unparked for nothing.
    let await_count = |number| {
        while count.load(Ordering::Relaxed) < number {
            thread::park();
        }
    };
    let (count, await_count) = (&count, &await_count);
    thread::scope(|scope| {
        let here = scope.spawn(move || {
            pin(0);
            let here = thread::current();
            let there = scope.spawn(move || {
                pin(machine::cpus().min(2) - 1);
                for trip in 1..=last {
                    await_count(2 * trip - 1);
                    count.store(2 * trip, Ordering::Relaxed);
                    here.unpark();
                }
            });
            let mut looks = Vec::with_capacity(LOOKS);
            for first in (1..=last).step_by(TRIPS as usize) {
                let start = Instant::now();
                for trip in first..first + TRIPS {
                    count.store(2 * trip - 1, Ordering::Relaxed);
                    there.thread().unpark();
                    await_count(2 * trip);
                }
                // The first look waits for the other thread's start.
                if first > 1 {
                    looks.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS) / 2.0);
                }
            }
            median(looks)
        });
        here.join().expect("it only counts")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_takes_time() {
        let phase = Phase::now();
        assert!(phase.wake_us > 0.0, "{phase:?}");
        assert_eq!(phase.line_ns.is_some(), machine::cpus() > 1);
    }

    #[test]
    fn a_section_has_the_middle_of_two_phases() {
        let phase = |line_ns, wake_us| Phase { line_ns, wake_us };
        let middle = phase(Some(50.0), 4.0).between(phase(Some(70.0), 8.0));
        assert_eq!((middle.line_ns, middle.wake_us), (Some(60.0), 6.0));
        let middle = phase(None, 4.0).between(phase(None, 5.0));
        assert_eq!((middle.line_ns, middle.wake_us), (None, 4.5));
    }
}
