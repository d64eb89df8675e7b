//! What happens to those who wait when the depth or the shares change: the wake batch follows, and
//! all look again.

use super::Batched;
use super::wake_batch::wake_batch;
use crate::error::ResizeError;
use crate::share_limiter::ShareLimiter as _;
use std::panic::{self, AssertUnwindSafe};

/// The least number of bits that any waiter sees in use before it sleeps decides the wake batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizing {
    pub(super) depth: usize,
    /// The fewest bits that a user is kept to.
    pub(super) least_share: usize,
    /// Whether somebody keeps bits while it waits for more.
    pub(super) collecting: bool,
}

impl Sizing {
    pub(super) const NO_LIMIT: usize = usize::MAX;

    pub(super) fn wake_batch(self) -> u32 {
        if self.collecting {
            return 1;
        }
        wake_batch(self.depth.min(self.least_share))
    }
}

impl Batched {
    /// Changes what the wake batch is made from, and makes all waiters look again.
    pub(super) fn resized<E>(
        &self,
        change: impl FnOnce(&mut Sizing) -> Result<(), E>,
    ) -> Result<(), E> {
        {
            let mut sizing = self.sizing.lock();
            change(&mut sizing)?;
            self.waits.set_batch(sizing.wake_batch());
        }
        // New bits are free without a put, and a batch that became larger may never be complete.
        self.waits.wake_all();
        Ok(())
    }

    pub(crate) fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        let change = |sizing: &mut Sizing| {
            self.map.resize(depth)?;
            sizing.depth = depth;
            Ok(())
        };
        // A waker that panics must not keep the news from those who wait to collect: they may want
        // too many now.
        let resized = panic::catch_unwind(AssertUnwindSafe(|| self.resized(change)));
        self.collector.look_again();
        resized.unwrap_or_else(|panic| panic::resume_unwind(panic))
    }

    /// `least` is asked under the lock, so that of two who change shares at once the last one to
    /// come here sees both changes (H15).
    pub(crate) fn set_least_share(&self, least: impl FnOnce() -> Option<usize>) {
        let _: Result<(), ResizeError> = self.resized(|sizing| {
            sizing.least_share = least().unwrap_or(Sizing::NO_LIMIT);
            Ok(())
        });
    }

    /// As `set_least_share`, to what the shares say.
    pub(crate) fn shares_changed(&self) {
        self.set_least_share(|| self.waits.gate.shares.least_share());
    }
}
