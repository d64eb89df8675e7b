//! Numbers that only have to differ.

// No part of any model: nothing else is published by such a number.
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
    ///
    /// ```
    /// assert_eq!(inflight_sync::Sequence::new().next(), 1);
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
        }
    }

    /// The next number.
    ///
    /// ```
    /// let sequence = inflight_sync::Sequence::new();
    /// assert!(sequence.next() < sequence.next());
    /// ```
    #[allow(clippy::must_use_candidate)]
    pub fn next(&self) -> u64 {
        // Relaxed is enough: a number has to differ from the others, and says nothing else.
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeSet;
    use std::thread;

    use super::Sequence;

    #[test]
    fn no_number_comes_twice() {
        let sequence = Sequence::new();
        let mut all = BTreeSet::new();
        thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..1000).map(|_| sequence.next()).collect::<Vec<_>>()))
                .collect();
            for taker in takers {
                all.extend(taker.join().expect("no panic"));
            }
        });
        assert!(all.into_iter().eq(1..=4000));
    }
}
