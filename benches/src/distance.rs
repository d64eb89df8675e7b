//! How far apart the first two CPUs are at the moment: the time a cache line takes one way.
//!
//! A virtual machine's CPUs are moved by its host. On some hosts a line takes three or four times
//! as long for seconds, on others the time drifts to twice as much within a minute, and whatever
//! two threads do together takes longer by as much. So every sample has a probe before and after
//! it, and only samples of one state are compared.

use crate::machine::{become_realtime, pin};
use crate::rounds::median;
use inflight_sync::CachePadded;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// Round trips between two looks at the clock.
const TRIPS: u64 = 100;

/// Looks at the clock: the middle one counts, so that a moment without a CPU does not.
const LOOKS: usize = 9;

/// Below this, in ns, the two are halves of one core: both together compute half as much.
const ONE_CORE: f64 = 40.0;

/// Below this, in ns, a line is near, and from here on far.
const NEAR: f64 = 160.0;

/// Looks at a line before another thread gets the CPU; a line takes a few of them.
const SPINS: u32 = 1_000;

/// In which state the two CPUs were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// A line takes 40 to 160 ns from one to the other.
    Near,
    /// It takes longer than that.
    Far,
    /// It takes less than 40 ns: the two share a core.
    OneCore,
    /// There is one CPU only.
    OneCpu,
}

impl State {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 4] = [Self::Near, Self::Far, Self::OneCore, Self::OneCpu];

    /// The state in which both probes of a sample are; `None` if they disagree.
    #[must_use]
    pub fn of(before: f64, after: f64) -> Option<Self> {
        let state = |ns: f64| match ns {
            _ if ns.is_nan() => Self::OneCpu,
            _ if ns < ONE_CORE => Self::OneCore,
            _ if ns < NEAR => Self::Near,
            _ => Self::Far,
        };
        (state(before) == state(after)).then(|| state(before))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Near => "near",
            Self::Far => "far",
            Self::OneCore => "one core",
            Self::OneCpu => "one CPU",
        })
    }
}

/// The time of a line one way, in ns, between a thread on the first CPU and one on the second.
/// Not a number if there is one CPU only.
///
/// # Panics
///
/// If no thread can be had.
#[must_use]
pub fn probe() -> f64 {
    static THERE: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));
    static BACK: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));
    static ONE: Mutex<()> = Mutex::new(());
    if crate::machine::cpus() < 2 {
        return f64::NAN;
    }
    // The lines are one probe's at a time. A panic of another one leaves nothing behind.
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Relaxed, as all here: the lines travel, nothing is handed over.
    THERE.store(0, Ordering::Relaxed);
    BACK.store(0, Ordering::Relaxed);
    // Why: whoever runs in the same class on this CPU may have what the other thread waits for, so
    // this one must not keep the CPU, and must not outrank it.
    let await_value = |line: &AtomicU64, value| {
        for spins in 1_u32.. {
            if line.load(Ordering::Relaxed) == value {
                break;
            }
            if spins % SPINS == 0 {
                thread::yield_now();
            }
            spin_loop();
        }
    };
    let last = TRIPS * (LOOKS as u64 + 1);
    // Why: a thread that is not pinned yet may wait for the CPU on which the other one would spin.
    let both = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            let _ = become_realtime();
            both.wait();
            for trip in 1..=last {
                await_value(&THERE, trip);
                BACK.store(trip, Ordering::Relaxed);
            }
        });
        let here = scope.spawn(|| {
            pin(0);
            let _ = become_realtime();
            both.wait();
            let mut looks = Vec::with_capacity(LOOKS);
            for first in (1..=last).step_by(TRIPS as usize) {
                let start = Instant::now();
                for trip in first..first + TRIPS {
                    THERE.store(trip, Ordering::Relaxed);
                    await_value(&BACK, trip);
                }
                // The first look waits for the other thread's start.
                if first > 1 {
                    looks.push(start.elapsed().as_nanos() as f64 / TRIPS as f64 / 2.0);
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
    fn both_probes_must_be_in_one_state() {
        assert_eq!(State::of(65.0, 110.0), Some(State::Near));
        assert_eq!(State::of(290.0, 210.0), Some(State::Far));
        assert_eq!(State::of(25.0, 31.0), Some(State::OneCore));
        assert_eq!(State::of(f64::NAN, f64::NAN), Some(State::OneCpu));
        assert_eq!(State::of(115.0, 155.0), Some(State::Near));
        assert_eq!(State::of(165.0, 230.0), Some(State::Far));
        for (before, after) in [(65.0, 290.0), (290.0, 65.0), (30.0, 65.0), (155.0, 165.0)] {
            assert_eq!(State::of(before, after), None, "{before}, {after}");
        }
    }

    #[test]
    fn a_line_takes_time() {
        let distance = probe();
        assert!(distance > 0.0 || crate::machine::cpus() < 2, "{distance}");
    }
}
