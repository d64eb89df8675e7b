//! A byte for each id: held or free. It finds double frees that the words cannot see.

use crate::word::Check;
use inflight_sync::atomic::{AtomicU8, Ordering};

const FREE: u8 = 0;
const HELD: u8 = 1;

/// A state, and room: the 16 ids of a word of a map of 64 fill a line. A refill takes ids of one
/// word, so a CPU mostly has lines of its own.
#[derive(Debug)]
#[repr(align(4))]
struct State(AtomicU8);

#[derive(Debug)]
pub(super) struct States {
    /// None at all if trusted.
    states: Box<[State]>,
    /// Where the state of id 0 is: at the beginning of a line.
    first: usize,
    check: Check,
}

impl States {
    pub(super) fn new(ids: usize, check: Check) -> Self {
        // Each atomic costs a model time, so there are no more than needed.
        let line = if cfg!(loom) { 1 } else { 128 };
        let states = match check {
            Check::Trusted => 0,
            _ => ids + line / size_of::<State>(),
        };
        let states: Box<[State]> = (0..states).map(|_| State(AtomicU8::new(FREE))).collect();
        let first = states.as_ptr().align_offset(line);
        Self {
            // Miri may not say.
            first: first.min(line / size_of::<State>()),
            states,
            check,
        }
    }

    #[inline]
    fn state(&self, id: usize) -> Option<&AtomicU8> {
        self.states.get(self.first + id).map(|state| &state.0)
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
