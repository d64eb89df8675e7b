//! Which ids are held as they were taken in a mask: one number for all of them, at the first.
//!
//! A mask's owner puts it back as a whole by one look and one store, however many ids it has. If he
//! parts with some of them, whoever puts those takes their bits out of the number one by one. What
//! is left of it may outlast the first id: then a mask that begins there is added to it.

use crate::mask::BitMask;
use inflight_sync::atomic::{AtomicU32, Ordering};

/// The longest mask of a word.
const LONGEST: usize = u32::BITS as usize;

#[derive(Debug)]
pub(super) struct Runs(
    /// For each id the ids held of masks that began there, relative to it. None at all if trusted.
    Box<[AtomicU32]>,
);

impl Runs {
    pub(super) fn new(ids: usize) -> Self {
        Self((0..ids).map(|_| AtomicU32::new(0)).collect())
    }

    /// The caller has just become the owner of these ids, the first of which is in the mask.
    #[inline]
    pub(super) fn begin(&self, ids: BitMask) {
        let Some(run) = self.0.get(ids.first) else {
            return; // trusted
        };
        let mask = ids.mask as u32;
        // Relaxed, all: only the owner of the first id adds bits, and each bit is taken out by the
        // owner of its id alone; ownership moves with the ids. What reads 0 here is 0.
        if run.load(Ordering::Relaxed) == 0 {
            run.store(mask, Ordering::Relaxed);
        } else {
            run.fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// The caller gives all ids of a mask up that was taken as it is. `false`: nothing is changed,
    /// and each id has to be looked at.
    ///
    /// The first must be among them: another owner of it may add a mask at any time. Unless
    /// `racing`, two racing calls may both succeed.
    #[inline]
    pub(super) fn end_whole(&self, ids: BitMask, racing: bool) -> bool {
        let Some(run) = self.0.get(ids.first) else {
            return false;
        };
        let mask = ids.mask as u32;
        // Relaxed, all: as in `begin`; all bits being the caller's, nobody else takes any out.
        let whole = u64::from(run.load(Ordering::Relaxed)) == ids.mask && mask & 1 == 1;
        if !whole {
            return false;
        }
        if racing {
            let ended = run.compare_exchange(mask, 0, Ordering::Relaxed, Ordering::Relaxed);
            return ended.is_ok();
        }
        run.store(0, Ordering::Relaxed);
        true
    }

    /// The caller gives one id of a mask up. `false` if nobody owned it as part of one.
    #[cold]
    #[inline(never)]
    pub(super) fn end_one(&self, id: usize) -> bool {
        if id >= self.0.len() {
            return false;
        }
        // Relaxed, both: as in `begin`.
        (0..LONGEST.min(id + 1)).any(|offset| {
            let (run, bit) = (&self.0[id - offset], 1 << offset);
            run.load(Ordering::Relaxed) & bit != 0
                && run.fetch_and(!bit, Ordering::Relaxed) & bit != 0
        })
    }
}
