//! The builder of a bitmap.

use crate::bitmap::Sbitmap;
use crate::double_free::Check;
use crate::error::BuildError;
use crate::layout::{Layout, MAX_DEPTH, SHIFT_MAX};
use crate::local::{self, PerCpuStore, StoreConfig};
use crate::rules::Users;

/// Builds a [`Sbitmap`].
///
/// ```
/// use inflight_sbitmap::{BuildError, Sbitmap};
/// let map = Sbitmap::builder(64).max_depth(256).shift(3).checked(true).build().unwrap();
/// assert_eq!(map.bits_per_word(), 8);
/// assert!(map.resize(256).is_ok());
/// let in_turn = Sbitmap::builder(8).round_robin(true).trusted(true).build().unwrap();
/// assert_eq!(in_turn.try_get(), Some(0));
/// in_turn.put(0).unwrap();
/// assert_eq!(in_turn.try_get(), Some(1));
/// assert_eq!(Sbitmap::builder(0).build().unwrap_err(), BuildError::Depth { depth: 0 });
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing exists before `build`"]
pub struct SbitmapBuilder {
    depth: usize,
    max_depth: Option<usize>,
    shift: Option<u32>,
    round_robin: bool,
    check: Check,
}

impl SbitmapBuilder {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            depth,
            max_depth: None,
            shift: None,
            round_robin: false,
            check: Check::Sequential,
        }
    }

    /// Lays out memory for growth up to `max_depth` by [`resize`](Sbitmap::resize). The default is
    /// the depth; the most is [`MAX_DEPTH`].
    pub fn max_depth(mut self, max_depth: usize) -> Self {
        self.max_depth = Some(max_depth);
        self
    }

    /// Uses `2^shift` bits of each word. The default is the largest shift, up to 6, that makes at
    /// least 4 words.
    pub fn shift(mut self, shift: u32) -> Self {
        self.shift = Some(shift);
        self
    }

    /// Hands bits out one after the other, round and round, instead of the bit last used: each CPU
    /// continues after the bit that it got last. For devices that want their tags spread.
    pub fn round_robin(mut self, on: bool) -> Self {
        self.round_robin = on;
        self
    }

    /// Also detects double frees that race with each other, unless another caller has got the bit
    /// in between. Puts then clear their bit on the line that getters search, instead of beside it.
    ///
    /// Of `checked(true)` and [`trusted(true)`](SbitmapBuilder::trusted) the last call counts.
    pub fn checked(self, on: bool) -> Self {
        self.check(Check::Racing, on)
    }

    /// Does not check whether a bit that is put is in use, and keeps no state for it: a double free
    /// makes two owners of one bit. A bit that the map does not have is still an error.
    ///
    /// Of `trusted(true)` and [`checked(true)`](SbitmapBuilder::checked) the last call counts.
    pub fn trusted(self, on: bool) -> Self {
        self.check(Check::Trusted, on)
    }

    /// Switching one check off keeps another one that was chosen.
    fn check(mut self, check: Check, on: bool) -> Self {
        if on {
            self.check = check;
        } else if self.check == check {
            self.check = Check::Sequential;
        }
        self
    }

    /// Makes the bitmap.
    ///
    /// # Errors
    ///
    /// [`BuildError::Depth`] if the depth is 0 or above [`MAX_DEPTH`], [`BuildError::MaxDepth`] if
    /// `max_depth` is below the depth or above [`MAX_DEPTH`], [`BuildError::Shift`] if the shift is
    /// above 6.
    pub fn build(self) -> Result<Sbitmap, BuildError> {
        let max_depth = self.checked_max_depth()?;
        Ok(Sbitmap::new(
            Layout::new(self.depth, max_depth, self.shift),
            max_depth,
            self.round_robin,
            self.check,
        ))
    }

    fn checked_max_depth(&self) -> Result<usize, BuildError> {
        let depth = self.depth;
        let max_depth = self.max_depth.unwrap_or(depth);
        if !(1..=MAX_DEPTH).contains(&depth) {
            return Err(BuildError::Depth { depth });
        }
        if !(depth..=MAX_DEPTH).contains(&max_depth) {
            return Err(BuildError::MaxDepth { max_depth, depth });
        }
        if let Some(shift) = self.shift.filter(|shift| *shift > SHIFT_MAX) {
            return Err(BuildError::Shift { shift });
        }
        Ok(max_depth)
    }

    /// Makes the local engine, or returns why the shared one is needed.
    pub(crate) fn build_local(&self, users: Option<Users>) -> Result<PerCpuStore, BuildError> {
        let max_depth = self.checked_max_depth()?;
        if self.round_robin {
            return Err(BuildError::RoundRobinNeedsShared);
        }
        if max_depth > local::MAX_DEPTH {
            return Err(BuildError::DepthNeedsShared { max_depth });
        }
        let wanted = Layout::new(self.depth, max_depth, self.shift).shift;
        let full = Layout::new(max_depth, max_depth, Some(PerCpuStore::shift(wanted)));
        let users = users.unwrap_or_else(Users::all);
        #[cfg_attr(not(loom), expect(unused_mut))]
        let mut config = StoreConfig::of(self.depth, users);
        #[cfg(loom)]
        {
            config.backend = local::model_backend::backend();
        }
        Ok(PerCpuStore::new(
            full,
            self.depth,
            self.check,
            config,
            users.count,
        ))
    }
}
