//! Magazines of free blocks, and the depot where they are exchanged.

use super::slab;
use crate::Mutex;
use std::alloc::Layout;
use std::mem;
use std::ptr::NonNull;

/// The number of sizes of blocks: one to four lines.
pub(super) const CLASSES: usize = 4;

/// The number of blocks in a full magazine.
pub(super) const ROUNDS: usize = 62;

pub(super) const LINE: usize = 64;

/// The size class of blocks for this layout, if there is one.
#[inline]
pub(super) const fn class_of(layout: Layout) -> Option<usize> {
    let class = layout.size().wrapping_sub(1) / LINE;
    if layout.align() > LINE || class >= CLASSES {
        return None;
    }
    Some(class)
}

/// How many blocks ahead of the next one a block is prefetched.
const AHEAD: usize = 8;

/// Free blocks.
///
/// Invariant: each is from `slab::cut` with the class of the depot that the magazine belongs to,
/// and is nobody else's.
struct Magazine {
    len: usize,
    blocks: [NonNull<u8>; ROUNDS],
}

// SAFETY: the blocks are nobody else's, and memory belongs to no thread.
unsafe impl Send for Magazine {}

impl Magazine {
    fn empty() -> Box<Self> {
        Box::new(Self {
            len: 0,
            blocks: [NonNull::dangling(); ROUNDS],
        })
    }

    #[inline]
    fn pop(&mut self) -> Option<NonNull<u8>> {
        self.len = self.len.checked_sub(1)?;
        let block = self.blocks[self.len];
        if let Some(soon) = self.len.checked_sub(AHEAD) {
            crate::prefetch_to_write(self.blocks[soon].as_ptr());
        }
        Some(block)
    }

    /// Prefetches the lines that are used first: another thread wrote the magazine and its blocks
    /// last.
    fn prefetch(&self) {
        self.blocks
            .chunks(LINE / size_of::<NonNull<u8>>())
            .for_each(|line| {
                crate::prefetch_to_write(line.as_ptr());
            });
        let first = self.len.saturating_sub(AHEAD);
        for block in &self.blocks[first..self.len] {
            crate::prefetch_to_write(block.as_ptr());
        }
    }

    /// Adds a block. Returns it if there is no room.
    #[inline]
    fn push(&mut self, block: NonNull<u8>) -> Result<(), NonNull<u8>> {
        *self.blocks.get_mut(self.len).ok_or(block)? = block;
        self.len += 1;
        Ok(())
    }
}

/// A thread's magazines of one size. They belong to one depot.
pub(super) struct ThreadCache {
    loaded: Option<Box<Magazine>>,
    /// Full or empty. With it a thread that allocates and frees by turns does not need the depot
    /// each time.
    spare: Option<Box<Magazine>>,
}

impl ThreadCache {
    pub(super) const EMPTY: Self = Self {
        loaded: None,
        spare: None,
    };

    fn swap(&mut self) {
        mem::swap(&mut self.loaded, &mut self.spare);
    }
}

/// Where the magazines of one size are exchanged.
pub(super) struct Depot {
    class: usize,
    /// The largest number of full magazines, and of empty ones, that are kept.
    most: usize,
    stock: Mutex<Stock>,
}

#[allow(clippy::vec_box, reason = "it is the boxes that are exchanged")]
struct Stock {
    full: Vec<Box<Magazine>>,
    empty: Vec<Box<Magazine>>,
}

impl Depot {
    pub(super) const fn new(class: usize, kept_bytes: usize) -> Self {
        Self {
            class,
            most: kept_bytes / ROUNDS / ((class + 1) * LINE),
            stock: Mutex::new(Stock {
                full: Vec::new(),
                empty: Vec::new(),
            }),
        }
    }

    /// # Safety
    ///
    /// The block is from this depot, and not used any more.
    pub(super) unsafe fn release(&self, block: NonNull<u8>) {
        // SAFETY: all blocks of the depot have this class; the rest is the caller's promise.
        unsafe { slab::release(self.class, block) };
    }

    #[inline]
    pub(super) fn allocate(&self, cache: &mut ThreadCache) -> NonNull<u8> {
        let block = cache.loaded.as_mut().and_then(|loaded| loaded.pop());
        block.unwrap_or_else(|| self.allocate_slow(cache))
    }

    #[cold]
    fn allocate_slow(&self, cache: &mut ThreadCache) -> NonNull<u8> {
        cache.swap();
        if let Some(block) = cache.loaded.as_mut().and_then(|loaded| loaded.pop()) {
            return block;
        }
        let loaded = cache.loaded.take().unwrap_or_else(Magazine::empty);
        let full = {
            let stock = &mut *self.stock.lock();
            let full = stock.full.pop();
            match full {
                Some(full) if stock.empty.len() < self.most => {
                    stock.empty.push(loaded);
                    Ok(full)
                }
                Some(full) => Ok(full),
                None => Err(loaded),
            }
        };
        let loaded = cache.loaded.insert(match full {
            Ok(full) => {
                full.prefetch();
                full
            }
            Err(mut empty) => {
                // The first block is used at once, the others fit into the magazine.
                let mut blocks = slab::cut(self.class);
                let first = blocks.next().expect("a slab has blocks");
                blocks.for_each(|block| empty.push(block).expect("the magazine was empty"));
                cache.loaded = Some(empty);
                return first;
            }
        });
        loaded.pop().expect("the magazine is full")
    }

    /// # Safety
    ///
    /// The block is from this depot, and not used any more.
    #[inline]
    pub(super) unsafe fn free(&self, cache: &mut ThreadCache, block: NonNull<u8>) {
        let pushed = match &mut cache.loaded {
            Some(loaded) => loaded.push(block),
            None => Err(block),
        };
        if let Err(block) = pushed {
            self.free_slow(cache, block);
        }
    }

    /// The block is free.
    #[cold]
    fn free_slow(&self, cache: &mut ThreadCache, block: NonNull<u8>) {
        cache.swap();
        let mut empty = match cache.loaded.take() {
            Some(loaded) if loaded.len == ROUNDS => self.exchange(loaded),
            loaded => loaded,
        }
        .unwrap_or_else(Magazine::empty);
        empty.push(block).expect("the magazine has room");
        cache.loaded = Some(empty);
    }

    /// Gives a magazine with blocks to the depot. Returns an empty one, if there is one.
    fn exchange(&self, mut magazine: Box<Magazine>) -> Option<Box<Magazine>> {
        if magazine.len == ROUNDS {
            let stock = &mut *self.stock.lock();
            if stock.full.len() < self.most {
                stock.full.push(magazine);
                return stock.empty.pop();
            }
        }
        while let Some(block) = magazine.pop() {
            // SAFETY: the magazine's invariant.
            unsafe { self.release(block) };
        }
        Some(magazine)
    }

    /// Gives up the magazines of a thread that ends.
    pub(super) fn clear(&self, cache: &mut ThreadCache) {
        for magazine in [cache.loaded.take(), cache.spare.take()] {
            drop(magazine.and_then(|magazine| self.exchange(magazine)));
        }
    }

    /// The number of full magazines.
    #[cfg(test)]
    pub(super) fn full(&self) -> usize {
        self.stock.lock().full.len()
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        self.most = 0;
        for magazine in mem::take(&mut self.stock.get_mut().full) {
            drop(self.exchange(magazine));
        }
    }
}
