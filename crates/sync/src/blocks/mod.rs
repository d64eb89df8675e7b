//! Memory blocks that are used again, for values that one thread makes and another one frees.
//!
//! They move in *magazines*, the idea of Bonwick and Adams ("Magazines and Vmem", 2001): each
//! thread has magazines of free blocks, and exchanges one at a depot only when it is empty or full:
//! a lock for 62 blocks.
//!
//! Blocks are aligned to cache lines and have one to four lines. They are cut from slabs of not
//! quite 4 KiB. Of each size a thread keeps at most two magazines, until it ends, and none if it
//! frees little; the depot keeps [`CACHED`] bytes. Other blocks return to their slab, and a slab
//! whose blocks have all returned is freed.
//!
//! Models, Miri and sanitizers check the life of each block, so under them each one comes from the
//! allocator.

#[cfg(any(inflight_magazines, all(test, not(any(loom, shuttle)))))]
mod magazines;
#[cfg(any(inflight_magazines, all(test, not(any(loom, shuttle)))))]
mod slab;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(inflight_magazines)]
mod thread;

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

/// The bytes of free blocks of each of the four sizes that the depot keeps at most; 0 if nothing is
/// kept.
pub const CACHED: usize = if cfg!(inflight_magazines) { 1 << 20 } else { 0 };

/// Allocates memory of that layout. Layouts of more than four lines come from the allocator each
/// time.
///
/// Calls [`handle_alloc_error`] if there is no memory.
///
/// # Panics
///
/// If the layout has no size.
///
/// ```
/// use inflight_sync::blocks;
/// use std::alloc::Layout;
///
/// let layout = Layout::new::<[u64; 5]>();
/// let block = blocks::allocate(layout).cast::<[u64; 5]>();
/// // SAFETY: the block has this layout, and nobody else uses it.
/// unsafe {
///     block.write([7; 5]);
///     assert_eq!(block.read()[4], 7);
///     blocks::free(block.cast(), layout);
/// }
/// ```
#[inline]
#[must_use]
pub fn allocate(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0);
    #[cfg(inflight_magazines)]
    if let Some(class) = magazines::class_of(layout) {
        return thread::allocate(class);
    }
    // SAFETY: the size is not zero.
    let memory = unsafe { std::alloc::alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Frees memory.
///
/// # Safety
///
/// The memory is from [`allocate`] with the same layout, by a pointer that is valid for the whole
/// of it, and is not used any more.
#[inline]
pub unsafe fn free(block: NonNull<u8>, layout: Layout) {
    #[cfg(inflight_magazines)]
    if let Some(class) = magazines::class_of(layout) {
        // SAFETY: memory of such a layout is a block of that class; the rest is the caller's
        // promise.
        return unsafe { thread::free(class, block) };
    }
    // SAFETY: the caller's promise.
    unsafe { std::alloc::dealloc(block.as_ptr(), layout) };
}
