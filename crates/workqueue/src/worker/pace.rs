//! Pauses: how long a worker leaves its pool's lock alone after a short batch, if nothing else
//! waited when the batch was taken.
//!
//! A worker that takes few entries at a time exchanges the lock's cache lines with the submitters.
//! If it pauses, more entries come together. It learns the length by trying: as long as a change
//! brings more entries, the next one goes in the same direction. If pauses bring nothing, they end.

use inflight_sync::{hint, time};

/// A batch that takes at least this long, in ns, is not short.
const SHORT_NS: u64 = 1_000;

/// The longest pause.
const MOST_NS: u64 = 4_000;

/// The longest pause divided by this is the shortest.
const PARTS: u32 = 16;

pub(super) struct Pace {
    /// The length of the next pause, in turns of a spin loop.
    turns: u32,
    most: u32,
    /// Whether the last change made it longer.
    grew: bool,
    /// The size of the batch before the last pause, or 0 if the pause brought nothing. `None` once
    /// it is known what came.
    before: Option<usize>,
}

impl Pace {
    /// Without a sampler the worker never pauses.
    pub(super) fn new(is_looked_after: bool) -> Self {
        let most = if is_looked_after {
            time::spin_turns(MOST_NS)
        } else {
            0
        };
        Self {
            turns: most / PARTS,
            most,
            grew: true,
            before: None,
        }
    }

    /// Whether to pause after a batch of `taken` entries of `service_ns` each.
    pub(super) fn is_short(taken: usize, service_ns: u64) -> bool {
        taken as u64 * service_ns < SHORT_NS
    }

    /// The worker has looked for entries and taken `taken`.
    pub(super) fn took(&mut self, taken: usize) {
        let Some(before) = self.before.take() else {
            return;
        };
        let least = self.most / PARTS;
        let grows = match taken {
            0 => false,
            _ if self.turns <= least || self.grew => taken > before,
            _ => taken < before,
        };
        self.turns = if grows {
            (self.turns * 2).clamp(least, self.most)
        } else if taken == 0 && self.turns <= least {
            0
        } else {
            (self.turns / 2).max(least)
        };
        self.grew = grows;
        self.before = (taken == 0).then_some(0);
    }

    pub(super) fn pause(&mut self, taken: usize) {
        self.before = Some(taken);
        for _ in 0..self.turns {
            hint::spin_loop();
        }
    }

    /// The worker has slept: what comes now says nothing about pauses.
    pub(super) fn slept(&mut self) {
        self.before = None;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const MOST: u32 = 64 * PARTS;

    fn pace(turns: u32) -> Pace {
        Pace {
            turns,
            most: MOST,
            grew: true,
            before: None,
        }
    }

    /// Runs rounds in which a pause brings `arrives` of its length. Returns the mean length.
    fn mean(pace: &mut Pace, rounds: u32, arrives: impl Fn(u32) -> usize) -> u32 {
        let mut taken = 1;
        let mut sum = 0;
        for _ in 0..rounds {
            pace.pause(taken);
            sum += pace.turns;
            taken = arrives(pace.turns);
            pace.took(taken);
        }
        sum / rounds
    }

    #[test]
    fn pauses_stay_long_where_each_brings_what_fits_into_it() {
        for start in [MOST / PARTS, MOST] {
            let mean = mean(&mut pace(start), 1_000, |turns| 1 + turns as usize / 64);
            assert!(mean > MOST / 2, "{mean} of {MOST}");
        }
    }

    /// A load of a fixed number of clients, each of which waits for the end of its item.
    #[test]
    fn pauses_become_short_where_the_same_comes_whatever_their_length() {
        for each in [1, 8, 15] {
            let mut pace = pace(MOST);
            mean(&mut pace, 10, |_| each);
            assert_eq!(mean(&mut pace, 100, |_| each), MOST / PARTS);
        }
    }

    #[test]
    fn a_worker_to_which_nothing_comes_pauses_no_more() {
        let mut pace = pace(MOST);
        for _ in 0..10 {
            pace.pause(1);
            pace.took(0);
            pace.slept();
            pace.took(1);
        }
        assert_eq!(pace.turns, 0, "what comes after a sleep says nothing");
        // An entry comes while the worker lingers.
        pace.pause(1);
        pace.took(0);
        pace.took(1);
        assert_eq!(pace.turns, MOST / PARTS);
    }

    #[test]
    fn a_worker_that_nobody_looks_after_never_pauses() {
        let mut pace = Pace::new(false);
        assert_eq!(mean(&mut pace, 10, |_| 15), 0);
        assert!(Pace::new(true).turns > 0);
    }
}
