//! Functions that sleep without having said so.
//!
//! Finding a worker asleep takes a tick, and until then the CPU is idle. So a function that was
//! found asleep twice is run as if inside [`blocking`](crate::blocking). From time to time it has
//! to be found once more. One that computes for a while is forgotten at once, because other items
//! compute beside it on the same CPU.

use inflight_sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

const SLOTS: usize = 256;

/// How often a function must be found before it is known.
const KNOWN: u16 = 2;

/// After how many runs a known function has to be found once more.
const RUNS: u16 = 256;

/// A function that sleeps uses less in a run: several times a sleep and a wakeup.
const COMPUTES: Duration = Duration::from_micros(500);

/// A hint: two functions that share a slot count as one, and counts may race.
pub(crate) struct KnownBlockers(Box<[AtomicU16; SLOTS]>);

impl Default for KnownBlockers {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| AtomicU16::new(0))))
    }
}

impl KnownBlockers {
    fn slot(&self, function: usize) -> &AtomicU16 {
        &self.0[(function >> 4 ^ function >> 12) % SLOTS]
    }

    pub(crate) fn found_asleep(&self, function: usize) {
        let slot = self.slot(function);
        // Relaxed, here and below: hints.
        let hits = slot.load(Ordering::Relaxed).min(KNOWN - 1) + 1;
        slot.store(hits, Ordering::Relaxed);
    }

    /// The function was known, and used so much CPU time in one run.
    pub(crate) fn used(&self, function: usize, cpu: Duration) {
        if cpu >= COMPUTES {
            self.slot(function).store(0, Ordering::Relaxed);
        }
    }

    /// A run begins: whether the function is known to sleep.
    pub(crate) fn knows(&self, function: usize) -> bool {
        let slot = self.slot(function);
        let seen = slot.load(Ordering::Relaxed);
        if seen < KNOWN {
            return false;
        }
        // Above `KNOWN`, runs are counted.
        let next = if seen - KNOWN == RUNS {
            KNOWN - 1
        } else {
            seen + 1
        };
        slot.store(next, Ordering::Relaxed);
        next >= KNOWN
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_known_when_it_was_found_twice_and_has_to_be_found_again() {
        let learned = KnownBlockers::default();
        let (sleeps, other) = (0x1230, 0x4560);
        learned.found_asleep(sleeps);
        assert!(!learned.knows(sleeps), "once may be chance");
        learned.found_asleep(sleeps);
        for _ in 0..RUNS {
            assert!(learned.knows(sleeps));
            assert!(!learned.knows(other));
        }
        assert!(
            !learned.knows(sleeps) && !learned.knows(sleeps),
            "has it changed?"
        );
        learned.found_asleep(sleeps);
        assert!(learned.knows(sleeps), "once more is enough");
        learned.found_asleep(sleeps);
        for _ in 0..RUNS {
            assert!(learned.knows(sleeps), "its runs count from then on");
        }
        assert!(!learned.knows(sleeps));
    }

    #[test]
    fn a_function_that_computes_is_forgotten() {
        let learned = KnownBlockers::default();
        let sleeps = 0x1230;
        learned.found_asleep(sleeps);
        learned.found_asleep(sleeps);
        learned.used(sleeps, COMPUTES - Duration::from_nanos(1));
        assert!(learned.knows(sleeps));
        learned.used(sleeps, COMPUTES);
        assert!(!learned.knows(sleeps));
    }
}
