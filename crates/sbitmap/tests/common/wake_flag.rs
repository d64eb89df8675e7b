//! A waker that remembers that it was called.

use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

#[derive(Default)]
pub(crate) struct WakeFlag(AtomicBool);

impl WakeFlag {
    pub(crate) fn is_woken(&self) -> bool {
        // Relaxed: read after a join.
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
