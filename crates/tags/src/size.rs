//! The present size of a set: how deep it is, and how many hardware queues it has.

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Mutex, MutexGuard};
use std::cell::Cell;
use std::ptr;

/// The present size; the limits are in the layout.
#[derive(Debug)]
pub(crate) struct Size {
    /// Tags per hardware queue, reserved ones included.
    pub(crate) depth: AtomicUsize,
    pub(crate) hw_queues: AtomicUsize,
    /// Of what is here, and of who serves: one change at a time.
    change: Mutex<()>,
}

inflight_sync::thread_local! {
    // loom's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    /// The set whose build closure runs on this thread, by its size.
    static BUILDING: Cell<*const Size> = Cell::new(ptr::null());
}

/// A build closure runs until this is dropped.
pub(crate) struct InBuildClosure {
    /// Around this one, of another set.
    outer: *const Size,
}

impl InBuildClosure {
    pub(crate) fn begin(size: &Size) -> Self {
        // Why a default: a thread on its way out is not found out, and waits for itself.
        let outer = BUILDING.try_with(|building| building.replace(size));
        Self {
            outer: outer.unwrap_or(ptr::null()),
        }
    }
}

impl Drop for InBuildClosure {
    fn drop(&mut self) {
        // Why ignored: as in `begin`.
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
    /// In the build closure of this set: its caller is at a change, and would be waited for.
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
