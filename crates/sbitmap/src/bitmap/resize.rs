//! Changing the depth while the map is in use.

use super::Sbitmap;
use crate::error::ResizeError;
use inflight_sync::atomic::Ordering;

impl Sbitmap {
    /// Changes the depth, between 1 and [`max_depth`](Sbitmap::max_depth), while others get and
    /// put.
    ///
    /// Shrinking succeeds while bits are in use. Bits above the new depth stay with their owners,
    /// are counted and visited, and vanish when they are put. After the map has grown past such a
    /// bit, a caller can get it as soon as its owner has put it.
    ///
    /// When the call has returned, no get takes a bit above the depth any more. A get that took its
    /// bit before may return it later.
    ///
    /// # Errors
    ///
    /// [`ResizeError`] if the depth is not one of those; the map is unchanged then.
    ///
    /// ```
    /// use inflight_sbitmap::{ResizeError, Sbitmap};
    /// let map = Sbitmap::builder(4).max_depth(8).build()?;
    /// let mut bits = Vec::new();
    /// map.try_get_batch(8, &mut bits);
    /// assert_eq!(bits.len(), 4);
    /// map.resize(2)?; // all four are still held
    /// assert_eq!(map.weight(), 4);
    /// map.put_batch(&bits)?;
    /// assert_eq!(map.try_get_batch(8, &mut bits), 2);
    /// assert_eq!(map.resize(9), Err(ResizeError::Depth { depth: 9, most: 8 }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        ResizeError::check(depth, self.full.depth)?;
        let _resizing = self.resizing.lock();
        let old = self.layout();
        // Relaxed: the flushes below publish a smaller depth to getters, and a larger one may be
        // seen late.
        self.depth.store(depth, Ordering::Relaxed);
        // The words from the first that loses bits on; none if the map grows.
        for word in &self.words[depth >> old.shift..old.words().max(depth >> old.shift)] {
            word.flush();
        }
        Ok(())
    }
}
