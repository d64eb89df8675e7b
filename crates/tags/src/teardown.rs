//! How long a set's memory lives: as long as a handle, a tag or a device may reach it.
//!
//! Tags are not counted one by one in a common word, which would be the line all CPUs fight for.
//! Each slot knows how often it was given out, and each CPU counts how many tags have left for
//! good; the two are compared only when the last handle goes:
//!
//! ```text
//! tag's end:    K1 free the slot, put the bit (S5, P1 to P3)     K2 counter += 1, if it is open
//! last handle:  K3 close the counter    K4 take the payloads of free slots
//!               K5 outstanding += given out - counter - BIAS; if that is 0: free
//! tag refused at K2:                  K6 take the slot's payload   K7 outstanding -= 1; if 0: free
//! ```
//!
//! PROTOCOL.md has the proof.

use inflight_sync::atomic::{AtomicU64, Ordering, fence};
use inflight_sync::cpu;
use inflight_sync::percpu::{Backend, PerCpuCounter};

/// More than there will ever be tags: nobody brings `outstanding` to 0 before K5 has taken it away.
const BIAS: u64 = 1 << 62;

/// Counts the tags that have come to their end.
#[derive(Debug)]
pub(crate) struct Teardown {
    /// K2. Read by every tag's end, written by the last handle.
    ended: PerCpuCounter,
    /// `BIAS`, less the ends that were not in the counter; after K5 the number of tags there still
    /// are.
    outstanding: AtomicU64,
}

/// What the end of a tag is for its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Counted. The memory may be gone.
    Counted,
    /// Not yet counted, so the memory is there; and all handles are gone if this is `true`.
    Refused(bool),
}

impl Teardown {
    pub(crate) fn new() -> Self {
        Self {
            ended: PerCpuCounter::new(Backend::best(), cpu::online()),
            outstanding: AtomicU64::new(BIAS),
        }
    }

    /// K2 for `n` tags, after K1 of each.
    ///
    /// # Safety
    ///
    /// The caller was `n` tags of the set until now, and is not counted yet. Afterwards, if it is,
    /// it does not touch the set any more.
    #[inline]
    pub(crate) unsafe fn end(this: *const Self, n: u64) -> End {
        // SAFETY: a tag that is not counted keeps the memory. A place, not a reference, which
        // would promise that the memory outlives this call.
        let ended = unsafe { &raw const (*this).ended };
        // SAFETY: as above.
        if unsafe { PerCpuCounter::add_last(ended, n) } {
            End::Counted
        } else {
            // Ordering: pairs with the barrier of K3 (`PerCpuCounter::close`): either K4 sees the
            // slot free, or this sees the counter closed.
            fence(Ordering::SeqCst);
            // SAFETY: nothing was counted.
            End::Refused(unsafe { &*ended }.is_closed())
        }
    }

    /// K7. Whether this was the last: then the caller frees the set.
    ///
    /// # Safety
    ///
    /// As for [`end`](Self::end), which has refused.
    #[cold]
    pub(crate) unsafe fn end_late(this: *const Self) -> bool {
        // SAFETY: the caller is not counted before the subtraction.
        let outstanding: *const AtomicU64 = unsafe { &raw const (*this).outstanding };
        // Ordering: Release, so that whoever frees comes after what this tag did; Acquire for the
        // one who does.
        // SAFETY: as above.
        unsafe { (*outstanding).fetch_sub(1, Ordering::AcqRel) == 1 }
    }

    /// K3: from here on every end is refused. How many were counted.
    pub(crate) fn close(&self) -> u64 {
        self.ended.close()
    }

    /// K5. Whether no tag is left: then the caller frees the set.
    pub(crate) fn is_last(&self, given_out: u64, ended: u64) -> bool {
        let left = given_out - ended;
        // Ordering: as in `end_late`.
        let before = self
            .outstanding
            .fetch_add(left.wrapping_sub(BIAS), Ordering::AcqRel);
        before.wrapping_add(left).wrapping_sub(BIAS) == 0
    }
}
