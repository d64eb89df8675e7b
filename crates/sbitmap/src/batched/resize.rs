//! The effect of a change of the depth or the shares on waiters: the wake batch changes, and all
//! waiters try again.

use super::Batched;
use super::wake_batch::Sizing;
use crate::error::ResizeError;
use crate::share_limiter::ShareLimiter as _;
use inflight_sync::panics::FirstPanic;

impl Batched {
    /// Returns whether the wake batch is another one now. Then all waiters have to look again.
    pub(super) fn set_sizing(&self, change: impl FnOnce(&mut Sizing)) -> bool {
        let mut sizing = self.sizing.lock();
        let before = sizing.wake_batch();
        change(&mut sizing);
        let batch = sizing.wake_batch();
        self.waits.set_batch(batch);
        batch != before
    }

    /// Sets the depth. [`depth_changed`](Self::depth_changed) has to follow, after all locks of the
    /// caller.
    pub(crate) fn set_depth(&self, depth: usize) -> Result<(), ResizeError> {
        ResizeError::check(depth, self.map.max_depth())?;
        let change = |sizing: &mut Sizing| {
            self.map.resize(depth).expect("the depth was checked");
            sizing.depth = depth;
        };
        self.set_sizing(change);
        Ok(())
    }

    /// Makes all waiters look again: new bits are free without a put, and a batch that became
    /// larger may never be complete.
    pub(crate) fn depth_changed(&self) {
        // Even if a waker panics, callers that wait to collect must be woken: they may want too
        // many bits now.
        let mut panic = FirstPanic::default();
        panic.run(|| self.waits.wake_all());
        panic.run(|| self.collector.wake_all());
        panic.finish();
    }

    /// `least` is called under the lock: if two callers change shares at once, the last one here
    /// sees both changes (H15).
    pub(crate) fn set_least_share(&self, least: impl FnOnce() -> Option<usize>) {
        self.set_sizing(|sizing| sizing.least_share = least().unwrap_or(Sizing::NO_LIMIT));
        // A batch that became larger may never be complete.
        self.waits.wake_all();
    }

    /// As `set_least_share`, with the value of the shares.
    pub(crate) fn shares_changed(&self) {
        self.set_least_share(|| self.waits.gate.shares.least_share());
    }
}
