//! A byte for each id: held or free. It finds double frees that the words cannot see.

use crate::word::Check;
use inflight_sync::atomic::{AtomicU8, Ordering};

const FREE: u8 = 0;
const HELD: u8 = 1;

/// Bytes of a line.
const LINE: usize = if cfg!(loom) { 1 } else { 64 };

/// log2 of how many ids share a line.
///
/// In a small map every id has one: there the same few ids go to and fro between the CPU that gets
/// and the one that puts. The larger the map, the closer they lie, so that the table stays in the
/// cache; a refill takes ids of one word, so a CPU still mostly has lines of its own.
const fn shift(ids: usize) -> u32 {
    match ids {
        _ if LINE == 1 => 0,
        0..=128 => 0,
        129..=2_048 => 4,
        _ => 6,
    }
}

#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU8; LINE]);

#[derive(Debug)]
pub(super) struct States {
    /// None at all if trusted.
    lines: Box<[Line]>,
    /// log2 of how many ids share a line.
    shift: u32,
    check: Check,
}

impl States {
    pub(super) fn new(ids: usize, check: Check) -> Self {
        let shift = shift(ids);
        let lines = match check {
            Check::Trusted => 0,
            _ => (ids >> shift) + 1,
        };
        let line = |_| Line(std::array::from_fn(|_| AtomicU8::new(FREE)));
        Self {
            lines: (0..lines).map(line).collect(),
            shift,
            check,
        }
    }

    #[inline]
    fn state(&self, id: usize) -> Option<&AtomicU8> {
        Some(&self.lines.get(id >> self.shift)?.0[id % LINE])
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
