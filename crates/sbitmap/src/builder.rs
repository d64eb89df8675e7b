//! Choices made before a bitmap exists.

use crate::bitmap::Sbitmap;
use crate::error::BuildError;
use crate::layout::{Layout, MAX_DEPTH, SHIFT_MAX};
use crate::word::Check;

/// Builds a [`Sbitmap`].
///
/// ```
/// let map = inflight_sbitmap::Sbitmap::builder(64).shift(3).build().unwrap();
/// assert_eq!(map.bits_per_word(), 8);
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing exists before `build`"]
pub struct SbitmapBuilder {
    depth: usize,
    shift: Option<u32>,
    round_robin: bool,
    check: Check,
}

impl SbitmapBuilder {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            depth,
            shift: None,
            round_robin: false,
            check: Check::Sequential,
        }
    }

    /// Uses `2^shift` bits of each word. By default the largest, up to 64, that makes at least 4
    /// words.
    ///
    /// ```
    /// assert!(inflight_sbitmap::Sbitmap::builder(64).shift(6).build().is_ok());
    /// ```
    pub fn shift(mut self, shift: u32) -> Self {
        self.shift = Some(shift);
        self
    }

    /// Hands bits out in turn instead of the warmest first. For devices that want their tags
    /// spread.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(8).round_robin(true).build().unwrap();
    /// assert_eq!(map.try_get(), Some(0));
    /// map.put(0).unwrap();
    /// assert_eq!(map.try_get(), Some(1));
    /// ```
    pub fn round_robin(mut self, on: bool) -> Self {
        self.round_robin = on;
        self
    }

    /// Also catches double frees that race with each other, at the price of one more RMW per put.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(8).checked(true).build().unwrap();
    /// assert!(map.put(0).is_err());
    /// ```
    pub fn checked(self, on: bool) -> Self {
        self.check(Check::Racing, on)
    }

    /// Checks no put at all, and keeps no state for it: a double free makes two owners of one bit.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(8).trusted(true).build().unwrap();
    /// let bit = map.try_get().unwrap();
    /// map.put(bit).unwrap();
    /// ```
    pub fn trusted(self, on: bool) -> Self {
        self.check(Check::Trusted, on)
    }

    /// Switching one way off leaves another that was chosen.
    fn check(mut self, check: Check, on: bool) -> Self {
        if on {
            self.check = check;
        } else if self.check == check {
            self.check = Check::Sequential;
        }
        self
    }

    /// Makes the map.
    ///
    /// # Errors
    ///
    /// A depth above [`MAX_DEPTH`] or a shift above 6.
    ///
    /// ```
    /// assert!(inflight_sbitmap::Sbitmap::builder(0).build().unwrap().try_get().is_none());
    /// ```
    pub fn build(self) -> Result<Sbitmap, BuildError> {
        if self.depth > MAX_DEPTH {
            return Err(BuildError::DepthTooLarge);
        }
        if self.shift.is_some_and(|shift| shift > SHIFT_MAX) {
            return Err(BuildError::ShiftTooLarge);
        }
        Ok(Sbitmap::new(
            Layout::new(self.depth, self.shift),
            self.round_robin,
            self.check,
        ))
    }
}
