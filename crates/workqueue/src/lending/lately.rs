//! What something took lately.

/// A mean of what was seen lately, in ns.
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
