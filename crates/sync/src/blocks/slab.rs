//! Slabs: not quite 4 KiB from the allocator, cut into blocks.
//!
//! The first line of a slab counts the blocks that have been given back for good. The slab lies at
//! a multiple of 4 KiB, so a block finds that line by its own address.

use super::magazines::LINE;
use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A slab lies at a multiple of this.
const ALIGN: usize = 4096;

/// Less than 4 KiB: an allocator that stores a size before each allocation, as glibc's does, would
/// need two pages for 4 KiB.
const SIZE: usize = ALIGN - 16;

const LAYOUT: Layout = match Layout::from_size_align(SIZE, ALIGN) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// What the first line holds.
struct Head {
    /// Blocks that have been given back.
    released: AtomicUsize,
}

/// The number of blocks of a class in a slab.
pub(super) const fn blocks_in_slab(class: usize) -> usize {
    (SIZE - LINE) / ((class + 1) * LINE)
}

/// The blocks of a new slab.
pub(super) fn cut(class: usize) -> impl Iterator<Item = NonNull<u8>> {
    // SAFETY: the layout has a size.
    let slab = NonNull::new(unsafe { std::alloc::alloc(LAYOUT) });
    let slab = slab.unwrap_or_else(|| handle_alloc_error(LAYOUT));
    let released = AtomicUsize::new(0);
    // SAFETY: the slab is large enough, aligned, and nobody else's.
    unsafe { slab.cast::<Head>().write(Head { released }) };
    // SAFETY: so many blocks and the first line are within the slab.
    (0..blocks_in_slab(class)).map(move |n| unsafe { slab.add(LINE + n * (class + 1) * LINE) })
}

/// Gives a block back for good. The call for the last block of a slab frees the slab.
///
/// # Safety
///
/// The block is from [`cut`] with this class, by a pointer derived from that one, and is not used
/// any more.
pub(super) unsafe fn release(class: usize, block: NonNull<u8>) {
    let offset = block.addr().get() % ALIGN;
    // SAFETY: the block lies so far from the beginning of its slab, which lives while one of its
    // blocks has not been given back.
    let head = unsafe { block.sub(offset) };
    // SAFETY: `cut` has written it.
    let released = unsafe { &head.cast::<Head>().as_ref().released };
    // Ordering: AcqRel; the uses of all blocks come before the slab is freed.
    if released.fetch_add(1, Ordering::AcqRel) + 1 == blocks_in_slab(class) {
        // SAFETY: it is from the allocator with this layout, and all blocks have been given back.
        unsafe { std::alloc::dealloc(head.as_ptr(), LAYOUT) };
    }
}
