//! Functions that sleep without saying so, remembered.
//!
//! To find a worker asleep takes a tick, and until the tick the CPU lies idle. A function that has
//! been found asleep twice is from then on run as if inside [`blocking`](crate::blocking): items
//! behind it do not wait for a tick. Now and then it has to be found once more, so that one that
//! has ceased to sleep is forgotten; one that computes for a while instead is forgotten at once,
//! because beside it others compute on the same CPU.

use inflight_sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

const SLOTS: usize = 256;

/// Found so often, a function is known.
const KNOWN: u16 = 2;

/// After so many runs a known function has to be found once more.
const RUNS: u16 = 256;

/// So much CPU time in a run is no sleeper's: several times what a sleep and a wake take.
const COMPUTES: Duration = Duration::from_micros(500);

/// What has been found out about functions. A hint: two that share a slot are taken for one, which
/// costs a little order on the CPU and loses nothing, and so do counts that race.
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

    /// It was known and has used so much CPU time in one run.
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
        // Beyond `KNOWN` runs are counted.
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
    }
}
