//! Magazines of free blocks, and the depot where they are exchanged.

use super::memory::direct;
use crate::Mutex;
use std::alloc::Layout;
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// There are so many sizes of blocks.
pub(super) const CLASSES: usize = 8;

/// So many blocks a magazine holds.
pub(super) const ROUNDS: usize = 64;

/// Sizes are whole lines less what allocators commonly add in front of a block.
const LINE: usize = 64;
const ADDED: usize = 8;
const ALIGN: usize = 16;

/// The size of a block with this layout, if there are such.
#[inline]
pub(super) const fn class_of(layout: Layout) -> Option<usize> {
    let class = (layout.size() + ADDED - 1) / LINE;
    if layout.align() > ALIGN || class >= CLASSES {
        return None;
    }
    Some(class)
}

/// Free blocks.
///
/// Invariant: each is from `direct::alloc` with the layout of the depot that the magazine belongs
/// to, and is nobody else's.
struct Magazine {
    len: usize,
    blocks: [NonNull<u8>; ROUNDS],
}

// SAFETY: the blocks are nobody else's, and memory belongs to no thread.
unsafe impl Send for Magazine {}

impl Magazine {
    const fn new() -> Self {
        Self {
            len: 0,
            blocks: [NonNull::dangling(); ROUNDS],
        }
    }

    fn is_full(&self) -> bool {
        self.len == ROUNDS
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        self.len = self.len.checked_sub(1)?;
        Some(self.blocks[self.len])
    }

    /// Gives the block back if there is no room.
    #[inline]
    fn push(&mut self, block: NonNull<u8>) -> Result<(), NonNull<u8>> {
        *self.blocks.get_mut(self.len).ok_or(block)? = block;
        self.len += 1;
        Ok(())
    }
}

/// What a thread has of one size. It belongs to one depot.
pub(super) struct Shelf {
    loaded: Option<Box<Magazine>>,
    /// Full or empty, so that who takes and gives by turns does not come to the depot each time.
    spare: Option<Box<Magazine>>,
}

impl Shelf {
    pub(super) const fn new() -> Self {
        Self {
            loaded: None,
            spare: None,
        }
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        self.loaded.as_mut()?.pop()
    }

    #[inline]
    fn push(&mut self, block: NonNull<u8>) -> Result<(), NonNull<u8>> {
        self.loaded.as_mut().ok_or(block)?.push(block)
    }

    fn swap(&mut self) {
        mem::swap(&mut self.loaded, &mut self.spare);
    }
}

/// Where the magazines of one size are exchanged.
pub(super) struct Depot {
    size: usize,
    /// So many bytes of free blocks are kept.
    kept: usize,
    /// How many full ones there are. A hint, written under the lock.
    full: AtomicUsize,
    stock: Mutex<Stock>,
}

#[allow(clippy::vec_box, reason = "it is the boxes that go from hand to hand")]
struct Stock {
    full: Vec<Box<Magazine>>,
    empty: Vec<Box<Magazine>>,
}

impl Depot {
    pub(super) const fn new(class: usize, kept: usize) -> Self {
        Self {
            size: (class + 1) * LINE - ADDED,
            kept,
            full: AtomicUsize::new(0),
            stock: Mutex::new(Stock {
                full: Vec::new(),
                empty: Vec::new(),
            }),
        }
    }

    fn layout(&self) -> Layout {
        Layout::from_size_align(self.size, ALIGN).expect("small, and a power of two")
    }

    /// So many magazines of each kind are kept.
    pub(super) const fn most(&self) -> usize {
        self.kept / ROUNDS / self.size
    }

    /// So many full ones there are.
    #[cfg(test)]
    pub(super) fn full(&self) -> usize {
        self.stock.lock().full.len()
    }

    pub(super) fn seems_empty(&self) -> bool {
        // Relaxed: a hint.
        self.full.load(Ordering::Relaxed) == 0
    }

    /// A new block.
    pub(super) fn allocated(&self) -> NonNull<u8> {
        direct::alloc(self.layout())
    }

    /// # Safety
    ///
    /// The block is from this depot, and not used any more.
    pub(super) unsafe fn release(&self, block: NonNull<u8>) {
        // SAFETY: all blocks of the depot have this layout; the rest is the caller's promise.
        unsafe { direct::free(block, self.layout()) };
    }

    #[inline]
    pub(super) fn alloc(&self, shelf: &mut Shelf) -> NonNull<u8> {
        shelf.pop().unwrap_or_else(|| self.alloc_elsewhere(shelf))
    }

    #[cold]
    fn alloc_elsewhere(&self, shelf: &mut Shelf) -> NonNull<u8> {
        shelf.swap();
        if let Some(block) = shelf.pop() {
            return block;
        }
        if self.seems_empty() {
            return self.allocated();
        }
        let empty = {
            let stock = &mut *self.stock.lock();
            let Some(full) = stock.full.pop() else {
                return self.allocated();
            };
            // Relaxed: a hint.
            self.full.store(stock.full.len(), Ordering::Relaxed);
            shelf.swap();
            let empty = shelf.loaded.replace(full);
            match empty {
                Some(empty) if stock.empty.len() < self.most() => {
                    stock.empty.push(empty);
                    None
                }
                more => more,
            }
        };
        drop(empty);
        shelf.pop().expect("it is full")
    }

    /// # Safety
    ///
    /// The block is from this depot, and not used any more.
    #[inline]
    pub(super) unsafe fn free(&self, shelf: &mut Shelf, block: NonNull<u8>) {
        if let Err(block) = shelf.push(block) {
            self.free_elsewhere(shelf, block);
        }
    }

    /// The block is free.
    #[cold]
    fn free_elsewhere(&self, shelf: &mut Shelf, block: NonNull<u8>) {
        shelf.swap();
        let Err(block) = shelf.push(block) else {
            return;
        };
        // The one that was loaded is the spare one now, and both are full, if there are two.
        let full = shelf.loaded.take();
        let mut empty = self
            .exchange(full)
            .unwrap_or_else(|| Box::new(Magazine::new()));
        empty.push(block).expect("it is empty");
        shelf.loaded = Some(empty);
    }

    /// An empty magazine for a full one.
    fn exchange(&self, full: Option<Box<Magazine>>) -> Option<Box<Magazine>> {
        let too_many = {
            let stock = &mut *self.stock.lock();
            match full {
                Some(full) if stock.full.len() >= self.most() => full,
                full => {
                    stock.full.extend(full);
                    // Relaxed: a hint.
                    self.full.store(stock.full.len(), Ordering::Relaxed);
                    return stock.empty.pop();
                }
            }
        };
        Some(self.emptied(too_many))
    }

    fn emptied(&self, mut magazine: Box<Magazine>) -> Box<Magazine> {
        while let Some(block) = magazine.pop() {
            // SAFETY: the magazine's invariant.
            unsafe { self.release(block) };
        }
        magazine
    }

    /// Its thread ends.
    pub(super) fn clear(&self, shelf: &mut Shelf) {
        for magazine in [shelf.loaded.take(), shelf.spare.take()] {
            let Some(magazine) = magazine else { continue };
            if magazine.is_full() {
                drop(self.exchange(Some(magazine)));
            } else {
                drop(self.emptied(magazine));
            }
        }
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        let full = mem::take(&mut self.stock.get_mut().full);
        for magazine in full {
            drop(self.emptied(magazine));
        }
    }
}
