//! How long a set's memory lives: as long as a handle, a tag or a device may access it.
//!
//! Tags are not counted in a common word, because all CPUs would contend for its cache line. Each
//! slot counts how often it was allocated, and each CPU counts how many tags have ended for good.
//! The two are compared only when the last handle is dropped.
//!
//! PROTOCOL.md has the steps (K1 to K7) and the proof.

use inflight_sync::atomic::{AtomicU64, Ordering, fence};
use inflight_sync::cpu;
use inflight_sync::percpu::{Backend, PerCpuCounter};

/// More than there will ever be tags: `outstanding` does not reach 0 before K5 has subtracted it.
const BIAS: u64 = 1 << 62;

/// Counts the tags that have come to their end.
#[derive(Debug)]
pub(crate) struct Teardown {
    /// K2. Every tag's end reads it; the last handle writes it.
    ended: PerCpuCounter,
    /// `BIAS`, less the ends that were not in the counter; after K5 the number of remaining tags.
    outstanding: AtomicU64,
}

impl Teardown {
    pub(crate) fn new() -> Self {
        Self {
            ended: PerCpuCounter::new(Backend::best(), cpu::online()),
            outstanding: AtomicU64::new(BIAS),
        }
    }

    /// K2 for `n` tags, after K1 of each. `None`: they are counted, and the memory may be gone.
    /// `Some(orphaned)`: they are not, so the memory is there; `orphaned`: all handles are gone.
    ///
    /// # Safety
    ///
    /// The caller was `n` tags of the set until now, and is not counted yet. Afterwards, if it is
    /// counted, it does not access the set any more.
    #[inline]
    pub(crate) unsafe fn end(this: *const Self, n: u64) -> Option<bool> {
        // SAFETY: a tag that is not counted keeps the memory. A place, not a reference, which would
        // promise that the memory outlives this call.
        let ended = unsafe { &raw const (*this).ended };
        // SAFETY: as above.
        if unsafe { PerCpuCounter::add_last(ended, n) } {
            None
        } else {
            // Ordering: pairs with the barrier of K3 (`PerCpuCounter::close`): either K4 sees the
            // slot free, or this sees the counter closed.
            fence(Ordering::SeqCst);
            // SAFETY: nothing was counted.
            Some(unsafe { &*ended }.is_closed())
        }
    }

    /// K7. Returns whether this was the last: then the caller frees the set.
    ///
    /// # Safety
    ///
    /// As for [`end`](Self::end), which has refused.
    #[cold]
    pub(crate) unsafe fn end_late(this: *const Self) -> bool {
        // SAFETY: the caller is not counted before the subtraction.
        let outstanding: *const AtomicU64 = unsafe { &raw const (*this).outstanding };
        // Ordering: Release, so that the thread that frees comes after what this tag did; Acquire
        // for that thread.
        // SAFETY: as above.
        unsafe { (*outstanding).fetch_sub(1, Ordering::AcqRel) == 1 }
    }

    /// K3: from here on every end is refused. Returns how many were counted.
    pub(crate) fn close(&self) -> u64 {
        self.ended.close()
    }

    /// K5. Returns whether no tag is left: then the caller frees the set.
    pub(crate) fn is_last(&self, given_out: u64, ended: u64) -> bool {
        let left = given_out - ended;
        // Ordering: as in `end_late`.
        let before = self
            .outstanding
            .fetch_add(left.wrapping_sub(BIAS), Ordering::AcqRel);
        before.wrapping_add(left).wrapping_sub(BIAS) == 0
    }
}
