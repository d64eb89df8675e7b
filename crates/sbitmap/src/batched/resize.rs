//! The effect of a change of the depth or the shares on waiters: the wake batch changes, and all
//! waiters try again.

use super::Batched;
use super::wake_batch::Sizing;
use crate::error::ResizeError;
use crate::share_limiter::ShareLimiter as _;
use inflight_sync::panics::FirstPanic;

impl Batched {
    /// Changes the inputs of the wake batch, and makes all waiters look again.
    fn resized(&self, change: impl FnOnce(&mut Sizing)) {
        self.set_sizing(change);
        // New bits are free without a put, and a batch that became larger may never be complete.
        self.waits.wake_all();
    }

    /// Returns whether the wake batch is another one now. Then all waiters have to look again.
    pub(super) fn set_sizing(&self, change: impl FnOnce(&mut Sizing)) -> bool {
        let mut sizing = self.sizing.lock();
        let before = sizing.wake_batch();
        change(&mut sizing);
        let batch = sizing.wake_batch();
        self.waits.set_batch(batch);
        batch != before
    }

    pub(crate) fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        ResizeError::check(depth, self.map.max_depth())?;
        let change = |sizing: &mut Sizing| {
            self.map.resize(depth).expect("the depth was checked");
            sizing.depth = depth;
        };
        // Even if a waker panics, callers that wait to collect must be woken: they may want too
        // many bits now.
        let mut panic = FirstPanic::default();
        panic.run(|| self.resized(change));
        panic.run(|| self.collector.wake_all());
        panic.finish();
        Ok(())
    }

    /// `least` is called under the lock: if two callers change shares at once, the last one here
    /// sees both changes (H15).
    pub(crate) fn set_least_share(&self, least: impl FnOnce() -> Option<usize>) {
        self.resized(|sizing| sizing.least_share = least().unwrap_or(Sizing::NO_LIMIT));
    }

    /// As `set_least_share`, with the value of the shares.
    pub(crate) fn shares_changed(&self) {
        self.set_least_share(|| self.waits.gate.shares.least_share());
    }
}
