//! What happens to those who wait, and to newcomers, when the queue is closed.

use super::Batched;
use inflight_sync::atomic::Ordering;
use std::panic::{self, AssertUnwindSafe};

impl Batched {
    /// Nobody gets a bit from now on, and all who wait are told so.
    pub(crate) fn close(&self) {
        // Relaxed: who waits is told with each list's lock, which carries it; who only tries may
        // be one that came before.
        self.waits.closed.store(true, Ordering::Relaxed);
        let told = panic::catch_unwind(AssertUnwindSafe(|| self.waits.wake_all()));
        self.collector.wake_all();
        told.unwrap_or_else(|panic| panic::resume_unwind(panic));
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: see `close`.
        self.waits.closed.load(Ordering::Relaxed)
    }
}
