//! The present size of a set: its depth, and its number of hardware queues.

use crate::own_callback::{Callback, Running};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Mutex, MutexGuard};

/// The present size; the limits are in the layout.
#[derive(Debug)]
pub(crate) struct Size {
    /// Tags per hardware queue, including reserved ones.
    pub(crate) depth: AtomicUsize,
    pub(crate) hw_queues: AtomicUsize,
    /// For changes of the size, and of which queues serve: one at a time.
    change: Mutex<()>,
}

impl Size {
    pub(crate) fn new(hw_queues: usize, depth: usize) -> Self {
        Self {
            depth: AtomicUsize::new(depth),
            hw_queues: AtomicUsize::new(hw_queues),
            change: Mutex::new(()),
        }
    }

    /// The build closure runs on this thread until the result is dropped.
    pub(crate) fn begin_build_closure(&self) -> Option<Running> {
        Running::begin(Callback::Build, std::ptr::from_ref(self).addr())
    }

    /// # Panics
    /// In the build closure of this set: its caller makes a change, which this would wait for.
    pub(crate) fn refuse_in_build_closure(&self) {
        assert!(
            !Running::is(Callback::Build, std::ptr::from_ref(self).addr()),
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
