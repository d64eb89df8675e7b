//! Which runs are made.

use std::fmt;

/// The seeds of some runs, one after the other. After the largest number comes 0.
///
/// ```
/// use inflight_sim::Seeds;
/// let seeds = Seeds { first: u64::MAX, count: 2 };
/// assert_eq!(seeds.iter().collect::<Vec<_>>(), [u64::MAX, 0]);
/// assert_eq!(Seeds { first: 1, count: 5 }.to_string(), "seeds 1 to 5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// That of the first run.
    pub first: u64,
    /// How many runs there are.
    pub count: u64,
}

impl Seeds {
    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |n| self.first.wrapping_add(n))
    }
}

impl fmt::Display for Seeds {
    /// There is at least one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.first.wrapping_add(self.count.saturating_sub(1));
        write!(f, "seeds {} to {last}", self.first)
    }
}
