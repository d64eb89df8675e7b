//! Where a search begins. A hint steers, it never owns: any value is correct.

use crate::layout::Layout;
use inflight_sync::CachePadded;
use inflight_sync::atomic::{AtomicU32, Ordering};
use inflight_sync::cpu;

/// A caller's own starting point, for [`Sbitmap::try_get_with`](crate::Sbitmap::try_get_with).
///
/// Without one, the map keeps a hint for each CPU.
///
/// ```
/// use inflight_sbitmap::{Hint, Sbitmap};
/// let map = Sbitmap::builder(8).build().unwrap();
/// let mut hint = Hint::at(4);
/// assert_eq!(map.try_get_with(&mut hint), Some(4));
/// assert_eq!(map.try_get_with(&mut hint), Some(5));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hint(pub(crate) u32);

impl Hint {
    /// Begins at `bit`; a value beyond the map begins at 0.
    ///
    /// ```
    /// assert_eq!(inflight_sbitmap::Hint::at(0), inflight_sbitmap::Hint::default());
    /// ```
    #[must_use]
    pub fn at(bit: usize) -> Self {
        Self(u32::try_from(bit).unwrap_or(u32::MAX))
    }

    /// A hint inside the map: the depth may be smaller than when the hint was made.
    pub(crate) fn within(self, layout: Layout) -> Self {
        if (self.0 as usize) < layout.depth {
            self
        } else {
            Self(0)
        }
    }

    /// The hint after a search that began here.
    ///
    /// It moves on only if it was spot-on (or bits are handed out in turn); a search that had to
    /// look elsewhere leaves it, so that a bit freed here is found again while its lines are
    /// warm.
    pub(crate) fn after(self, found: Option<usize>, layout: Layout, in_turn: bool) -> Self {
        match found {
            None => Self(0),
            Some(bit) if in_turn || bit == self.0 as usize => {
                if bit + 1 < layout.depth {
                    Self::at(bit + 1)
                } else {
                    Self(0)
                }
            }
            Some(_) => self,
        }
    }
}

/// One hint for each CPU, each on its own cache line.
#[derive(Debug)]
pub(crate) struct Hints(Box<[CachePadded<AtomicU32>]>);

impl Hints {
    /// CPUs begin at different places, so that they meet late. In turn, all begin at 0.
    pub(crate) fn new(layout: Layout, in_turn: bool) -> Self {
        let first = || {
            // A model must do the same in every execution.
            if cfg!(any(loom, shuttle)) || in_turn || layout.depth == 0 {
                0
            } else {
                fastrand::u32(..u32::try_from(layout.depth).expect("depth is at most 2^24"))
            }
        };
        Self(
            (0..cpu::possible())
                .map(|_| CachePadded::new(AtomicU32::new(first())))
                .collect(),
        )
    }

    fn of_this_cpu(&self) -> &AtomicU32 {
        // CPU numbers may be sparse, or stale: any slot is correct.
        &self.0[cpu::current() % self.0.len()]
    }

    pub(crate) fn load(&self) -> Hint {
        // Relaxed: a stale hint costs a longer search, nothing else.
        Hint(self.of_this_cpu().load(Ordering::Relaxed))
    }

    pub(crate) fn store(&self, old: Hint, new: Hint) {
        if old != new {
            // Relaxed: see `load`. A racing store of a neighbour may win; both are fine.
            self.of_this_cpu().store(new.0, Ordering::Relaxed);
        }
    }

    /// Points this CPU at a bit it has just given back.
    pub(crate) fn point_at(&self, bit: usize) {
        self.store(self.load(), Hint::at(bit));
    }

    pub(crate) fn all(&self) -> Vec<u32> {
        self.0.iter().map(|h| h.load(Ordering::Relaxed)).collect()
    }
}
