//! Who waits for timeouts.

use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::wait::Event;
use std::time::Duration;

/// Who waits for timeouts, and the shortest that a request ever had of its own.
#[derive(Debug)]
pub(crate) struct Expirers {
    /// Notified by the close of the set, and when a shorter timeout is noted.
    changed: Event,
    /// In nanoseconds.
    shortest_timeout: AtomicU64,
}

impl Expirers {
    pub(crate) fn new() -> Self {
        Self {
            changed: Event::new(),
            shortest_timeout: AtomicU64::new(u64::MAX),
        }
    }

    /// A request has got this timeout: if there was none as short, who waits looks again, and from
    /// now on as often.
    pub(crate) fn note_timeout(&self, timeout: Duration) {
        let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // Ordering: Release pairs with the Acquire in `shortest_timeout`: who reads this one sees
        // the request's. Relaxed before: it is only lowered, so a read value is not too low.
        if nanos < self.shortest_timeout.load(Ordering::Relaxed)
            && nanos < self.shortest_timeout.fetch_min(nanos, Ordering::Release)
        {
            self.changed.notify_all();
        }
    }

    pub(crate) fn shortest_timeout(&self) -> Duration {
        // Ordering: see `note_timeout`.
        Duration::from_nanos(self.shortest_timeout.load(Ordering::Acquire))
    }

    pub(crate) const fn changed(&self) -> &Event {
        &self.changed
    }
}
