//! A summary of which words may have free ids, so that reporting "none" does not need to read every
//! word.
//!
//! ```text
//! times a bit was set 32 | SET 16 | CLOSING 16
//! ```
//!
//! If there are many summary words, these have a summary too, in the same way: a summary word
//! relates to its own bit as a word does to the bit of the word, and a bit in it corresponds to an
//! id in the word.
//!
//! A word without a summary bit is empty, except for ids whose put has not ended. A put sets the
//! bit of its word if it is not set (PM). A thread that finds a word with a bit empty clears the
//! bit. It sets CLOSING first, then checks the word, and clears the bit only if the summary word
//! has not changed in between (X1 to X4). A word that is CLOSING is read like any other.

use crate::layout::low_mask;
use inflight_sync::CachePadded;
use inflight_sync::asym::fence_after_rmw;
use inflight_sync::atomic::{AtomicU64, Ordering, fence};

/// How many words one summary word covers.
pub(super) const WORDS: usize = 16;

const CLOSING: u64 = 1;
const SET: u64 = 1 << WORDS;
const BOTH: u64 = CLOSING | SET;
/// Every change to SET is counted, so between two equal readings of a group there was none.
const ONE_MORE: u64 = 1 << 32;

/// One reading of a summary word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SummaryWord(u64);

impl SummaryWord {
    /// The words that have to be read.
    pub(super) const fn words(self) -> u64 {
        (self.0 | self.0 >> WORDS) & (SET - 1)
    }

    pub(super) const fn count(self) -> u64 {
        self.0 / ONE_MORE
    }

    /// A number that decreases with every change except a change to SET.
    pub(super) const fn states(self) -> u64 {
        self.0 % ONE_MORE
    }
}

/// A summary word for every 16 words, or none at all in a small map.
#[derive(Debug)]
pub(super) struct Summary(Box<[CachePadded<AtomicU64>]>);

impl Summary {
    /// The bits of all words set.
    pub(super) fn new(words: usize) -> Self {
        let bits_of = |group: usize| low_mask((words - group * WORDS).min(WORDS) as u32) * SET;
        let group = |i| CachePadded::new(AtomicU64::new(bits_of(i)));
        Self((0..words.div_ceil(WORDS)).map(group).collect())
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) const fn groups(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn read(&self, group: usize) -> SummaryWord {
        // Ordering: A1 and A2, Acquire pairs with the Release in `clear_if`: a thread that finds a
        // word without a bit knows all that the getter which emptied it knew. Also, the second pass
        // stays after the first, and A3 after the second.
        SummaryWord(self.0[group].load(Ordering::Acquire))
    }

    /// PM, after P1 and P2.
    #[inline]
    pub(super) fn set(&self, word: usize) {
        let Some(group) = self.0.get(word / WORDS) else {
            return;
        };
        let at = word % WORDS;
        // Relaxed: ordered by P2. If this reads SET from before X1, X3 sees P1.
        let mut now = group.load(Ordering::Relaxed);
        while now & SET << at == 0 {
            let new = (now & !(BOTH << at) | SET << at).wrapping_add(ONE_MORE);
            // Relaxed: P2 carries P1 to a thread that reads the bit and then X2.
            match group.compare_exchange_weak(now, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // Ordering: P2 again, pairs with R2: a waiter that missed the bit is seen.
                    return fence_after_rmw();
                }
                Err(other) => now = other,
            }
        }
    }

    /// X1 to X4: clears the bit of a word that was seen empty, if it still `is_empty` then.
    pub(super) fn clear_if(&self, word: usize, is_empty: impl FnOnce() -> bool) {
        let (group, at) = (&self.0[word / WORDS], word % WORDS);
        let Some(closing) = begin_to_clear(group, at) else {
            return; // X1
        };
        // Ordering: X2, pairs with P2 and PT in `Words::put`: a putter that saw the bit set has put
        // before X3, or set the bit that X3 looks for.
        fence(Ordering::SeqCst);
        if is_empty() {
            let new = closing & !(BOTH << at);
            // Ordering: X4, Release pairs with the Acquire in `read`. Relaxed on failure: this
            // summary word has changed since X1 and the bit stays set, which is never wrong.
            let _kept = group.compare_exchange(closing, new, Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// X1. `None` if there is nothing to clear, or other threads use this summary word.
fn begin_to_clear(group: &AtomicU64, at: usize) -> Option<u64> {
    // Relaxed, as the exchange: X2 follows.
    let now = group.load(Ordering::Relaxed);
    if now & SET << at == 0 {
        return (now & CLOSING << at != 0).then_some(now);
    }
    let new = now ^ BOTH << at;
    let closing = group.compare_exchange(now, new, Ordering::Relaxed, Ordering::Relaxed);
    closing.is_ok().then_some(new)
}
