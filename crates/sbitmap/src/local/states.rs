//! A byte for each id: held or free. It finds double frees that the words cannot see.

use crate::word::Check;
use inflight_sync::atomic::{AtomicU8, Ordering};

const FREE: u8 = 0;
const HELD: u8 = 1;

/// log2 of how far apart the states of two ids are.
///
/// In a small map every id has a line: there the same few ids go to and fro between the CPU that
/// gets and the one that puts. The larger the map, the closer they lie, so that the table stays in
/// the cache; a refill takes ids of one word, so a CPU still mostly has lines of its own.
const fn shift(ids: usize) -> u32 {
    match ids {
        _ if cfg!(loom) => 0,
        0..=128 => 6,
        129..=2_048 => 2,
        _ => 0,
    }
}

#[derive(Debug)]
pub(super) struct States {
    /// None at all if trusted.
    states: Box<[AtomicU8]>,
    shift: u32,
    check: Check,
}

impl States {
    pub(super) fn new(ids: usize, check: Check) -> Self {
        let shift = shift(ids);
        let bytes = match check {
            Check::Trusted => 0,
            _ => ids << shift,
        };
        Self {
            states: (0..bytes).map(|_| AtomicU8::new(FREE)).collect(),
            shift,
            check,
        }
    }

    #[inline]
    fn state(&self, id: usize) -> Option<&AtomicU8> {
        self.states.get(id << self.shift)
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
