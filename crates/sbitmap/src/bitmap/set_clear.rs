//! Bits that are set and cleared by number: a map of pending work.

use super::Sbitmap;
use crate::error::PutError;

impl Sbitmap {
    /// Sets a bit by its number, whether or not it has an owner. Returns whether it was clear.
    ///
    /// For maps of what is pending, for example which of many software queues have requests: a
    /// producer sets the bit, and a consumer visits the set bits and [`clear`](Sbitmap::clear)s
    /// them. What was written before `set` is visible to a thread that finds the bit set.
    ///
    /// Not for maps whose bits are handed out by the get methods: it does not check the owner of
    /// the bit.
    ///
    /// # Errors
    ///
    /// [`PutError::OutOfRange`] if the bit is not below [`max_depth`](Sbitmap::max_depth).
    ///
    /// ```
    /// let pending = inflight_sbitmap::Sbitmap::builder(64).build().unwrap();
    /// assert_eq!(pending.set(9), Ok(true));
    /// assert_eq!(pending.set(9), Ok(false));
    /// assert_eq!(pending.clear(9), Ok(true));
    /// assert_eq!(pending.clear(9), Ok(false));
    /// ```
    pub fn set(&self, bit: usize) -> Result<bool, PutError> {
        let (word, offset) = self.full.locate(bit)?;
        Ok(self.words[word].set(offset))
    }

    /// Clears a bit by its number, whether or not it has an owner. Returns whether it was set. The
    /// errors are those of [`set`](Sbitmap::set).
    ///
    /// For one of several callers the answer is `true`, and what was written before
    /// [`set`](Sbitmap::set) is visible to it. What a caller wrote before is visible to the thread
    /// that sets the bit next, so a bit may serve as a lock.
    pub fn clear(&self, bit: usize) -> Result<bool, PutError> {
        let (word, offset) = self.full.locate(bit)?;
        Ok(self.words[word].clear(offset))
    }
}
