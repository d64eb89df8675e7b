//! What happens to those who wait, and to newcomers, when the queue is closed.

use super::Batched;
use inflight_sync::atomic::{AtomicBool, Ordering};
use std::panic::{self, AssertUnwindSafe};

/// Nobody gets a bit any more.
#[derive(Debug, Default)]
pub(super) struct ClosedFlag(AtomicBool);

impl ClosedFlag {
    fn set(&self) {
        // Relaxed: who waits is told with each list's lock, which carries it; who only tries may
        // be one that came before.
        self.0.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> bool {
        // Relaxed: see `set`.
        self.0.load(Ordering::Relaxed)
    }
}

impl Batched {
    /// Nobody gets a bit from now on, and all who wait are told so.
    pub(crate) fn close(&self) {
        self.waits.closed.set();
        let told = panic::catch_unwind(AssertUnwindSafe(|| self.waits.wake_all()));
        self.collector.look_again();
        told.unwrap_or_else(|panic| panic::resume_unwind(panic));
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.waits.closed.get()
    }
}
