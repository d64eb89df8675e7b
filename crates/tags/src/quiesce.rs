//! Quiescing: no tag is given out, while those that are out live on.
//!
//! F1 and F2 of a freeze, without F3; the end is T1 and T2. PROTOCOL-freeze.md has the proof.

use crate::error::FreezeError;
use crate::freeze::QUIESCE;
use crate::freeze::{Drain, is_unused, wait_until_unused};
use crate::set::TagSet;
use crate::tag_maps::TagMaps;
use inflight_sync::Arc;
use std::time::Duration;

/// Keeps a set quiesced until it is dropped: no tag is given out, tags that are out live on.
///
/// Guards nest, also with [`FrozenGuard`](crate::FrozenGuard): tags are given out again when the
/// last of both kinds is dropped, and waiters go on.
///
/// The idea is the quiesced request queue of blk-mq.
///
/// # Panics
///
/// Its drop, with the panic of a waiting submitter's waker, after all waiters are told.
///
/// ```
/// use inflight_tags::{AllocError, AllocOptions, TagSet};
/// let set = TagSet::builder().depth(4).build(|_, _| ())?;
/// let dev = set.add_tenant("nvme0n1")?;
/// let token = dev.try_alloc()?.into_token();
/// let quiesced = set.quiesce(); // although a request is in flight
/// assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Quiesced);
/// drop(set.redeem(token)?); // which completes meanwhile
/// quiesced.drain_blocking(); // none is left
/// drop(quiesced);
/// assert!(dev.try_alloc().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "tags are given out again when the guard is dropped"]
pub struct QuiesceGuard {
    bitmaps: Arc<TagMaps>,
}

impl QuiesceGuard {
    fn close(bitmaps: &Arc<TagMaps>) -> Self {
        bitmaps.gate.close(QUIESCE, || Self {
            bitmaps: bitmaps.clone(),
        })
    }

    /// Whether no tag is held or in flight now. The set is then as if frozen.
    ///
    /// # Errors
    ///
    /// [`FreezeError::InUse`] if there is one.
    pub fn try_drain(&self) -> Result<(), FreezeError> {
        is_unused(&self.bitmaps)
    }

    /// Waits until no tag is held or in flight, as a task. May be dropped at any time. It is
    /// `'static`; if the guard is dropped before it is ready, new tags count too.
    pub fn drain(&self) -> Drain {
        Drain::new(self.bitmaps.clone())
    }

    /// As [`drain`](Self::drain), sleeping.
    ///
    /// A thread that holds a tag itself waits for itself here, for ever.
    pub fn drain_blocking(&self) {
        let _always = wait_until_unused(&self.bitmaps, None);
    }

    /// As [`drain`](Self::drain), sleeping at most for `timeout`. The set stays quiesced.
    ///
    /// # Errors
    ///
    /// [`FreezeError::TimedOut`].
    pub fn drain_timeout(&self, timeout: Duration) -> Result<(), FreezeError> {
        let deadline = self.bitmaps.clock.now() + timeout;
        wait_until_unused(&self.bitmaps, Some(deadline))
    }
}

impl Drop for QuiesceGuard {
    fn drop(&mut self) {
        self.bitmaps.gate.open(QUIESCE);
    }
}

impl<T: Send + 'static> TagSet<T> {
    /// Quiesces the set: no tag is given out, on any hardware queue to any tenant, until the guard
    /// is dropped. Waits for nobody.
    ///
    /// The try forms of a [`Tenant`](crate::Tenant) return
    /// [`Quiesced`](crate::AllocError::Quiesced) and the waiting forms wait for the end. Tags that
    /// are held can be put in flight, and what is in flight completes; an allocation that was let
    /// in before may return its tag after this call has. [`QuiesceGuard::drain`] waits until none
    /// is left; a [freeze](TagSet::freeze) does both at once.
    ///
    /// # Panics
    ///
    /// If the system refuses its part of the fence; the set is then as it was.
    pub fn quiesce(&self) -> QuiesceGuard {
        QuiesceGuard::close(&self.shared().bitmaps)
    }

    /// Whether somebody quiesces the set. A frozen set is not quiesced by that.
    #[must_use]
    pub fn is_quiesced(&self) -> bool {
        self.shared().bitmaps.gate.state().is_quiesced()
    }
}
