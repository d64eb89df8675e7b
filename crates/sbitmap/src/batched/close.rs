//! The effect of a close on waiters and newcomers.

use super::Batched;
use inflight_sync::atomic::Ordering;
use std::panic::{self, AssertUnwindSafe};

impl Batched {
    /// Gives out no bit from now on, and wakes all waiters with that answer.
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
