//! Unique numbers.

// std's, because no model is about it: such a number publishes nothing else.
use std::sync::atomic::{AtomicU64, Ordering};

/// Hands out 1, 2, 3 and so on, each once, whoever asks.
///
/// For versions and names. It orders nothing else, and is the same in every back end, so that it
/// may also be made outside of a model.
///
/// ```
/// use inflight_sync::Sequence;
///
/// let versions = Sequence::new();
/// assert_eq!((versions.next(), versions.next()), (1, 2));
/// ```
#[derive(Debug, Default)]
pub struct Sequence {
    last: AtomicU64,
}

impl Sequence {
    /// A sequence whose first number is 1.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
        }
    }

    /// The next number.
    #[allow(clippy::must_use_candidate)]
    pub fn next(&self) -> u64 {
        // Relaxed: the numbers only have to differ.
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }
}
