//! A byte for each id: held or free. It finds double frees that the words cannot see.

use crate::layout::low_mask;
use crate::mask::BitMask;
use crate::word::{Check, offsets};
use inflight_sync::atomic::{AtomicU8, Ordering};
use inflight_sync::prefetch_to_write;

const FREE: u8 = 0;
const HELD: u8 = 1;

const SMALL: usize = 64;
const MIDDLE: usize = 16;

/// How far apart the states of two ids are, in bytes.
///
/// In a small map every id has a line: there the same few ids go to and fro between the CPU that
/// gets and the one that puts. The larger the map, the closer they lie, so that the table stays in
/// the cache; a refill takes ids of one word, so a CPU still mostly has lines of its own.
const fn stride(ids: usize) -> usize {
    match ids {
        _ if cfg!(loom) => 1,
        0..=128 => SMALL,
        129..=2_048 => MIDDLE,
        _ => 1,
    }
}

/// Calls a function for the stride, so that it is a constant to it.
macro_rules! by_stride {
    ($stride:expr, $name:ident($run:expr)) => {
        match $stride {
            SMALL => $name::<SMALL>($run),
            MIDDLE => $name::<MIDDLE>($run),
            _ => $name::<1>($run),
        }
    };
}

#[derive(Debug)]
pub(super) struct States {
    /// None at all if trusted.
    states: Box<[AtomicU8]>,
    stride: usize,
    check: Check,
}

impl States {
    pub(super) fn new(ids: usize, check: Check) -> Self {
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

    /// Whether `end` takes an exchange.
    pub(super) fn exchanges(&self) -> bool {
        self.check == Check::Racing
    }

    #[inline]
    fn state(&self, id: usize) -> Option<&AtomicU8> {
        if self.states.is_empty() {
            return None; // before anything is computed
        }
        self.states.get(id.wrapping_mul(self.stride))
    }

    /// The caller will soon change the state of `id`, or somebody else on this CPU will.
    #[inline]
    pub(super) fn expect(&self, id: usize) {
        if let Some(state) = self.state(id) {
            prefetch_to_write(state);
        }
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
        match self.state(id) {
            // Relaxed: of two racing swaps one reads HELD.
            Some(state) if self.exchanges() => state.swap(FREE, Ordering::Relaxed) == HELD,
            _ => self.end_alone(id),
        }
    }

    /// As `end`, but of two racing calls both may find the id held.
    #[inline]
    pub(super) fn end_alone(&self, id: usize) -> bool {
        let Some(state) = self.state(id) else {
            return true;
        };
        // Relaxed: a put that comes after the other one sees its store by coherence.
        let held = state.load(Ordering::Relaxed) == HELD;
        if held {
            state.store(FREE, Ordering::Relaxed);
        }
        held
    }

    /// `begin` for several.
    #[inline]
    pub(super) fn begin_all(&self, ids: BitMask) {
        if self.states.is_empty() {
            return;
        }
        match self.run(ids) {
            Some(run) => by_stride!(self.stride, begin_run(run)),
            None => ids.iter().for_each(|id| self.begin(id)),
        }
    }

    /// `end` for several: the bits of those that were held.
    #[inline]
    pub(super) fn end_all(&self, ids: BitMask) -> u64 {
        if self.states.is_empty() {
            return ids.mask;
        }
        let run = self.run(ids).filter(|_| !self.exchanges());
        if run.is_some_and(|run| by_stride!(self.stride, end_run(run))) {
            return ids.mask;
        }
        let held = offsets(ids.mask).filter(|&offset| self.end(ids.first + offset as usize));
        held.fold(0, |held, offset| held | 1 << offset)
    }

    /// The states of neighbours, if that is what they are.
    #[inline]
    fn run(&self, ids: BitMask) -> Option<&[AtomicU8]> {
        let ones = ids.mask.trailing_ones();
        if ids.mask != low_mask(ones) {
            return None;
        }
        let start = ids.first * self.stride;
        self.states.get(start..start + ones as usize * self.stride)
    }
}

/// How many states are looked at without a jump.
const AT_ONCE: usize = 8;

fn begin_run<const STRIDE: usize>(run: &[AtomicU8]) {
    // Relaxed: as in `begin`.
    let mut eights = run.chunks_exact(AT_ONCE * STRIDE);
    for eight in &mut eights {
        (0..AT_ONCE).for_each(|i| eight[i * STRIDE].store(HELD, Ordering::Relaxed));
    }
    let rest = eights.remainder().iter().step_by(STRIDE);
    rest.for_each(|state| state.store(HELD, Ordering::Relaxed));
}

/// If all are held, none is any more.
fn end_run<const STRIDE: usize>(run: &[AtomicU8]) -> bool {
    // Relaxed: as in `end_alone`.
    let is_held = |state: &AtomicU8| state.load(Ordering::Relaxed) == HELD;
    let free = |state: &AtomicU8| state.store(FREE, Ordering::Relaxed);
    let eights = run.chunks_exact(AT_ONCE * STRIDE);
    let mut rest = eights.remainder().iter().step_by(STRIDE);
    let held = eights
        .clone()
        .all(|eight| (0..AT_ONCE).fold(true, |held, i| held & is_held(&eight[i * STRIDE])));
    if !held || !rest.clone().all(is_held) {
        return false;
    }
    eights.for_each(|eight| (0..AT_ONCE).for_each(|i| free(&eight[i * STRIDE])));
    rest.by_ref().for_each(free);
    true
}
