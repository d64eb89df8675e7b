//! Where blocks come from.

#[cfg(not(inflight_magazines))]
pub(super) use direct::{alloc, free};
#[cfg(inflight_magazines)]
pub(super) use kept::{alloc, free};

/// The allocator.
pub(super) mod direct {
    use std::alloc::{Layout, handle_alloc_error};
    use std::ptr::NonNull;

    /// Memory of that layout, which has a size.
    pub(in super::super) fn alloc(layout: Layout) -> NonNull<u8> {
        assert!(layout.size() > 0);
        // SAFETY: the size is not zero.
        let memory = unsafe { std::alloc::alloc(layout) };
        NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// # Safety
    ///
    /// The memory is from `alloc` with the same layout, and not used any more.
    pub(in super::super) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { std::alloc::dealloc(memory.as_ptr(), layout) };
    }
}

/// The magazines of the calling thread.
#[cfg(inflight_magazines)]
mod kept {
    use super::super::KEPT;
    use super::super::magazines::{CLASSES, Depot, Shelf, class_of};
    use super::direct;
    use std::alloc::Layout;
    use std::cell::RefCell;
    use std::ptr::NonNull;

    static DEPOTS: [Depot; CLASSES] = [
        Depot::new(0, KEPT),
        Depot::new(1, KEPT),
        Depot::new(2, KEPT),
        Depot::new(3, KEPT),
        Depot::new(4, KEPT),
        Depot::new(5, KEPT),
        Depot::new(6, KEPT),
        Depot::new(7, KEPT),
    ];

    /// So many blocks a thread gives back to the allocator before it has shelves: most threads that
    /// drop something drop little.
    const FEW: u32 = 32;

    struct Shelves {
        all: Option<Box<[Shelf; CLASSES]>>,
        /// So many blocks were given back without.
        given: u32,
    }

    impl Shelves {
        fn made(&mut self) -> &mut [Shelf; CLASSES] {
            self.all
                .get_or_insert_with(|| Box::new([const { Shelf::new() }; CLASSES]))
        }

        #[inline]
        fn alloc(&mut self, class: usize) -> NonNull<u8> {
            let depot = &DEPOTS[class];
            match &mut self.all {
                Some(all) => depot.alloc(&mut all[class]),
                None if depot.seems_empty() => depot.allocated(),
                None => depot.alloc(&mut self.made()[class]),
            }
        }

        /// # Safety
        ///
        /// The block is from the depot of that class, and not used any more.
        #[inline]
        unsafe fn free(&mut self, class: usize, block: NonNull<u8>) {
            let depot = &DEPOTS[class];
            if self.all.is_none() && self.given < FEW {
                self.given += 1;
                // SAFETY: the caller's promise.
                return unsafe { depot.release(block) };
            }
            // SAFETY: the caller's promise.
            unsafe { depot.free(&mut self.made()[class], block) };
        }
    }

    impl Drop for Shelves {
        fn drop(&mut self) {
            let shelves = self.all.iter_mut().flat_map(|all| all.iter_mut());
            for (shelf, depot) in shelves.zip(&DEPOTS) {
                depot.clear(shelf);
            }
        }
    }

    thread_local! {
        static SHELVES: RefCell<Shelves> = const {
            RefCell::new(Shelves { all: None, given: 0 })
        };
    }

    /// The thread's shelves; `None` while its locals are destroyed, and for an allocator that has
    /// values of its own here.
    #[inline]
    fn with<R>(f: impl FnOnce(&mut Shelves) -> R) -> Option<R> {
        let here = SHELVES.try_with(|shelves| Some(f(&mut *shelves.try_borrow_mut().ok()?)));
        here.ok().flatten()
    }

    #[inline]
    pub(in super::super) fn alloc(layout: Layout) -> NonNull<u8> {
        let Some(class) = class_of(layout) else {
            return direct::alloc(layout);
        };
        with(|shelves| shelves.alloc(class)).unwrap_or_else(|| DEPOTS[class].allocated())
    }

    /// # Safety
    ///
    /// The memory is from `alloc` with the same layout, and not used any more.
    #[inline]
    pub(in super::super) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
        let Some(class) = class_of(layout) else {
            // SAFETY: memory of such a layout is from there.
            return unsafe { direct::free(memory, layout) };
        };
        // SAFETY: what has a class is from its depot; the rest is the caller's promise.
        let kept = with(|shelves| unsafe { shelves.free(class, memory) });
        if kept.is_none() {
            // SAFETY: as above.
            unsafe { DEPOTS[class].release(memory) };
        }
    }
}
