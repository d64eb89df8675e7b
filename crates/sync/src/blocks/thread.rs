//! The magazines of the calling thread.

use super::CACHED;
use super::magazines::{CLASSES, Depot, ThreadCache};
use std::cell::RefCell;
use std::ptr::NonNull;

static DEPOTS: [Depot; CLASSES] = [
    Depot::new(0, CACHED),
    Depot::new(1, CACHED),
    Depot::new(2, CACHED),
    Depot::new(3, CACHED),
];

struct ThreadCaches([ThreadCache; CLASSES]);

impl ThreadCaches {
    const NEW: Self = Self([
        ThreadCache::EMPTY,
        ThreadCache::EMPTY,
        ThreadCache::EMPTY,
        ThreadCache::EMPTY,
    ]);
}

impl Drop for ThreadCaches {
    fn drop(&mut self) {
        for (cache, depot) in self.0.iter_mut().zip(&DEPOTS) {
            depot.clear(cache);
        }
    }
}

thread_local! {
    static CACHES: RefCell<ThreadCaches> = const { RefCell::new(ThreadCaches::NEW) };
}

/// `None` while the thread's locals are destroyed, and in a nested call: the global allocator may
/// itself use these blocks.
#[inline]
fn with<R>(f: impl FnOnce(&mut ThreadCaches) -> R) -> Option<R> {
    let here = CACHES.try_with(|caches| Some(f(&mut *caches.try_borrow_mut().ok()?)));
    here.ok().flatten()
}

#[inline]
pub(super) fn allocate(class: usize) -> NonNull<u8> {
    let block = with(|caches| DEPOTS[class].allocate(&mut caches.0[class]));
    block.unwrap_or_else(|| {
        let mut cache = ThreadCache::EMPTY;
        let block = DEPOTS[class].allocate(&mut cache);
        DEPOTS[class].clear(&mut cache);
        block
    })
}

/// # Safety
///
/// The block is from [`allocate`] with the same class, and not used any more.
#[inline]
pub(super) unsafe fn free(class: usize, block: NonNull<u8>) {
    // SAFETY: what has a class is from its depot; the rest is the caller's promise.
    let freed = with(|caches| unsafe { DEPOTS[class].free(&mut caches.0[class], block) });
    if freed.is_none() {
        // SAFETY: as above.
        unsafe { DEPOTS[class].release(block) };
    }
}
