//! Bits that are set and cleared by number: a map of what is pending.

use super::Sbitmap;
use crate::error::PutError;

impl Sbitmap {
    /// Sets a bit by its number, whoever holds it. Returns whether it was clear.
    ///
    /// For maps that say what is pending, such as which of many software queues have requests: who
    /// adds sets the bit, who serves visits the set bits and [`clear`](Sbitmap::clear)s them. What
    /// was written before `set` is visible to whoever finds the bit set.
    ///
    /// Not for maps whose bits are handed out by the get methods: it does not look at who owns the
    /// bit.
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

    /// Clears a bit by its number, whoever has set it. Returns whether it was set.
    ///
    /// Of several callers one is told that it cleared the bit, and what was written before
    /// [`set`](Sbitmap::set) is visible to it. What a caller wrote before is visible to whoever
    /// sets the bit next, so a bit may serve as a lock.
    ///
    /// # Errors
    ///
    /// As [`set`](Sbitmap::set).
    pub fn clear(&self, bit: usize) -> Result<bool, PutError> {
        let (word, offset) = self.full.locate(bit)?;
        Ok(self.words[word].clear(offset))
    }
}
