//! Detection of double frees: a put of a bit that is not in use is refused.
//!
//! The shared bitmap sees in its words who holds a bit (`word.rs`). The local engine, whose ids are
//! mostly in stacks, has a byte for each id (`clear_owned`), which only the id's owner writes.

use crate::layout::offsets;
use crate::mask::BitMask;
use inflight_sync::atomic::{AtomicU8, Ordering};
use inflight_sync::prefetch_to_write;

/// How a put is checked against a double free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Not at all.
    Trusted,
    /// Every put that does not race with the other one.
    Sequential,
    /// Also puts that race with each other.
    Racing,
}

const FREE: u8 = 0;
const HELD: u8 = 1;

const SMALL: usize = 64;
const MIDDLE: usize = 16;

/// The distance between the states of two ids, in bytes.
///
/// In a small map every id has a cache line: the same few ids move between the CPU that gets and
/// the one that puts. In a larger map they are closer together, so that the table stays in the
/// cache. A refill takes ids of one word, so a CPU still mostly has its own lines.
const fn stride(ids: usize) -> usize {
    match ids {
        _ if cfg!(loom) => 1,
        0..=128 => SMALL,
        129..=2_048 => MIDDLE,
        _ => 1,
    }
}

#[derive(Debug)]
pub(crate) struct IdStates {
    /// For each id, whether it is held. Only its owner writes it, and ownership moves with the bit,
    /// so all accesses are Relaxed. Empty if the queue is trusted.
    states: Box<[AtomicU8]>,
    stride: usize,
    check: Check,
}

impl IdStates {
    pub(crate) fn new(ids: usize, check: Check) -> Self {
        let stride = stride(ids);
        let bytes = match check {
            Check::Trusted => 0,
            _ => ids * stride,
        };
        Self {
            states: (0..bytes).map(|_| AtomicU8::new(FREE)).collect(),
            stride,
            check,
        }
    }

    /// Whether `clear_owned` needs an exchange.
    pub(crate) fn swaps(&self) -> bool {
        self.check == Check::Racing
    }

    #[inline]
    fn state(&self, id: usize) -> Option<&AtomicU8> {
        if self.states.is_empty() {
            return None; // before anything is computed
        }
        self.states.get(id.wrapping_mul(self.stride))
    }

    /// The caller, or another user of this CPU, will soon change the state of `id`.
    #[inline]
    pub(crate) fn prefetch(&self, id: usize) {
        if let Some(state) = self.state(id) {
            prefetch_to_write(state);
        }
    }

    /// The caller has just become the owner of `id`.
    #[inline]
    pub(crate) fn set_owned(&self, id: usize) {
        if let Some(state) = self.state(id) {
            // Relaxed: see `states`.
            state.store(HELD, Ordering::Relaxed);
        }
    }

    /// Gives up `id`, which is in the map. `false` if it had no owner.
    #[inline]
    pub(crate) fn clear_owned(&self, id: usize) -> bool {
        if self.swaps() {
            // Relaxed: of two racing swaps one reads HELD.
            return self
                .state(id)
                .is_none_or(|state| state.swap(FREE, Ordering::Relaxed) == HELD);
        }
        self.clear_owned_alone(id)
    }

    /// As `clear_owned`, but two racing calls may both find it held.
    #[inline]
    pub(crate) fn clear_owned_alone(&self, id: usize) -> bool {
        self.state(id).is_none_or(|state| {
            // Relaxed: a put after another one sees its store by coherence.
            let held = state.load(Ordering::Relaxed) == HELD;
            if held {
                // Relaxed: see `states`.
                state.store(FREE, Ordering::Relaxed);
            }
            held
        })
    }

    /// `clear_owned` for several ids: returns the bits of those that were held.
    pub(crate) fn clear_owned_mask(&self, ids: BitMask) -> u64 {
        let held =
            offsets(ids.mask).filter(|&offset| self.clear_owned(ids.first + offset as usize));
        held.fold(0, |held, offset| held | 1 << offset)
    }
}
