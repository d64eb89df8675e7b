//! A byte for each id: held or free. It finds double frees that the words cannot see.

use crate::word::Check;
use inflight_sync::CachePadded;
use inflight_sync::atomic::{AtomicU8, Ordering};

const FREE: u8 = 0;
const HELD: u8 = 1;

/// Each atomic costs a model time, so there are no more than needed.
const PER_WORD: usize = if cfg!(loom) { 4 } else { 32 };

/// The states of a word's ids share a line among themselves only: a refill takes ids of one word,
/// so a CPU mostly has lines of its own.
#[derive(Debug)]
pub(super) struct States {
    words: Box<[CachePadded<[AtomicU8; PER_WORD]>]>,
    shift: u32,
    check: Check,
}

impl States {
    pub(super) fn new(words: usize, shift: u32, check: Check) -> Self {
        let words = if check == Check::Trusted { 0 } else { words };
        let free = |_| CachePadded::new(std::array::from_fn(|_| AtomicU8::new(FREE)));
        Self {
            words: (0..words).map(free).collect(),
            shift,
            check,
        }
    }

    #[inline]
    fn state(&self, id: usize) -> &AtomicU8 {
        &self.words[id >> self.shift][id & (((1 << self.shift) - 1) & (PER_WORD - 1))]
    }

    /// The caller has just become the owner of `id`.
    #[inline]
    pub(super) fn begin(&self, id: usize) {
        if self.check != Check::Trusted {
            // Relaxed: the owner alone writes it, and ownership moves with the id.
            self.state(id).store(HELD, Ordering::Relaxed);
        }
    }

    /// The caller gives `id` up. `false` if nobody owned it.
    #[inline]
    pub(super) fn end(&self, id: usize) -> bool {
        match self.check {
            Check::Trusted => true,
            Check::Sequential => {
                let state = self.state(id);
                // Relaxed: a put that comes after the other one sees its store by coherence.
                let held = state.load(Ordering::Relaxed) == HELD;
                if held {
                    state.store(FREE, Ordering::Relaxed);
                }
                held
            }
            // Relaxed: of two racing swaps one reads HELD.
            Check::Racing => self.state(id).swap(FREE, Ordering::Relaxed) == HELD,
        }
    }
}
