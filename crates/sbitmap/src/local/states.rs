//! A byte for each id: held or free. It finds double frees that the words cannot see.

use crate::word::Check;
use inflight_sync::atomic::{AtomicU8, Ordering};

const FREE: u8 = 0;
const HELD: u8 = 1;

/// A line.
const LINE: usize = if cfg!(loom) { 1 } else { 64 };

/// How far apart the states of two ids are.
///
/// In a small map every id has a line: there the same few ids go to and fro between the CPU that
/// gets and the one that puts. In a large one 16 ids share a line, so that the table stays in the
/// cache; a refill takes ids of one word, so a CPU still mostly has lines of its own.
const fn stride(ids: usize) -> usize {
    if ids <= 128 { LINE } else { LINE.div_ceil(16) }
}

#[derive(Debug)]
pub(super) struct States {
    /// None at all if trusted.
    states: Box<[AtomicU8]>,
    /// Where the state of id 0 is: at the beginning of a line.
    first: usize,
    stride: usize,
    check: Check,
}

impl States {
    pub(super) fn new(ids: usize, check: Check) -> Self {
        let stride = stride(ids);
        let bytes = match check {
            Check::Trusted => 0,
            _ => ids * stride + LINE,
        };
        let states: Box<[AtomicU8]> = (0..bytes).map(|_| AtomicU8::new(FREE)).collect();
        Self {
            // Some tools do not say; the place of a line is no matter of correctness.
            first: states.as_ptr().align_offset(LINE).min(LINE),
            states,
            stride,
            check,
        }
    }

    #[inline]
    fn state(&self, id: usize) -> Option<&AtomicU8> {
        self.states.get(id * self.stride + self.first)
    }

    /// The caller has just become the owner of `id`.
    #[inline]
    pub(super) fn begin(&self, id: usize) {
        // `None` if trusted.
        if let Some(state) = self.state(id) {
            // Relaxed: the owner alone writes it, and ownership moves with the id.
            state.store(HELD, Ordering::Relaxed);
        }
    }

    /// The caller gives `id`, which is in the map, up. `false` if nobody owned it.
    #[inline]
    pub(super) fn end(&self, id: usize) -> bool {
        let Some(state) = self.state(id) else {
            return true;
        };
        if self.check == Check::Racing {
            // Relaxed: of two racing swaps one reads HELD.
            return state.swap(FREE, Ordering::Relaxed) == HELD;
        }
        // Relaxed: a put that comes after the other one sees its store by coherence.
        let held = state.load(Ordering::Relaxed) == HELD;
        if held {
            state.store(FREE, Ordering::Relaxed);
        }
        held
    }
}
