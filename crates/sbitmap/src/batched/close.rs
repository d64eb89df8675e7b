//! The effect of a close on waiters and newcomers.

use super::Batched;
use inflight_sync::atomic::Ordering;
use inflight_sync::panics::FirstPanic;

impl Batched {
    /// Gives out no more bits, and wakes all waiters, which then see that the queue is closed.
    pub(crate) fn close(&self) {
        // Relaxed: each list's lock carries it to the waiters; a caller that only tries may count
        // as one that came before.
        self.waits.closed.store(true, Ordering::Relaxed);
        let mut panic = FirstPanic::default();
        panic.run(|| self.waits.wake_all());
        panic.run(|| self.collector.wake_all());
        panic.finish();
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: see `close`.
        self.waits.closed.load(Ordering::Relaxed)
    }
}
