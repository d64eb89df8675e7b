//! The mode word: the mode of the store, and the number of waiters.
//!
//! ```text
//! epoch 32 | waiters 29 | LOCKED | DRAINED | COLD
//! ```
//!
//! Slow paths of all threads read it; changes of mode and the wait list write it. So it has its own
//! cache line.

use inflight_sync::CachePadded;
use inflight_sync::atomic::{AtomicU64, Ordering};

const COLD: u64 = 1;
const DRAINED: u64 = 2;
const LOCKED: u64 = 4;
const WAITER: u64 = 8;
const WAITERS: u64 = (EPOCH - 1) & !(COLD | DRAINED | LOCKED);
const EPOCH: u64 = 1 << 32;

/// One reading of the mode word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode(u64);

impl Mode {
    pub(super) const fn is_warm(self) -> bool {
        self.0 & COLD == 0
    }

    /// Cold: every stack is closed and empty, and no id is on its way.
    pub(super) const fn is_drained(self) -> bool {
        self.0 & DRAINED != 0
    }

    /// Whether stacks that are open, or will be after the next thaw, are used under a lock. Changes
    /// only when DRAINED is set.
    pub(super) const fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    pub(super) const fn waiters(self) -> usize {
        ((self.0 & WAITERS) / WAITER) as usize
    }

    /// Whether only the number of waiters has changed between the two.
    const fn same_time(self, other: Self) -> bool {
        (self.0 ^ other.0) & !WAITERS == 0
    }
}

#[derive(Debug)]
pub(super) struct ModeWord(CachePadded<AtomicU64>);

impl ModeWord {
    /// Warm, or cold with empty stacks.
    pub(super) fn new(warm: bool) -> Self {
        let mode = if warm { 0 } else { COLD | DRAINED };
        Self(CachePadded::new(AtomicU64::new(mode)))
    }

    #[inline]
    pub(super) fn load(&self) -> Mode {
        // Ordering: A0, Acquire pairs with the Release in `set_drained` (Z): a thread that sees the
        // stacks drained sees in the words what was in them.
        Mode(self.0.load(Ordering::Acquire))
    }

    /// For a read that a fence of the caller orders, or that is a guess.
    #[inline]
    pub(super) fn load_relaxed(&self) -> Mode {
        // Relaxed: see above.
        Mode(self.0.load(Ordering::Relaxed))
    }

    /// A3.
    pub(super) fn is_still(&self, seen: Mode) -> bool {
        // The second reads of the words were Acquire loads, so this load comes after them.
        // Relaxed: only the value counts.
        seen.same_time(self.load_relaxed())
    }

    /// F1. For the holder of the mode lock.
    pub(super) fn set_cold(&self) {
        // Relaxed: the refill locks, taken next one by one, carry it to every activator, and the
        // barrier to every putter that relies on it.
        self.0.fetch_or(COLD, Ordering::Relaxed);
    }

    /// Z. For the holder of the mode lock, after everything is in the words.
    pub(super) fn set_drained(&self, locked: bool) {
        let before = self.load_relaxed().0 & LOCKED;
        let after = if locked { LOCKED } else { 0 };
        // One addition, which may also clear a bit: only the holder of the lock changes these bits.
        let change = (EPOCH + DRAINED + after).wrapping_sub(before);
        // Ordering: Release pairs with the Acquire in `load`.
        self.0.fetch_add(change, Ordering::Release);
    }

    /// T. For the holder of the mode lock: makes the store warm again, unless there are waiters.
    pub(super) fn thaw(&self) -> bool {
        let mut now = self.load_relaxed();
        while now.is_drained() && now.waiters() == 0 {
            let warm = (now.0 & !(COLD | DRAINED)).wrapping_add(EPOCH);
            // Relaxed: the stacks stay closed; each is opened under its refill lock, whose last
            // holder was the freezer.
            match self
                .0
                .compare_exchange(now.0, warm, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(other) => now = Mode(other),
            }
        }
        false
    }

    /// R1. For the holder of the list's lock; only it changes this field.
    pub(super) fn set_waiters(&self, n: usize) {
        let old = self.load_relaxed().waiters() as u64;
        let new = (n as u64).min(WAITERS / WAITER);
        // Relaxed: the caller's fence (R2) orders it. RMWs, because the mode may change meanwhile.
        if new > old {
            self.0.fetch_add((new - old) * WAITER, Ordering::Relaxed);
        } else if old > new {
            self.0.fetch_sub((old - new) * WAITER, Ordering::Relaxed);
        }
    }
}
