//! The load that a pool publishes for the pools that may help it.
//!
//! A pool publishes its load when the first entry waits, when a worker takes entries, and when
//! enough wait that another pool could help: not for each item.

use crate::steal_policy::Load;
use inflight_sync::CachePadded;
use inflight_sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The load of a pool, in a word written under its lock, and its submitters, in another word that
/// others write. Other pools read them without a lock. Relaxed: a hint. A decision based on it
/// is made under the lock of the pool that it affects.
#[derive(Debug, Default)]
pub struct LoadHint(CachePadded<Told>);

#[derive(Debug, Default)]
struct Told {
    /// The waiting entries, the awake workers, and the time of an item.
    now: AtomicU64,
    /// How many threads submit from its CPUs. Written by the thread that counts the submitters.
    submitters: AtomicUsize,
}

/// The number of bits of a count; larger counts are capped.
const COUNT: u32 = 16;

/// The unit of times, in ns.
const UNIT: u64 = 64;

impl LoadHint {
    /// Publishes the load. The pool's lock is held.
    pub fn tell(&self, load: &Load) {
        let count = |count: usize| (count as u64).min((1 << COUNT) - 1);
        let service = (load.service / UNIT).min(u64::from(u32::MAX));
        let word = service << (2 * COUNT) | count(load.awake) << COUNT | count(load.waiting);
        if self.0.now.load(Ordering::Relaxed) != word {
            self.0.now.store(word, Ordering::Relaxed);
        }
    }

    /// The last published load.
    #[must_use]
    pub fn load(&self) -> Load {
        let word = self.0.now.load(Ordering::Relaxed);
        let count = |at: u32| (word >> at & ((1 << COUNT) - 1)) as usize;
        Load {
            waiting: count(0),
            awake: count(COUNT),
            service: (word >> (2 * COUNT)) * UNIT,
            submitters: self.submitters(),
        }
    }

    pub(crate) fn set_submitters(&self, submitters: usize) {
        if self.submitters() != submitters {
            self.0.submitters.store(submitters, Ordering::Relaxed);
        }
    }

    /// How many threads submit from its CPUs, as last counted.
    #[must_use]
    pub fn submitters(&self) -> usize {
        if cfg!(any(loom, shuttle)) {
            return 0; // Models have no submitters, and each step is expensive in a model.
        }
        self.0.submitters.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn counts_beyond_their_room_do_not_spill_over() {
        let hint = LoadHint::default();
        let mut load = Load::default();
        (load.waiting, load.awake, load.service) = (1 << 20, 12, 174_016);
        hint.tell(&load);
        load.waiting = 65_535;
        assert_eq!(hint.load(), load);
        load.service = u64::MAX;
        hint.tell(&load);
        assert_eq!((hint.load().waiting, hint.load().awake), (65_535, 12));
    }
}
