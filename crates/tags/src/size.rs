//! The present size of a set: its depth, and its number of hardware queues.

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Mutex, MutexGuard};
use std::cell::Cell;
use std::ptr;

/// The present size; the limits are in the layout.
#[derive(Debug)]
pub(crate) struct Size {
    /// Tags per hardware queue, including reserved ones.
    pub(crate) depth: AtomicUsize,
    pub(crate) hw_queues: AtomicUsize,
    /// For changes of the size, and of which queues serve: one at a time.
    change: Mutex<()>,
}

inflight_sync::thread_local! {
    // loom's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    /// The set whose build closure runs on this thread, by its size.
    static BUILDING: Cell<*const Size> = Cell::new(ptr::null());
}

/// While it exists, a build closure runs.
pub(crate) struct InBuildClosure {
    /// The set of an outer build closure, if there is one.
    outer: *const Size,
}

impl InBuildClosure {
    pub(crate) fn begin(size: &Size) -> Self {
        // The default: a build closure on a thread that is ending is not detected, and would wait
        // for itself.
        let outer = BUILDING.try_with(|building| building.replace(size));
        Self {
            outer: outer.unwrap_or(ptr::null()),
        }
    }
}

impl Drop for InBuildClosure {
    fn drop(&mut self) {
        // Ignored as in `begin`.
        let _ = BUILDING.try_with(|building| building.set(self.outer));
    }
}

impl Size {
    pub(crate) fn new(hw_queues: usize, depth: usize) -> Self {
        Self {
            depth: AtomicUsize::new(depth),
            hw_queues: AtomicUsize::new(hw_queues),
            change: Mutex::new(()),
        }
    }

    /// # Panics
    /// In the build closure of this set: its caller makes a change, which this would wait for.
    pub(crate) fn refuse_in_build_closure(&self) {
        let building = BUILDING.try_with(Cell::get).unwrap_or(ptr::null());
        assert!(
            !ptr::eq(building, self),
            "a build closure must not change its own set"
        );
    }

    /// The lock for all changes.
    ///
    /// # Panics
    /// As `refuse_in_build_closure`.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.refuse_in_build_closure();
        self.change.lock()
    }

    #[inline]
    pub(crate) fn depth(&self) -> usize {
        // Relaxed: a statistic; an allocation asks the bitmap.
        self.depth.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn hw_queues(&self) -> usize {
        // Relaxed: changed only under a freeze, which orders it for later admissions.
        self.hw_queues.load(Ordering::Relaxed)
    }
}
