//! What a pool says of itself, for those that may help it.
//!
//! A pool tells when something comes to wait and when a worker has taken; of further entries only
//! when so many wait that another pool could be of use. So a submitter writes no line that others
//! read for each item.

use crate::steal_policy::Load;
use inflight_sync::CachePadded;
use inflight_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use inflight_sync::time::Instant;

/// What a pool says of itself, in two words that are written in sections of its lock, and what is
/// said of it, in a third one. The others read them without a lock. Relaxed: a hint. What is done
/// by it is decided under the lock of the pool it is done to.
#[derive(Debug, Default)]
pub struct LoadHint(CachePadded<Told>);

#[derive(Debug, Default)]
struct Told {
    /// What waits, who is awake, and what an item takes.
    now: AtomicU64,
    /// What its workers took from being woken to running, and when that was seen last.
    delay: AtomicU64,
    /// How many submit from its CPUs. Written by who looks at the submitters.
    submitters: AtomicUsize,
}

/// Counts have so many bits; more is said to be as many as that.
const COUNT: u32 = 16;

/// A time is told in units of so many ns.
const UNIT: u64 = 64;

/// When something was seen is told in units of so many ns, in so many bits: it comes round after
/// months.
const TICK: u64 = 1 << 20;
const TICKS: u32 = 32;

/// What was seen so many ticks ago says nothing any more: about 10 ms.
const STALE: u64 = 10;

impl LoadHint {
    /// The pool's lock is held.
    pub fn tell(&self, load: &Load) {
        let count = |count: usize| (count as u64).min((1 << COUNT) - 1);
        let service = (load.service / UNIT).min(u64::from(u32::MAX));
        let word = service << (2 * COUNT) | count(load.awake) << COUNT | count(load.waiting);
        if self.0.now.load(Ordering::Relaxed) != word {
            self.0.now.store(word, Ordering::Relaxed);
        }
    }

    /// A worker has come; lately they took so many ns. The pool's lock is held.
    pub fn came(&self, delay: u64, now: Instant) {
        let delay = (delay / UNIT).min(u64::from(u32::MAX));
        let word = delay << TICKS | (now.as_nanos() / TICK) & u64::from(u32::MAX);
        self.0.delay.store(word, Ordering::Relaxed);
    }

    /// What the pool has said last, all but the delay.
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

    /// How many submit from its CPUs, as was seen last.
    #[must_use]
    pub fn submitters(&self) -> usize {
        if cfg!(any(loom, shuttle)) {
            return 0; // Nobody is heard there, and each step costs a model dearly.
        }
        self.0.submitters.load(Ordering::Relaxed)
    }

    /// What its workers take to come, as far as anybody knows at that time.
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

/// What something took lately: a mean, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lately(u64);

impl Lately {
    /// One more was seen; it counts for one part in so many.
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
        // More than there is room for does not spill over.
        hint.tell(&Load {
            waiting: 1 << 20,
            service: u64::MAX,
            ..told
        });
        let read = hint.load();
        assert_eq!((read.waiting, read.awake), (65_535, 12));
        assert!(read.service > 200_000_000_000);
    }

    /// A delay counts for a while. The clock's words come round.
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

    /// A mean comes to what is seen again and again, but for what a division leaves, and never
    /// passes it: from below as from above.
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
