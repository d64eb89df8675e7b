//! The load that a pool publishes for the pools that may help it.
//!
//! A pool publishes its load when the first entry waits and when a worker takes entries. It
//! publishes further entries only when enough wait that another pool could help. So a submitter
//! does not write a shared cache line for each item.

use crate::steal_policy::Load;
use inflight_sync::CachePadded;
use inflight_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use inflight_sync::time::Instant;

/// The load of a pool, in two words written under its lock, and its submitters, in a third word
/// that others write. Other pools read them without a lock. Relaxed: a hint. A decision based on it
/// is made under the lock of the pool that it affects.
#[derive(Debug, Default)]
pub struct LoadHint(CachePadded<Told>);

#[derive(Debug, Default)]
struct Told {
    /// The waiting entries, the awake workers, and the time of an item.
    now: AtomicU64,
    /// How long its workers took from being woken to running, and when that was last seen.
    delay: AtomicU64,
    /// How many threads submit from its CPUs. Written by the thread that counts the submitters.
    submitters: AtomicUsize,
}

/// The number of bits of a count; larger counts are capped.
const COUNT: u32 = 16;

/// The unit of times, in ns.
const UNIT: u64 = 64;

/// The unit of the time of the last arrival, in ns, and its number of bits: it wraps after weeks.
const TICK: u64 = 1 << 20;
const TICKS: u32 = 32;

/// After how many ticks an arrival says nothing any more: about 10 ms.
const STALE: u64 = 10;

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

    /// A worker has arrived; `delay` is the recent mean in ns. The pool's lock is held.
    pub fn came(&self, delay: u64, now: Instant) {
        let delay = (delay / UNIT).min(u64::from(u32::MAX));
        let word = delay << TICKS | (now.as_nanos() / TICK) & u64::from(u32::MAX);
        self.0.delay.store(word, Ordering::Relaxed);
    }

    /// The last published load, without the delay.
    #[must_use]
    pub fn load(&self) -> Load {
        let word = self.0.now.load(Ordering::Relaxed);
        let count = |at: u32| (word >> at & ((1 << COUNT) - 1)) as usize;
        Load {
            waiting: count(0),
            awake: count(COUNT),
            service: (word >> (2 * COUNT)) * UNIT,
            submitters: self.submitters(),
            ..Load::default()
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

    /// How long its workers take to arrive, as far as is known at `now`; 0 if that is too old.
    #[must_use]
    pub fn delay(&self, now: Instant) -> u64 {
        let word = self.0.delay.load(Ordering::Relaxed);
        let seen = word & u64::from(u32::MAX);
        let ago = (now.as_nanos() / TICK).wrapping_sub(seen) & u64::from(u32::MAX);
        if ago > STALE {
            return 0;
        }
        (word >> TICKS) * UNIT
    }
}

/// A recent mean of a time, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lately(u64);

impl Lately {
    /// Adds a value with the weight of one part in `parts`.
    pub fn note(&mut self, ns: u64, parts: u64) {
        self.0 = (self.0 * (parts - 1) + ns) / parts;
    }

    /// The mean.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_read_as_it_was_told() {
        let hint = LoadHint::default();
        assert_eq!(hint.load(), Load::default());
        let told = Load {
            waiting: 700,
            awake: 12,
            service: 174_016,
            ..Load::default()
        };
        hint.tell(&told);
        assert_eq!(hint.load(), told);
        // Values that are too large do not spill over.
        hint.tell(&Load {
            waiting: 1 << 20,
            service: u64::MAX,
            ..told
        });
        let read = hint.load();
        assert_eq!((read.waiting, read.awake), (65_535, 12));
        assert!(read.service > 200_000_000_000);
    }

    /// A delay counts for a while. The clock's words wrap.
    #[test]
    fn a_delay_is_forgotten() {
        let hint = LoadHint::default();
        for start in [0, 5 * TICK, (1 << TICKS) * TICK - 1] {
            let at = |ticks: u64| Instant::from_nanos(start + ticks * TICK);
            hint.came(300_032, at(0));
            assert_eq!(hint.delay(at(0)), 300_032);
            assert_eq!(hint.delay(at(STALE)), 300_032);
            assert_eq!(hint.delay(at(STALE + 1)), 0);
        }
    }

    /// A mean converges to a repeated value, up to the rounding of a division, and never passes it,
    /// from below or from above.
    #[test]
    fn a_mean_follows() {
        let mut mean = Lately::default();
        let mut follow = |ns: u64| {
            for _ in 0..200 {
                let before = mean.ns();
                mean.note(ns, 20);
                let (low, high) = (before.min(ns), before.max(ns));
                assert!((low..=high).contains(&mean.ns()), "{before}, {ns}");
            }
            mean.ns()
        };
        assert!((4_900..=5_000).contains(&follow(5_000)));
        assert!((1_000..=1_100).contains(&follow(1_000)));
        mean.note(3_000, 2);
        assert!((2_000..=2_050).contains(&mean.ns()), "half of it is new");
    }
}
