//! The shared bitmap as a store: always drained.

use super::Store;
use crate::bitmap::Sbitmap;
use crate::error::{PutError, ResizeError};
use crate::mask::BitMask;
use crate::newcomer_policy::must_wait;
use inflight_sync::CachePadded;
use inflight_sync::atomic::{AtomicUsize, Ordering, fence};

#[derive(Debug)]
pub(crate) struct SharedStore {
    map: Sbitmap,
    /// Every get and put reads it; it is written when a wait begins or ends.
    waiters: CachePadded<AtomicUsize>,
}

impl SharedStore {
    pub(crate) fn new(map: Sbitmap) -> Self {
        Self {
            map,
            waiters: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// The map, unless a caller has to wait.
    #[inline]
    fn open(&self) -> Option<&Sbitmap> {
        (!must_wait(self.waiters())).then_some(&self.map)
    }

    pub(crate) const fn map(&self) -> &Sbitmap {
        &self.map
    }

    /// P2 and P3.
    #[inline]
    fn somebody_waits(&self) -> bool {
        // Ordering: P2, pairs with V2 in the service of the wait list.
        fence(Ordering::SeqCst);
        self.waiters() != 0
    }
}

impl Store for SharedStore {
    #[inline]
    fn try_get(&self) -> Option<usize> {
        self.open()?.try_get()
    }

    fn try_get_batch(&self, n: usize, ids: &mut Vec<usize>) -> usize {
        self.open().map_or(0, |map| map.try_get_batch(n, ids))
    }

    fn try_get_mask(&self, n: usize) -> BitMask {
        self.open().map_or(BitMask::EMPTY, |map| map.take_mask(n))
    }

    fn try_get_shallow(&self, limit: usize) -> Option<usize> {
        self.open()?.try_get_shallow(limit)
    }

    #[inline]
    fn take(&self) -> Option<usize> {
        let id = self.map.try_get()?;
        self.map.set_granted(id, true);
        Some(id)
    }

    #[inline]
    fn set_owned(&self, id: usize) {
        self.map.set_granted(id, false);
    }

    #[inline]
    fn put(&self, id: usize) -> Result<bool, PutError> {
        self.map.put(id)?;
        Ok(self.somebody_waits())
    }

    fn put_batch(&self, ids: &[usize]) -> (usize, bool, Result<(), PutError>) {
        let (freed, result) = self.map.put_runs(ids);
        (freed, self.somebody_waits(), result)
    }

    fn put_mask(&self, ids: BitMask) -> (usize, bool, Result<(), PutError>) {
        let (freed, result) = self.map.put_mask_counted(ids);
        (freed, self.somebody_waits(), result)
    }

    #[inline]
    fn waiters(&self) -> usize {
        // Relaxed: the fences P2 and V2 order it where it matters.
        self.waiters.load(Ordering::Relaxed)
    }

    fn set_waiters(&self, n: usize) {
        self.waiters.store(n, Ordering::Relaxed);
    }

    fn is_drained(&self) -> bool {
        true
    }

    fn drain_percpu(&self) {}

    fn depth(&self) -> usize {
        self.map.depth()
    }

    fn free(&self) -> usize {
        // Bits above the depth that are in use count too; each of their puts serves.
        self.map.depth().saturating_sub(self.map.weight())
    }

    fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        self.map.resize(depth)
    }
}
