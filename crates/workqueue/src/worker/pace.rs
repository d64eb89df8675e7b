//! How long a worker leaves its pool's lock alone after a short batch.
//!
//! One that takes an entry at a time passes the lines of the lock to and fro with who submits; if
//! it waits a little, more comes together. It learns how long: a pause that brought more than the
//! batch before it had is followed by one of twice the length, any other by one of half. Where
//! nothing comes meanwhile, as on the submitter's own CPU, next to no time is lost.

use inflight_sync::{hint, time};

/// A batch of fewer entries is short.
const SHORT: usize = 16;

/// How long at most a worker leaves the lock alone.
const MOST_NS: u64 = 4_000;

/// The shortest pause is one part in so many of the longest.
const PARTS: u32 = 16;

/// The pauses of one worker.
pub(super) struct Pace {
    /// How long the next one is, in turns of a spin loop.
    turns: u32,
    /// How long one is at most.
    most: u32,
    /// What the batch had that the last pause came after, until it is known what that brought.
    paused_after: Option<usize>,
}

impl Pace {
    /// Of a worker that is looked after, or it pauses never.
    pub(super) fn new(is_looked_after: bool) -> Self {
        let most = if is_looked_after {
            time::spin_turns(MOST_NS)
        } else {
            0
        };
        Self {
            turns: most / PARTS,
            most,
            paused_after: None,
        }
    }

    /// Whether a pause is in place after a batch of so many entries of so many ns each, which left
    /// nothing behind: not after a long one, nor after one that took long.
    pub(super) fn is_short(taken: usize, service_ns: u64) -> bool {
        taken < SHORT && taken as u64 * service_ns < MOST_NS / 4
    }

    /// A batch was taken.
    pub(super) fn took(&mut self, taken: usize) {
        if let Some(before) = self.paused_after.take() {
            self.turns = if taken > before {
                (self.turns * 2).min(self.most)
            } else {
                (self.turns / 2).max(self.most / PARTS)
            };
        }
    }

    /// Leaves the lock alone, after a short batch of so many.
    pub(super) fn pause(&mut self, taken: usize) {
        self.paused_after = Some(taken);
        for _ in 0..self.turns {
            hint::spin_loop();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn pace() -> Pace {
        Pace {
            turns: 1,
            most: PARTS,
            paused_after: None,
        }
    }

    /// Each pause brings as many entries as it has turns.
    #[test]
    fn pauses_that_bring_more_grow_to_the_most() {
        let mut pace = pace();
        let mut taken = 0;
        for _ in 0..10 {
            pace.pause(taken);
            taken += pace.turns as usize;
            pace.took(taken);
        }
        assert_eq!(pace.turns, PARTS);
    }

    #[test]
    fn pauses_that_bring_nothing_more_shrink_to_the_least() {
        let mut pace = pace();
        pace.turns = PARTS;
        for _ in 0..5 {
            pace.pause(1);
            pace.took(1);
        }
        assert_eq!(pace.turns, 1);
    }

    #[test]
    fn a_batch_without_a_pause_before_it_says_nothing() {
        let mut pace = pace();
        pace.pause(1);
        pace.took(2);
        for taken in 3..10 {
            pace.took(taken);
        }
        assert_eq!(pace.turns, 2);
    }

    #[test]
    fn a_worker_that_nobody_looks_after_never_pauses() {
        let mut pace = Pace::new(false);
        pace.pause(1);
        pace.took(15);
        assert_eq!(pace.turns, 0);
    }
}
