//! The magazines of the calling thread.

use super::CACHED;
use super::magazines::{CLASSES, Depot, Local};
use std::cell::RefCell;
use std::ptr::NonNull;

static DEPOTS: [Depot; CLASSES] = [
    Depot::new(0, CACHED),
    Depot::new(1, CACHED),
    Depot::new(2, CACHED),
    Depot::new(3, CACHED),
];

struct Locals([Local; CLASSES]);

impl Locals {
    const NEW: Self = Self([Local::EMPTY, Local::EMPTY, Local::EMPTY, Local::EMPTY]);
}

impl Drop for Locals {
    fn drop(&mut self) {
        for (local, depot) in self.0.iter_mut().zip(&DEPOTS) {
            depot.clear(local);
        }
    }
}

thread_local! {
    static LOCALS: RefCell<Locals> = const { RefCell::new(Locals::NEW) };
}

/// `None` while the thread's locals are destroyed, and for an allocator that has values of its own
/// here.
#[inline]
fn with<R>(f: impl FnOnce(&mut Locals) -> R) -> Option<R> {
    let here = LOCALS.try_with(|locals| Some(f(&mut *locals.try_borrow_mut().ok()?)));
    here.ok().flatten()
}

#[inline]
pub(super) fn allocate(class: usize) -> NonNull<u8> {
    let block = with(|locals| DEPOTS[class].allocate(&mut locals.0[class]));
    block.unwrap_or_else(|| {
        let mut local = Local::EMPTY;
        let block = DEPOTS[class].allocate(&mut local);
        DEPOTS[class].clear(&mut local);
        block
    })
}

/// # Safety
///
/// The block is from [`allocate`] with the same class, and not used any more.
#[inline]
pub(super) unsafe fn free(class: usize, block: NonNull<u8>) {
    // SAFETY: what has a class is from its depot; the rest is the caller's promise.
    let freed = with(|locals| unsafe { DEPOTS[class].free(&mut locals.0[class], block) });
    if freed.is_none() {
        // SAFETY: as above.
        unsafe { DEPOTS[class].release(block) };
    }
}
