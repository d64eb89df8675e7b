//! Where a search begins. A hint reserves nothing: any value is correct.

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
    #[must_use]
    pub fn at(bit: usize) -> Self {
        Self(u32::try_from(bit).unwrap_or(u32::MAX))
    }

    /// A hint inside the map: the depth may have become smaller since.
    pub(crate) fn within(self, layout: Layout) -> Self {
        if (self.0 as usize) < layout.depth {
            self
        } else {
            Self(0)
        }
    }

    /// The hint after a search that began here, which must be inside the map.
    ///
    /// If the found bit is the hint's (or bits are handed out round robin), the hint moves to the
    /// bit after it. If the search had to leave its word, the hint follows it: the next search
    /// would only find the same words full. A bit found elsewhere in the hint's own word leaves the
    /// hint as it is.
    pub(crate) fn after(self, found: Option<usize>, layout: Layout, in_turn: bool) -> Self {
        let Some(bit) = found else { return Self(0) };
        if in_turn || bit == self.0 as usize {
            if bit + 1 < layout.depth {
                Self::at(bit + 1)
            } else {
                Self(0)
            }
        } else if layout.split(bit).0 == layout.split(self.0 as usize).0 {
            self
        } else {
            Self::at(bit)
        }
    }
}

/// One hint for each CPU, each on its own cache line.
///
/// The number of slots is the next power of two, so that a mask maps a CPU number to its slot.
#[derive(Debug)]
pub(crate) struct Hints {
    slots: Box<[CachePadded<CpuHint>]>,
    cpus: usize,
}

/// The hint of one CPU.
#[derive(Debug)]
pub(crate) struct CpuHint(AtomicU32);

impl Hints {
    /// CPUs begin evenly apart, so no two of them meet in a word as long as there is a word for
    /// each. For round robin, all begin at 0.
    pub(crate) fn new(layout: Layout, in_turn: bool) -> Self {
        Self::for_cpus(cpu::online(), layout, in_turn)
    }

    fn for_cpus(cpus: usize, layout: Layout, in_turn: bool) -> Self {
        let first = |slot: usize| {
            // A model must do the same on every machine.
            if in_turn || cfg!(any(loom, shuttle)) {
                Hint(0)
            } else {
                // Slots beyond the CPUs are for sparse CPU numbers.
                Hint::at(layout.bit(layout.words() * (slot % cpus) / cpus, 0))
            }
        };
        Self {
            slots: (0..cpus.next_power_of_two())
                .map(|slot| CachePadded::new(CpuHint(AtomicU32::new(first(slot).0))))
                .collect(),
            cpus,
        }
    }

    /// The slot of the calling CPU. Read once in each operation, because the CPU number has a cost.
    #[inline]
    pub(crate) fn of_this_cpu(&self) -> &CpuHint {
        // CPU numbers may be sparse, or outdated: any slot is correct.
        &self.slots[cpu::current() & (self.slots.len() - 1)]
    }

    /// The hint of each CPU that was online.
    pub(crate) fn all(&self) -> Vec<u32> {
        let slots = self.slots.iter().take(self.cpus);
        slots.map(|slot| slot.0.load(Ordering::Relaxed)).collect()
    }
}

impl CpuHint {
    /// The bit of the hint, which may be beyond the map.
    #[inline]
    pub(crate) fn as_bit(&self) -> usize {
        // Relaxed: see `load`.
        self.0.load(Ordering::Relaxed) as usize
    }

    /// A hint inside the map. A hint outside a shrunken map is folded back into it, so that the
    /// CPUs stay apart.
    #[inline]
    pub(crate) fn load(&self, layout: Layout) -> Hint {
        // Relaxed: an outdated hint only makes the search longer.
        let hint = self.0.load(Ordering::Relaxed);
        if (hint as usize) < layout.depth || layout.depth == 0 {
            Hint(hint)
        } else {
            Hint::at(hint as usize % layout.depth)
        }
    }

    #[inline]
    pub(crate) fn store(&self, hint: Hint) {
        // Relaxed: see `load`. A racing store of a neighbour may win; both are fine. The load first
        // avoids writing the line of a CPU number that many threads share.
        if self.0.load(Ordering::Relaxed) != hint.0 {
            self.0.store(hint.0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn cpus_begin_in_words_of_their_own_while_there_are_enough() {
        for (cpus, depth) in (1..=16).flat_map(|cpus| (1..=1100).map(move |depth| (cpus, depth))) {
            let layout = Layout::new(depth, depth, None);
            let hints = Hints::for_cpus(cpus, layout, false).all();
            assert!(hints.iter().all(|&hint| (hint as usize) < depth));
            let words = hints.iter().map(|&hint| layout.split(hint as usize).0);
            let words: std::collections::BTreeSet<_> = words.collect();
            let enough = cpus.min(layout.words());
            assert_eq!(words.len(), enough, "{cpus} CPUs, {depth} bits: {hints:?}");
            let in_turn = Hints::for_cpus(cpus, layout, true).all();
            assert!(in_turn.iter().all(|&hint| hint == 0));
        }
    }
}
