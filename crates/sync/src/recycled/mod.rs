//! Values behind a reference count, in memory that is used again.
//!
//! What is made by one thread and dropped by another is dear with many allocators: they give the
//! memory back to where it came from, block by block. Here it goes by the *magazine*, the idea of
//! Bonwick and Adams ("Magazines and Vmem", 2001): each thread has magazines of free blocks, and
//! only who has emptied one, or filled one, exchanges it at a depot. So a lock is taken once in 64
//! blocks, and nothing is allocated as long as what is dropped suffices for what is made.
//!
//! Blocks come in eight sizes up to 504 bytes; what is larger, or is to be aligned to more than 16
//! bytes, goes to the allocator each time. Of each size a thread has at most two magazines, which
//! it gives up when it ends, and none if it drops little; the depot has as many as hold [`KEPT`]
//! bytes. What is more goes back to the allocator.
//!
//! Models, Miri and sanitizers look at the life of each block, so under them everything goes to the
//! allocator each time.

/// The count's words, std's in every back end.
mod count_atomic {
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
}

mod count;
#[cfg(any(inflight_magazines, all(test, not(any(loom, shuttle)))))]
mod magazines;
mod memory;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use count::Count;
use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::process::abort;
use std::ptr::NonNull;

/// So many bytes of each of the eight sizes the depot keeps at most; 0 where nothing is kept, by
/// threads neither.
///
/// ```
/// assert!(8 * inflight_sync::recycled::KEPT <= 1 << 20, "in all");
/// ```
pub const KEPT: usize = if cfg!(inflight_magazines) {
    128 << 10
} else {
    0
};

/// A shared value, as behind an [`Arc`](std::sync::Arc), in memory that is used again at once.
///
/// There is no `Weak`. The count is std's in every back end, as that of `Arc`.
///
/// ```
/// use inflight_sync::recycled::Recycled;
///
/// let one = Recycled::new([1, 2, 3]);
/// let other = one.clone();
/// assert!(Recycled::ptr_eq(&one, &other));
/// drop(one);
/// assert_eq!(other.iter().sum::<i32>(), 6);
/// ```
pub struct Recycled<T: ?Sized> {
    /// The value is there as long as this is.
    block: NonNull<Block<T>>,
    /// It may be the last one, which drops the value.
    owns: PhantomData<T>,
}

/// Where a [`Recycled`] value lies. See [`Recycled::unsize`].
///
/// ```
/// use inflight_sync::recycled::{Block, Recycled};
/// use std::fmt::Display;
///
/// fn forget_type(block: &Block<u8>) -> &Block<dyn Display> {
///     block
/// }
/// assert_eq!(Recycled::unsize(Recycled::new(7), forget_type).to_string(), "7");
/// ```
#[repr(C)]
pub struct Block<T: ?Sized> {
    count: Count,
    /// All of the block's memory; a pointer to the `Block` may be good for this part of it only.
    memory: NonNull<u8>,
    /// In a cell, so that a pointer that was a shared reference is good for dropping it.
    value: UnsafeCell<T>,
}

// SAFETY: it gives shared references to the value to each thread that has a clone, and the last one
// drops it, wherever that is: as with `Arc`, `T` has to bear both.
unsafe impl<T: ?Sized + Send + Sync> Send for Recycled<T> {}
// SAFETY: as above; who has a reference can make a clone.
unsafe impl<T: ?Sized + Send + Sync> Sync for Recycled<T> {}

impl<T: ?Sized> Unpin for Recycled<T> {}
impl<T: ?Sized + RefUnwindSafe> UnwindSafe for Recycled<T> {}
impl<T: ?Sized + RefUnwindSafe> RefUnwindSafe for Recycled<T> {}

impl<T> Recycled<T> {
    /// The first pointer to this value.
    ///
    /// ```
    /// assert_eq!(*inflight_sync::recycled::Recycled::new(3), 3);
    /// ```
    #[must_use]
    #[inline]
    pub fn new(value: T) -> Self {
        let [only] = Self::several(value);
        only
    }

    /// The first two pointers to this value, which is cheaper than to clone the first one.
    ///
    /// ```
    /// use inflight_sync::recycled::Recycled;
    ///
    /// let (one, other) = Recycled::two(3);
    /// assert!(Recycled::ptr_eq(&one, &other));
    /// ```
    #[must_use]
    #[inline]
    pub fn two(value: T) -> (Self, Self) {
        let [one, other] = Self::several(value);
        (one, other)
    }

    /// All pointers that there are to this value.
    #[inline]
    fn several<const N: usize>(value: T) -> [Self; N] {
        let memory = memory::alloc(Layout::new::<Block<T>>());
        let block = memory.cast::<Block<T>>();
        let made = Block {
            count: Count::of(N),
            memory,
            value: UnsafeCell::new(value),
        };
        // SAFETY: the memory has the block's layout and is nobody else's.
        unsafe { block.write(made) };
        [(); N].map(|()| Self {
            block,
            owns: PhantomData,
        })
    }

    /// The same value as another type: `same` returns what it is given, and the compiler makes a
    /// trait object or a slice of it.
    ///
    /// # Panics
    ///
    /// If `same` returns anything else.
    ///
    /// ```
    /// use inflight_sync::recycled::Recycled;
    /// use std::any::Any;
    ///
    /// let any: Recycled<dyn Any> = Recycled::unsize(Recycled::new(7), |block| block);
    /// assert_eq!(any.downcast_ref(), Some(&7));
    /// ```
    #[must_use]
    #[inline]
    pub fn unsize<U: ?Sized>(
        this: Self,
        same: for<'a> fn(&'a Block<T>) -> &'a Block<U>,
    ) -> Recycled<U> {
        // SAFETY: the block is there as long as `this` is. Nobody has a `&mut` to any part of it.
        let block = NonNull::from(same(unsafe { this.block.as_ref() }));
        // Nothing but this block can be where it is, as a block is larger than nothing; so it is a
        // reference to the whole of it.
        assert!(block.addr() == this.block.addr(), "another block");
        std::mem::forget(this);
        Recycled {
            block,
            owns: PhantomData,
        }
    }
}

impl<T: ?Sized> Recycled<T> {
    /// Whether both point to the same value.
    ///
    /// ```
    /// use inflight_sync::recycled::Recycled;
    ///
    /// assert!(!Recycled::ptr_eq(&Recycled::new(1), &Recycled::new(1)));
    /// ```
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.block.addr() == other.block.addr()
    }

    fn block(&self) -> &Block<T> {
        // SAFETY: the block is there as long as one of its pointers is, and nobody has a `&mut` to
        // any part of it meanwhile.
        unsafe { self.block.as_ref() }
    }

    /// The last pointer goes.
    #[inline(never)]
    fn end(&mut self) {
        /// Gives the memory back, also if the value's destructor panics.
        struct Memory(NonNull<u8>, Layout);

        impl Drop for Memory {
            fn drop(&mut self) {
                // SAFETY: it was allocated with that layout, and with the last pointer gone and the
                // value dropped nobody uses it any more.
                unsafe { memory::free(self.0, self.1) };
            }
        }

        let block = self.block();
        let memory = Memory(block.memory, Layout::for_value(block));
        let value = block.value.get();
        // SAFETY: all other pointers have gone, and what was done by them came before. The pointer
        // is good for writing, because the value is in a cell.
        unsafe { value.drop_in_place() };
        drop(memory);
    }
}

impl<T: ?Sized> Clone for Recycled<T> {
    #[inline]
    fn clone(&self) -> Self {
        if self.block().count.more().is_err() {
            // As std does: so many pointers can only have been forgotten.
            abort();
        }
        Self {
            block: self.block,
            owns: PhantomData,
        }
    }
}

impl<T: ?Sized> Drop for Recycled<T> {
    #[inline]
    fn drop(&mut self) {
        if self.block().count.less() {
            self.end();
        }
    }
}

impl<T: ?Sized> Deref for Recycled<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let value = self.block().value.get();
        // SAFETY: the value is there as long as the block is, and nobody has a `&mut` to it.
        unsafe { &*value }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Recycled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized> fmt::Debug for Block<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").finish_non_exhaustive()
    }
}
