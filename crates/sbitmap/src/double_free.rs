//! When a double free is noticed: a byte for each bit says whether somebody holds it, and a put of
//! a bit that nobody holds is refused (`clear_owned`).
//!
//! The shared bitmap keeps the bytes by word, the local engine all of them in one table.

mod by_id;
mod by_word;

pub(crate) use by_id::IdStates;
pub(crate) use by_word::WordStates;

use inflight_sync::atomic::{AtomicU8, Ordering};

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

/// Whether a bit is held. Written by its owner alone: ownership moves with the bit, so all accesses
/// are Relaxed.
#[derive(Debug)]
struct BitState(AtomicU8);

impl BitState {
    pub(crate) fn free() -> Self {
        Self(AtomicU8::new(FREE))
    }

    /// Says whether the bit has an owner.
    #[inline]
    pub(crate) fn set_owned(&self, held: bool) {
        // Relaxed: see the type.
        self.0
            .store(if held { HELD } else { FREE }, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_owned(&self) -> bool {
        // Relaxed: a put that comes after another one sees its store by coherence.
        self.0.load(Ordering::Relaxed) == HELD
    }

    /// Ends the ownership. `false` if nobody owned the bit.
    #[inline]
    pub(crate) fn clear_owned(&self, check: Check) -> bool {
        if check == Check::Racing {
            // Relaxed: of two racing swaps one reads HELD.
            return self.0.swap(FREE, Ordering::Relaxed) == HELD;
        }
        self.clear_owned_alone()
    }

    /// As `clear_owned`, but of two racing calls both may find it held.
    #[inline]
    pub(crate) fn clear_owned_alone(&self) -> bool {
        let held = self.is_owned();
        if held {
            self.set_owned(false);
        }
        held
    }
}
