//! How long the items of a pool take, as far as is known.

/// What an item takes, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    estimate: u64,
    /// The last two samples, the last one first.
    lately: [u64; 2],
}

impl Pace {
    /// Nothing is known, and so much is assumed.
    pub(super) fn assumed(ns: u64) -> Self {
        Self {
            estimate: ns,
            lately: [ns; 2],
        }
    }

    pub(super) fn estimate(&self) -> u64 {
        self.estimate
    }

    /// An item has taken so many ns. Of the last three samples the middle one counts: an item
    /// whose worker lost its CPU meanwhile looks long, and is alone in that.
    pub(super) fn took(&mut self, ns: u64) {
        let [last, before] = self.lately;
        self.lately = [ns, last];
        let middle = ns.min(last).max(ns.max(last).min(before));
        self.estimate = if middle > self.estimate {
            middle.midpoint(self.estimate)
        } else {
            self.estimate - (self.estimate - middle) / 8
        };
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn small() -> Pace {
        let mut pace = Pace::assumed(20_000);
        (0..100).for_each(|_| pace.took(100));
        pace
    }

    #[test]
    fn one_long_item_among_small_ones_changes_nothing() {
        let mut pace = small();
        let before = pace.estimate();
        for _ in 0..10 {
            pace.took(3_000_000);
            pace.took(100);
            pace.took(90);
        }
        assert!(pace.estimate() <= before, "{pace:?}");
    }

    #[test]
    fn two_long_ones_do() {
        let mut pace = small();
        pace.took(1_000_000);
        pace.took(1_100_000);
        assert!(pace.estimate() >= 500_000, "{pace:?}");
    }

    #[test]
    fn it_falls_by_an_eighth() {
        let mut pace = Pace::assumed(800);
        pace.took(0);
        assert_eq!(pace.estimate(), 800, "the middle one of 800, 800 and 0");
        pace.took(0);
        assert_eq!(pace.estimate(), 700);
    }
}
